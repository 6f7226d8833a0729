//! The host of the storage account crashes, and comes back with what it kept.

use leasehold_turmoil::{client::Order, stage::Host};

use crate::{holder_and_waiter, seconds};

#[test]
fn an_outage_shorter_than_the_lease_loses_nothing() {
    for (seed, length) in [(501, 1), (502, 7)] {
        let mut two = holder_and_waiter(seed, 2);
        two.stage.crash(Host::Storage);
        two.stage.run(seconds(length));
        two.stage.start(Host::Storage);
        two.stage.run(seconds(30));
        two.nothing_happened();
        two.stage.seat(two.holder).order(Order::Release);
        two.hands_over(seconds(3));
        two.stage.run(seconds(10));
        two.stage.check();
    }
}

#[test]
fn after_a_longer_outage_locks_are_granted_again_without_a_restart() {
    let mut two = holder_and_waiter(511, 2);
    two.stage.crash(Host::Storage);
    let crash = two.stage.now();
    two.stage.run(seconds(40));
    assert!(two.knows_of_its_loss() <= crash + seconds(15));
    assert!(two.stage.seat(two.waiter).seen().granted.is_empty(), "there is nothing to grant from");
    two.stage.start(Host::Storage);
    two.hands_over(seconds(10));
    two.stage.seat(two.waiter).order(Order::Release);
    let token = two.stage.acquire(two.holder, 0, seconds(10));
    assert!(token > two.stage.token(two.waiter));
    two.stage.run(seconds(20));
    two.stage.check();
}
