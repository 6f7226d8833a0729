//! A busy account: what can wait waits as long as it was asked to, and what
//! keeps locks goes on.

use std::time::Duration;

use crate::{
    daemon::{connect, outlives},
    support::{
        proxy::{Fault, Kind, Match, Refusal},
        scene::{Scene, comes},
    },
};

const RETRY_AFTER: Duration = Duration::from_secs(4);

pub(crate) async fn polls_slow_down_and_renewals_go_on() {
    let scene = Scene::new().await;
    let elsewhere = scene.daemon_past(&[]);
    let other = connect(&elsewhere).await;
    let taken = other.lock("taken").acquire().await.unwrap();
    let daemon = scene.daemon(&[]);
    let client = connect(&daemon).await;
    let own = client.lock("own").acquire().await.unwrap();
    let first_deadline = own.deadline();
    let waiter = tokio::spawn(client.another_session().lock("taken").acquire());
    comes("a poll", scene.proxy.wait_for_many(2, |seen| seen.blob.ends_with("taken"))).await;

    let busy = scene.proxy.when(Kind::Read).then(Fault::Answer(Refusal::busy(RETRY_AFTER)));
    let polls = scene.proxy.wait_for_many(4, |seen| seen.fault.is_some());
    let polls = comes("the fourth poll", polls).await;
    for pair in polls.windows(2) {
        let between = pair[1].came.since(pair[0].ended.unwrap());
        // A timer may fire within the last millisecond.
        assert!(between + Duration::from_millis(1) >= RETRY_AFTER, "asked again after {between:?}");
    }
    let renewals: Vec<_> =
        scene.calls("own").into_iter().filter(|call| call.kind == Kind::Renew).collect();
    let meanwhile = |at| polls[0].came <= at && at <= polls[3].came;
    assert!(renewals.iter().filter(|renewal| meanwhile(renewal.came)).count() >= 2, "{renewals:?}");
    assert!(renewals.iter().all(|renewal| renewal.fault.is_none()));
    outlives(&own, first_deadline).await;

    scene.proxy.remove(busy);
    let token = taken.token();
    taken.release().await.unwrap();
    let next = comes("the grant", waiter).await.unwrap().unwrap();
    assert!(next.token() > token);
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
