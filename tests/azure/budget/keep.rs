//! Storage calls of a held lock and of a lingering lease.

use std::time::Duration;

use leasehold_client::Error;
use leasehold_test_support::proxy::{Fault, Kind};
use leasehold_time::Moment;

use super::connect;
use crate::fixture::{Fixture, wait_for};

/// Minimum renewal interval: three quarters of a third of the lease duration.
const MIN_INTERVAL: Duration = Duration::from_millis(3_750);

pub(crate) async fn held_lock_is_renewed_once_per_third_of_duration() {
    const LOCKS: usize = 8;
    // At least three renewals within 15 s, and 4 s for a busy machine.
    const WINDOW: Duration = Duration::from_secs(19);
    let fixture = Fixture::new().await;
    let daemon = fixture.daemon(&[]);
    let client = connect(&daemon).await;
    let mut guards = Vec::new();
    for number in 0..LOCKS {
        guards.push(client.lock(format!("lock-{number}")).acquire().await.unwrap());
    }
    let start = Moment::now();
    leasehold_runtime::sleep_until(start + WINDOW).await;
    for guard in &guards {
        let calls = fixture.calls(guard.name());
        let mut last = calls.iter().find(|call| call.kind == Kind::Write).unwrap();
        let renewals: Vec<_> = calls.iter().filter(|call| call.received_at > start).collect();
        assert!(renewals.iter().all(|call| call.kind == Kind::Renew), "{renewals:?}");
        let max = WINDOW.as_millis() / MIN_INTERVAL.as_millis();
        assert!((3..=max as usize).contains(&renewals.len()), "{renewals:?}");
        for renewal in renewals {
            let since = renewal.received_at.since(last.received_at);
            assert!(since + Duration::from_millis(1) >= MIN_INTERVAL, "renewed after {since:?}");
            last = renewal;
        }
        assert!(guard.is_valid());
    }
}

pub(crate) async fn lingering_lease_is_reused_without_storage_call() {
    const LINGER: Duration = Duration::from_secs(3);
    /// So long that no renewal is due while the lease lingers, also on a busy machine.
    const LEASE: Duration = Duration::from_secs(60);
    let fixture = Fixture::new().await;
    let daemon = fixture.daemon(&["--linger", "3s"]);
    let client = connect(&daemon).await;
    let first = client.lock("a").lease_duration(LEASE).acquire().await.unwrap();
    let token = first.token().get();
    first.release().await.unwrap();
    fixture.proxy.clear();
    let second = client.new_session().lock("a").no_wait().acquire().await.unwrap();
    assert_eq!(second.token().get(), token + 1, "next token of the same hold");
    assert_eq!(fixture.kinds("a"), []);
    assert_eq!(fixture.lease_state("a").await, "leased");
    let released_at = Moment::now();
    second.release().await.unwrap();
    let released =
        wait_for("the release", fixture.proxy.wait_for(|seen| seen.kind == Kind::Release));
    assert!(released.await.received_at >= released_at + LINGER, "the lease did not linger");
    assert_eq!(fixture.kinds("a"), [Kind::Release]);
    // The next grant needs a new acquisition.
    let third = client.lock("a").acquire().await.unwrap();
    assert!(third.token().get() > token + 1);
    assert_eq!(fixture.kinds("a"), [Kind::Release, Kind::Acquire, Kind::Write]);
}

/// The lease is acquired after the only waiter timed out. It must not linger,
/// because peers would wait for a daemon without a holder.
pub(crate) async fn lease_without_grant_does_not_linger() {
    let fixture = Fixture::new().await;
    let daemon = fixture.daemon(&["--linger", "60s"]);
    let client = connect(&daemon).await;
    fixture.proxy.when(Kind::Write.of("a")).then(Fault::Hold);
    let waiter = client.lock("a").wait(Duration::from_millis(500));
    assert!(matches!(waiter.acquire().await, Err(Error::NotGranted { .. })));
    fixture.proxy.release_held();
    wait_for("the release", fixture.proxy.wait_for(|seen| seen.kind == Kind::Release)).await;
    let kinds = fixture.kinds("a");
    assert!(kinds.ends_with(&[Kind::Write, Kind::Release]), "the lease lingered: {kinds:?}");
}
