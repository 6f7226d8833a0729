//! Availability of the account, as recent calls found it.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use super::fault::Fault;
use leasehold_time::Moment;

/// Minimum length of an outage. Shorter failures are ignored.
const TRANSIENT_WINDOW: Duration = Duration::from_secs(3);

/// Current failure of the account, if there is one.
#[derive(Default)]
pub(crate) struct Health(Mutex<Option<Failing>>);

struct Failing {
    since: Moment,
    why: String,
    /// Set if the failure lasted long enough for a log line.
    logged: bool,
}

impl Health {
    /// Records the outcome of a call.
    pub(crate) fn note(&self, fault: Option<&Fault>) {
        let mut failing = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match (fault.filter(|fault| fault.is_account_failure()), &mut *failing) {
            (None, None) => {}
            (None, Some(before)) => {
                if before.logged {
                    let outage = humantime::format_duration(seconds(before.since)).to_string();
                    tracing::info!(outage, "storage account recovered");
                }
                *failing = None;
            }
            (Some(fault), None) => {
                *failing = Some(Failing { since: Moment::now(), why: fault.why(), logged: false });
            }
            (Some(fault), Some(before)) => {
                before.why = fault.why();
                if !before.logged && Moment::now().since(before.since) >= TRANSIENT_WINDOW {
                    before.logged = true;
                    tracing::warn!("{}", before.why);
                }
            }
        }
    }

    /// Reason why the account is unavailable; none if it is available.
    pub(crate) fn unavailability(&self) -> Option<String> {
        let failing = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let lasting = |failing: &&Failing| Moment::now().since(failing.since) >= TRANSIENT_WINDOW;
        failing.as_ref().filter(lasting).map(|failing| failing.why.clone())
    }
}

fn seconds(since: Moment) -> Duration {
    Duration::from_secs(Moment::now().since(since).as_secs())
}
