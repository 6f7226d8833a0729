//! Deletion of the container with all locks.

use leasehold_client::Error;
use leasehold_test_support::proxy::Kind;

use super::{connect, lost, use_once};
use crate::fixture::{Fixture, wait_for};

pub(crate) async fn deleted_container_is_reported_and_used_when_recreated() {
    let fixture = Fixture::new().await;
    let daemon = fixture.daemon(&[]);
    let client = connect(&daemon).await;
    let free = use_once(&fixture, &client, "free").await;
    let guard = client.lock("held").acquire().await.unwrap();
    let queued = tokio::spawn(client.new_session().lock("held").acquire());
    fixture.container.delete().await.ok();

    let assert_message = |message: &str| {
        assert!(message.contains("container"), "{message}");
        assert!(message.contains("deleted") && message.contains("leasehold doctor"), "{message}");
    };
    for name in ["free", "new"] {
        let refused = client.lock(name).no_wait().acquire().await.unwrap_err();
        let Error::Unavailable { message, .. } = &refused else { panic!("{refused:?}") };
        assert_message(message);
    }
    assert_message(&lost(&guard).await);
    let token = guard.token();
    drop(guard);
    let waiting = tokio::spawn(client.new_session().lock("free").acquire());
    let not_found = fixture.proxy.wait_for_many(3, |call| {
        call.kind == Kind::Read && call.blob.ends_with("free") && call.status == Some(404)
    });
    wait_for("three polls", not_found).await;
    assert!(!queued.is_finished() && !waiting.is_finished(), "waiters keep waiting");
    assert_message(&String::from_utf8(daemon.run(&["ls"]).stderr).unwrap());

    fixture.container.create().await.ok();
    let held = wait_for("the grant", queued).await.unwrap().unwrap();
    assert!(held.token() > token);
    let next = wait_for("the grant", waiting).await.unwrap().unwrap();
    assert!(next.token().get() > free);
}
