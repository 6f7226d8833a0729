//! Log lines of the exporters: one per minute while a collector is unreachable.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tracing::{Event, Level, Subscriber};
use tracing_subscriber::{Layer, layer::Context};

use leasehold_time::Moment;

/// Minimum time between two lines.
const INTERVAL: Duration = Duration::from_secs(60);

/// Layer that suppresses repeated lines of the exporters.
#[derive(Debug, Default)]
pub(super) struct FailureLimit {
    last: Mutex<Option<Moment>>,
}

impl FailureLimit {
    fn admits(&self, target: &str, level: Level, now: Moment) -> bool {
        if !target.starts_with("opentelemetry") {
            return true;
        }
        // A failed export also has an error with its cause.
        if target.starts_with("opentelemetry-otlp") && level > Level::ERROR {
            return false;
        }
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = last.is_none_or(|last| now.since(last) >= INTERVAL);
        if is_due {
            *last = Some(now);
        }
        is_due
    }
}

impl<S: Subscriber> Layer<S> for FailureLimit {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        let metadata = event.metadata();
        self.admits(metadata.target(), *metadata.level(), Moment::now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_of_exports_are_logged_once_a_minute() {
        let limit = FailureLimit::default();
        let admits = |target, level, seconds| {
            limit.admits(target, level, Moment::from_boot(Duration::from_secs(seconds)))
        };
        assert!(!admits("opentelemetry-otlp", Level::WARN, 100));
        assert!(admits("opentelemetry_sdk", Level::ERROR, 100));
        assert!(!admits("opentelemetry_sdk", Level::ERROR, 159));
        assert!(admits("leasehold", Level::INFO, 159));
        assert!(admits("opentelemetry_sdk", Level::ERROR, 160));
    }
}
