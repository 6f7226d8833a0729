//! Decides what follows a term. Sans-IO, except for the jitter of the delays.

use std::{io, time::Duration};

use leasehold_client::{Error, Reason};

use crate::cli::{
    exit::CANNOT_RUN, exit::Failure, exit::LOST, exit::NOT_FOUND, process::Signal, run::Cause,
    run::Ended, run::Stop, run::code_of,
};
use leasehold_time::Entropy;

/// First delay after a loss. It doubles with each loss.
const MIN_LOSS_DELAY: Duration = Duration::from_millis(100);
/// Maximum delay after a loss.
const MAX_LOSS_DELAY: Duration = Duration::from_secs(5);
/// Length of a term that resets the delay after a loss.
const BACKOFF_RESET_AFTER: Duration = Duration::from_secs(10);
/// First delay after a failure of the command. It doubles with each failure.
const MIN_RESTART_DELAY: Duration = Duration::from_secs(5);
/// Maximum delay after a failure of the command.
const MAX_RESTART_DELAY: Duration = Duration::from_secs(60);
/// Length of a term that resets the delay after a failure.
const RESTART_RESET_AFTER: Duration = Duration::from_secs(300);
/// Minimum delay after a step-down. Longer than the default poll interval, so that
/// candidates of other daemons can lead.
const STEP_DOWN_DELAY: Duration = Duration::from_secs(5);

/// Options of the user.
#[derive(Debug, Clone, Copy)]
pub(super) struct Policy {
    pub(super) once: bool,
    pub(super) restart: bool,
}

/// Action after a term.
#[derive(Debug)]
pub(super) enum Next {
    Exit(u8),
    Fail(Failure),
    /// Campaign again after a delay. `cause` is human-readable.
    Again {
        purpose: DelayPurpose,
        cause: String,
    },
}

/// Purpose of the delay before the next campaign.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DelayPurpose {
    /// Back off after a loss or a refused campaign; the delay has this minimum.
    Backoff(Duration),
    /// Let other candidates lead.
    StepDown,
    /// Let the command, or its dependencies, recover.
    Restart,
}

impl Policy {
    /// Decides after the end of the command. `interrupted` is the signal that has
    /// asked this process to exit since its start, if any.
    pub(super) fn after(self, name: &str, ended: Ended, interrupted: Option<Signal>) -> Next {
        let is_last = self.once || interrupted.is_some();
        match ended {
            Ended::Exited(code) if self.restart && interrupted.is_none() && is_retryable(code) => {
                let cause = format!("the command exited with {code}");
                Next::Again { purpose: DelayPurpose::Restart, cause }
            }
            Ended::Exited(code) | Ended::Stopped { stop: Stop::Signal(_), code } => {
                Next::Exit(code)
            }
            Ended::Stopped { code, .. } if interrupted.is_some() => Next::Exit(code),
            Ended::Stopped { stop: Stop::Requested(_), .. } if self.once => Next::Exit(0),
            Ended::Stopped { stop: Stop::Requested(cause), .. } => Next::Again {
                purpose: purpose_after(&cause),
                cause: format!("stepped down from {name:?}"),
            },
            Ended::Stopped { stop: Stop::Unhealthy(problem), .. } if self.once => Next::Fail(
                Failure::new(LOST, "unhealthy", format!("resigned from {name:?}: {problem}")),
            ),
            Ended::Stopped { stop: Stop::Unhealthy(_), .. } => Next::Again {
                purpose: DelayPurpose::Restart,
                cause: format!("resigned from {name:?}"),
            },
            Ended::Lost(cause) => {
                if is_last {
                    let Cause { reason, message, operator } = cause;
                    Next::Fail(Failure::lost(name, reason, operator.as_ref(), message))
                } else {
                    Next::Again { purpose: purpose_after(&cause), cause: cause.message }
                }
            }
        }
    }

