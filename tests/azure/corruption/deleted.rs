//! A lock's blob is deleted.

use super::{break_by_hand, connect, granted, lost, the_services_clock_goes_on, use_once};
use crate::scene::{Scene, comes};

#[tokio::test]
async fn a_blob_that_is_deleted_while_the_lock_is_free_is_created_again_with_greater_tokens() {
    let scene = Scene::new().await;
    let daemon = scene.daemon(&[]);
    let client = connect(&daemon).await;
    let mut highest = 0;
    for _ in 0..3 {
        let token = use_once(&scene, &client, "a").await;
        assert!(token > highest, "tokens begin again");
        highest = token;
        scene.blob("a").delete().await.ok();
    }
    // Also for a daemon that never saw the lock.
    the_services_clock_goes_on().await;
    let other = scene.daemon(&[]);
    assert!(use_once(&scene, &connect(&other).await, "a").await > highest);
}

pub(crate) async fn a_blob_that_is_deleted_under_a_holder_is_lost_and_goes_on() {
    let scene = Scene::new().await;
    let (daemon, elsewhere) = (scene.daemon(&[]), scene.daemon_past(&[]));
    let client = connect(&daemon).await;
    let guard = client.lock("a").acquire().await.unwrap();
    let blob = scene.blob("a");
    assert_eq!(blob.delete().await.is(), (412, "LeaseIdMissing"), "its lease protects it");
    the_services_clock_goes_on().await;
    break_by_hand(&blob).await;
    blob.delete().await.ok();
    // Whoever comes first, at whatever daemon.
    let other = connect(&elsewhere).await;
    let next = comes("the grant", other.lock("a").acquire()).await.unwrap();
    assert!(next.token() > guard.token());
    lost(&guard).await;
    drop(guard);
    let token = next.token().get();
    next.release().await.unwrap();
    assert!(granted(&client, "a").await > token);
}
