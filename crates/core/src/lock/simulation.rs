//! The state of a lock, as a simulation records it.

use leasehold_time::Moment;
use leasehold_types::LockName;

use super::{lease::Lease, state::Lock, table::Locks};

impl Locks {
    /// The first token of the hold, and until when the lease can be counted on.
    #[must_use]
    pub(crate) fn hold(&self, name: &LockName) -> Option<(u64, Moment)> {
        self.get(self.find(name)?)?.hold()
    }

    /// In which state a lock is, as numbers.
    #[must_use]
    pub(crate) fn state(&self, name: &LockName) -> Option<(u8, u8, bool)> {
        Some(self.get(self.find(name)?)?.state())
    }
}

impl Lock {
    /// The first token of the hold, and until when it can be counted on.
    fn hold(&self) -> Option<(u64, Moment)> {
        match &self.lease {
            Lease::Held { tokens, renewal: Some(renewal), .. } => {
                let (next, _) = tokens.bounds();
                // All that a hold takes begins at a multiple of 1,024; of tokens
                // that are used up, the next is beyond.
                let last = if tokens.is_empty() { next - 1 } else { next };
                Some((last & !1023, renewal.valid_until()))
            }
            _ => None,
        }
    }

    /// In which state it is: its lease (none, acquiring, waiting, held,
    /// releasing), its grant (none, standing, ending), and whether somebody
    /// waits.
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