    /// Decides after a refused campaign.
    pub(super) fn refused(error: Error) -> Next {
        match error {
            Error::Unavailable { ref message, retry_after } => {
                let purpose = DelayPurpose::Backoff(retry_after.unwrap_or_default());
                Next::Again { purpose, cause: message.clone() }
            }
            error => Next::Fail(error.into()),
        }
    }
}

fn purpose_after(cause: &Cause) -> DelayPurpose {
    match cause.reason {
        Some(Reason::StepDown) => DelayPurpose::StepDown,
        _ => DelayPurpose::Backoff(Duration::ZERO),
    }
}

/// Returns whether another run may succeed: the command could be run, failed, and was
/// not interrupted from the keyboard.
fn is_retryable(code: u8) -> bool {
    let interrupts = [code_of(Signal::SIGINT), code_of(Signal::SIGQUIT)];
    ![0, CANNOT_RUN, NOT_FOUND].contains(&code) && !interrupts.contains(&code)
}

/// Growing delays before the next campaign.
#[derive(Debug)]
pub(super) struct Backoff {
    entropy: Entropy,
    loss_delay: Duration,
    restart_delay: Duration,
}

impl Backoff {
    pub(super) fn new() -> io::Result<Self> {
        let entropy = Entropy::system()?;
        Ok(Self { entropy, loss_delay: MIN_LOSS_DELAY, restart_delay: MIN_RESTART_DELAY })
    }

    /// Resets the delays after a sufficiently long term.
    pub(super) fn on_term(&mut self, duration: Duration) {
        if duration >= BACKOFF_RESET_AFTER {
            self.loss_delay = MIN_LOSS_DELAY;
        }
        if duration >= RESTART_RESET_AFTER {
            self.restart_delay = MIN_RESTART_DELAY;
        }
    }

