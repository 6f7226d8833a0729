//! What it costs to wait for a lock that another daemon holds.

use std::time::Duration;

use leasehold_client::{Error, Reason};
use leasehold_test_support::proxy::{Kind, Match};
use leasehold_time::Moment;

use super::{connect, queue, release};
use crate::scene::{Scene, comes};

pub(crate) async fn waiting_costs_at_most_a_call_per_second_however_many_wait() {
    const WAITERS: usize = 20;
    const WINDOW: Duration = Duration::from_secs(13);
    let scene = Scene::new().await;
    let elsewhere = scene.daemon_past(&[]);
    let taken = connect(&elsewhere).await.lock("a").acquire().await.unwrap();
    let mut token = taken.token();
    let daemon = scene.daemon(&[]);
    let client = connect(&daemon).await;
    let start = Moment::now();
    let mut waiters = Vec::new();
    for _ in 0..WAITERS {
        waiters.push(queue(&client.new_session(), "a").await);
    }
    leasehold_runtime::sleep_until(start + WINDOW).await;
    let calls = scene.proxy.calls();
    assert!(calls.len() <= WINDOW.as_secs() as usize, "{} calls: {calls:?}", calls.len());
    let acquires = calls.iter().filter(|call| call.kind == Kind::Acquire).count();
    assert_eq!(acquires, 1, "the first attempt; after that it only looks");
    // Twice the longest wait between two looks has room for one at least.
    let lately = calls.iter().filter(|call| call.came + Duration::from_secs(4) > start + WINDOW);
    assert!(lately.count() >= 1, "it looks still: {calls:?}");

    // One look finds it free, one waiter's acquisition serves all.
    scene.proxy.clear();
    taken.release().await.unwrap();
    let mut granted = Vec::new();
    for waiter in waiters {
        let guard = comes("the grant", waiter).await.unwrap().unwrap();
        assert!(guard.token() > token);
        token = guard.token();
        granted.push(guard.token());
        if granted.len() < WAITERS {
            guard.release().await.unwrap();
        } else {
            release(&scene, guard).await;
        }
    }
    assert_eq!(
        granted.last().unwrap().get() - granted[0].get(),
        WAITERS as u64 - 1,
        "all within one hold"
    );
    for (kind, count) in [(Kind::Acquire, 1), (Kind::Write, 1), (Kind::Release, 1)] {
        assert_eq!(scene.proxy.count(kind), count, "{kind:?}");
    }
}

pub(crate) async fn one_that_does_not_wait_costs_one_attempt() {
    let scene = Scene::new().await;
    let elsewhere = scene.daemon_past(&[]);
    let taken = connect(&elsewhere).await.lock("a").acquire().await.unwrap();
    let daemon = scene.daemon(&[]);
    let client = connect(&daemon).await;
    let refused = client.lock("a").no_wait().acquire().await.unwrap_err();
    let Error::NotGranted { reason: Reason::Held, holder, .. } = refused else {
        panic!("{refused:?}")
    };
    assert_eq!(holder.unwrap().client, "test 1");
    let mut kinds = scene.kinds("a");
    kinds.sort();
    assert_eq!(kinds, [Kind::Read, Kind::Acquire]);
    // Nobody waits, so nobody looks: twice the longest wait shows it.
    leasehold_runtime::sleep(Duration::from_secs(4)).await;
    assert_eq!(scene.proxy.count(Match::any()), 2);
    taken.release().await.unwrap();
}
