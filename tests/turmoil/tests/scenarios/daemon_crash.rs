//! A daemon's process is killed.

use leasehold_turmoil::stage::Host;

use crate::{holder_and_waiter, seconds};

#[test]
fn a_waiter_at_another_daemon_takes_over_within_the_bound() {
    for seed in 201..204 {
        let mut two = holder_and_waiter(seed, 2);
        two.stage.crash(Host::Daemon(0));
        let crash = two.stage.now();
        // Lease, poll, margin.
        two.hands_over(seconds(15 + 1 + 1));
        assert!(two.knows_of_its_loss() <= crash + seconds(5));
        two.stage.run(seconds(20));
        two.stage.check();
    }
}

#[test]
fn a_daemon_that_was_started_again_waits_for_the_lease_of_its_predecessor() {
    let mut two = holder_and_waiter(211, 1);
    two.stage.crash(Host::Daemon(0));
    two.stage.run(seconds(1));
    two.stage.start(Host::Daemon(0));
    let lost = two.stage.now();
    two.hands_over(seconds(17));
    // The daemon knows nothing of the session: that is told before the ttl ends.
    assert!(two.knows_of_its_loss() <= lost + seconds(5));
    two.stage.run(seconds(20));
    two.stage.check();
}

/// Its host vanishes: nobody hears a word, and connections are not reset.
#[test]
fn a_host_that_vanished_is_noticed_by_silence() {
    let mut two = holder_and_waiter(221, 2);
    let daemon = Host::Daemon(0);
    for other in [Host::Client(two.holder), Host::Storage] {
        two.stage.cut(daemon, other);
    }
    two.stage.crash(daemon);
    let crash = two.stage.now();
    two.hands_over(seconds(17));
    assert!(two.knows_of_its_loss() <= crash + seconds(5));
    for other in [Host::Client(two.holder), Host::Storage] {
        two.stage.mend(daemon, other);
    }
    two.stage.start(daemon);
    two.stage.run(seconds(30));
    // The holder's connection to the host that vanished was given up.
    two.stage.seat(two.waiter).order(leasehold_turmoil::client::Order::Release);
    let token = two.stage.acquire(two.holder, 0, seconds(10));
    assert!(token > two.stage.token(two.waiter));
    two.stage.run(seconds(10));
    two.stage.check();
}
