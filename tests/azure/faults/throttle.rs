//! Throttled account: polls wait for the requested time, renewals continue.

use leasehold_test_support::proxy::{Fault, Kind, Match, Refusal};
use std::time::Duration;

use super::daemon::{assert_held_past, connect};
use crate::fixture::{Fixture, wait_for};

const RETRY_AFTER: Duration = Duration::from_secs(4);

/// Maximum time for which a call is in flight.
const IN_FLIGHT: Duration = Duration::from_millis(500);

/// Polls of all locks slow down, because the account is throttled.
pub(crate) async fn throttled_polls_slow_down_renewals_continue() {
    let fixture = Fixture::new().await;
    let peer = fixture.daemon_direct(&[]);
    let other = connect(&peer).await;
    let taken = other.lock("taken").acquire().await.unwrap();
    let also_taken = other.lock("also").acquire().await.unwrap();
    let daemon = fixture.daemon(&[]);
    let client = connect(&daemon).await;
    let own = client.lock("own").acquire().await.unwrap();
    let first_deadline = own.deadline();
    let waiter = tokio::spawn(client.new_session().lock("taken").acquire());
    let second_waiter = tokio::spawn(client.new_session().lock("also").acquire());
    for name in ["taken", "also"] {
        let polls = fixture.proxy.wait_for_many(3, |call| call.blob.ends_with(name));
        wait_for("a poll", polls).await;
    }

    let refusal = Fault::Refuse(Refusal::busy(RETRY_AFTER));
    let busy = fixture.proxy.when(Kind::Read.of("taken")).then(refusal);
    let throttled = fixture.proxy.wait_for_many(4, |call| call.fault.is_some() && call.is_done());
    let throttled = wait_for("the fourth poll", throttled).await;
    let polls: Vec<_> =
        fixture.proxy.calls().into_iter().filter(|call| call.kind == Kind::Read).collect();
    for refused in &throttled {
        // Calls in flight at that time still arrive.
        let end = refused.ended_at.unwrap();
        let pause = end + IN_FLIGHT..end + RETRY_AFTER;
        let early: Vec<_> = polls.iter().filter(|poll| pause.contains(&poll.received_at)).collect();
        assert!(early.is_empty(), "polled before {:?}: {early:?}", pause.end);
    }
    let during = throttled[0].received_at..throttled[3].received_at;
    assert!(
        polls.iter().any(|poll| poll.blob.ends_with("also") && during.contains(&poll.received_at))
    );
    let renewals: Vec<_> =
        fixture.calls("own").into_iter().filter(|call| call.kind == Kind::Renew).collect();
    assert!(renewals.iter().filter(|renewal| during.contains(&renewal.received_at)).count() >= 2);
    assert!(renewals.iter().all(|renewal| renewal.status == Some(200)), "{renewals:?}");
    assert_held_past(&own, first_deadline).await;

    fixture.proxy.remove(busy);
    for (taken, waiter) in [(taken, waiter), (also_taken, second_waiter)] {
        let token = taken.token();
        taken.release().await.unwrap();
        let next = wait_for("the grant", waiter).await.unwrap().unwrap();
        assert!(next.token() > token);
    }
}

/// The account requests a delay of one minute. Renewals do not wait that long.
pub(crate) async fn throttled_account_does_not_lose_locks() {
    let fixture = Fixture::new().await;
    let daemon = fixture.daemon(&[]);
    let client = connect(&daemon).await;
    let guard = client.lock("a").acquire().await.unwrap();
    let first_deadline = guard.deadline();
    let minute = Refusal::busy(Duration::from_secs(60));
    let busy = fixture.proxy.when(Match::any()).then(Fault::Refuse(minute));
    let risk = wait_for("the warning", guard.at_risk()).await;
    assert!(risk.message.contains("at risk"), "{risk:?}");
    assert!(guard.is_valid());
    fixture.proxy.remove(busy);
    let renewed =
        fixture.proxy.wait_for(|call| call.kind == Kind::Renew && call.status == Some(200));
    wait_for("a renewal", renewed).await;
    assert_held_past(&guard, first_deadline).await;
    // The requested delay does not apply to the acquire of a new lock.
    client.lock("b").acquire().await.unwrap().release().await.unwrap();
    guard.release().await.unwrap();
}
