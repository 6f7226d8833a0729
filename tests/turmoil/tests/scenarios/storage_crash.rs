//! The host of the storage account crashes and restarts with its data.

use leasehold_turmoil::{client::Command, cluster::Host};

use crate::{holder_and_waiter, seconds};

#[test]
fn outage_shorter_than_lease_keeps_grant() {
    for (seed, length) in [(501, 1), (502, 7)] {
        let mut fixture = holder_and_waiter(seed, 2);
        fixture.cluster.crash(Host::Storage);
        fixture.cluster.run(seconds(length));
        fixture.cluster.start(Host::Storage);
        fixture.cluster.run(seconds(30));
        fixture.expect_no_change();
        fixture.cluster.client(fixture.holder).send(Command::Release);
        fixture.expect_handoff(seconds(3));
        fixture.cluster.run(seconds(10));
        fixture.cluster.check();
    }
}

#[test]
fn locks_are_granted_after_long_outage_without_restart() {
    let mut fixture = holder_and_waiter(511, 2);
    fixture.cluster.crash(Host::Storage);
    let crash = fixture.cluster.now();
    fixture.cluster.run(seconds(40));
    assert!(fixture.loss_time() <= crash + seconds(15));
    assert!(
        fixture.cluster.client(fixture.waiter).results().granted.is_empty(),
        "no grants without storage"
    );
    fixture.cluster.start(Host::Storage);
    fixture.expect_handoff(seconds(10));
    fixture.cluster.client(fixture.waiter).send(Command::Release);
    let token = fixture.cluster.acquire(fixture.holder, 0, seconds(10));
    assert!(token > fixture.cluster.token(fixture.waiter));
    fixture.cluster.run(seconds(20));
    fixture.cluster.check();
}
