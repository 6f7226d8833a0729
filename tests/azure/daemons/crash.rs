//! A daemon is killed with SIGKILL while its clients hold locks.

use std::time::Duration;

use leasehold_client::{Error, Reason};
use leasehold_runtime::sleep_until;
use leasehold_time::Moment;
use nix::sys::signal::Signal;

use super::{
    cluster::{Cluster, LEASE, POLL, acquire_free, client},
    history::History,
    waiter::Waiter,
};

/// Allowance for a busy machine.
const MARGIN: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_daemons_lock_moves_after_holders_deadline() {
    let (cluster, history) = (Cluster::new("crash"), History::default());
    let (mut a, b) = (cluster.daemon(), cluster.daemon());
    let holder = client(&a, "holder").await;
    let (old, old_since) = (acquire_free(&holder, "orders").await, Moment::now());
    assert!(history.write(&old));
    let waiter = Waiter::start(&client(&b, "waiter").await, "orders").await;

    a.process.signal(Signal::SIGKILL);
    a.process.end();
    let killed = Moment::now();
    assert!(old.is_valid(), "the lease has not expired");
    let loss = old.lost().await;
    assert_eq!(loss.reason, Reason::Expired, "no daemon could notify the holder");
    assert!(old.deadline().has_passed());
    history.record_loss(&old, old_since, "holder");

    let (new, since) = waiter.granted().await;
    assert!(since <= killed + LEASE + POLL + MARGIN, "{:?}", since.since(killed));
    assert!(history.write(&new) && !history.write(&old), "the old holder is fenced");
    assert!(matches!(old.release().await, Err(Error::Lost { .. })));
    history.record_release(new, since, "waiter").await;
    history.check();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarted_daemon_waits_for_predecessors_leases() {
    let (cluster, history) = (Cluster::new("restart"), History::default());
    let daemon = cluster.daemon();
    let holder = client(&daemon, "before the crash").await;
    let (old, old_since) = (acquire_free(&holder, "orders").await, Moment::now());

    let daemon = cluster.restart(daemon);
    let loss = old.lost().await;
    assert_eq!(loss.reason, Reason::UnknownSession, "the new daemon reports the loss");
    assert!(!old.deadline().has_passed(), "the lease has not expired");
    history.record_loss(&old, old_since, "before the crash");

    // A free lock is granted; the held lock has to wait for its lease.
    let next = client(&daemon, "after the crash").await;
    drop(acquire_free(&next, "invoices").await);
    let refused = next.lock("orders").no_wait().acquire().await.unwrap_err();
    let Error::NotGranted { reason: Reason::Held, holder, .. } = &refused else {
        panic!("{refused:?}")
    };
    assert_eq!(holder.as_ref().unwrap().client, "before the crash");
    let waiter = Waiter::start(&next, "orders").await;
    // The old holder may write until its deadline.
    sleep_until(old.deadline() - Duration::from_secs(1)).await;
    assert!(history.write(&old));
    let (new, since) = waiter.granted().await;
    assert!(history.write(&new) && !history.write(&old));
    history.record_release(new, since, "after the crash").await;
    history.check();
}
