//! What comes after a term. Pure, but for the jitter of the pauses.

use std::{io, time::Duration};

use leasehold_client::{Error, Reason};

use crate::cli::{
    exit::CANNOT_RUN, exit::Failure, exit::LOST, exit::NOT_FOUND, process::Signal, run::Cause,
    run::Ended, run::Stop, run::code_of,
};
use leasehold_time::Entropy;

/// Pauses after a loss begin with this and double.
const SHORTEST_REST: Duration = Duration::from_millis(100);
const LONGEST_REST: Duration = Duration::from_secs(5);
/// Who has led for this long did not lose the leadership at once.
const BACKOFF_RESET_AFTER: Duration = Duration::from_secs(10);
/// Pauses after a command that failed begin with this and double.
const SHORTEST_RECOVERY: Duration = Duration::from_secs(5);
const LONGEST_RECOVERY: Duration = Duration::from_secs(60);
/// Who has led for this long had recovered.
const RECOVERED: Duration = Duration::from_secs(300);
/// Who was asked to hand over lets others have a turn, also those whose
/// daemons only poll.
const STEP_DOWN_DELAY: Duration = Duration::from_secs(5);

/// What the user wants.
#[derive(Debug, Clone, Copy)]
pub(super) struct Policy {
    pub(super) once: bool,
    pub(super) restart: bool,
}

/// What to do after a term.
#[derive(Debug)]
pub(super) enum Next {
    Exit(u8),
    Fail(Failure),
    Again { rest: Rest, why: String },
}

/// What the pause before the next campaign is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rest {
    /// So that what ends at once is not begun at once again, and this long at
    /// least.
    Breath(Duration),
    /// So that others lead.
    Aside,
    /// So that the command, or what it depends on, recovers.
    Recovery,
}

impl Policy {
    /// After a command has ended; `interrupted` if a signal has asked us to
    /// end since it was started.
    pub(super) fn after(self, name: &str, ended: Ended, interrupted: Option<Signal>) -> Next {
        let quits = self.once || interrupted.is_some();
        match ended {
            Ended::Exited(code) if self.restart && interrupted.is_none() && is_mendable(code) => {
                let why = format!("the command ended with {code}");
                Next::Again { rest: Rest::Recovery, why }
            }
            Ended::Exited(code) | Ended::Stopped { why: Stop::Signal(_), code } => Next::Exit(code),
            Ended::Stopped { code, .. } if interrupted.is_some() => Next::Exit(code),
            Ended::Stopped { why: Stop::Asked(_), .. } if self.once => Next::Exit(0),
            Ended::Stopped { why: Stop::Asked(cause), .. } => {
                Next::Again { rest: rest_after(&cause), why: format!("stepped down from {name:?}") }
            }
            Ended::Stopped { why: Stop::Unhealthy(why), .. } if self.once => Next::Fail(
                Failure::new(LOST, "unhealthy", format!("resigned from {name:?}: {why}")),
            ),
            Ended::Stopped { why: Stop::Unhealthy(_), .. } => {
                Next::Again { rest: Rest::Recovery, why: format!("resigned from {name:?}") }
            }
            Ended::Lost(cause) => {
                if quits {
                    let Cause { reason, message, operator } = cause;
                    Next::Fail(Failure::lost(name, reason, operator.as_ref(), message))
                } else {
                    Next::Again { rest: rest_after(&cause), why: cause.message }
                }
            }
        }
    }

    /// After a campaign that was refused.
    pub(super) fn refused(error: Error) -> Next {
        match error {
            Error::Unavailable { ref message, retry_after } => {
                let rest = Rest::Breath(retry_after.unwrap_or_default());
                Next::Again { rest, why: message.clone() }
            }
            error => Next::Fail(error.into()),
        }
    }
}

fn rest_after(cause: &Cause) -> Rest {
    match cause.reason {
        Some(Reason::StepDown) => Rest::Aside,
        _ => Rest::Breath(Duration::ZERO),
    }
}

/// Whether the next run may end otherwise, and nobody wanted this one to end.
fn is_mendable(code: u8) -> bool {
    let by_keyboard = [code_of(Signal::SIGINT), code_of(Signal::SIGQUIT)];
    ![0, CANNOT_RUN, NOT_FOUND].contains(&code) && !by_keyboard.contains(&code)
}

/// How long to wait before campaigning again.
#[derive(Debug)]
pub(super) struct Pauses {
    entropy: Entropy,
    breath: Duration,
    recovery: Duration,
}

