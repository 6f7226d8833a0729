//! Storage outages: holders are warned, keep their grants until the deadline,
//! and the daemon recovers automatically afterwards.

use std::time::Duration;

use leasehold_client::{Error, Reason};
use leasehold_test_support::proxy::{Kind, Proxy, RecordedCall};

use super::daemon::{assert_held_past, connect};
use crate::fixture::{Fixture, VALIDITY, wait_for};

pub(crate) async fn connection_cut_past_deadline() {
    outage(Proxy::cut).await;
}

pub(crate) async fn account_unresponsive_past_deadline() {
    outage(Proxy::stall).await;
}

/// The storage renews the lease, but all responses are lost. This does not
/// extend the grant.
pub(crate) async fn responses_lost_past_deadline() {
    outage(Proxy::stall_responses).await;
}

async fn outage(begin: fn(&Proxy)) {
    let fixture = Fixture::new().await;
    let daemon = fixture.daemon(&[]);
    let client = connect(&daemon).await;
    let guard = client.lock("a").acquire().await.unwrap();
    let token = guard.token();
    let waiting = client.new_session();
    let queued = tokio::spawn(waiting.lock("a").acquire());
    begin(&fixture.proxy);
    let new = tokio::spawn(client.new_session().lock("new").acquire());

    let risk = wait_for("the warning", guard.at_risk()).await;
    assert!(guard.is_valid(), "the warning precedes the loss");
    assert_eq!(risk.reason, Reason::StoreUnavailable);
    assert!(risk.message.contains("lock \"a\" is at risk"), "{}", risk.message);
    let deadline = guard.deadline();
    let loss = wait_for("the loss", guard.lost()).await;
    assert!(deadline.has_passed(), "lost before the deadline: {loss:?}");
    let answered = |call: &&RecordedCall| call.status.is_some() && call.kind != Kind::Write;
    let last_answered =
        fixture.calls("a").iter().filter(answered).map(|call| call.received_at).max();
    assert!(guard.deadline() <= last_answered.unwrap() + VALIDITY, "extended without a response");
    assert!(matches!(loss.reason, Reason::LeaseLost | Reason::Expired), "{loss:?}");
    assert!(!queued.is_finished() && !new.is_finished());
    let refused = client.lock("b").no_wait().acquire().await.unwrap_err();
    assert!(matches!(refused, Error::Unavailable { .. }), "{refused:?}");

    fixture.proxy.heal();
    let next = wait_for("the grant", queued).await.unwrap().unwrap();
    assert!(next.token() > token);
    assert_eq!(fixture.token("a").await, next.token().get());
    assert!(wait_for("the grant of a new lock", new).await.unwrap().unwrap().is_valid());
    assert!(!guard.is_valid(), "a lost grant stays lost");
    let granted = client.lock("b").acquire().await.unwrap();
    assert!(granted.is_valid());
}

/// The lease is renewed after the last keep-alive before the deadline. The daemon
/// must notify the holder immediately; otherwise the holder would stop although
/// its lease was renewed.
pub(crate) async fn outage_ending_before_deadline_keeps_lock() {
    let fixture = Fixture::new().await;
    let daemon = fixture.daemon(&[]);
    let client = connect(&daemon).await;
    let guard = client.lock("a").acquire().await.unwrap();
    let (token, first_deadline) = (guard.token(), guard.deadline());
    fixture.proxy.cut();
    wait_for("the warning", guard.at_risk()).await;
    leasehold_runtime::sleep_until(guard.deadline() - Duration::from_millis(3500)).await;
    fixture.proxy.clear();
    fixture.proxy.heal();
    let renewed =
        fixture.proxy.wait_for(|call| call.kind == Kind::Renew && call.status == Some(200));
    wait_for("a renewal", renewed).await;
    assert_held_past(&guard, first_deadline).await;
    assert_eq!(fixture.token("a").await, token.get(), "the same hold");
    guard.release().await.unwrap();
}
