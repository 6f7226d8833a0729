//! A daemon is told to stop.

use leasehold_client::Reason;
use leasehold_turmoil::{client::Order, stage::Host};

use crate::{holder_and_waiter, seconds};

#[test]
fn a_holder_is_warned_and_its_release_ends_the_drain() {
    let mut two = holder_and_waiter(401, 2);
    two.stage.stop(0);
    two.stage.run(seconds(1));
    assert_eq!(two.stage.seat(two.holder).seen().warned.len(), 1, "it was warned");
    assert!(two.stage.runs(Host::Daemon(0)), "it waits for its holder");
    two.nothing_happened();
    two.stage.seat(two.holder).order(Order::Release);
    // The lease was given back: nobody waits for its end.
    two.hands_over(seconds(2));
    two.stage.run(seconds(1));
    assert!(!two.stage.runs(Host::Daemon(0)), "it has stopped");
    two.stage.run(seconds(20));
    two.stage.check();
}

#[test]
fn a_holder_that_does_not_let_go_loses_its_lock_at_the_end_of_the_drain() {
    let mut two = holder_and_waiter(411, 2);
    let told = two.stage.now();
    two.stage.stop(0);
    // Drain, poll.
    two.hands_over(seconds(5 + 2));
    let lost = two.knows_of_its_loss();
    assert!(lost >= told + seconds(4), "told at {told:?}, lost at {lost:?}");
    let reason = two.stage.seat(two.holder).seen().lost[0].2.reason;
    assert_eq!(reason, Reason::ShuttingDown);
    two.stage.run(seconds(2));
    assert!(!two.stage.runs(Host::Daemon(0)), "it has stopped");

    // The next process serves the same clients.
    two.stage.start(Host::Daemon(0));
    two.stage.seat(two.waiter).order(Order::Release);
    let token = two.stage.acquire(two.holder, 0, seconds(10));
    assert!(token > two.stage.token(two.waiter));
    two.stage.run(seconds(10));
    two.stage.check();
}

/// It can't tell its holder, so it waits until what that was promised is over.
#[test]
fn a_holder_that_can_not_be_told_is_waited_for() {
    let mut two = holder_and_waiter(421, 2);
    let (client, daemon) = (Host::Client(two.holder), Host::Daemon(0));
    two.stage.cut(client, daemon);
    two.stage.stop(0);
    two.hands_over(seconds(8));
    let lost = two.knows_of_its_loss();
    assert!(lost < two.stage.seat(two.waiter).seen().granted[0].0);
    two.stage.mend(client, daemon);
    two.stage.run(seconds(20));
    two.stage.check();
}
