//! The state of a lock, as a simulation records it.

use leasehold_time::Moment;
use leasehold_types::LockName;

use super::Sessions;

impl Sessions {
    /// The first token of a hold, and until when its lease can be counted on.
    #[must_use]
    pub fn hold(&self, name: &LockName) -> Option<(u64, Moment)> {
        self.locks.hold(name)
    }

    /// In which state a lock is, as numbers.
    #[must_use]
    pub fn lock_state(&self, name: &LockName) -> Option<(u8, u8, bool)> {
        self.locks.state(name)
    }
}
