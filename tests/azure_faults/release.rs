//! A release and a break are repeated until they are known to be done.

use std::time::Duration;

use leasehold::lease::{Break, Breaker, Release, Renew};

use crate::{
    id, lock,
    support::{
        proxy::{Fault, Kind, Refusal},
        scene::Scene,
    },
};

const UNCLEAR: [Fault; 6] = [
    Fault::DropAnswer,
    Fault::Reset,
    Fault::Answer(Refusal::INTERNAL_ERROR),
    Fault::ApplyThenAnswer(Refusal::INTERNAL_ERROR),
    Fault::Answer(Refusal::busy(Duration::from_secs(1))),
    Fault::Answer(Refusal::FORBIDDEN),
];

#[tokio::test]
async fn a_release_without_a_clear_answer_is_unknown_and_can_be_repeated() {
    let scene = Scene::new().await;
    let lock = lock(scene.store(), "a");
    for (number, fault) in (1..).zip(UNCLEAR) {
        lock.acquire(number).await;
        scene.proxy.when(Kind::Release).times(1).then(fault);
        let released = lock.store.release(&lock.lock, id(number)).await;
        assert!(matches!(released, Ok(Release::Unknown { .. })), "{fault:?}: {released:?}");
        let released = lock.store.release(&lock.lock, id(number)).await;
        assert_eq!(released, Ok(Release::Released), "{fault:?}");
        assert_eq!(scene.lease_state("a").await, "available", "{fault:?}");
    }
}

#[tokio::test]
async fn a_break_whose_answer_is_lost_is_repeated() {
    let scene = Scene::new().await;
    for (number, fault) in UNCLEAR.into_iter().take(5).enumerate() {
        let name = format!("broken-{number}");
        let lock = lock(scene.store(), &name);
        lock.acquire(1).await;
        scene.proxy.when(Kind::Break.of(&name)).times(1).then(fault);
        let breaker = Breaker { by: "ops".into(), reason: "stuck".into() };
        let broken = lock.store.break_lease(&lock.lock, breaker).await;
        assert!(matches!(broken, Ok(Break::Broken { .. })), "{fault:?}: {broken:?}");
        assert_eq!(scene.proxy.count(Kind::Break.of(&name)), 2, "{fault:?}");
        assert!(matches!(lock.renew(1).await, Renew::Lost { .. }), "{fault:?}");
    }
}
