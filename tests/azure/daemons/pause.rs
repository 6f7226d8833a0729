//! Processes paused for longer than their leases.

use leasehold_client::Reason;
use leasehold_test_support::until;
use leasehold_time::Moment;
use nix::sys::signal::Signal;

use super::{
    cluster::{Cluster, acquire_free, client},
    history::History,
    process::{children, is_dead, signal},
    waiter::Waiter,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resumed_daemon_grants_nothing_on_expired_lease() {
    let (cluster, history) = (Cluster::new("pause"), History::default());
    let (a, b) = (cluster.daemon(), cluster.daemon());
    let holder = client(&a, "holder").await;
    let (old, old_since) = (acquire_free(&holder, "contended").await, Moment::now());
    let (uncontended, uncontended_since) =
        (acquire_free(&holder, "uncontended").await, Moment::now());
    assert!(history.write(&old) && history.write(&uncontended));
    let (behind, local) = (
        Waiter::start(&client(&a, "behind").await, "contended").await,
        Waiter::start(&client(&a, "local").await, "uncontended").await,
    );
    let other = Waiter::start(&client(&b, "other").await, "contended").await;

    a.process.signal(Signal::SIGSTOP);
    assert_eq!(old.lost().await.reason, Reason::Expired);
    assert_eq!(uncontended.lost().await.reason, Reason::Expired);
    history.record_loss(&old, old_since, "holder");
    history.record_loss(&uncontended, uncontended_since, "holder");
    let (taken, taken_since) = other.granted().await;
    assert!(history.write(&taken));

    a.process.signal(Signal::SIGCONT);
    // The resumed daemon finds that its peer holds one of the leases.
    until(async || {
        let lock = holder.inspect("contended").await.ok()?;
        lock.holder.filter(|by| by.client == "other" && lock.waiting == 1)
    })
    .await;
    // The lease of the other lock has expired; no other daemon acquired it.
    let (again, again_since) = local.granted().await;
    assert!(history.write(&again) && !history.write(&uncontended));
    assert!(!old.is_valid() && !uncontended.is_valid(), "lost stays lost");
    assert!(taken.is_valid() && history.write(&taken), "the resumed daemon ended the peer's lease");
    history.record_release(taken, taken_since, "other").await;
    let (last, last_since) = behind.granted().await;
    assert!(history.write(&last) && !history.write(&old));
    history.record_release(last, last_since, "behind").await;
    history.record_release(again, again_since, "local").await;
    history.check();
}

/// Prints its process ID and token, and its token again on SIGUSR1.
const WORKER: &str = "trap 'echo $LEASEHOLD_TOKEN' USR1; echo $$; echo $LEASEHOLD_TOKEN; \
                      while :; do sleep 0.1; done";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(target_os = "linux"), ignore = "reads /proc")]
async fn paused_clients_command_is_killed_before_next_grant() {
    let cluster = Cluster::new("paused-client");
    let (a, b) = (cluster.daemon(), cluster.daemon());
    let mut held = a.begin(&["lock", "orders", "--ttl", "3s", "--", "sh", "-c", WORKER]);
    let (command, token) = (held.line(), held.line().parse::<u64>().unwrap());
    let waiter = Waiter::start(&client(&b, "waiter").await, "orders").await;
    held.signal(Signal::SIGSTOP);
    let (guard, _) = waiter.granted().await;
    assert!(is_dead(&command), "the watchdog killed the command");
    assert!(guard.token().get() > token);
    held.signal(Signal::SIGCONT);
    assert_eq!(held.code(), Some(73));
    assert!(guard.is_valid());
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(target_os = "linux"), ignore = "reads /proc")]
async fn holder_paused_with_watchdog_is_fenced_by_token() {
    let (cluster, history) = (Cluster::new("paused-watchdog"), History::default());
    let (a, b) = (cluster.daemon(), cluster.daemon());
    let mut held = a.begin(&["lock", "orders", "--ttl", "3s", "--", "sh", "-c", WORKER]);
    let command: i32 = held.line().parse().unwrap();
    let token: u64 = held.line().parse().unwrap();
    assert!(history.write_with("orders", token));
    let waiter = Waiter::start(&client(&b, "waiter").await, "orders").await;
    // Pause the command last, because its watchdog would notice.
    held.signal(Signal::SIGSTOP);
    for child in children(held.pid()).into_iter().filter(|child| *child != command) {
        signal(child, Signal::SIGSTOP);
    }
    signal(command, Signal::SIGSTOP);

    let (guard, since) = waiter.granted().await;
    assert!(history.write(&guard));
    // The command resumes first and attempts its write.
    signal(command, Signal::SIGUSR1);
    signal(command, Signal::SIGCONT);
    let late: u64 = held.line().parse().unwrap();
    assert_eq!(late, token);
    assert!(!history.write_with("orders", late), "the token fences the stale write");
    assert!(guard.is_valid() && history.write(&guard));
    for child in children(held.pid()) {
        signal(child, Signal::SIGCONT);
    }
    until(async || is_dead(&command.to_string()).then_some(())).await;
    held.signal(Signal::SIGCONT);
    assert_eq!(held.code(), Some(73));
    history.record_release(guard, since, "waiter").await;
}
