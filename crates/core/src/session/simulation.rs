//! State of a lock, as a simulation records it.

use super::Sessions;
use leasehold_time::Moment;
use leasehold_types::LockName;

impl Sessions {
    /// First token of the hold, and the instant until which its lease is valid.
    #[must_use]
    pub fn hold(&self, name: &LockName) -> Option<(u64, Moment)> {
        self.locks.hold(name)
    }

    /// State of the lease and of the grant, each as a number, and whether there are
    /// waiters.
    #[must_use]
    pub fn lock_state(&self, name: &LockName) -> Option<(u8, u8, bool)> {
        self.locks.state(name)
    }
}
