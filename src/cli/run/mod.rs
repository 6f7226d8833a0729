//! Runs a command under a grant, for `lock` and `elect`.
//!
//! Steps: wait for the grant ([`wait`]), start the watchdog and the command
//! ([`launch`]), supervise it ([`supervise`]), release the grant.

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

use leasehold_client::{Client, ClientBuilder, Error};

pub(super) use self::{
    grant::Grant,
    launch::{Launch, Program},
    notes::Notes,
    status_line::{WaitState, WaitTarget},
    supervise::{Cause, Ended, Held, RunOptions, Stop, Supervisor, code_of},
    wait::{Denied, Waiting, pause},
};
use super::{
    Globals,
    process::{Signal, Signals},
};
use leasehold_time::Moment;

/// Signals that are forwarded to the command.
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

/// Minimum time for the daemon to confirm a release. An unconfirmed grant ends with
/// the session TTL.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(1);

/// Maximum number of characters of the command in the client's name.
const MAX_NAME_CHARS: usize = 64;

/// Client name, which is printed with the holder.
fn client_name(subcommand: &str, command: &[OsString]) -> String {
    let program = command.first().map(Path::new).and_then(Path::file_name);
    let program = program.map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let program: String = program.chars().take(MAX_NAME_CHARS).collect();
    match program.as_str() {
        "" => format!("leasehold {subcommand}"),
        program => format!("leasehold {subcommand}: {program}"),
    }
}

/// Returns a builder of the client that holds the grant.
pub(super) fn client_builder(
    globals: &Globals,
    subcommand: &str,
    command: &[OsString],
    ttl: Option<Duration>,
    labels: &[(String, String)],
) -> ClientBuilder {
    let mut builder = globals.builder().client_name(client_name(subcommand, command));
    if let Some(ttl) = ttl {
        builder = builder.ttl(ttl);
    }
    labels.iter().fold(builder, |builder, (key, value)| builder.label(key, value))
}

/// Maximum validity of a grant after a keep-alive.
pub(super) fn validity(client: &Client, grant: &impl Grant) -> Duration {
    let ttl = client.session().map(|session| session.ttl);
    ttl.unwrap_or_else(|| grant.deadline().remaining())
}

/// Releases the grant. Reports a failure if there are `notes`. Stops waiting for the
/// response at the grant's deadline, but not before [`RELEASE_TIMEOUT`]. Returns the
/// signal that asked this process to exit in the meantime, if any.
pub(super) async fn release(
    grant: impl Grant,
    signals: &mut Signals,
    notes: Option<&Notes>,
) -> Option<Signal> {
    let (subject, was_valid) = (wording::subject(&grant), grant.is_valid());
    let limit = grant.deadline().max(Moment::now() + RELEASE_TIMEOUT);
    let report_failure = |why: &dyn fmt::Display| {
        if was_valid && let Some(notes) = notes {
            notes.note(format_args!(
                "failed to release {subject}: {why}; it expires with the session TTL"
            ));
        }
    };
    // Earlier signals were for the command: they do not interrupt the release.
    let arrived = signals.take_arrived().await;
    let before = arrived.into_iter().find(|signal| wait::is_exit_signal(*signal));
    let mut is_answered = false;
    let released = async {
        let released = grant.release().await;
        is_answered = true;
        if let Err(error) = released {
            // The client's message contains the time at which the lock expires.
            let why = match &error {
                Error::Unavailable { .. } => "no response from the daemon".to_owned(),
                error => error.to_string(),
            };
            report_failure(&why);
        }
    };
    let during = run_until(limit, signals, released).await;
    if !is_answered {
        report_failure(&"no response from the daemon");
    }
    before.or(during)
}

/// Closes the session. Stops waiting after [`RELEASE_TIMEOUT`].
pub(super) async fn close(client: &Client, signals: &mut Signals) {
    run_until(Moment::now() + RELEASE_TIMEOUT, signals, client.close()).await;
}

/// Runs `work` until it ends, until `limit`, or until a signal asks this process to
/// exit, which is returned.
async fn run_until(
    limit: Moment,
    signals: &mut Signals,
    work: impl Future<Output = ()>,
) -> Option<Signal> {
    tokio::select! {
        biased;
        () = work => None,
        () = leasehold_runtime::sleep_until(limit) => None,
        signal = wait::exit_signal(signals) => Some(signal),
    }
}

/// Parses a label of the command line.
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
    fn labels_have_key_and_value() {
        assert_eq!(parse_label("job=a=b"), Ok(("job".to_owned(), "a=b".to_owned())));
        assert_eq!(parse_label("job="), Ok(("job".to_owned(), String::new())));
        assert!(parse_label("job").is_err());
        assert!(parse_label("=x").is_err());
    }
}
