//! Storage calls while waiting for a lock that a peer holds.

use std::time::Duration;

use leasehold_client::{Error, Reason};
use leasehold_test_support::proxy::{Kind, Match};
use leasehold_time::Moment;

use super::{connect, queue, release};
use crate::fixture::{Fixture, wait_for};

pub(crate) async fn waiters_share_one_poll_per_second() {
    const WAITERS: usize = 20;
    const WINDOW: Duration = Duration::from_secs(13);
    let fixture = Fixture::new().await;
    let peer = fixture.daemon_direct(&[]);
    let taken = connect(&peer).await.lock("a").acquire().await.unwrap();
    let mut token = taken.token();
    let daemon = fixture.daemon(&[]);
    let client = connect(&daemon).await;
    let start = Moment::now();
    let mut waiters = Vec::new();
    for _ in 0..WAITERS {
        waiters.push(queue(&client.new_session(), "a").await);
    }
    leasehold_runtime::sleep_until(start + WINDOW).await;
    let calls = fixture.proxy.calls();
    assert!(calls.len() <= WINDOW.as_secs() as usize, "{} calls: {calls:?}", calls.len());
    let acquires = calls.iter().filter(|call| call.kind == Kind::Acquire).count();
    assert_eq!(acquires, 1, "one attempt, then polls only");
    // Twice the poll interval contains at least one poll.
    let recent =
        calls.iter().filter(|call| call.received_at + Duration::from_secs(4) > start + WINDOW);
    assert!(recent.count() >= 1, "polling stopped: {calls:?}");

    // One poll finds the lock free; one acquisition serves all waiters.
    fixture.proxy.clear();
    taken.release().await.unwrap();
    let mut granted = Vec::new();
    for waiter in waiters {
        let guard = wait_for("the grant", waiter).await.unwrap().unwrap();
        assert!(guard.token() > token);
        token = guard.token();
        granted.push(guard.token());
        if granted.len() < WAITERS {
            guard.release().await.unwrap();
        } else {
            release(&fixture, guard).await;
        }
    }
    assert_eq!(
        granted.last().unwrap().get() - granted[0].get(),
        WAITERS as u64 - 1,
        "all within one hold"
    );
    for (kind, count) in [(Kind::Acquire, 1), (Kind::Write, 1), (Kind::Release, 1)] {
        assert_eq!(fixture.proxy.count(kind), count, "{kind:?}");
    }
}

pub(crate) async fn no_wait_acquire_makes_one_attempt() {
    let fixture = Fixture::new().await;
    let peer = fixture.daemon_direct(&[]);
    let taken = connect(&peer).await.lock("a").acquire().await.unwrap();
    let daemon = fixture.daemon(&[]);
    let client = connect(&daemon).await;
    let refused = client.lock("a").no_wait().acquire().await.unwrap_err();
    let Error::NotGranted { reason: Reason::Held, holder, .. } = refused else {
        panic!("{refused:?}")
    };
    assert_eq!(holder.unwrap().client, "test 1");
    let mut kinds = fixture.kinds("a");
    kinds.sort();
    assert_eq!(kinds, [Kind::Read, Kind::Acquire]);
    // Without waiters there are no polls, for twice the poll interval.
    leasehold_runtime::sleep(Duration::from_secs(4)).await;
    assert_eq!(fixture.proxy.count(Match::any()), 2);
    taken.release().await.unwrap();
}
