//! What it costs to hold a lock, and to keep a lease for a while in case
//! somebody comes.

use std::time::Duration;

use leasehold_client::Error;
use leasehold_test_support::proxy::{Fault, Kind};
use leasehold_time::Moment;

use super::connect;
use crate::scene::{DURATION, Scene, comes};

/// Renewals come after three quarters of a third at the earliest.
const EARLIEST: Duration = Duration::from_millis(3_750);

pub(crate) async fn a_held_lock_costs_a_renewal_per_third_of_its_duration() {
    const LOCKS: usize = 8;
    // Three renewals at the latest after 15 s, and 4 s for a busy machine.
    const WINDOW: Duration = Duration::from_secs(19);
    let scene = Scene::new().await;
    let daemon = scene.daemon(&[]);
    let client = connect(&daemon).await;
    let mut guards = Vec::new();
    for number in 0..LOCKS {
        guards.push(client.lock(format!("lock-{number}")).acquire().await.unwrap());
    }
    let start = Moment::now();
    leasehold_runtime::sleep_until(start + WINDOW).await;
    for guard in &guards {
        let calls = scene.calls(guard.name());
        let mut last = calls.iter().find(|call| call.kind == Kind::Write).unwrap();
        let renewals: Vec<_> = calls.iter().filter(|call| call.came > start).collect();
        assert!(renewals.iter().all(|call| call.kind == Kind::Renew), "{renewals:?}");
        let most = WINDOW.as_millis() / EARLIEST.as_millis();
        assert!((3..=most as usize).contains(&renewals.len()), "{renewals:?}");
        for renewal in renewals {
            let since = renewal.came.since(last.came);
            assert!(since + Duration::from_millis(1) >= EARLIEST, "again after {since:?}");
            last = renewal;
        }
        assert!(guard.is_valid());
    }
}

pub(crate) async fn a_lease_that_lingers_serves_the_next_holder_for_nothing() {
    const LINGER: Duration = Duration::from_secs(3);
    let scene = Scene::new().await;
    let daemon = scene.daemon(&["--linger", "3s"]);
    let client = connect(&daemon).await;
    let first = client.lock("a").acquire().await.unwrap();
    let token = first.token().get();
    first.release().await.unwrap();
    scene.proxy.clear();
    let second = client.new_session().lock("a").no_wait().acquire().await.unwrap();
    assert_eq!(second.token().get(), token + 1, "the next of the same hold");
    assert_eq!(scene.kinds("a"), []);
    assert_eq!(scene.lease_state("a").await, "leased");
    let let_go = Moment::now();
    second.release().await.unwrap();
    let released = comes("the release", scene.proxy.wait_for(|seen| seen.kind == Kind::Release));
    assert!(released.await.came >= let_go + LINGER, "it did not linger");
    assert!(LINGER < DURATION / 4, "so there was nothing to renew");
    assert_eq!(scene.kinds("a"), [Kind::Release]);
    // The next has to acquire it.
    let third = client.lock("a").acquire().await.unwrap();
    assert!(third.token().get() > token + 1);
    assert_eq!(scene.kinds("a"), [Kind::Release, Kind::Acquire, Kind::Write]);
}

/// It comes when the only one who asked for it does not wait any more: others
/// should not wait for one who never held it.
pub(crate) async fn a_lease_that_nobody_was_granted_does_not_linger() {
    let scene = Scene::new().await;
    let daemon = scene.daemon(&["--linger", "60s"]);
    let client = connect(&daemon).await;
    scene.proxy.when(Kind::Write.of("a")).then(Fault::Hold);
    let waits = client.lock("a").wait(Duration::from_millis(500));
    assert!(matches!(waits.acquire().await, Err(Error::NotGranted { .. })));
    scene.proxy.let_go();
    comes("the release", scene.proxy.wait_for(|seen| seen.kind == Kind::Release)).await;
    let kinds = scene.kinds("a");
    assert!(kinds.ends_with(&[Kind::Write, Kind::Release]), "it lingered: {kinds:?}");
}
