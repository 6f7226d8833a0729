//! A client process is killed.

use leasehold_turmoil::cluster::Host;

use crate::{holder_and_waiter, seconds};

#[test]
fn lock_of_killed_client_is_granted_after_ttl() {
    for (seed, daemons) in [(301, 1), (302, 2)] {
        let mut fixture = holder_and_waiter(seed, daemons);
        let crash = fixture.cluster.now();
        fixture.cluster.crash(Host::Client(fixture.holder));
        fixture.expect_handoff(seconds(5 + 2));
        // The end of a stream is not the death of the client, so the grant must
        // last longer.
        let granted = fixture.cluster.client(fixture.waiter).results().granted[0].0;
        assert!(granted >= crash + seconds(3), "crashed at {crash:?}, granted at {granted:?}");
        fixture.cluster.run(seconds(20));
        fixture.cluster.check();
    }
}

#[test]
fn restarted_client_has_new_session() {
    let mut fixture = holder_and_waiter(311, 1);
    fixture.cluster.crash(Host::Client(fixture.holder));
    fixture.cluster.start(Host::Client(fixture.holder));
    fixture.expect_handoff(seconds(7));
    fixture.cluster.client(fixture.waiter).send(leasehold_turmoil::client::Command::Release);
    let token = fixture.cluster.acquire(fixture.holder, 0, seconds(5));
    assert!(token > fixture.cluster.token(fixture.waiter));
    fixture.cluster.run(seconds(10));
    fixture.cluster.check();
}

#[test]
fn killed_waiter_is_skipped() {
    let mut fixture = holder_and_waiter(321, 1);
    let second = fixture.cluster.add_client(0);
    fixture.cluster.client(second).send(leasehold_turmoil::client::Command::Acquire(0, None));
    fixture.cluster.run(seconds(2));
    fixture.cluster.crash(Host::Client(fixture.waiter));
    fixture.cluster.run(seconds(1));
    fixture.cluster.client(fixture.holder).send(leasehold_turmoil::client::Command::Release);
    let granted = |cluster: &leasehold_turmoil::cluster::Cluster| {
        !cluster.client(second).results().granted.is_empty()
    };
    fixture.cluster.run_until("the other waiter's grant", seconds(1), granted);
    fixture.cluster.run(seconds(10));
    fixture.cluster.check();
}
