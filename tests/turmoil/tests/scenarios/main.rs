//! Whole daemons, clients and a storage account over simulated TCP: what is cut,
//! held back, killed and stopped, and what clients are told of it. Each history
//! is checked as a whole besides.

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

use leasehold_turmoil::{client::Order, daemon::Setup, stage::Stage};

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A holder at the first daemon, and a waiter at the last.
struct Two {
    stage: Stage,
    holder: usize,
    waiter: usize,
    token: u64,
}

/// The only lock.
const LOCK: u32 = 0;

fn holder_and_waiter(seed: u64, daemons: usize) -> Two {
    set_up(seed, daemons, Setup::default())
}

fn set_up(seed: u64, daemons: usize, setup: Setup) -> Two {
    let mut stage = Stage::new(seed, setup, daemons, 1);
    let (holder, waiter) = (stage.client(0), stage.client(daemons - 1));
    let token = stage.acquire(holder, LOCK, seconds(5));
    stage.seat(waiter).order(Order::Acquire(LOCK, None));
    stage.run(seconds(20));
    assert!(stage.seat(waiter).seen().granted.is_empty(), "the lock is held");
    Two { stage, holder, waiter, token }
}

impl Two {
    /// The waiter gets the lock by then, with a higher token.
    fn hands_over(&mut self, within: Duration) {
        let waiter = self.waiter;
        self.stage.run_until("the waiter's grant", within, |stage| {
            !stage.seat(waiter).seen().granted.is_empty()
        });
        assert!(self.stage.token(waiter) > self.token, "tokens rise");
    }

    /// The holder has what it had, in the same session, and nobody else got it.
    fn nothing_happened(&self) {
        let holder = self.stage.seat(self.holder).seen();
        assert_eq!(holder.granted.len(), 1);
        assert!(holder.lost.is_empty(), "{:?}", holder.lost);
        assert!(self.stage.seat(self.waiter).seen().granted.is_empty());
    }

    /// The holder was told of its loss, at its deadline or before. Gives when.
    fn knows_of_its_loss(&self) -> Duration {
        let holder = self.stage.seat(self.holder).seen();
        assert_eq!(holder.lost.len(), 1, "it is told once");
        let (when, deadline, _) = holder.lost[0];
        assert!(when <= deadline + SLACK, "lost at {when:?}, but its deadline was {deadline:?}");
        when
    }
}

/// A timer of the runtime is late by a millisecond at most.
const SLACK: Duration = Duration::from_millis(2);
