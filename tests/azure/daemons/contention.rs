//! Many clients of three daemons, one of which is killed.

use std::{sync::Arc, time::Duration};

use leasehold_client::{Client, Reason};
use leasehold_runtime::sleep;
use leasehold_test_support::until;
use leasehold_time::Moment;
use tokio::task::JoinSet;

use super::{
    cluster::{Cluster, client},
    history::{History, Hold},
};

const DAEMONS: [&str; 3] = ["a", "b", "c"];
const LOCKS: [&str; 3] = ["orders", "invoices", "stock"];
const CLIENTS: usize = 3;
const ROUNDS: usize = 5;

/// Acquires every lock several times, in rotation, and writes under it.
async fn work(client: Client, name: String, number: usize, history: Arc<History>) {
    for round in 0..ROUNDS * LOCKS.len() {
        let lock = LOCKS[(number + round) % LOCKS.len()];
        let guard = client.lock(lock).acquire().await.unwrap();
        let start = Moment::now();
        for _ in 0..3 {
            // Check validity after the write, because the lock may be lost
            // during the write.
            let accepted = history.write(&guard);
            assert!(accepted || !guard.is_valid(), "{name} holds {lock} and was refused");
            sleep(Duration::from_millis(5)).await;
        }
        history.record_release(guard, start, &name).await;
        // Pause, so that a daemon occasionally has no waiters.
        sleep(Duration::from_millis(20 * (number as u64 + 1))).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn contended_locks_stay_exclusive_when_daemon_is_killed() {
    let (cluster, history) = (Cluster::new("contention"), Arc::new(History::default()));
    let daemons = DAEMONS.map(|_| cluster.daemon());
    let mut workers = JoinSet::new();
    for (daemon_name, daemon) in DAEMONS.into_iter().zip(&daemons) {
        for number in 0..CLIENTS {
            let name = format!("{daemon_name}{number}");
            let client = client(daemon, &name).await;
            workers.spawn(work(client, name, number, Arc::clone(&history)));
        }
    }

    // Halfway through, kill a daemon with a holder.
    let [_a, _b, c] = daemons;
    let victim = client(&c, "victim").await;
    let halfway = async || {
        let holds = history.holds("orders").len();
        (holds > CLIENTS * ROUNDS).then_some(())
    };
    loop {
        tokio::select! {
            () = until(halfway) => break,
            Some(worked) = workers.join_next() => worked.unwrap(),
        }
    }
    let held = victim.lock("orders").acquire().await.unwrap();
    let start = Moment::now();
    assert!(history.write(&held));
    let _c = cluster.restart(c);
    assert_eq!(held.lost().await.reason, Reason::UnknownSession);
    history.record_loss(&held, start, "victim");

    while let Some(worked) = workers.join_next().await {
        worked.unwrap();
    }
    assert!(!history.write(&held), "later holders have higher tokens");
    history.check();
    for lock in LOCKS {
        let holds = history.holds(lock);
        for daemon in DAEMONS {
            let count = holds.iter().filter(|hold| hold.client.starts_with(daemon)).count();
            assert_eq!(count, CLIENTS * ROUNDS, "{lock} at {daemon}");
        }
        let daemon_changed = |pair: &&[Hold]| pair[0].client[..1] != pair[1].client[..1];
        let moves = holds.windows(2).filter(daemon_changed).count();
        assert!(moves >= DAEMONS.len(), "{lock} moved only {moves} times between daemons");
    }
}
