//! Probes: health checks that a healthy command passes in time.

mod command;
mod grpc;
mod http;

use std::{num::NonZeroU32, time::Duration};

pub(super) use self::{command::CommandProbe, grpc::GrpcProbe, http::HttpProbe};
use crate::cli::output::short_duration;
use leasehold_time::Moment;

/// Kind of probe.
pub(super) trait Probe {
    /// Name in messages.
    const KIND: &'static str;

    /// Probes once. The error is human-readable. Dropping the future ends the probe.
    async fn check(&self) -> Result<(), String>;
}

/// Schedule and threshold of a probe.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timing {
    pub(super) interval: Duration,
    pub(super) timeout: Duration,
    pub(super) threshold: NonZeroU32,
    pub(super) grace: Duration,
}

impl Timing {
    /// Probes repeatedly until the command is unhealthy, and returns the cause as text.
    pub(super) async fn watch<P: Probe>(self, probe: &P) -> String {
        let grace_end = Moment::now() + self.grace;
        let mut failures = 0;
        let mut next = Moment::now() + self.interval;
        loop {
            leasehold_runtime::sleep_until(next).await;
            next = Moment::now() + self.interval;
            let result = self.check(probe).await;
            failures = match &result {
                Err(_) if grace_end.has_passed() => failures + 1,
                _ => 0,
            };
            if let Err(problem) = result
                && failures >= self.threshold.get()
            {
                let times = if failures == 1 {
                    "once".to_owned()
                } else {
                    format!("{failures} times in a row")
                };
                return format!("the {} probe failed {times}: {problem}", P::KIND);
            }
        }
    }

    async fn check(self, probe: &impl Probe) -> Result<(), String> {
        tokio::select! {
            biased;
            result = probe.check() => result,
            () = leasehold_runtime::sleep(self.timeout) => {
                Err(format!("no response within {}", short_duration(self.timeout)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Probe with planned results. After the last one, it never returns.
    struct Plan(Mutex<Vec<bool>>);

    impl Plan {
        fn new(results: &[bool]) -> Self {
            Self(Mutex::new(results.iter().rev().copied().collect()))
        }

        fn remaining(&self) -> usize {
            self.0.lock().unwrap().len()
        }
    }

    impl Probe for Plan {
        const KIND: &'static str = "planned";

        async fn check(&self) -> Result<(), String> {
            let next = self.0.lock().unwrap().pop();
            match next {
                Some(true) => Ok(()),
                Some(false) => Err("sick".to_owned()),
                None => std::future::pending().await,
            }
        }
    }

    fn timing(threshold: u32) -> Timing {
        Timing {
            interval: Duration::from_millis(1),
            timeout: Duration::from_millis(1),
            threshold: NonZeroU32::new(threshold).unwrap(),
            grace: Duration::ZERO,
        }
    }

    #[tokio::test]
    async fn only_consecutive_failures_count() {
        let plan = Plan::new(&[false, false, true, false, true, false, false, false, true]);
        let cause = timing(3).watch(&plan).await;
        assert_eq!(cause, "the planned probe failed 3 times in a row: sick");
        assert_eq!(plan.remaining(), 1);
    }

    #[tokio::test]
    async fn missing_response_is_a_failure() {
        let cause = timing(1).watch(&Plan::new(&[true])).await;
        assert_eq!(cause, "the planned probe failed once: no response within 1ms");
    }

    #[tokio::test]
    async fn failures_within_grace_do_not_count() {
        let plan = Plan::new(&[false]);
        let start = Moment::now();
        let grace = Duration::from_millis(10);
        Timing { grace, ..timing(1) }.watch(&plan).await;
        assert!((start + grace).has_passed());
    }
}
