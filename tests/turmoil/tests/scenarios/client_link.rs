//! Faults of the link between a client and its daemon.

use leasehold_client::Reason;
use leasehold_turmoil::{client::Command, cluster::Host};

use crate::{Fixture, holder_and_waiter, seconds};

fn hosts(fixture: &Fixture) -> (Host, Host) {
    (Host::Client(fixture.holder), Host::Daemon(0))
}

/// Releases the lock and expects an immediate handoff, which proves that the
/// session was resumed and works in both directions.
fn expect_working_session(fixture: &mut Fixture, session: &Option<String>) {
    fixture.expect_no_change();
    assert!(session.is_some());
    assert_eq!(
        fixture.cluster.client(fixture.holder).results().session,
        *session,
        "the session was resumed"
    );
    fixture.cluster.client(fixture.holder).send(Command::Release);
    fixture.expect_handoff(seconds(1));
    fixture.cluster.run(seconds(1));
    assert!(fixture.cluster.client(fixture.holder).results().released[0].1.is_ok());
    fixture.cluster.run(seconds(20));
    fixture.cluster.check();
}

#[test]
fn client_link_cut_shorter_than_ttl_keeps_grant() {
    for (seed, length) in [(1, 1), (2, 2), (3, 3)] {
        let mut fixture = holder_and_waiter(seed, 1);
        let session = fixture.cluster.client(fixture.holder).results().session.clone();
        let (client, daemon) = hosts(&fixture);
        let number = fixture.cluster.client(fixture.holder).results().number;
        fixture.cluster.cut(client, daemon);
        fixture.cluster.run(seconds(length));
        fixture.cluster.repair(client, daemon);
        fixture.cluster.run(seconds(30));
        let connects = fixture.cluster.record().connects(number);
        // Keep-alives are less than two seconds apart, so at least one was
        // lost, and with it the connection.
        assert!(connects >= 2 || length < 2, "{connects} connections");
        expect_working_session(&mut fixture, &session);
    }
}

#[test]
fn client_link_delay_shorter_than_ttl_keeps_grant() {
    for (seed, length) in [(11, 1), (12, 3)] {
        let mut fixture = holder_and_waiter(seed, 1);
        let session = fixture.cluster.client(fixture.holder).results().session.clone();
        let (client, daemon) = hosts(&fixture);
        fixture.cluster.hold(client, daemon);
        fixture.cluster.run(seconds(length));
        fixture.cluster.release(client, daemon);
        fixture.cluster.run(seconds(30));
        expect_working_session(&mut fixture, &session);
    }
}

/// Expects that the holder detects the loss by its own clock after the TTL, and
/// that the waiter is granted the lock after that.
fn expect_loss(mut fixture: Fixture, end: impl FnOnce(&mut Fixture)) {
    let cut = fixture.cluster.now();
    fixture.expect_handoff(seconds(7));
    let lost = fixture.loss_time();
    let granted = fixture.cluster.client(fixture.waiter).results().granted[0].0;
    assert!(lost < granted, "lost at {lost:?}, granted to another at {granted:?}");
    assert!(lost <= cut + seconds(5), "cut at {cut:?}, lost at {lost:?}");
    assert_eq!(fixture.cluster.client(fixture.holder).results().lost[0].2.reason, Reason::Expired);

    end(&mut fixture);
    fixture.cluster.run(seconds(30));
    // The client can acquire the lock again in a new session.
    fixture.cluster.client(fixture.waiter).send(Command::Release);
    let first = fixture.token;
    let token = fixture.cluster.acquire(fixture.holder, 0, seconds(10));
    assert!(token > fixture.cluster.token(fixture.waiter) && token > first);
    fixture.cluster.run(seconds(20));
    fixture.cluster.check();
}

#[test]
fn client_link_cut_longer_than_ttl_is_detected_in_time() {
    let mut fixture = holder_and_waiter(21, 1);
    let (client, daemon) = hosts(&fixture);
    fixture.cluster.cut(client, daemon);
    expect_loss(fixture, |fixture| fixture.cluster.repair(client, daemon));
}

#[test]
fn holder_without_uplink_detects_loss_in_time() {
    let mut fixture = holder_and_waiter(31, 1);
    let (client, daemon) = hosts(&fixture);
    fixture.cluster.cut_one_way(client, daemon);
    expect_loss(fixture, |fixture| fixture.cluster.repair(client, daemon));
}

#[test]
fn holder_without_downlink_detects_loss_in_time() {
    let mut fixture = holder_and_waiter(41, 1);
    let (client, daemon) = hosts(&fixture);
    fixture.cluster.cut_one_way(daemon, client);
    let cut = fixture.cluster.now();
    fixture.cluster.run(seconds(6));
    let lost = fixture.loss_time();
    assert!(lost <= cut + seconds(5), "cut at {cut:?}, lost at {lost:?}");
    // Keep-alives still arrived for a while, so the daemon may keep the lock
    // longer, but it must hand it off eventually.
    fixture.expect_handoff(seconds(20));
    fixture.cluster.repair(client, daemon);
    fixture.cluster.run(seconds(40));
    fixture.cluster.check();
}

#[test]
fn client_link_delay_longer_than_ttl_loses_grant() {
    let mut fixture = holder_and_waiter(51, 1);
    let (client, daemon) = hosts(&fixture);
    fixture.cluster.hold(client, daemon);
    expect_loss(fixture, |fixture| fixture.cluster.release(client, daemon));
}
