//! The lease itself: asked for again under the same id, and given up under that
//! id if it stays unclear.

use leasehold_store::{Acquire, Error, Release};
use leasehold_test_support::proxy::{Fault, Kind, Refusal};
use leasehold_time::Moment;

use super::{id, lock};
use crate::scene::{COUNTED_ON, DURATION, Scene, comes};

/// Each way not to hear of a lease that was acquired, or was not.
const UNCLEAR: [Fault; 5] = [
    Fault::DropAnswer,
    Fault::Reset,
    Fault::ApplyThenAnswer(Refusal::INTERNAL_ERROR),
    Fault::Answer(Refusal::INTERNAL_ERROR),
    Fault::ApplyThenAnswer(Refusal::new(503, "ServerBusy")),
];

#[tokio::test]
async fn an_unclear_answer_is_asked_for_again_and_the_deadline_counts_from_the_first() {
    let scene = Scene::new().await;
    for (number, fault) in UNCLEAR.into_iter().enumerate() {
        for warm in [false, true] {
            let name = format!("unclear-{number}-{warm}");
            let lock = lock(scene.store(), &name);
            lock.used_before().await;
            scene.proxy.clear();
            let rule = scene.proxy.when(Kind::Acquire.of(&name)).times(1).then(fault);
            let store = if warm { lock.store.clone() } else { scene.store() };
            let hold = super::lock(store, &name).acquire(1).await;
            scene.proxy.remove(rule);

            let calls = scene.calls(&name);
            let asked: Vec<_> = calls.iter().filter(|call| call.kind == Kind::Acquire).collect();
            assert_eq!(asked.len(), 2, "{fault:?}");
            assert!(hold.deadline <= asked[0].came + COUNTED_ON, "{fault:?}: counted too late");
            assert_eq!(scene.token(&name).await, hold.token.get());
            assert_eq!(scene.lease_state(&name).await, "leased");
            assert!(lock.is_held(2).await);
        }
    }
}

pub(crate) async fn what_stays_unclear_is_unknown_and_once_released_locks_nobody_out() {
    let scene = Scene::new().await;
    let lock = lock(scene.store(), "a");
    let before = lock.used_before().await;
    let rule = scene.proxy.when(Kind::Acquire).then(Fault::DropAnswer);
    let answer = lock.try_acquire(1).await;
    assert!(matches!(answer, Ok(Acquire::Unknown { .. })), "{answer:?}");
    assert_eq!(scene.lease_state("a").await, "leased", "it was acquired all the same");
    assert_eq!(scene.token("a").await, before.get(), "nothing was granted");
    scene.proxy.remove(rule);
    assert_eq!(lock.store.release(&lock.lock, id(1)).await, Ok(Release::Released));
    assert_eq!(scene.lease_state("a").await, "available");
    assert!(lock.acquire(2).await.token > before);
}

/// The first attempt may have taken the lease, whatever the second is told.
#[tokio::test]
async fn a_refusal_after_an_unclear_answer_does_not_make_it_clear() {
    let scene = Scene::new().await;
    let gone = Refusal::new(404, "ContainerNotFound");
    for (number, refusal) in [Refusal::FORBIDDEN, gone].into_iter().enumerate() {
        let name = format!("refused-{number}");
        let lock = lock(scene.store(), &name);
        lock.used_before().await;
        let first = scene.proxy.when(Kind::Acquire.of(&name)).times(1).then(Fault::DropAnswer);
        let then = scene.proxy.when(Kind::Acquire.of(&name)).then(Fault::Answer(refusal));
        let answer = lock.try_acquire(1).await;
        assert_eq!(scene.lease_state(&name).await, "leased", "by the first attempt");
        assert!(matches!(answer, Ok(Acquire::Unknown { .. })), "{refusal:?}: {answer:?}");
        scene.proxy.remove(first);
        scene.proxy.remove(then);
        lock.store.release(&lock.lock, id(1)).await.unwrap();
        lock.acquire(2).await;
    }
}

/// What the first attempt took and an operator broke is given up, not waited for.
#[tokio::test]
async fn what_was_broken_before_it_was_heard_of_is_given_up() {
    let scene = Scene::new().await;
    let lock = lock(scene.store(), "a");
    lock.used_before().await;
    scene.proxy.clear();
    scene.proxy.when(Kind::Acquire).times(1).then(Fault::DropAnswer);
    let rule = scene.proxy.when(Kind::Acquire).then(Fault::Hold);
    let broken = async {
        while scene.lease_state("a").await != "leased" {
            leasehold_runtime::sleep(DURATION / 1000).await;
        }
        scene.blob("a").break_lease(None).await.ok();
        scene.proxy.wait_for_many(2, |seen| seen.kind == Kind::Acquire).await;
        scene.proxy.remove(rule);
        scene.proxy.let_go();
    };
    let (answer, ()) = tokio::join!(lock.try_acquire(1), broken);
    assert!(matches!(answer, Ok(Acquire::Held { .. })), "{answer:?}");
    assert_eq!(scene.lease_state("a").await, "available");
    lock.acquire(2).await;
}

