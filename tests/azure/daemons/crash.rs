//! A daemon that is killed with -9 while its clients hold locks.

use std::time::Duration;

use leasehold_client::{Error, Reason};
use leasehold_runtime::sleep_until;
use leasehold_time::Moment;
use nix::sys::signal::Signal;

use super::{
    history::History,
    place::{LEASE, POLL, Place, client, take},
    waiter::Waiter,
};

/// For a machine that has a lot to do.
const MARGIN: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_daemons_lock_goes_to_another_daemon_after_its_holder_has_given_up() {
    let (place, history) = (Place::new("crash"), History::default());
    let (mut a, b) = (place.daemon(), place.daemon());
    let holder = client(&a, "holder").await;
    let (old, old_since) = (take(&holder, "orders").await, Moment::now());
    assert!(history.write(&old));
    let waiter = Waiter::begin(&client(&b, "waiter").await, "orders").await;

    a.process.signal(Signal::SIGKILL);
    a.process.end();
    let killed = Moment::now();
    assert!(old.is_valid(), "the lease is still there");
    let loss = old.lost().await;
    assert_eq!(loss.reason, Reason::Expired, "nobody was there to tell it");
    assert!(old.deadline().has_passed());
    history.lost(&old, old_since, "holder");

    let (new, since) = waiter.granted().await;
    assert!(since <= killed + LEASE + POLL + MARGIN, "{:?}", since.since(killed));
    assert!(history.write(&new) && !history.write(&old), "the old holder is fenced");
    assert!(matches!(old.release().await, Err(Error::Lost { .. })));
    history.let_go(new, since, "waiter").await;
    history.check();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_daemon_waits_its_predecessors_leases_out_like_anyone_else() {
    let (place, history) = (Place::new("restart"), History::default());
    let daemon = place.daemon();
    let holder = client(&daemon, "before the crash").await;
    let (old, old_since) = (take(&holder, "orders").await, Moment::now());

    let daemon = place.restart(daemon);
    let loss = old.lost().await;
    assert_eq!(loss.reason, Reason::UnknownSession, "the new daemon can tell it");
    assert!(!old.deadline().has_passed(), "a lease has not passed");
    history.lost(&old, old_since, "before the crash");

    // What was not held is free; for the rest the new daemon has no privilege.
    let next = client(&daemon, "after the crash").await;
    drop(take(&next, "invoices").await);
    let refused = next.lock("orders").no_wait().acquire().await.unwrap_err();
    let Error::NotGranted { reason: Reason::Held, holder, .. } = &refused else {
        panic!("{refused:?}")
    };
    assert_eq!(holder.as_ref().unwrap().client, "before the crash");
    let waiter = Waiter::begin(&next, "orders").await;
    // The old holder finishes in the time that is left to it.
    sleep_until(old.deadline() - Duration::from_secs(1)).await;
    assert!(history.write(&old));
    let (new, since) = waiter.granted().await;
    assert!(history.write(&new) && !history.write(&old));
    history.let_go(new, since, "after the crash").await;
    history.check();
}
