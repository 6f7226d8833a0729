//! A busy account: what can wait waits as long as it was asked to, and what
//! keeps locks goes on.

use leasehold_test_support::proxy::{Fault, Kind, Match, Refusal};
use std::time::Duration;

use super::daemon::{connect, outlives};
use crate::scene::{Scene, comes};

const RETRY_AFTER: Duration = Duration::from_secs(4);

/// How long a call may be on its way.
const UNDER_WAY: Duration = Duration::from_millis(500);

/// Those of other locks too: it is the account that is busy.
pub(crate) async fn polls_slow_down_and_renewals_go_on() {
    let scene = Scene::new().await;
    let elsewhere = scene.daemon_past(&[]);
    let other = connect(&elsewhere).await;
    let taken = other.lock("taken").acquire().await.unwrap();
    let also_taken = other.lock("also").acquire().await.unwrap();
    let daemon = scene.daemon(&[]);
    let client = connect(&daemon).await;
    let own = client.lock("own").acquire().await.unwrap();
    let first_deadline = own.deadline();
    let waiter = tokio::spawn(client.new_session().lock("taken").acquire());
    let also_waits = tokio::spawn(client.new_session().lock("also").acquire());
    for name in ["taken", "also"] {
        let polls = scene.proxy.wait_for_many(3, |seen| seen.blob.ends_with(name));
        comes("a poll", polls).await;
    }

    let refusal = Fault::Answer(Refusal::busy(RETRY_AFTER));
    let busy = scene.proxy.when(Kind::Read.of("taken")).then(refusal);
    let throttled = scene.proxy.wait_for_many(4, |seen| seen.fault.is_some() && seen.is_over());
    let throttled = comes("the fourth poll", throttled).await;
    let polls: Vec<_> =
        scene.proxy.calls().into_iter().filter(|call| call.kind == Kind::Read).collect();
    for refused in &throttled {
        // What was on its way by then is not held back.
        let rest = refused.ended.unwrap() + UNDER_WAY..refused.ended.unwrap() + RETRY_AFTER;
        let early: Vec<_> = polls.iter().filter(|poll| rest.contains(&poll.came)).collect();
        assert!(early.is_empty(), "asked again before {:?}: {early:?}", rest.end);
    }
    let during = throttled[0].came..throttled[3].came;
    assert!(polls.iter().any(|poll| poll.blob.ends_with("also") && during.contains(&poll.came)));
    let renewals: Vec<_> =
        scene.calls("own").into_iter().filter(|call| call.kind == Kind::Renew).collect();
    assert!(renewals.iter().filter(|renewal| during.contains(&renewal.came)).count() >= 2);
    assert!(renewals.iter().all(|renewal| renewal.status == Some(200)), "{renewals:?}");
    outlives(&own, first_deadline).await;

    scene.proxy.remove(busy);
    for (taken, waiter) in [(taken, waiter), (also_taken, also_waits)] {
        let token = taken.token();
        taken.release().await.unwrap();
        let next = comes("the grant", waiter).await.unwrap().unwrap();
        assert!(next.token() > token);
    }
}

/// It asked to be left alone for a minute: renewals don't wait that long.
pub(crate) async fn an_account_that_refuses_everything_for_a_while_costs_no_lock() {
    let scene = Scene::new().await;
    let daemon = scene.daemon(&[]);
    let client = connect(&daemon).await;
    let guard = client.lock("a").acquire().await.unwrap();
    let first_deadline = guard.deadline();
    let minute = Refusal::busy(Duration::from_secs(60));
    let busy = scene.proxy.when(Match::any()).then(Fault::Answer(minute));
    let risk = comes("the warning", guard.at_risk()).await;
    assert!(risk.message.contains("at risk"), "{risk:?}");
    assert!(guard.is_valid());
    scene.proxy.remove(busy);
    let renewed = scene.proxy.wait_for(|seen| seen.kind == Kind::Renew && seen.status == Some(200));
    comes("a renewal", renewed).await;
    outlives(&guard, first_deadline).await;
    // A new lock is not made to wait by what was said of others.
    client.lock("b").acquire().await.unwrap().release().await.unwrap();
    guard.release().await.unwrap();
}