#[tokio::test]
async fn a_clear_refusal_changes_nothing_and_says_what_to_do() {
    let scene = Scene::new().await;
    let lock = lock(scene.store(), "a");
    lock.used_before().await;
    scene.proxy.clear();
    let rule = scene.proxy.when(Kind::Acquire).then(Fault::Answer(Refusal::FORBIDDEN));
    let Err(Error::Unavailable { why, .. }) = lock.try_acquire(1).await else { panic!() };
    assert!(why.contains("firewall") && why.contains("403"), "{why}");
    assert_eq!(scene.kinds("a"), [Kind::Acquire], "a clear answer is not asked for again");
    scene.proxy.remove(rule);

    scene.proxy.cut();
    // Without a connection that it could have been sent on.
    let new = super::lock(scene.store(), "a");
    let Err(Error::Unavailable { why, .. }) = new.try_acquire(2).await else { panic!() };
    assert!(why.contains("can't be reached"), "{why}");
    scene.proxy.heal();
    assert_eq!(scene.lease_state("a").await, "available");
    lock.acquire(3).await;
}

#[tokio::test]
async fn a_blob_that_can_not_be_created_is_not_asked_for_at_full_speed() {
    let scene = Scene::new().await;
    let lock = lock(scene.store(), "a");
    let rule = scene.proxy.when(Kind::Create).then(Fault::Answer(Refusal::new(503, "ServerBusy")));
    let answer = lock.try_acquire(1).await;
    assert!(matches!(answer, Ok(Acquire::Unknown { .. })), "{answer:?}");
    let calls = scene.kinds("a").len();
    assert!(calls < 40, "{calls} calls to a service that is busy");
    scene.proxy.remove(rule);
    lock.acquire(2).await;
}

/// Whoever is told that a lease was acquired checks that it is its own (safety
/// rule 9).
#[tokio::test]
async fn an_answer_for_another_lease_is_no_grant() {
    const OTHER: &str = "0c1f4f0e-2f6b-4b8e-9a51-3a2c5d7e9f10";
    let scene = Scene::new().await;
    let lock = lock(scene.store(), "a");
    let before = lock.used_before().await;
    let other = Fault::Header { name: "x-ms-lease-id", value: OTHER };
    scene.proxy.when(Kind::Acquire).times(1).then(other);
    let answer = lock.try_acquire(1).await;
    assert!(matches!(answer, Ok(Acquire::Unknown { .. })), "{answer:?}");
    assert_eq!(scene.token("a").await, before.get());
}

#[tokio::test]
async fn a_new_blob_is_created_whatever_its_creator_hears() {
    let scene = Scene::new().await;
    let exists = Refusal::new(409, "BlobAlreadyExists");
    // So answers Azure if somebody created it and took the lease.
    let leased = Refusal::new(412, "LeaseIdMissing");
    for (number, fault) in [
        Fault::DropAnswer,
        Fault::Reset,
        Fault::Answer(Refusal::INTERNAL_ERROR),
        Fault::ApplyThenAnswer(exists),
        Fault::ApplyThenAnswer(leased),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("new-{number}");
        scene.proxy.when(Kind::Create.of(&name)).times(1).then(fault);
        let hold = lock(scene.store(), &name).acquire(1).await;
        assert_eq!(scene.token(&name).await, hold.token.get(), "{fault:?}");
    }
}

/// Nobody renews it, so it ends with its term; what is granted after it has a
/// greater token.
pub(crate) async fn an_acquire_that_arrives_after_it_was_given_up_locks_out_for_its_term_only() {
    let scene = Scene::new().await;
    let lock = lock(scene.store(), "a");
    let before = lock.used_before().await;
    let rule = scene.proxy.when(Kind::Acquire).then(Fault::Hold);
    let answer = lock.try_acquire(1).await;
    assert!(matches!(answer, Ok(Acquire::Unknown { .. })), "{answer:?}");
    assert_eq!(lock.store.release(&lock.lock, id(1)).await, Ok(Release::Released));
    scene.proxy.remove(rule);
    scene.proxy.clear();
    let let_go = Moment::now();
    scene.proxy.let_go();
    while scene.lease_state("a").await != "leased" {
        leasehold_runtime::sleep(DURATION / 1000).await;
    }
    assert!(lock.is_held(2).await);
    let granted = comes("the end of the lease", async {
        for number in 3.. {
            if let Ok(Acquire::Acquired(mut acquired)) = lock.try_acquire(number).await {
                return acquired.tokens.take().unwrap();
            }
            leasehold_runtime::sleep(DURATION / 50).await;
        }
        unreachable!()
    })
    .await;
    assert!(Moment::now().since(let_go) >= DURATION - DURATION / 10);
    assert!(granted > before);
}
