//! Whole daemons, clients and a storage account over simulated TCP, with cuts,
//! delays, crashes and shutdowns. Each scenario also checks its whole history.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod broken_rules;
mod client_crash;
mod client_link;
mod daemon_crash;
mod daemon_stop;
mod operator;
mod panics;
mod random_walk;
mod storage_crash;
mod storage_link;

use std::time::Duration;

use leasehold_turmoil::{client::Command, cluster::Cluster, daemon::Setup};

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Holder at the first daemon, and waiter at the last.
struct Fixture {
    cluster: Cluster,
    holder: usize,
    waiter: usize,
    token: u64,
}

/// Only lock of a scenario.
const LOCK: u32 = 0;

fn holder_and_waiter(seed: u64, daemons: usize) -> Fixture {
    set_up(seed, daemons, Setup::default())
}

fn set_up(seed: u64, daemons: usize, setup: Setup) -> Fixture {
    let mut cluster = Cluster::new(seed, setup, daemons, 1);
    let (holder, waiter) = (cluster.add_client(0), cluster.add_client(daemons - 1));
    let token = cluster.acquire(holder, LOCK, seconds(5));
    cluster.client(waiter).send(Command::Acquire(LOCK, None));
    cluster.run(seconds(20));
    assert!(cluster.client(waiter).results().granted.is_empty(), "the lock is held");
    Fixture { cluster, holder, waiter, token }
}

impl Fixture {
    /// Expects that the waiter is granted the lock in time, with a higher
    /// token.
    fn expect_handoff(&mut self, within: Duration) {
        let waiter = self.waiter;
        self.cluster.run_until("the waiter's grant", within, |cluster| {
            !cluster.client(waiter).results().granted.is_empty()
        });
        assert!(self.cluster.token(waiter) > self.token, "tokens increase");
    }

    /// Expects that the holder has kept its grant and the waiter has none.
    fn expect_no_change(&self) {
        let holder = self.cluster.client(self.holder).results();
        assert_eq!(holder.granted.len(), 1);
        assert!(holder.lost.is_empty(), "{:?}", holder.lost);
        assert!(self.cluster.client(self.waiter).results().granted.is_empty());
    }

    /// Expects that the holder was notified of its loss once, by its deadline.
    /// Returns when.
    fn loss_time(&self) -> Duration {
        let holder = self.cluster.client(self.holder).results();
        assert_eq!(holder.lost.len(), 1, "one notification");
        let (when, deadline, _) = holder.lost[0];
        assert!(
            when <= deadline + TIMER_TOLERANCE,
            "lost at {when:?}, but its deadline was {deadline:?}"
        );
        when
    }
}

/// Maximum lateness of a timer of the runtime, with a reserve.
const TIMER_TOLERANCE: Duration = Duration::from_millis(2);