    /// Returns the next delay, and doubles the one after it.
    pub(super) fn delay(&mut self, purpose: DelayPurpose) -> Duration {
        let (min, max, current) = match purpose {
            DelayPurpose::Backoff(min) => (min, MAX_LOSS_DELAY, &mut self.loss_delay),
            DelayPurpose::StepDown => (STEP_DOWN_DELAY, MAX_LOSS_DELAY, &mut self.loss_delay),
            DelayPurpose::Restart => {
                (MIN_RESTART_DELAY, MAX_RESTART_DELAY, &mut self.restart_delay)
            }
        };
        let delay = self.entropy.jitter(*current);
        *current = (*current * 2).min(max);
        match purpose {
            DelayPurpose::Restart => delay.max(min),
            // Added, because other candidates have received the same minimum.
            DelayPurpose::Backoff(_) | DelayPurpose::StepDown => min.saturating_add(delay),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEFAULT: Policy = Policy { once: false, restart: false };
    const ONCE: Policy = Policy { once: true, restart: false };
    const RESTART: Policy = Policy { once: false, restart: true };

    fn cause(reason: Reason) -> Cause {
        Cause { reason: Some(reason), message: "cause".to_owned(), operator: None }
    }

    fn stopped(stop: Stop) -> Ended {
        Ended::Stopped { stop, code: 143 }
    }

    /// Summary of the action.
    fn after(policy: Policy, ended: Ended, interrupted: Option<Signal>) -> String {
        match policy.after("jobs", ended, interrupted) {
            Next::Exit(code) => format!("exit {code}"),
            Next::Fail(Failure::Error(_)) => "fail".to_owned(),
            Next::Fail(Failure::ReaderGone) => panic!("not reported"),
            Next::Again { purpose, cause } => {
                assert!(!cause.is_empty());
                format!("{purpose:?}")
            }
        }
    }

    #[test]
    fn exit_of_command_ends_elect() {
        for code in [0, 1, 73, 130] {
            for policy in [DEFAULT, ONCE] {
                assert_eq!(after(policy, Ended::Exited(code), None), format!("exit {code}"));
            }
        }
    }

    #[test]
    fn restart_campaigns_again_after_failure_only() {
        assert_eq!(after(RESTART, Ended::Exited(1), None), "Restart");
        assert_eq!(after(RESTART, Ended::Exited(1), Some(Signal::SIGTERM)), "exit 1");
        for code in [0, 126, 127, 130, 131] {
            assert_eq!(after(RESTART, Ended::Exited(code), None), format!("exit {code}"));
        }
    }

    #[test]
    fn signal_ends_elect() {
        for policy in [DEFAULT, ONCE, RESTART] {
            let interrupted = Some(Signal::SIGTERM);
            let ended = stopped(Stop::Signal(Signal::SIGTERM));
            assert_eq!(after(policy, ended, interrupted), "exit 143");
            let ended = stopped(Stop::Unhealthy("sick".to_owned()));
            assert_eq!(after(policy, ended, interrupted), "exit 143");
            assert_eq!(after(policy, Ended::Lost(cause(Reason::Broken)), interrupted), "fail");
        }
    }

    #[test]
    fn delay_depends_on_end_of_leadership() {
        let backoff = "Backoff(0ns)";
        for (ended, expected, once) in [
            (Ended::Lost(cause(Reason::Broken)), backoff, "fail"),
            (Ended::Lost(cause(Reason::StepDown)), "StepDown", "fail"),
            (stopped(Stop::Requested(cause(Reason::StepDown))), "StepDown", "exit 0"),
            (stopped(Stop::Requested(cause(Reason::ShuttingDown))), backoff, "exit 0"),
            (stopped(Stop::Unhealthy("sick".to_owned())), "Restart", "fail"),
        ] {
            let again = match &ended {
                Ended::Lost(cause) => Ended::Lost(cause.clone()),
                Ended::Stopped { stop, code } => Ended::Stopped { stop: stop.clone(), code: *code },
                Ended::Exited(code) => Ended::Exited(*code),
            };
            assert_eq!(after(DEFAULT, ended, None), expected);
            assert_eq!(after(ONCE, again, None), once);
        }
    }

    #[test]
    fn delays_grow_until_long_term_resets_them() {
        let mut backoff = Backoff::new().unwrap();
        let after_loss = DelayPurpose::Backoff(Duration::ZERO);
        assert!(backoff.delay(after_loss) <= MIN_LOSS_DELAY);
        for _ in 0..9 {
            backoff.on_term(BACKOFF_RESET_AFTER / 2);
            assert!(backoff.delay(after_loss) <= MAX_LOSS_DELAY);
        }
        assert!(backoff.delay(after_loss) >= MAX_LOSS_DELAY / 2);
        backoff.on_term(BACKOFF_RESET_AFTER);
        assert!(backoff.delay(after_loss) <= MIN_LOSS_DELAY);
        assert!(backoff.delay(DelayPurpose::StepDown) >= STEP_DOWN_DELAY);
        let min = Duration::from_secs(7);
        assert!(backoff.delay(DelayPurpose::Backoff(min)) >= min);
        for _ in 0..9 {
            let delay = backoff.delay(DelayPurpose::Restart);
            assert!((MIN_RESTART_DELAY..=MAX_RESTART_DELAY).contains(&delay), "{delay:?}");
        }
        assert!(backoff.delay(DelayPurpose::Restart) >= MAX_RESTART_DELAY / 2);
        backoff.on_term(RESTART_RESET_AFTER);
        assert_eq!(backoff.delay(DelayPurpose::Restart), MIN_RESTART_DELAY);
    }

    #[test]
    fn only_transient_refusals_are_retried() {
        let min = Duration::from_secs(7);
        let error = Error::Unavailable { message: "later".to_owned(), retry_after: Some(min) };
        let Next::Again { purpose, cause } = Policy::refused(error) else { panic!("not retried") };
        assert_eq!((purpose, cause.as_str()), (DelayPurpose::Backoff(min), "later"));
        let error = Error::Invalid { field: "value".to_owned(), message: "too large".to_owned() };
        assert!(matches!(Policy::refused(error), Next::Fail(_)));
    }
}
