//! Storage faults from the view of a daemon's clients: grants, renewals and
//! releases despite faults.

use std::time::Duration;

use leasehold_client::{Client, Error, Guard};
use leasehold_test_support::{
    Daemon,
    proxy::{Fault, Kind, RecordedCall, Refusal},
};
use leasehold_time::Moment;
use nix::sys::signal::Signal;

use crate::fixture::{DURATION, Fixture, VALIDITY, wait_for};

/// Opens a session with a TTL longer than the test.
pub(crate) async fn connect(daemon: &Daemon) -> Client {
    let ttl = Duration::from_secs(60);
    Client::builder(&daemon.endpoint).client_name("test 1").ttl(ttl).connect().await.unwrap()
}

/// Asserts that the lock is still held after the grant's first deadline.
pub(crate) async fn assert_held_past(guard: &Guard, first_deadline: Moment) {
    leasehold_runtime::sleep_until(first_deadline + Duration::from_millis(500)).await;
    assert!(guard.is_valid(), "{guard:?} was lost");
}

#[tokio::test]
async fn lost_responses_delay_grant_only() {
    let fixture = Fixture::new().await;
    let daemon = fixture.daemon(&[]);
    let client = connect(&daemon).await;
    for kind in [Kind::Acquire, Kind::Create, Kind::Write] {
        fixture.proxy.when(kind).times(1).then(Fault::DropResponse);
    }
    let guard = client.lock("a").acquire().await.unwrap();
    assert_eq!(fixture.token("a").await, guard.token().get());
    let first = fixture.calls("a")[0].received_at;
    assert!(guard.deadline() <= first + VALIDITY, "validity starts at the first attempt");
    guard.release().await.unwrap();
}

pub(crate) async fn unknown_acquisition_is_released_before_next_attempt() {
    let fixture = Fixture::new().await;
    let daemon = fixture.daemon(&[]);
    let client = connect(&daemon).await;
    let before = client.lock("a").acquire().await.unwrap();
    let token = before.token();
    before.release().await.unwrap();
    wait_for("the release", fixture.proxy.wait_for(|call| call.kind == Kind::Release)).await;
    fixture.proxy.clear();

    fixture.proxy.when(Kind::Write).times(1).then(Fault::Refuse(Refusal::FORBIDDEN));
    let refused = client.lock("a").no_wait().acquire().await.unwrap_err();
    let Error::Unavailable { message, .. } = &refused else { panic!("{refused:?}") };
    assert!(message.contains("lock \"a\"") && message.contains("403"), "{message}");
    wait_for("the release", fixture.proxy.wait_for(|call| call.kind == Kind::Release)).await;

    let guard = client.lock("a").acquire().await.unwrap();
    assert!(guard.token() > token);
    let kinds = fixture.kinds("a");
    assert_eq!(kinds[..3], [Kind::Acquire, Kind::Write, Kind::Release]);
    let released = &fixture.calls("a")[2];
    let next = fixture.calls("a").into_iter().filter(|call| call.kind == Kind::Acquire).nth(1);
    assert!(released.ended_at.unwrap() <= next.unwrap().received_at);
}

pub(crate) async fn release_is_retried_until_done() {
    let fixture = Fixture::new().await;
    let daemon = fixture.daemon(&[]);
    let client = connect(&daemon).await;
    let guard = client.lock("a").acquire().await.unwrap();
    let token = guard.token();
    // The last of these is applied, so the next attempt returns 409.
    for fault in [
        Fault::Reset,
        Fault::Refuse(Refusal::INTERNAL_ERROR),
        Fault::Refuse(Refusal::FORBIDDEN),
        Fault::DropResponse,
    ] {
        fixture.proxy.when(Kind::Release).times(1).then(fault);
    }
    guard.release().await.unwrap();
    let releases =
        fixture.proxy.wait_for_many(5, |call| call.kind == Kind::Release && call.is_done());
    let releases = wait_for("the last release", releases).await;
    assert_eq!(releases[4].status, Some(409));
    assert_eq!(fixture.lease_state("a").await, "available");
    let other = fixture.daemon_direct(&[]);
    let guard = connect(&other).await.lock("a").no_wait().acquire().await.unwrap();
    assert!(guard.token() > token);
    assert_eq!(fixture.proxy.count(Kind::Release), 5, "no further attempt");
}

pub(crate) async fn holder_keeps_lock_while_renewals_fail() {
    let fixture = Fixture::new().await;
    let daemon = fixture.daemon(&[]);
    let client = connect(&daemon).await;
    let faults = [
        ("dropped", Fault::DropResponse),
        ("reset", Fault::Reset),
        ("failed", Fault::Refuse(Refusal::INTERNAL_ERROR)),
        ("throttled", Fault::Refuse(Refusal::busy(Duration::from_secs(60)))),
        ("forbidden", Fault::Refuse(Refusal::FORBIDDEN)),
    ];
    let mut held = Vec::new();
    for (name, fault) in faults {
        fixture.proxy.when(Kind::Renew.of(name)).times(3).then(fault);
        let guard = client.lock(name).acquire().await.unwrap();
        held.push((name, guard.deadline(), guard));
    }
    for (name, first_deadline, guard) in &held {
        let renewed = |call: &RecordedCall| {
            call.kind == Kind::Renew && call.blob.ends_with(name) && call.status == Some(200)
        };
        wait_for("a renewal", fixture.proxy.wait_for(renewed)).await;
        assert!(guard.is_valid(), "{name}");
        assert_held_past(guard, *first_deadline).await;
        // Two attempts: the first finds no blob.
        assert_eq!(fixture.proxy.count(Kind::Acquire.of(name)), 2, "{name}");
    }
    for (_, _, guard) in held {
        guard.release().await.unwrap();
    }
}

/// The daemon is paused after its record was written, and resumes after the
/// lease has expired. The response has arrived, but the waiter is granted a new
/// hold.
pub(crate) async fn expired_lease_is_not_granted_after_pause() {
    let fixture = Fixture::new().await;
    let daemon = fixture.daemon(&[]);
    let client = connect(&daemon).await;
    client.lock("a").acquire().await.unwrap().release().await.unwrap();
    wait_for("the release", fixture.proxy.wait_for(|call| call.kind == Kind::Release)).await;
    fixture.proxy.clear();

    fixture.proxy.when(Kind::Write).times(1).then(Fault::HoldResponse);
    let acquire = tokio::spawn(client.lock("a").acquire());
    let written =
        |call: &RecordedCall| call.kind == Kind::Write && call.upstream_status == Some(200);
    wait_for("the write", fixture.proxy.wait_for(written)).await;
    daemon.process.signal(Signal::SIGSTOP);
    fixture.proxy.release_held();
    let written = fixture.token("a").await;
    leasehold_runtime::sleep_until(fixture.calls("a")[0].received_at + DURATION).await;
    let resumed = Moment::now();
    daemon.process.signal(Signal::SIGCONT);
    let guard = wait_for("the grant", acquire).await.unwrap().unwrap();
    assert!(guard.token().get() > written, "granted on an expired lease");
    assert_eq!(fixture.token("a").await, guard.token().get());
    let acquired: Vec<_> =
        fixture.calls("a").into_iter().filter(|call| call.kind == Kind::Acquire).collect();
    assert!(acquired.last().unwrap().received_at >= resumed);
    assert!(guard.is_valid());
}
