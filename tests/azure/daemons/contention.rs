//! Many clients of three daemons, of which one is killed.

use std::{sync::Arc, time::Duration};

use leasehold_client::{Client, Reason};
use leasehold_runtime::sleep;
use leasehold_test_support::until;
use leasehold_time::Moment;
use tokio::task::JoinSet;

use super::{
    history::History,
    place::{Place, client},
};

const DAEMONS: [&str; 3] = ["a", "b", "c"];
const LOCKS: [&str; 3] = ["orders", "invoices", "stock"];
const CLIENTS: usize = 3;
const TURNS: usize = 5;

/// Takes every lock in turn, several times, and works under it.
async fn work(client: Client, who: String, number: usize, history: Arc<History>) {
    for turn in 0..TURNS * LOCKS.len() {
        let lock = LOCKS[(number + turn) % LOCKS.len()];
        let guard = client.lock(lock).acquire().await.unwrap();
        let from = Moment::now();
        for _ in 0..3 {
            // Looked at after the write: what was lost in between is no matter.
            let accepted = history.write(&guard);
            assert!(accepted || !guard.is_valid(), "{who} holds {lock} and was refused");
            sleep(Duration::from_millis(5)).await;
        }
        history.let_go(guard, from, &who).await;
        // So that a daemon runs out of waiters now and then.
        sleep(Duration::from_millis(20 * (number as u64 + 1))).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everyone_gets_a_turn_one_at_a_time_with_rising_tokens_though_a_daemon_is_killed() {
    let (place, history) = (Place::new("contention"), Arc::new(History::default()));
    let daemons = DAEMONS.map(|_| place.daemon());
    let mut workers = JoinSet::new();
    for (name, daemon) in DAEMONS.into_iter().zip(&daemons) {
        for number in 0..CLIENTS {
            let who = format!("{name}{number}");
            let client = client(daemon, &who).await;
            workers.spawn(work(client, who, number, Arc::clone(&history)));
        }
    }

    // In the middle of it one daemon dies, with a holder.
    let [_a, _b, c] = daemons;
    let victim = client(&c, "victim").await;
    let in_the_middle = async || {
        let turns = history.turns("orders").len();
        (turns > CLIENTS * TURNS).then_some(())
    };
    loop {
        tokio::select! {
            () = until(in_the_middle) => break,
            Some(worked) = workers.join_next() => worked.unwrap(),
        }
    }
    let held = victim.lock("orders").acquire().await.unwrap();
    let from = Moment::now();
    assert!(history.write(&held));
    let _c = place.restart(c);
    assert_eq!(held.lost().await.reason, Reason::UnknownSession);
    history.lost(&held, from, "victim");

    while let Some(worked) = workers.join_next().await {
        worked.unwrap();
    }
    assert!(!history.write(&held), "others have come after it");
    history.check();
    for lock in LOCKS {
        let turns = history.turns(lock);
        for name in DAEMONS {
            let had = turns.iter().filter(|turn| turn.who.starts_with(name)).count();
            assert_eq!(had, CLIENTS * TURNS, "{lock} at {name}");
        }
        let moves = turns.windows(2).filter(|pair| pair[0].who[..1] != pair[1].who[..1]).count();
        assert!(moves >= DAEMONS.len(), "{lock} only moved {moves} times between daemons");
    }
}
