//! Values of the driver and the store that are read when metrics are exported.

use super::{Driver, diagnose::SURVEY_STEP};
use crate::telemetry::metrics::{Family, Reading};
use leasehold_core::session::Survey;
use leasehold_time::Moment;
use tokio::task::yield_now;

impl Driver {
    /// Returns the current values of all metrics; none if they are not counted.
    pub async fn metrics(&self) -> Option<Vec<Family>> {
        let metrics = self.state().telemetry.metrics()?;
        let reading = Reading {
            locks: self.survey().await,
            sessions: self.state().sessions.session_counts(),
            store: self.shared.store.stats(),
            is_available: self.shared.store.unavailability().is_none(),
        };
        Some(metrics.gather(&reading))
    }

    /// Counts all locks. Other events are handled in between.
    async fn survey(&self) -> Survey {
        let mut survey = Survey::new(0);
        loop {
            self.state_after_timers().sessions.survey(&mut survey, SURVEY_STEP, Moment::now());
            if survey.is_complete() {
                return survey;
            }
            yield_now().await;
        }
    }
}
