//! The account is gone: holders keep their grants until the deadline, are
//! warned before, and all goes on by itself when it is back.

use std::time::Duration;

use leasehold_client::{Error, Reason};
use leasehold_test_support::proxy::{Kind, Proxy, Seen};

use super::daemon::{connect, outlives};
use crate::scene::{COUNTED_ON, Scene, comes};

pub(crate) async fn a_connection_that_is_cut_for_longer_than_the_deadline() {
    outage(Proxy::cut).await;
}

pub(crate) async fn an_account_that_is_silent_for_longer_than_the_deadline() {
    outage(Proxy::freeze).await;
}

/// The storage renews the lease again and again, but nobody hears of it: that
/// extends nothing.
pub(crate) async fn answers_that_are_lost_for_longer_than_the_deadline() {
    outage(Proxy::freeze_answers).await;
}

async fn outage(begin: fn(&Proxy)) {
    let scene = Scene::new().await;
    let daemon = scene.daemon(&[]);
    let client = connect(&daemon).await;
    let guard = client.lock("a").acquire().await.unwrap();
    let token = guard.token();
    let waiting = client.new_session();
    let queued = tokio::spawn(waiting.lock("a").acquire());
    begin(&scene.proxy);
    let new = tokio::spawn(client.new_session().lock("new").acquire());

    let risk = comes("the warning", guard.at_risk()).await;
    assert!(guard.is_valid(), "the warning comes before the loss");
    assert_eq!(risk.reason, Reason::StoreUnavailable);
    assert!(risk.message.contains("lock \"a\" is at risk"), "{}", risk.message);
    let deadline = guard.deadline();
    let loss = comes("the loss", guard.lost()).await;
    assert!(deadline.has_passed(), "lost though the deadline lay ahead: {loss:?}");
    let answered = |call: &&Seen| call.status.is_some() && call.kind != Kind::Write;
    let last_answered = scene.calls("a").iter().filter(answered).map(|call| call.came).max();
    assert!(guard.deadline() <= last_answered.unwrap() + COUNTED_ON, "extended without an answer");
    assert!(matches!(loss.reason, Reason::LeaseLost | Reason::Expired), "{loss:?}");
    assert!(!queued.is_finished() && !new.is_finished());
    let refused = client.lock("b").no_wait().acquire().await.unwrap_err();
    assert!(matches!(refused, Error::Unavailable { .. }), "{refused:?}");

    scene.proxy.heal();
    let next = comes("the grant", queued).await.unwrap().unwrap();
    assert!(next.token() > token);
    assert_eq!(scene.token("a").await, next.token().get());
    assert!(comes("the grant of a new lock", new).await.unwrap().unwrap().is_valid());
    assert!(!guard.is_valid(), "what was lost stays lost");
    let granted = client.lock("b").acquire().await.unwrap();
    assert!(granted.is_valid());
}

/// The lease is renewed after the last keep-alive before the deadline: the
/// holder is told at once, or it would have stopped for nothing.
pub(crate) async fn an_outage_that_ends_before_the_deadline_costs_nothing() {
    let scene = Scene::new().await;
    let daemon = scene.daemon(&[]);
    let client = connect(&daemon).await;
    let guard = client.lock("a").acquire().await.unwrap();
    let (token, first_deadline) = (guard.token(), guard.deadline());
    scene.proxy.cut();
    comes("the warning", guard.at_risk()).await;
    leasehold_runtime::sleep_until(guard.deadline() - Duration::from_millis(3500)).await;
    scene.proxy.clear();
    scene.proxy.heal();
    let renewed = scene.proxy.wait_for(|seen| seen.kind == Kind::Renew && seen.status == Some(200));
    comes("a renewal", renewed).await;
    outlives(&guard, first_deadline).await;
    assert_eq!(scene.token("a").await, token.get(), "the same hold");
    guard.release().await.unwrap();
}
