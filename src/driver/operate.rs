//! Operators' requests: break a lock, ask a leader to step down.

use std::time::Duration;

use super::Driver;
use leasehold_core::session::{Event, LockView};
use leasehold_store as lease;
use leasehold_store::{Break, Breaker};
use leasehold_time::Moment;
use leasehold_types::LockName;

impl Driver {
    /// Breaks a lock. Returns its state before, and the maximum time until it is free;
    /// `None` if it had no holder.
    pub async fn break_lock(
        &self,
        name: LockName,
        breaker: Breaker,
    ) -> Result<(LockView, Option<Duration>), lease::Error> {
        let Breaker { by, reason } = &breaker;
        let (by, reason) = (by.clone(), reason.clone());
        if let Some((before, free_within)) = self.break_here(&name, &breaker) {
            // The holder is notified and the break is logged already. The record is for
            // later reads.
            if let Err(error) = self.shared.store.record_break(&name, breaker).await {
                tracing::warn!(namespace = name.namespace(), lock = name.name(), %error, "failed to record the break");
            }
            return Ok((before, Some(free_within)));
        }
        let before = self.inspect(&name).await?;
        // No peer has a lease to break: the lock has no holder, this daemon acquires or
        // releases the lease, or the store has no peers.
        if before.held.is_none() || !self.shared.store.is_shared() {
            return Ok((before, None));
        }
        let free_within = match self.shared.store.break_lease(&name, breaker).await? {
            Break::Broken { free_within } => Some(free_within),
            Break::NotHeld => None,
            Break::Unknown { why } => {
                return Err(lease::Error::Unavailable { why, retry_after: None });
            }
        };
        tracing::warn!(namespace = name.namespace(), lock = name.name(), %by, reason = &*reason, "broke the lock of another daemon");
        Ok((before, free_within))
    }

    /// Breaks a lock that a session of this daemon holds.
    fn break_here(&self, name: &LockName, breaker: &Breaker) -> Option<(LockView, Duration)> {
        let mut state = self.state_after_timers();
        let now = Moment::now();
        let before = state.sessions.view(name, now);
        let free_within = state.sessions.free_within(name, now)?;
        let Breaker { by, reason } = breaker.clone();
        self.run(&mut state, Event::Break { name: name.clone(), by, reason });
        Some((before, free_within))
    }

    /// Asks the holder of a lock to step down within a time. Returns the lock's state
    /// before, and the time that the holder has; `None` if no session of this daemon
    /// holds the lock.
    pub async fn step_down(
        &self,
        name: LockName,
        breaker: Breaker,
        within: Duration,
    ) -> Result<(LockView, Option<Duration>), lease::Error> {
        {
            let mut state = self.state_after_timers();
            let now = Moment::now();
            if let Some(until) = state.sessions.step_down_deadline(&name, within, now) {
                let before = state.sessions.view(&name, now);
                let Breaker { by, reason } = breaker;
                self.run(&mut state, Event::StepDown { name, by, reason, until });
                return Ok((before, Some(until.since(now))));
            }
        }
        Ok((self.inspect(&name).await?, None))
    }
}
