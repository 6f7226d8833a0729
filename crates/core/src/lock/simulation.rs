//! State of a lock, as the simulation records it.

use leasehold_time::Moment;
use leasehold_types::LockName;

use super::{lease::Lease, state::Lock, table::Locks};

impl Locks {
    /// Returns the first token of the hold, and the end of the lease's validity.
    #[must_use]
    pub(crate) fn hold(&self, name: &LockName) -> Option<(u64, Moment)> {
        self.get(self.find(name)?)?.hold()
    }

    /// Returns the state of a lock, as numbers.
    #[must_use]
    pub(crate) fn state(&self, name: &LockName) -> Option<(u8, u8, bool)> {
        Some(self.get(self.find(name)?)?.state())
    }
}

impl Lock {
    /// Returns the first token of the hold, and the end of the lease's validity.
    fn hold(&self) -> Option<(u64, Moment)> {
        match &self.lease {
            Lease::Held { tokens, renewal: Some(renewal), .. } => {
                let (next, _) = tokens.bounds();
                // A token range begins at a multiple of 1,024. If the range is used up, the
                // next token is beyond it.
                let last = if tokens.is_empty() { next - 1 } else { next };
                Some((last & !1023, renewal.valid_until()))
            }
            _ => None,
        }
    }

    /// Returns the states of the lease (none, acquiring, waiting, held, releasing) and
    /// of the grant (none, active, ending), and whether the lock has a waiter.
    const fn state(&self) -> (u8, u8, bool) {
        let lease = match self.lease {
            Lease::None => 0,
            Lease::Acquiring { .. } => 1,
            Lease::Waiting(_) => 2,
            Lease::Held { .. } => 3,
            Lease::Releasing { .. } => 4,
        };
        let grant = match &self.grant {
            None => 0,
            Some(grant) if grant.is_active() => 1,
            Some(_) => 2,
        };
        (lease, grant, self.queue.is_some())
    }
}
