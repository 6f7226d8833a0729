//! An operator breaks a lock.

use leasehold_client::Reason;
use leasehold_turmoil::client::Order;

use crate::{LOCK, Two, holder_and_waiter, seconds};

/// An operator at the daemon of this place breaks the lock.
fn is_broken(two: &mut Two, place: usize) {
    let operator = two.stage.client(place);
    two.stage.seat(operator).order(Order::Break(LOCK));
    two.stage.run_until("the answer", seconds(5), |stage| {
        !stage.seat(operator).seen().broken.is_empty()
    });
    let broken = two.stage.seat(operator).seen().broken[0].1.clone().unwrap();
    assert!(broken.broken, "somebody held it: {broken:?}");
}

/// The holder's daemon can't renew the lease, and tells its holder. The waiter
/// gets the lock when that can't count on it any more.
#[test]
fn a_break_at_another_daemon_takes_the_lock_from_its_holder() {
    for seed in 701..704 {
        let mut two = holder_and_waiter(seed, 2);
        is_broken(&mut two, 1);
        // Lease, poll, margin.
        two.hands_over(seconds(15 + 1 + 1));
        let lost = two.knows_of_its_loss();
        let granted = two.stage.seat(two.waiter).seen().granted[0].0;
        assert!(lost < granted, "lost at {lost:?}, granted to another at {granted:?}");
        let reason = two.stage.seat(two.holder).seen().lost[0].2.reason;
        assert!(matches!(reason, Reason::LeaseLost | Reason::Broken), "{reason:?}");
        two.stage.run(seconds(20));
        two.stage.check();

        // Both daemons serve on.
        two.stage.seat(two.waiter).order(Order::Release);
        let token = two.stage.acquire(two.holder, LOCK, seconds(10));
        assert!(token > two.stage.token(two.waiter));
        two.stage.run(seconds(20));
        two.stage.check();
    }
}

#[test]
fn a_break_at_the_holder_s_daemon_hands_the_lock_to_another() {
    let mut two = holder_and_waiter(711, 2);
    is_broken(&mut two, 0);
    two.hands_over(seconds(5 + 2));
    let lost = two.knows_of_its_loss();
    assert!(lost < two.stage.seat(two.waiter).seen().granted[0].0);
    assert_eq!(two.stage.seat(two.holder).seen().lost[0].2.reason, Reason::Broken);
    two.stage.run(seconds(20));
    two.stage.check();
}
