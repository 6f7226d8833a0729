//! What it costs to get a lock, to hand it on and to give it back.

use leasehold_test_support::proxy::{Fault, Kind, Seen};

use super::{connect, queue, release};
use crate::scene::{Scene, comes};

#[tokio::test]
async fn a_new_lock_costs_five_calls_and_from_then_on_two() {
    let scene = Scene::new().await;
    let daemon = scene.daemon(&[]);
    let client = connect(&daemon).await;
    let first = client.lock("a").acquire().await.unwrap();
    let mut kinds = scene.kinds("a");
    // These go out together.
    kinds[..2].sort();
    use Kind::{Acquire, Create, Read, Release, Write};
    assert_eq!(kinds, [Read, Acquire, Create, Acquire, Write]);
    assert!(scene.calls("a")[2].if_none_match);
    release(&scene, first).await;

    for _ in 0..3 {
        scene.proxy.clear();
        let warm = client.lock("a").acquire().await.unwrap();
        assert_eq!(scene.kinds("a"), [Acquire, Write]);
        let write = &scene.calls("a")[1];
        assert!(write.with_lease_id && write.if_match);
        release(&scene, warm).await;
        assert_eq!(scene.kinds("a"), [Acquire, Write, Release]);
    }
    assert_eq!(scene.proxy.calls().len(), 3, "and nothing about anything else");
}

#[tokio::test]
async fn a_lock_that_the_daemon_has_not_seen_costs_three_calls_in_two_round_trips() {
    let scene = Scene::new().await;
    let before = scene.daemon(&[]);
    let guard = connect(&before).await.lock("a").acquire().await.unwrap();
    release(&scene, guard).await;
    let daemon = scene.daemon(&[]);
    let client = connect(&daemon).await;
    for kind in [Kind::Acquire, Kind::Read] {
        scene.proxy.when(kind).times(1).then(Fault::HoldAnswer);
    }
    let acquire = tokio::spawn(client.lock("a").acquire());
    let both = scene.proxy.wait_for_many(2, |seen| seen.fault.is_some());
    let both = comes("the read along with the acquire", both).await;
    assert!(both.iter().all(|seen| !seen.is_over()));
    assert_eq!(scene.proxy.count(Kind::Write), 0);
    scene.proxy.let_go();
    let guard = acquire.await.unwrap().unwrap();
    let mut kinds = scene.kinds("a");
    kinds[..2].sort();
    assert_eq!(kinds, [Kind::Read, Kind::Acquire, Kind::Write]);
    release(&scene, guard).await;
    assert_eq!(scene.proxy.calls().len(), 4);
}

#[tokio::test]
async fn a_lock_is_handed_on_within_a_daemon_for_nothing() {
    let scene = Scene::new().await;
    let daemon = scene.daemon(&[]);
    let client = connect(&daemon).await;
    let mut guard = client.lock("a").acquire().await.unwrap();
    scene.proxy.clear();
    for _ in 0..5 {
        let waiter = queue(&client.new_session(), "a").await;
        let token = guard.token().get();
        guard.release().await.unwrap();
        guard = comes("the grant", waiter).await.unwrap().unwrap();
        assert_eq!(guard.token().get(), token + 1, "the next of the same hold");
    }
    let calls = scene.proxy.calls();
    // It may take long enough for a renewal on a busy machine.
    let others: Vec<&Seen> = calls.iter().filter(|seen| seen.kind != Kind::Renew).collect();
    assert!(others.is_empty(), "{others:?}");
    release(&scene, guard).await;
    assert_eq!(scene.proxy.count(Kind::Release), 1);
}
