//! Daemons that are told to end.

use leasehold_client::Reason;
use leasehold_time::Moment;
use nix::sys::signal::Signal;

use super::{
    history::History,
    place::{Place, client, take},
    waiter::Waiter,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_daemon_that_is_told_to_end_hands_its_locks_over_and_leaves_no_lease() {
    let (place, history) = (Place::new("stop"), History::default());
    let (mut a, b) =
        (place.daemon_with(&["--linger", "60s", "--drain-timeout", "60s"]), place.daemon());
    let holder = client(&a, "holder").await;
    let (orders, orders_since) = (take(&holder, "orders").await, Moment::now());
    let invoices = take(&holder, "invoices").await;
    take(&holder, "lingering").await.release().await.unwrap();
    for lock in ["orders", "invoices", "lingering"] {
        assert_eq!(place.blob(lock).head().await.lease_state(), "leased", "{lock}");
    }
    let waiter = Waiter::begin(&client(&b, "waiter").await, "orders").await;

    a.process.signal(Signal::SIGTERM);
    assert_eq!(orders.at_risk().await.reason, Reason::ShuttingDown);
    assert!(orders.is_valid() && history.write(&orders), "there is time to finish");
    history.let_go(orders, orders_since, "holder").await;
    // While the daemon still waits for its other lock.
    let (taken, taken_since) = waiter.granted().await;
    assert!(history.write(&taken) && invoices.is_valid());
    invoices.release().await.unwrap();
    let status = a.process.end();
    assert_eq!(status.code(), Some(0));
    for lock in ["invoices", "lingering"] {
        assert_eq!(place.blob(lock).head().await.lease_state(), "available", "{lock}");
    }
    // At once, since nothing has to be waited for.
    let next = client(&b, "next").await;
    drop((take(&next, "invoices").await, take(&next, "lingering").await));
    history.let_go(taken, taken_since, "waiter").await;
    history.check();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_that_does_not_listen_keeps_its_lease_until_its_own_deadline() {
    let (place, history) = (Place::new("deaf"), History::default());
    let (mut a, b) = (place.daemon_with(&["--drain-timeout", "200ms"]), place.daemon());
    let holder = client(&a, "deaf").await;
    let (old, old_since) = (take(&holder, "orders").await, Moment::now());
    let waiter = Waiter::begin(&client(&b, "waiter").await, "orders").await;
    a.process.signal(Signal::SIGTERM);
    assert_eq!(old.lost().await.reason, Reason::ShuttingDown);
    assert!(!old.deadline().has_passed());
    history.lost(&old, old_since, "deaf");
    let (taken, taken_since) = waiter.granted().await;
    assert_eq!(a.process.end().code(), Some(0));
    history.let_go(taken, taken_since, "waiter").await;
    history.check();
}
