//! Access to the state of a grant for simulations.

use leasehold_runtime::simulation::Peek;

use super::{GrantId, Session};
use crate::Guard;
use leasehold_time::{ClockPair, Moment};

impl Session {
    fn peek(&self, grant: GrantId) -> Option<(Moment, bool)> {
        let (inner, now) = (self.shared.lock(), ClockPair::now());
        let grant = inner.state.grant(grant)?;
        let deadline = grant.deadline(&now);
        Some((deadline, grant.loss().is_none() && now.at() < deadline))
    }
}

#[doc(hidden)]
impl Peek for Guard {
    fn peek(&self) -> Option<(Moment, bool)> {
        self.session.peek(self.grant)
    }
}
