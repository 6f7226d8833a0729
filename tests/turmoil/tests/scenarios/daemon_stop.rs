//! A daemon is shut down.

use leasehold_client::Reason;
use leasehold_turmoil::{client::Command, cluster::Host};

use crate::{holder_and_waiter, seconds};

#[test]
fn holder_is_warned_and_release_ends_drain() {
    let mut fixture = holder_and_waiter(401, 2);
    fixture.cluster.stop(0);
    fixture.cluster.run(seconds(1));
    assert_eq!(
        fixture.cluster.client(fixture.holder).results().warned.len(),
        1,
        "the holder was warned"
    );
    assert!(fixture.cluster.runs(Host::Daemon(0)), "the daemon waits for its holder");
    fixture.expect_no_change();
    fixture.cluster.client(fixture.holder).send(Command::Release);
    // The lease was released, so its expiry is not awaited.
    fixture.expect_handoff(seconds(2));
    fixture.cluster.run(seconds(1));
    assert!(!fixture.cluster.runs(Host::Daemon(0)), "the daemon has exited");
    fixture.cluster.run(seconds(20));
    fixture.cluster.check();
}

#[test]
fn holder_loses_lock_at_end_of_drain() {
    let mut fixture = holder_and_waiter(411, 2);
    let stopped = fixture.cluster.now();
    fixture.cluster.stop(0);
    // Drain, poll.
    fixture.expect_handoff(seconds(5 + 2));
    let lost = fixture.loss_time();
    assert!(lost >= stopped + seconds(4), "stopped at {stopped:?}, lost at {lost:?}");
    let reason = fixture.cluster.client(fixture.holder).results().lost[0].2.reason;
    assert_eq!(reason, Reason::ShuttingDown);
    fixture.cluster.run(seconds(2));
    assert!(!fixture.cluster.runs(Host::Daemon(0)), "the daemon has exited");

    // The next process serves the same clients.
    fixture.cluster.start(Host::Daemon(0));
    fixture.cluster.client(fixture.waiter).send(Command::Release);
    let token = fixture.cluster.acquire(fixture.holder, 0, seconds(10));
    assert!(token > fixture.cluster.token(fixture.waiter));
    fixture.cluster.run(seconds(10));
    fixture.cluster.check();
}

/// The daemon can't notify its holder, so it waits until the holder's validity
/// has ended.
#[test]
fn drain_waits_for_validity_of_unreachable_holder() {
    let mut fixture = holder_and_waiter(421, 2);
    let (client, daemon) = (Host::Client(fixture.holder), Host::Daemon(0));
    fixture.cluster.cut(client, daemon);
    fixture.cluster.stop(0);
    fixture.expect_handoff(seconds(8));
    let lost = fixture.loss_time();
    assert!(lost < fixture.cluster.client(fixture.waiter).results().granted[0].0);
    fixture.cluster.repair(client, daemon);
    fixture.cluster.run(seconds(20));
    fixture.cluster.check();
}
