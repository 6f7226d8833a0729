//! State of a lock, as a simulation records it.

use super::Driver;
use leasehold_time::{ClockPair, Moment};
use leasehold_types::LockName;

impl Driver {
    /// Hold of this daemon for a lock of the default namespace: its first token, and
    /// the instant until which its lease is valid.
    #[must_use]
    pub fn hold(&self, name: &str) -> Option<(u64, Moment)> {
        let name = LockName::parse("", name).ok()?;
        let state = self.state();
        let (first, until) = state.sessions.hold(&name)?;
        // The next event begins with this jump.
        let jump = state.jumps.peek(&ClockPair::now());
        Some((first, until - jump.unwrap_or_default()))
    }

    /// State of a lock of the default namespace: its lease and its grant, each as a
    /// number, and whether there are waiters.
    #[must_use]
    pub fn lock_state(&self, name: &str) -> Option<(u8, u8, bool)> {
        let name = LockName::parse("", name).ok()?;
        self.state().sessions.lock_state(&name)
    }
}
