//! A renewal extends only if the answer says so, and only a clear answer is a
//! loss.

use std::time::Duration;

use leasehold_store::Renew;
use leasehold_test_support::proxy::{Fault, Kind, Refusal};
use leasehold_time::Moment;

use super::{id, lock};
use crate::scene::{COUNTED_ON, Scene};

pub(crate) async fn an_unclear_answer_neither_extends_nor_loses() {
    let scene = Scene::new().await;
    let lock = lock(scene.store(), "a");
    lock.acquire(1).await;
    for fault in [
        Fault::DropAnswer,
        Fault::Reset,
        Fault::Swallow,
        Fault::Answer(Refusal::INTERNAL_ERROR),
        Fault::ApplyThenAnswer(Refusal::INTERNAL_ERROR),
        Fault::Answer(Refusal::busy(Duration::from_secs(30))),
        Fault::Answer(Refusal::FORBIDDEN),
        Fault::Answer(Refusal::new(401, "NoAuthenticationInformation")),
        Fault::Answer(Refusal::new(400, "InvalidHeaderValue")),
    ] {
        let rule = scene.proxy.when(Kind::Renew).then(fault);
        let renewed = lock.renew(1).await;
        assert!(matches!(renewed, Renew::Unknown { .. }), "{fault:?}: {renewed:?}");
        scene.proxy.remove(rule);
    }
    scene.proxy.cut();
    let renewed = lock.renew(1).await;
    assert!(matches!(renewed, Renew::Unknown { .. }), "{renewed:?}");
    scene.proxy.heal();
    scene.proxy.clear();

    let Renew::Renewed { deadline } = lock.renew(1).await else { panic!("it is still ours") };
    let sent_by = scene.calls("a")[0].came;
    assert!(deadline.unwrap() <= sent_by + COUNTED_ON, "it counts from when it was sent");
    assert!(deadline.unwrap() > Moment::now());
}

pub(crate) async fn a_late_answer_counts_from_when_it_was_asked_for() {
    let scene = Scene::new().await;
    let lock = lock(scene.store(), "a");
    lock.acquire(1).await;
    scene.proxy.when(Kind::Renew).times(1).then(Fault::DelayAnswer(Duration::from_secs(2)));
    let Renew::Renewed { deadline } = lock.renew(1).await else { panic!("it is ours") };
    let seen = scene.proxy.wait_for(|seen| seen.kind == Kind::Renew && seen.is_over()).await;
    assert!(deadline.unwrap() <= seen.came + COUNTED_ON);
}

#[tokio::test]
async fn what_the_storage_does_not_know_any_more_is_lost() {
    let scene = Scene::new().await;
    let lost = async |name: &str| {
        let renewed = lock(scene.store(), name).renew(1).await;
        assert!(matches!(renewed, Renew::Lost { .. }), "{name}: {renewed:?}");
    };
    let held = async |name: &str| {
        let lock = lock(scene.store(), name);
        lock.acquire(1).await;
        lock
    };

    held("broken").await;
    scene.blob("broken").break_lease(Some(0)).await.ok();
    lost("broken").await;

    held("breaking").await;
    scene.blob("breaking").break_lease(Some(10)).await.ok();
    lost("breaking").await;

    let taken = held("taken").await;
    scene.blob("taken").break_lease(Some(0)).await.ok();
    taken.acquire(2).await;
    lost("taken").await;
    assert!(matches!(taken.renew(2).await, Renew::Renewed { .. }));

    held("deleted").await;
    scene.blob("deleted").break_lease(Some(0)).await.ok();
    scene.blob("deleted").delete().await.ok();
    lost("deleted").await;

    let released = held("released").await;
    released.store.release(&released.lock, id(1)).await.unwrap();
    lost("released").await;

    // An answer that names another lease speaks of that one (safety rule 9).
    held("another").await;
    let value = "0c1f4f0e-2f6b-4b8e-9a51-3a2c5d7e9f10";
    let another = Fault::Header { name: "x-ms-lease-id", value };
    scene.proxy.when(Kind::Renew.of("another")).times(1).then(another);
    lost("another").await;
}
