//! The checks, by groups. Each is a pass or a sort over the history: it is done
//! a hundred thousand times.

mod election;
pub(crate) mod linearizable;
pub(crate) mod liveness;
mod nested;
mod orphan;
mod queue;
mod refused;
mod resumed;
mod tokens;
mod validity;

use crate::{History, Violation, index::Index, report::Report};

/// What happened in a history and must not. Twenty at most are told, the first
/// of each kind before the others.
///
/// If entries are out of order, that is all that is told: nothing else could be
/// relied on.
pub fn check(history: &History) -> Vec<Violation> {
    let mut report = Report::default();
    let index = Index::new(history, &mut report);
    if !index.disordered {
        tokens::check(&index, &mut report);
        validity::check(&index, &mut report);
        nested::check(&index, &mut report);
        // I1 to I4 say more precisely what is wrong with a lock.
        for lock in report.trusted(&index.locks) {
            linearizable::check(&index, lock, &mut report);
        }
        liveness::check(&index, &mut report);
        refused::check(&index, &mut report);
        resumed::check(&index, &mut report);
        queue::check(&index, &mut report);
        orphan::check(&index, &mut report);
        election::check(&index, &mut report);
    }
    report.violations(&history.entries)
}
