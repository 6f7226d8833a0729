//! Whether the account can be used, as the last calls found it.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use super::fault::Fault;
use leasehold_time::Moment;

/// What passes within this time is no trouble.
const TRANSIENT_WINDOW: Duration = Duration::from_secs(3);

/// What the last calls found.
#[derive(Default)]
pub(crate) struct Health(Mutex<Option<Failing>>);

struct Failing {
    since: Moment,
    why: String,
    /// Whether it lasted long enough to be worth a line in the log.
    logged: bool,
}

impl Health {
    /// A call was answered, or was not.
    pub(crate) fn note(&self, fault: Option<&Fault>) {
        let mut failing = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match (fault.filter(|fault| fault.is_trouble()), &mut *failing) {
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

    /// Why the account can't be used, if so.
    pub(crate) fn trouble(&self) -> Option<String> {
        let failing = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let lasting = |failing: &&Failing| Moment::now().since(failing.since) >= TRANSIENT_WINDOW;
        failing.as_ref().filter(lasting).map(|failing| failing.why.clone())
    }
}

fn seconds(since: Moment) -> Duration {
    Duration::from_secs(Moment::now().since(since).as_secs())
}
