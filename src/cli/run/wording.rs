//! Sentences about the end of a grant: object, event and cause.

use leasehold_client::{Loss, Operator, Reason, Risk};

use super::Grant;
use crate::cli::output::{lock_name, short_duration};

/// Grant as the subject of a sentence: `lock "orders"`.
pub(super) fn subject<G: Grant>(grant: &G) -> String {
    format!("{} {}", G::KIND, lock_name(grant.namespace(), grant.name()))
}

/// Explanation of a lost grant.
pub(super) fn lost<G: Grant>(grant: &G, loss: &Loss) -> String {
    let subject = subject(grant);
    match (loss.reason, &loss.operator) {
        (Reason::Broken, Some(Operator { by, reason })) => {
            format!("{subject} was broken by {by} ({reason:?})")
        }
        (Reason::StepDown, Some(operator)) => {
            format!("lost {subject}: {}, and the timeout has passed", step_down(operator))
        }
        (Reason::Expired, _) => {
            format!("lost {subject}: its deadline passed without a keep-alive response")
        }
        _ => {
            let prefix = format!("lost lock {}: ", lock_name(grant.namespace(), grant.name()));
            let why = loss.message.strip_prefix(&prefix).unwrap_or(&loss.message);
            format!("lost {subject}: {why}")
        }
    }
}

/// Cause of a warning.
pub(super) fn risk(risk: &Risk) -> String {
    match (risk.reason, &risk.operator) {
        (Reason::StoreUnavailable, _) => "lease renewals are failing".to_owned(),
        (Reason::ShuttingDown, _) => "the daemon is shutting down".to_owned(),
        (Reason::StepDown, Some(operator)) => step_down(operator),
        _ => risk.message.clone(),
    }
}

/// Warning, with the action that was taken.
pub(super) fn warning<G: Grant>(grant: &G, risk: &Risk, is_terminated: bool) -> String {
    let (subject, left) = (subject(grant), short_duration(risk.ends_in));
    match (risk.reason, &risk.operator) {
        (Reason::StepDown, Some(Operator { by, reason })) => {
            let name = lock_name(grant.namespace(), grant.name());
            let asked = format!("{by} asked the leader of {name} to step down ({reason:?})");
            match is_terminated {
                true => format!("{asked}; sent SIGTERM, leadership ends in {left}"),
                false => format!("{asked}; {subject} ends in {left}"),
            }
        }
        (Reason::ShuttingDown, _) if is_terminated => {
            format!("the daemon is shutting down; sent SIGTERM, {subject} ends in {left}")
        }
        (Reason::ShuttingDown, _) => {
            format!("the daemon is shutting down; release {subject} within {left}, or it is lost")
        }
        (Reason::StoreUnavailable, _) => format!(
            "{subject} is at risk: lease renewals are failing; it will be lost in {left} unless \
             the storage recovers"
        ),
        _ => format!("{subject} is at risk: {}; it may be lost in {left}", risk.message),
    }
}

fn step_down(Operator { by, reason }: &Operator) -> String {
    format!("{by} asked the leader to step down ({reason:?})")
}
