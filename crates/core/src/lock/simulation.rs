//! State of a lock, as a simulation records it.

use super::{
    Locks,
    state::{Lease, Lock},
};
use leasehold_time::Moment;
use leasehold_types::LockName;

impl Locks {
    /// First token of the hold, and the instant until which its lease is valid.
    #[must_use]
    pub fn hold(&self, name: &LockName) -> Option<(u64, Moment)> {
        hold(self.get(self.find(name)?)?)
    }

    /// State of the lease (none, acquiring, waiting, held, releasing) and of the
    /// grant (none, active, ended), each as a number, and whether there are waiters.
    #[must_use]
    pub fn state(&self, name: &LockName) -> Option<(u8, u8, bool)> {
        let lock = self.get(self.find(name)?)?;
        let lease = match lock.lease {
            Lease::None => 0,
            Lease::Acquiring { .. } => 1,
            Lease::Waiting(_) => 2,
            Lease::Held { .. } => 3,
            Lease::Releasing { .. } => 4,
        };
        let grant = match &lock.grant {
            None => 0,
            Some(grant) if grant.ends_at.is_none() => 1,
            Some(_) => 2,
        };
        Some((lease, grant, lock.waiting() > 0))
    }
}

fn hold(lock: &Lock) -> Option<(u64, Moment)> {
    match &lock.lease {
        Lease::Held { tokens, term: Some(term), .. } => {
            let (next, _) = tokens.bounds();
            // The range of a hold begins at a multiple of 1,024. If it is used up,
            // the next token is beyond it.
            let last = if tokens.is_empty() { next - 1 } else { next };
            Some((last & !1023, term.certain_until()))
        }
        _ => None,
    }
}
