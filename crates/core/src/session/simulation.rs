//! State of a lock, as the simulation records it.

use leasehold_time::Moment;
use leasehold_types::LockName;

use super::Sessions;

impl Sessions {
    /// Returns the first token of a hold, and the end of its lease's validity.
    #[must_use]
    pub fn hold(&self, name: &LockName) -> Option<(u64, Moment)> {
        self.locks.hold(name)
    }

    /// Returns the state of a lock, as numbers.
    #[must_use]
    pub fn lock_state(&self, name: &LockName) -> Option<(u8, u8, bool)> {
        self.locks.state(name)
    }
}
