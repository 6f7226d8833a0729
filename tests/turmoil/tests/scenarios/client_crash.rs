//! A client's process is killed.

use leasehold_turmoil::stage::Host;

use crate::{holder_and_waiter, seconds};

#[test]
fn its_lock_is_free_when_its_ttl_has_passed() {
    for (seed, daemons) in [(301, 1), (302, 2)] {
        let mut two = holder_and_waiter(seed, daemons);
        let crash = two.stage.now();
        two.stage.crash(Host::Client(two.holder));
        two.hands_over(seconds(5 + 2));
        // The end of a stream is not the death of the client: so not before.
        let granted = two.stage.seat(two.waiter).seen().granted[0].0;
        assert!(granted >= crash + seconds(3), "crashed at {crash:?}, granted at {granted:?}");
        two.stage.run(seconds(20));
        two.stage.check();
    }
}

#[test]
fn its_next_process_is_another_client() {
    let mut two = holder_and_waiter(311, 1);
    two.stage.crash(Host::Client(two.holder));
    two.stage.start(Host::Client(two.holder));
    two.hands_over(seconds(7));
    two.stage.seat(two.waiter).order(leasehold_turmoil::client::Order::Release);
    let token = two.stage.acquire(two.holder, 0, seconds(5));
    assert!(token > two.stage.token(two.waiter));
    two.stage.run(seconds(10));
    two.stage.check();
}

#[test]
fn a_waiter_that_died_is_passed_over() {
    let mut two = holder_and_waiter(321, 1);
    let second = two.stage.client(0);
    two.stage.seat(second).order(leasehold_turmoil::client::Order::Acquire(0, None));
    two.stage.run(seconds(2));
    two.stage.crash(Host::Client(two.waiter));
    two.stage.run(seconds(1));
    two.stage.seat(two.holder).order(leasehold_turmoil::client::Order::Release);
    let granted =
        |stage: &leasehold_turmoil::stage::Stage| !stage.seat(second).seen().granted.is_empty();
    two.stage.run_until("the other waiter's grant", seconds(1), granted);
    two.stage.run(seconds(10));
    two.stage.check();
}
