//! Running a command under a grant: what `lock` and `elect` have in common.
//!
//! The way: wait for the grant ([`wait`]), start the watchdog and the command
//! ([`launch`]), run it under [`supervise`], give the grant back.

mod grant;
mod job;
mod kill_timer;
mod launch;
mod notes;
mod status_line;
mod supervise;
mod wait;
mod wording;

use std::{ffi::OsString, fmt, path::Path, time::Duration};

use leasehold_client::{Client, Error};

pub(super) use self::{
    grant::Grant,
    launch::{Launch, Program},
    notes::Notes,
    status_line::{Seen, WaitTarget},
    supervise::{Cause, Ended, Held, RunOptions, Stop, Supervisor, code_of},
    wait::{Denied, Waiting, pause},
};
use super::process::{Signal, Signals};
use leasehold_time::Moment;

/// The signals that are passed on to the command.
pub(super) const FORWARDED_SIGNALS: [Signal; 8] = [
    Signal::SIGTERM,
    Signal::SIGINT,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGTSTP,
    Signal::SIGCONT,
];

/// How long the daemon has at least to hear that we do not want the grant any
/// more. If it does not, the session's ttl tells it.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(1);

/// As much of the command's name as is shown to others.
const LONGEST_NAME_SHOWN: usize = 64;

/// What others are shown as the holder's program.
pub(super) fn client_name(subcommand: &str, command: &[OsString]) -> String {
    let program = command.first().map(Path::new).and_then(Path::file_name);
    let program = program.map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let program: String = program.chars().take(LONGEST_NAME_SHOWN).collect();
    match program.as_str() {
        "" => format!("leasehold {subcommand}"),
        program => format!("leasehold {subcommand}: {program}"),
    }
}

/// How long a grant is valid after each sign of life, at most.
pub(super) fn validity(client: &Client, grant: &impl Grant) -> Duration {
    let ttl = client.session().map(|session| session.ttl);
    ttl.unwrap_or_else(|| grant.deadline().remaining())
}

/// Gives the grant back, unless that takes until it is free anyway. Says
/// whether a signal has asked us to end meanwhile.
pub(super) async fn give_back(
    grant: impl Grant,
    signals: &mut Signals,
    notes: &Notes,
) -> Option<Signal> {
    let (subject, was_valid) = (wording::subject(&grant), grant.is_valid());
    let limit = grant.deadline().max(Moment::now() + RELEASE_TIMEOUT);
    let not_given_back = |why: &dyn fmt::Display| {
        if was_valid {
            notes.tell(format_args!(
                "failed to release {subject}: {why}; it expires with the session TTL"
            ));
        }
    };
    // Those that came before were for the command: they do not keep the grant
    // from being given back.
    let before = signals.arrived().await.into_iter().find(|signal| wait::asks_to_end(*signal));
    let mut answered = false;
    let given_up = async {
        let given_up = grant.give_up().await;
        answered = true;
        if let Err(error) = given_up {
            // The client's message says when the lock expires.
            let why = match &error {
                Error::Unavailable { .. } => "no response from the daemon".to_owned(),
                error => error.to_string(),
            };
            not_given_back(&why);
        }
    };
    let meanwhile = within(limit, signals, given_up).await;
    if !answered {
        not_given_back(&"no response from the daemon");
    }
    before.or(meanwhile)
}

/// Ends the session, unless the daemon does not hear it in time.
pub(super) async fn close(client: &Client, signals: &mut Signals) {
    within(Moment::now() + RELEASE_TIMEOUT, signals, client.close()).await;
}

/// Does `work`, but not for longer than that, nor when a signal asks us to
/// end, which is returned.
async fn within(
    limit: Moment,
    signals: &mut Signals,
    work: impl Future<Output = ()>,
) -> Option<Signal> {
    tokio::select! {
        biased;
        () = work => None,
        () = leasehold_runtime::sleep_until(limit) => None,
        signal = wait::asked_to_end(signals) => Some(signal),
    }
}

/// A label from the command line.
pub(super) fn parse_label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("must be KEY=VALUE".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_have_a_key_and_a_value() {
        assert_eq!(parse_label("job=a=b"), Ok(("job".to_owned(), "a=b".to_owned())));
        assert_eq!(parse_label("job="), Ok(("job".to_owned(), String::new())));
        assert!(parse_label("job").is_err());
        assert!(parse_label("=x").is_err());
    }
}
