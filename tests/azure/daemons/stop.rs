//! Shutdown of daemons.

use leasehold_client::Reason;
use leasehold_time::Moment;
use nix::sys::signal::Signal;

use super::{
    cluster::{Cluster, acquire_free, client},
    history::History,
    waiter::Waiter,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shutdown_hands_off_locks_and_leaves_no_lease() {
    let (cluster, history) = (Cluster::new("stop"), History::default());
    let (mut a, b) =
        (cluster.daemon_with(&["--linger", "60s", "--drain-timeout", "60s"]), cluster.daemon());
    let holder = client(&a, "holder").await;
    let (orders, orders_since) = (acquire_free(&holder, "orders").await, Moment::now());
    let invoices = acquire_free(&holder, "invoices").await;
    acquire_free(&holder, "lingering").await.release().await.unwrap();
    for lock in ["orders", "invoices", "lingering"] {
        assert_eq!(cluster.blob(lock).head().await.lease_state(), "leased", "{lock}");
    }
    let waiter = Waiter::start(&client(&b, "waiter").await, "orders").await;

    a.process.signal(Signal::SIGTERM);
    assert_eq!(orders.at_risk().await.reason, Reason::ShuttingDown);
    assert!(orders.is_valid() && history.write(&orders), "there is time to finish");
    history.record_release(orders, orders_since, "holder").await;
    // The peer's waiter is granted the lock during the drain of the other lock.
    let (taken, taken_since) = waiter.granted().await;
    assert!(history.write(&taken) && invoices.is_valid());
    invoices.release().await.unwrap();
    let status = a.process.end();
    assert_eq!(status.code(), Some(0));
    for lock in ["invoices", "lingering"] {
        assert_eq!(cluster.blob(lock).head().await.lease_state(), "available", "{lock}");
    }
    // Granted immediately, because the leases are released.
    let next = client(&b, "next").await;
    drop((acquire_free(&next, "invoices").await, acquire_free(&next, "lingering").await));
    history.record_release(taken, taken_since, "waiter").await;
    history.check();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unresponsive_holder_keeps_lease_until_deadline() {
    let (cluster, history) = (Cluster::new("unresponsive"), History::default());
    let (mut a, b) = (cluster.daemon_with(&["--drain-timeout", "200ms"]), cluster.daemon());
    let holder = client(&a, "unresponsive").await;
    let (old, old_since) = (acquire_free(&holder, "orders").await, Moment::now());
    let waiter = Waiter::start(&client(&b, "waiter").await, "orders").await;
    a.process.signal(Signal::SIGTERM);
    assert_eq!(old.lost().await.reason, Reason::ShuttingDown);
    assert!(!old.deadline().has_passed());
    history.record_loss(&old, old_since, "unresponsive");
    let (taken, taken_since) = waiter.granted().await;
    assert_eq!(a.process.end().code(), Some(0));
    history.record_release(taken, taken_since, "waiter").await;
    history.check();
}
