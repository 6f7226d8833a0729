//! Checks, one module per group. Each check is a pass or a sort over the history, because
//! the test suites check a hundred thousand histories.

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

/// Returns the violations of a history: at most 20, the first of each kind before the
/// others.
///
/// If entries are out of order, returns only violations of kind [`Malformed`], because the
/// other checks rely on the order.
///
/// [`Malformed`]: crate::Kind::Malformed
pub fn check(history: &History) -> Vec<Violation> {
    let mut report = Report::default();
    let index = Index::new(history, &mut report);
    if !index.disordered {
        tokens::check(&index, &mut report);
        validity::check(&index, &mut report);
        nested::check(&index, &mut report);
        // I1 to I4 describe an error of the same lock more precisely.
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
