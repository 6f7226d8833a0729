//! Processes that stand still for longer than what they hold.

use leasehold_client::Reason;
use leasehold_test_support::until;
use leasehold_time::Moment;
use nix::sys::signal::Signal;

use super::{
    history::History,
    place::{Place, client, take},
    process::{children, is_dead, signal},
    waiter::Waiter,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_daemon_that_stood_still_grants_nothing_on_the_lease_that_it_had() {
    let (place, history) = (Place::new("pause"), History::default());
    let (a, b) = (place.daemon(), place.daemon());
    let holder = client(&a, "holder").await;
    let (old, old_since) = (take(&holder, "contended").await, Moment::now());
    let (lonely, lonely_since) = (take(&holder, "lonely").await, Moment::now());
    assert!(history.write(&old) && history.write(&lonely));
    let (behind, patient) = (
        Waiter::begin(&client(&a, "behind").await, "contended").await,
        Waiter::begin(&client(&a, "patient").await, "lonely").await,
    );
    let other = Waiter::begin(&client(&b, "other").await, "contended").await;

    a.process.signal(Signal::SIGSTOP);
    assert_eq!(old.lost().await.reason, Reason::Expired);
    assert_eq!(lonely.lost().await.reason, Reason::Expired);
    history.lost(&old, old_since, "holder");
    history.lost(&lonely, lonely_since, "holder");
    let (taken, taken_since) = other.granted().await;
    assert!(history.write(&taken));

    a.process.signal(Signal::SIGCONT);
    // It finds the lease of one lock with the other daemon.
    until(async || {
        let shown = holder.inspect("contended").await.ok()?;
        shown.holder.filter(|by| by.client == "other" && shown.waiting == 1)
    })
    .await;
    // That of the other lock has run out, though nobody has taken it.
    let (again, again_since) = patient.granted().await;
    assert!(history.write(&again) && !history.write(&lonely));
    assert!(!old.is_valid() && !lonely.is_valid(), "lost stays lost");
    assert!(taken.is_valid() && history.write(&taken), "the daemon that woke up left it alone");
    history.let_go(taken, taken_since, "other").await;
    let (last, last_since) = behind.granted().await;
    assert!(history.write(&last) && !history.write(&old));
    history.let_go(last, last_since, "behind").await;
    history.let_go(again, again_since, "patient").await;
    history.check();
}

/// Says its process and its token, and its token again when it is asked.
const WORKER: &str = "trap 'echo $LEASEHOLD_TOKEN' USR1; echo $$; echo $LEASEHOLD_TOKEN; \
                      while :; do sleep 0.1; done";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(target_os = "linux"), ignore = "looks into /proc")]
async fn when_the_client_process_stands_still_its_command_is_dead_before_another_is_granted() {
    let place = Place::new("still");
    let (a, b) = (place.daemon(), place.daemon());
    let mut held = a.begin(&["lock", "orders", "--ttl", "3s", "--", "sh", "-c", WORKER]);
    let (command, token) = (held.line(), held.line().parse::<u64>().unwrap());
    let waiter = Waiter::begin(&client(&b, "waiter").await, "orders").await;
    held.signal(Signal::SIGSTOP);
    let (guard, _) = waiter.granted().await;
    assert!(is_dead(&command), "the keeper has killed it");
    assert!(guard.token().get() > token);
    held.signal(Signal::SIGCONT);
    assert_eq!(held.code(), Some(73));
    assert!(guard.is_valid());
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(target_os = "linux"), ignore = "looks into /proc")]
async fn a_holder_that_stood_still_with_all_that_watches_over_it_is_stopped_by_its_token() {
    let (place, history) = (Place::new("frozen"), History::default());
    let (a, b) = (place.daemon(), place.daemon());
    let mut held = a.begin(&["lock", "orders", "--ttl", "3s", "--", "sh", "-c", WORKER]);
    let command: i32 = held.line().parse().unwrap();
    let token: u64 = held.line().parse().unwrap();
    assert!(history.write_with("orders", token));
    let waiter = Waiter::begin(&client(&b, "waiter").await, "orders").await;
    // The command last: who watches over it would notice.
    held.signal(Signal::SIGSTOP);
    for child in children(held.pid()).into_iter().filter(|child| *child != command) {
        signal(child, Signal::SIGSTOP);
    }
    signal(command, Signal::SIGSTOP);

    let (guard, since) = waiter.granted().await;
    assert!(history.write(&guard));
    // The command wakes up first, and does what it was about to do.
    signal(command, Signal::SIGUSR1);
    signal(command, Signal::SIGCONT);
    let late: u64 = held.line().parse().unwrap();
    assert_eq!(late, token);
    assert!(!history.write_with("orders", late), "no lock could prevent it, the token does");
    assert!(guard.is_valid() && history.write(&guard));
    for child in children(held.pid()) {
        signal(child, Signal::SIGCONT);
    }
    until(async || is_dead(&command.to_string()).then_some(())).await;
    held.signal(Signal::SIGCONT);
    assert_eq!(held.code(), Some(73));
    history.let_go(guard, since, "waiter").await;
}
