//! Faults of the link between a daemon and the storage account.

use leasehold_client::Reason;
use leasehold_turmoil::{client::Command, cluster::Host};

use crate::{holder_and_waiter, seconds};

const LINK: (Host, Host) = (Host::Daemon(0), Host::Storage);

#[test]
fn storage_link_cut_shorter_than_lease_keeps_grant() {
    for (seed, length) in [(101, 2), (102, 5), (103, 7)] {
        let mut fixture = holder_and_waiter(seed, 2);
        fixture.cluster.cut(LINK.0, LINK.1);
        fixture.cluster.run(seconds(length));
        fixture.cluster.repair(LINK.0, LINK.1);
        fixture.cluster.run(seconds(30));
        fixture.expect_no_change();
        fixture.cluster.client(fixture.holder).send(Command::Release);
        fixture.expect_handoff(seconds(3));
        fixture.cluster.run(seconds(20));
        fixture.cluster.check();
    }
}

#[test]
fn storage_link_delay_shorter_than_lease_keeps_grant() {
    for (seed, length) in [(111, 2), (112, 6)] {
        let mut fixture = holder_and_waiter(seed, 2);
        fixture.cluster.hold(LINK.0, LINK.1);
        fixture.cluster.run(seconds(length));
        fixture.cluster.release(LINK.0, LINK.1);
        fixture.cluster.run(seconds(30));
        fixture.expect_no_change();
        fixture.cluster.check();
    }
}

/// Expects that the grant is lost in time if storage calls fail until the lease
/// expires.
fn expect_loss(seed: u64, cut: impl FnOnce(&mut leasehold_turmoil::cluster::Cluster)) {
    let mut fixture = holder_and_waiter(seed, 2);
    let (from, holder) = (fixture.cluster.now(), fixture.holder);
    cut(&mut fixture.cluster);
    fixture.cluster.run_until("the loss", seconds(15), |cluster| {
        !cluster.client(holder).results().lost.is_empty()
    });
    let lost = fixture.loss_time();
    assert!(lost <= from + seconds(15));
    let seen = fixture.cluster.client(fixture.holder).results().clone();
    // The daemon's message or the client's own deadline comes first.
    let reason = seen.lost[0].2.reason;
    assert!(matches!(reason, Reason::LeaseLost | Reason::Expired), "{reason:?}");
    assert!(!seen.warned.is_empty(), "the holder was warned before");
    // Lease, poll, margin.
    fixture.expect_handoff(seconds(17));
    assert!(fixture.cluster.client(fixture.waiter).results().granted[0].0 > lost);

    fixture.cluster.repair(LINK.0, LINK.1);
    fixture.cluster.run(seconds(30));
    fixture.cluster.client(fixture.waiter).send(Command::Release);
    let token = fixture.cluster.acquire(fixture.holder, 0, seconds(10));
    assert!(token > fixture.cluster.token(fixture.waiter));
    fixture.cluster.run(seconds(20));
    fixture.cluster.check();
}

#[test]
fn storage_link_cut_longer_than_lease_is_detected() {
    expect_loss(121, |cluster| cluster.cut(LINK.0, LINK.1));
}

#[test]
fn lost_storage_requests_end_grant_in_time() {
    expect_loss(131, |cluster| cluster.cut_one_way(LINK.0, LINK.1));
}

/// Renewals are applied, but their outcome is unknown: the daemon declares the
/// grant lost, and the lease lasts until the daemon can release it or stops
/// renewing it.
#[test]
fn lost_storage_answers_end_grant_in_time() {
    let mut fixture = holder_and_waiter(141, 2);
    let (from, holder) = (fixture.cluster.now(), fixture.holder);
    fixture.cluster.cut_one_way(LINK.1, LINK.0);
    fixture.cluster.run_until("the loss", seconds(15), |cluster| {
        !cluster.client(holder).results().lost.is_empty()
    });
    assert!(fixture.loss_time() <= from + seconds(15));
    fixture.expect_handoff(seconds(35));
    fixture.cluster.repair(LINK.0, LINK.1);
    fixture.cluster.run(seconds(40));
    fixture.cluster.check();
}
