//! Storage calls of an acquire, a handoff and a release.

use leasehold_test_support::proxy::{Fault, Kind, RecordedCall};

use super::{connect, queue, release};
use crate::fixture::{Fixture, wait_for};

#[tokio::test]
async fn new_lock_takes_five_calls_warm_lock_two() {
    let fixture = Fixture::new().await;
    let daemon = fixture.daemon(&[]);
    let client = connect(&daemon).await;
    let first = client.lock("a").acquire().await.unwrap();
    let mut kinds = fixture.kinds("a");
    // These are sent in parallel.
    kinds[..2].sort();
    use Kind::{Acquire, Create, Read, Release, Write};
    assert_eq!(kinds, [Read, Acquire, Create, Acquire, Write]);
    assert!(fixture.calls("a")[2].if_none_match);
    release(&fixture, first).await;

    for _ in 0..3 {
        fixture.proxy.clear();
        let warm = client.lock("a").acquire().await.unwrap();
        assert_eq!(fixture.kinds("a"), [Acquire, Write]);
        let write = &fixture.calls("a")[1];
        assert!(write.with_lease_id && write.if_match);
        release(&fixture, warm).await;
        assert_eq!(fixture.kinds("a"), [Acquire, Write, Release]);
    }
    assert_eq!(fixture.proxy.calls().len(), 3, "no call on another blob");
}

#[tokio::test]
async fn uncached_lock_takes_three_calls_in_two_round_trips() {
    let fixture = Fixture::new().await;
    let previous = fixture.daemon(&[]);
    let guard = connect(&previous).await.lock("a").acquire().await.unwrap();
    release(&fixture, guard).await;
    let daemon = fixture.daemon(&[]);
    let client = connect(&daemon).await;
    for kind in [Kind::Acquire, Kind::Read] {
        fixture.proxy.when(kind).times(1).then(Fault::HoldResponse);
    }
    let acquire = tokio::spawn(client.lock("a").acquire());
    let both = fixture.proxy.wait_for_many(2, |seen| seen.fault.is_some());
    let both = wait_for("the read along with the acquire", both).await;
    assert!(both.iter().all(|seen| !seen.is_done()));
    assert_eq!(fixture.proxy.count(Kind::Write), 0);
    fixture.proxy.release_held();
    let guard = acquire.await.unwrap().unwrap();
    let mut kinds = fixture.kinds("a");
    kinds[..2].sort();
    assert_eq!(kinds, [Kind::Read, Kind::Acquire, Kind::Write]);
    release(&fixture, guard).await;
    assert_eq!(fixture.proxy.calls().len(), 4);
}

#[tokio::test]
async fn local_handoff_makes_no_storage_call() {
    let fixture = Fixture::new().await;
    let daemon = fixture.daemon(&[]);
    let client = connect(&daemon).await;
    let mut guard = client.lock("a").acquire().await.unwrap();
    fixture.proxy.clear();
    for _ in 0..5 {
        let waiter = queue(&client.new_session(), "a").await;
        let token = guard.token().get();
        guard.release().await.unwrap();
        guard = wait_for("the grant", waiter).await.unwrap().unwrap();
        assert_eq!(guard.token().get(), token + 1, "next token of the same hold");
    }
    let calls = fixture.proxy.calls();
    // On a busy machine this may take long enough for a renewal.
    let others: Vec<&RecordedCall> = calls.iter().filter(|seen| seen.kind != Kind::Renew).collect();
    assert!(others.is_empty(), "{others:?}");
    release(&fixture, guard).await;
    assert_eq!(fixture.proxy.count(Kind::Release), 1);
}
