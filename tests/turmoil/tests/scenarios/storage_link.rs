//! Between a daemon and the storage account.

use leasehold_client::Reason;
use leasehold_turmoil::{client::Order, stage::Host};

use crate::{holder_and_waiter, seconds};

const LINK: (Host, Host) = (Host::Daemon(0), Host::Storage);

#[test]
fn a_cut_shorter_than_the_lease_loses_nothing() {
    for (seed, length) in [(101, 2), (102, 5), (103, 7)] {
        let mut two = holder_and_waiter(seed, 2);
        two.stage.cut(LINK.0, LINK.1);
        two.stage.run(seconds(length));
        two.stage.mend(LINK.0, LINK.1);
        two.stage.run(seconds(30));
        two.nothing_happened();
        two.stage.seat(two.holder).order(Order::Release);
        two.hands_over(seconds(3));
        two.stage.run(seconds(20));
        two.stage.check();
    }
}

#[test]
fn what_is_held_back_for_less_than_the_lease_loses_nothing() {
    for (seed, length) in [(111, 2), (112, 6)] {
        let mut two = holder_and_waiter(seed, 2);
        two.stage.hold(LINK.0, LINK.1);
        two.stage.run(seconds(length));
        two.stage.release(LINK.0, LINK.1);
        two.stage.run(seconds(30));
        two.nothing_happened();
        two.stage.check();
    }
}

/// What does not reach the daemon while the lease runs out.
fn is_lost(seed: u64, cut: impl FnOnce(&mut leasehold_turmoil::stage::Stage)) {
    let mut two = holder_and_waiter(seed, 2);
    let (from, holder) = (two.stage.now(), two.holder);
    cut(&mut two.stage);
    two.stage
        .run_until("the loss", seconds(15), |stage| !stage.seat(holder).seen().lost.is_empty());
    let lost = two.knows_of_its_loss();
    assert!(lost <= from + seconds(15));
    let seen = two.stage.seat(two.holder).seen().clone();
    // Told by the daemon or by its own clock, whichever is first.
    let reason = seen.lost[0].2.reason;
    assert!(matches!(reason, Reason::LeaseLost | Reason::Expired), "{reason:?}");
    assert!(!seen.warned.is_empty(), "it was warned before");
    // Lease, poll, margin.
    two.hands_over(seconds(17));
    assert!(two.stage.seat(two.waiter).seen().granted[0].0 > lost);

    two.stage.mend(LINK.0, LINK.1);
    two.stage.run(seconds(30));
    two.stage.seat(two.waiter).order(Order::Release);
    let token = two.stage.acquire(two.holder, 0, seconds(10));
    assert!(token > two.stage.token(two.waiter));
    two.stage.run(seconds(20));
    two.stage.check();
}

#[test]
fn a_cut_longer_than_the_lease_is_known_to_the_holder_in_time() {
    is_lost(121, |stage| stage.cut(LINK.0, LINK.1));
}

#[test]
fn a_daemon_whose_calls_get_lost_gives_up_in_time() {
    is_lost(131, |stage| stage.cut_one_way(LINK.0, LINK.1));
}

/// Its renewals arrive, but it can't know: so it gives up, and the lease goes on
/// until it can say so, or until it stops to renew.
#[test]
fn a_daemon_that_hears_no_answers_gives_up_in_time() {
    let mut two = holder_and_waiter(141, 2);
    let (from, holder) = (two.stage.now(), two.holder);
    two.stage.cut_one_way(LINK.1, LINK.0);
    two.stage
        .run_until("the loss", seconds(15), |stage| !stage.seat(holder).seen().lost.is_empty());
    assert!(two.knows_of_its_loss() <= from + seconds(15));
    two.hands_over(seconds(35));
    two.stage.mend(LINK.0, LINK.1);
    two.stage.run(seconds(40));
    two.stage.check();
}