impl Pauses {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { entropy: Entropy::system()?, breath: SHORTEST_REST, recovery: SHORTEST_RECOVERY })
    }

    /// A term has lasted for this long.
    pub(super) fn led_for(&mut self, length: Duration) {
        if length >= BACKOFF_RESET_AFTER {
            self.breath = SHORTEST_REST;
        }
        if length >= RECOVERED {
            self.recovery = SHORTEST_RECOVERY;
        }
    }

    pub(super) fn next(&mut self, rest: Rest) -> Duration {
        let (at_least, length) = match rest {
            Rest::Breath(at_least) => (at_least, &mut self.breath),
            Rest::Aside => (STEP_DOWN_DELAY, &mut self.breath),
            Rest::Recovery => (SHORTEST_RECOVERY, &mut self.recovery),
        };
        let longest = if rest == Rest::Recovery { LONGEST_RECOVERY } else { LONGEST_REST };
        let pause = self.entropy.jitter(*length);
        *length = (*length * 2).min(longest);
        match rest {
            Rest::Recovery => pause.max(at_least),
            // On top, because others have been told the same.
            Rest::Breath(_) | Rest::Aside => at_least.saturating_add(pause),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALM: Policy = Policy { once: false, restart: false };
    const ONCE: Policy = Policy { once: true, restart: false };
    const RESTART: Policy = Policy { once: false, restart: true };

    fn cause(reason: Reason) -> Cause {
        Cause { reason: Some(reason), message: "why".to_owned(), operator: None }
    }

    fn stopped(why: Stop) -> Ended {
        Ended::Stopped { why, code: 143 }
    }

    /// In short.
    fn after(policy: Policy, ended: Ended, interrupted: Option<Signal>) -> String {
        match policy.after("jobs", ended, interrupted) {
            Next::Exit(code) => format!("exit {code}"),
            Next::Fail(Failure::Told(_)) => "fail".to_owned(),
            Next::Fail(Failure::ReaderGone) => panic!("nobody reads"),
            Next::Again { rest, why } => {
                assert!(!why.is_empty());
                format!("{rest:?}")
            }
        }
    }

    #[test]
    fn a_command_that_ends_by_itself_ends_it() {
        for code in [0, 1, 73, 130] {
            for policy in [CALM, ONCE] {
                assert_eq!(after(policy, Ended::Exited(code), None), format!("exit {code}"));
            }
        }
    }

    #[test]
    fn with_restart_only_a_failure_leads_to_the_next_campaign() {
        assert_eq!(after(RESTART, Ended::Exited(1), None), "Recovery");
        assert_eq!(after(RESTART, Ended::Exited(1), Some(Signal::SIGTERM)), "exit 1");
        for code in [0, 126, 127, 130, 131] {
            assert_eq!(after(RESTART, Ended::Exited(code), None), format!("exit {code}"));
        }
    }

    #[test]
    fn a_signal_ends_it() {
        for policy in [CALM, ONCE, RESTART] {
            let interrupted = Some(Signal::SIGTERM);
            let ended = stopped(Stop::Signal(Signal::SIGTERM));
            assert_eq!(after(policy, ended, interrupted), "exit 143");
            let ended = stopped(Stop::Unhealthy("sick".to_owned()));
            assert_eq!(after(policy, ended, interrupted), "exit 143");
            assert_eq!(after(policy, Ended::Lost(cause(Reason::Broken)), interrupted), "fail");
        }
    }

    #[test]
    fn what_ends_the_leadership_decides_how_long_it_rests() {
        let breath = "Breath(0ns)";
        for (ended, expected, once) in [
            (Ended::Lost(cause(Reason::Broken)), breath, "fail"),
            (Ended::Lost(cause(Reason::StepDown)), "Aside", "fail"),
            (stopped(Stop::Asked(cause(Reason::StepDown))), "Aside", "exit 0"),
            (stopped(Stop::Asked(cause(Reason::ShuttingDown))), breath, "exit 0"),
            (stopped(Stop::Unhealthy("sick".to_owned())), "Recovery", "fail"),
        ] {
            let again = match &ended {
                Ended::Lost(cause) => Ended::Lost(cause.clone()),
                Ended::Stopped { why, code } => Ended::Stopped { why: why.clone(), code: *code },
                Ended::Exited(code) => Ended::Exited(*code),
            };
            assert_eq!(after(CALM, ended, None), expected);
            assert_eq!(after(ONCE, again, None), once);
        }
    }

    #[test]
    fn pauses_grow_until_it_has_led_for_a_while() {
        let mut pauses = Pauses::new().unwrap();
        let breath = Rest::Breath(Duration::ZERO);
        assert!(pauses.next(breath) <= SHORTEST_REST);
        for _ in 0..9 {
            pauses.led_for(BACKOFF_RESET_AFTER / 2);
            assert!(pauses.next(breath) <= LONGEST_REST);
        }
        assert!(pauses.next(breath) >= LONGEST_REST / 2);
        pauses.led_for(BACKOFF_RESET_AFTER);
        assert!(pauses.next(breath) <= SHORTEST_REST);
        assert!(pauses.next(Rest::Aside) >= STEP_DOWN_DELAY);
        let asked = Duration::from_secs(7);
        assert!(pauses.next(Rest::Breath(asked)) >= asked);
        for _ in 0..9 {
            let pause = pauses.next(Rest::Recovery);
            assert!((SHORTEST_RECOVERY..=LONGEST_RECOVERY).contains(&pause), "{pause:?}");
        }
        assert!(pauses.next(Rest::Recovery) >= LONGEST_RECOVERY / 2);
        pauses.led_for(RECOVERED);
        assert_eq!(pauses.next(Rest::Recovery), SHORTEST_RECOVERY);
    }

    #[test]
    fn only_what_may_pass_is_tried_again() {
        let asked = Duration::from_secs(7);
        let error = Error::Unavailable { message: "later".to_owned(), retry_after: Some(asked) };
        let Next::Again { rest, why } = Policy::refused(error) else { panic!("it gave up") };
        assert_eq!((rest, why.as_str()), (Rest::Breath(asked), "later"));
        let error = Error::Invalid { field: "value".to_owned(), message: "too large".to_owned() };
        assert!(matches!(Policy::refused(error), Next::Fail(_)));
    }
}
