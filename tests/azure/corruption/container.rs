//! The container is deleted, with all locks in it.

use leasehold_client::Error;
use leasehold_test_support::proxy::Kind;

use super::{connect, lost, use_once};
use crate::scene::{Scene, comes};

pub(crate) async fn a_container_that_is_deleted_is_missed_and_used_again_once_it_is_back() {
    let scene = Scene::new().await;
    let daemon = scene.daemon(&[]);
    let client = connect(&daemon).await;
    let free = use_once(&scene, &client, "free").await;
    let guard = client.lock("held").acquire().await.unwrap();
    let queued = tokio::spawn(client.new_session().lock("held").acquire());
    scene.container.delete().await.ok();

    let says = |message: &str| {
        assert!(message.contains("container"), "{message}");
        assert!(message.contains("deleted") && message.contains("leasehold doctor"), "{message}");
    };
    for name in ["free", "new"] {
        let refused = client.lock(name).no_wait().acquire().await.unwrap_err();
        let Error::Unavailable { message, .. } = &refused else { panic!("{refused:?}") };
        says(message);
    }
    says(&lost(&guard).await);
    let token = guard.token();
    drop(guard);
    let waiting = tokio::spawn(client.new_session().lock("free").acquire());
    let missed = scene.proxy.wait_for_many(3, |seen| {
        seen.kind == Kind::Read && seen.blob.ends_with("free") && seen.status == Some(404)
    });
    comes("another look", missed).await;
    assert!(!queued.is_finished() && !waiting.is_finished(), "they wait until it is back");
    says(&String::from_utf8(daemon.run(&["ls"]).stderr).unwrap());

    scene.container.create().await.ok();
    let held = comes("the grant", queued).await.unwrap().unwrap();
    assert!(held.token() > token);
    let next = comes("the grant", waiting).await.unwrap().unwrap();
    assert!(next.token().get() > free);
}
