//! A daemon process is killed.

use leasehold_turmoil::cluster::Host;

use crate::{holder_and_waiter, seconds};

#[test]
fn remote_waiter_takes_over_within_bound() {
    for seed in 201..204 {
        let mut fixture = holder_and_waiter(seed, 2);
        fixture.cluster.crash(Host::Daemon(0));
        let crash = fixture.cluster.now();
        // Lease, poll, margin.
        fixture.expect_handoff(seconds(15 + 1 + 1));
        assert!(fixture.loss_time() <= crash + seconds(5));
        fixture.cluster.run(seconds(20));
        fixture.cluster.check();
    }
}

#[test]
fn restarted_daemon_waits_for_predecessor_lease() {
    let mut fixture = holder_and_waiter(211, 1);
    fixture.cluster.crash(Host::Daemon(0));
    fixture.cluster.run(seconds(1));
    fixture.cluster.start(Host::Daemon(0));
    let lost = fixture.cluster.now();
    fixture.expect_handoff(seconds(17));
    // The daemon does not know the session, and the client learns this before
    // the TTL ends.
    assert!(fixture.loss_time() <= lost + seconds(5));
    fixture.cluster.run(seconds(20));
    fixture.cluster.check();
}

/// The host disappears without resetting its connections.
#[test]
fn vanished_host_is_detected_by_timeout() {
    let mut fixture = holder_and_waiter(221, 2);
    let daemon = Host::Daemon(0);
    for other in [Host::Client(fixture.holder), Host::Storage] {
        fixture.cluster.cut(daemon, other);
    }
    fixture.cluster.crash(daemon);
    let crash = fixture.cluster.now();
    fixture.expect_handoff(seconds(17));
    assert!(fixture.loss_time() <= crash + seconds(5));
    for other in [Host::Client(fixture.holder), Host::Storage] {
        fixture.cluster.repair(daemon, other);
    }
    fixture.cluster.start(daemon);
    fixture.cluster.run(seconds(30));
    // The holder has closed its connection to the vanished host.
    fixture.cluster.client(fixture.waiter).send(leasehold_turmoil::client::Command::Release);
    let token = fixture.cluster.acquire(fixture.holder, 0, seconds(10));
    assert!(token > fixture.cluster.token(fixture.waiter));
    fixture.cluster.run(seconds(10));
    fixture.cluster.check();
}
