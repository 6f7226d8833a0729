//! Probes: questions that a healthy command answers in time.

mod command;
mod grpc;
mod http;

use std::{num::NonZeroU32, time::Duration};

pub(super) use self::{command::CommandProbe, grpc::GrpcProbe, http::HttpProbe};
use crate::cli::output::length;
use leasehold_time::Moment;

/// One kind of question.
pub(super) trait Probe {
    /// What people call it.
    const KIND: &'static str;

    /// Asks once. What is wrong is for people. Dropping the future ends it.
    async fn ask(&self) -> Result<(), String>;
}

/// When to ask, and when to believe the answers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timing {
    pub(super) interval: Duration,
    pub(super) timeout: Duration,
    pub(super) threshold: NonZeroU32,
    pub(super) grace: Duration,
}

impl Timing {
    /// Asks again and again until the command is unhealthy; says so, for
    /// people.
    pub(super) async fn watch<P: Probe>(self, probe: &P) -> String {
        let counts_from = Moment::now() + self.grace;
        let mut failures = 0;
        let mut next = Moment::now() + self.interval;
        loop {
            leasehold_runtime::sleep_until(next).await;
            next = Moment::now() + self.interval;
            let answer = self.ask(probe).await;
            failures = match &answer {
                Err(_) if counts_from.has_passed() => failures + 1,
                _ => 0,
            };
            if let Err(problem) = answer
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

    async fn ask(self, probe: &impl Probe) -> Result<(), String> {
        tokio::select! {
            biased;
            answer = probe.ask() => answer,
            () = leasehold_runtime::sleep(self.timeout) => {
                Err(format!("no answer within {}", length(self.timeout)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Answers as planned, then never again.
    struct Plan(Mutex<Vec<bool>>);

    impl Plan {
        fn new(answers: &[bool]) -> Self {
            Self(Mutex::new(answers.iter().rev().copied().collect()))
        }

        fn left(&self) -> usize {
            self.0.lock().unwrap().len()
        }
    }

    impl Probe for Plan {
        const KIND: &'static str = "planned";

        async fn ask(&self) -> Result<(), String> {
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
    async fn only_failures_in_a_row_count() {
        let plan = Plan::new(&[false, false, true, false, true, false, false, false, true]);
        let why = timing(3).watch(&plan).await;
        assert_eq!(why, "the planned probe failed 3 times in a row: sick");
        assert_eq!(plan.left(), 1);
    }

    #[tokio::test]
    async fn no_answer_is_a_failure() {
        let why = timing(1).watch(&Plan::new(&[true])).await;
        assert_eq!(why, "the planned probe failed once: no answer within 1ms");
    }

    #[tokio::test]
    async fn failures_do_not_count_at_first() {
        let plan = Plan::new(&[false]);
        let began = Moment::now();
        let grace = Duration::from_millis(10);
        Timing { grace, ..timing(1) }.watch(&plan).await;
        assert!((began + grace).has_passed());
    }
}
