//! An operator breaks a lock.

use leasehold_client::Reason;
use leasehold_turmoil::client::Command;

use crate::{Fixture, LOCK, holder_and_waiter, seconds};

/// Breaks the lock through the daemon of this place.
fn break_lock(fixture: &mut Fixture, place: usize) {
    let operator = fixture.cluster.add_client(place);
    fixture.cluster.client(operator).send(Command::Break(LOCK));
    fixture.cluster.run_until("the answer", seconds(5), |cluster| {
        !cluster.client(operator).results().broken.is_empty()
    });
    let broken = fixture.cluster.client(operator).results().broken[0].1.clone().unwrap();
    assert!(broken.broken, "the lock was held: {broken:?}");
}

/// The holder's daemon can't renew the lease and notifies the holder. The
/// waiter is granted the lock after the holder's validity has ended.
#[test]
fn break_at_peer_ends_grant() {
    for seed in 701..704 {
        let mut fixture = holder_and_waiter(seed, 2);
        break_lock(&mut fixture, 1);
        // Lease, poll, margin.
        fixture.expect_handoff(seconds(15 + 1 + 1));
        let lost = fixture.loss_time();
        let granted = fixture.cluster.client(fixture.waiter).results().granted[0].0;
        assert!(lost < granted, "lost at {lost:?}, granted to another at {granted:?}");
        let reason = fixture.cluster.client(fixture.holder).results().lost[0].2.reason;
        assert!(matches!(reason, Reason::LeaseLost | Reason::Broken), "{reason:?}");
        fixture.cluster.run(seconds(20));
        fixture.cluster.check();

        // Both daemons continue to serve.
        fixture.cluster.client(fixture.waiter).send(Command::Release);
        let token = fixture.cluster.acquire(fixture.holder, LOCK, seconds(10));
        assert!(token > fixture.cluster.token(fixture.waiter));
        fixture.cluster.run(seconds(20));
        fixture.cluster.check();
    }
}

#[test]
fn break_at_holders_daemon_grants_next_waiter() {
    let mut fixture = holder_and_waiter(711, 2);
    break_lock(&mut fixture, 0);
    fixture.expect_handoff(seconds(5 + 2));
    let lost = fixture.loss_time();
    assert!(lost < fixture.cluster.client(fixture.waiter).results().granted[0].0);
    assert_eq!(fixture.cluster.client(fixture.holder).results().lost[0].2.reason, Reason::Broken);
    fixture.cluster.run(seconds(20));
    fixture.cluster.check();
}
