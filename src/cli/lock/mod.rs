//! `lock`: run a command while holding a lock.
//!
//! The way: wait for the lock ([`wait`]), start the keeper and the command
//! ([`launch`]), run it under [`supervise`], give the lock back.

mod job;
mod launch;
mod notes;
mod status_line;
mod supervise;
mod vigil;
mod wait;

use std::{ffi::OsString, fmt, path::Path, process::ExitCode, time::Duration};

use leasehold_client::{Client, Guard, LockRequest};

pub(super) use launch::Launch;

use self::{
    notes::Notes,
    supervise::{Ended, Supervisor},
    vigil::Vigil,
    wait::Denied,
};
use super::{
    Globals,
    exit::Failure,
    output::Output,
    process::{Signal, Signals},
};
use crate::clock::{self, Moment};

/// The signals that are passed on to the command.
const HEARD: [Signal; 8] = [
    Signal::SIGTERM,
    Signal::SIGINT,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGTSTP,
    Signal::SIGCONT,
];

/// How long the daemon has at least to hear that we do not want the lock any
/// more. If it does not, the session's ttl tells it.
const FAREWELL: Duration = Duration::from_secs(1);

/// As much of the command's name as is shown to others.
const LONGEST_NAME_SHOWN: usize = 64;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "The command sees LEASEHOLD_LOCK, LEASEHOLD_NAMESPACE and LEASEHOLD_TOKEN in its \
environment. No shell is in between; signals are passed on to it.

Hand LEASEHOLD_TOKEN to the resource that NAME protects, and let the resource refuse a token that \
is smaller than one it has seen. No lock service can stop a command that was paused while it was \
writing; the token can.

When the lock is lost, or can't be kept alive, the command and its whole process group get SIGTERM \
early, and SIGKILL shortly before the lock could be granted to somebody else. This holds also if \
`leasehold lock` itself is stopped or killed. What the command leaves running in the background \
when it ends is not waited for, and not protected.

Exit codes:
  the command's own; 128 + N if it died of signal N, or signal N ended the wait
  64   the command line is wrong
  65   NAME, --ttl or the like is not acceptable
  69   the daemon can't be reached, or can't serve this now
  73   the lock was lost while the command ran
  75   the lock was not granted in time
  126  the command can't be run
  127  the command was not found

Examples:
  leasehold lock nightly-report -- ./report.sh
  leasehold lock deploy --no-wait -- make deploy
  leasehold lock orders --wait 30s --longest-hold 5m -- sh -c './import --fence $LEASEHOLD_TOKEN'"
)]
pub(super) struct Lock {
    /// The lock: 1 to 256 bytes without control characters
    name: String,
    /// How long to wait for it; without this, for ever
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    wait: Option<Duration>,
    /// Give up at once if it is held
    #[arg(long, conflicts_with = "wait")]
    no_wait: bool,
    /// How long the lock outlives this process if it dies: 1s to 60s; without this, as the daemon
    /// is set
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    ttl: Option<Duration>,
    /// Lose the lock after this time at the latest, at least 1s
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    longest_hold: Option<Duration>,
    /// How long the storage lease lasts without a renewal, 15s to 60s, if it
    /// must be acquired for this; else as the daemon is configured
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    lease_duration: Option<Duration>,
    /// Tell others something about the holder; several are possible
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_label)]
    label: Vec<(String, String)>,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

impl Lock {
    pub(super) async fn run(self, globals: &Globals) -> Result<ExitCode, Failure> {
        let client = self.connect(globals).await?;
        let notes = Notes::begin(globals.output)?;
        let ended = self.run_with(&client, globals.output, &notes).await;
        // The lock is given back: now there is time for who reads slowly.
        notes.written().await;
        ended
    }

    async fn run_with(
        self,
        client: &Client,
        output: Output,
        notes: &Notes,
    ) -> Result<ExitCode, Failure> {
        let mut signals = Signals::listen(&HEARD)?;
        let limit = if self.no_wait { Some(Duration::ZERO) } else { self.wait };
        let waiting = wait::Waiting::new(&self.name, limit, output, notes.clone());
        let guard = match waiting.acquire(self.request(client), &mut signals).await {
            Ok(guard) => guard,
            Err(denied) => {
                within(Moment::now() + FAREWELL, &mut signals, client.close()).await;
                return match denied {
                    Denied::Refused(error) => Err((*error).into()),
                    Denied::Interrupted(signal) => Ok(ExitCode::from(supervise::code_of(signal))),
                };
            }
        };
        let vigil = Vigil::over(self.validity(client, &guard));
        let mut supervisor = Supervisor::new(&guard, vigil, self.longest_hold, notes);
        let ended = supervisor.run(&self.command, output, &mut signals).await;
        give_back(guard, client, &mut signals, notes).await;
        match ended? {
            Ended::Itself(code) => Ok(ExitCode::from(code)),
            Ended::Lost(cause) => {
                let message = format!("lock {:?}: {}", self.name, cause.message);
                Err(Failure::lost(&self.name, cause.reason, message))
            }
        }
    }

    async fn connect(&self, globals: &Globals) -> Result<Client, Failure> {
        let program = self.command.first().map(Path::new).and_then(Path::file_name);
        let program = program.map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let program: String = program.chars().take(LONGEST_NAME_SHOWN).collect();
        let mut builder = globals.builder().client_name(format!("leasehold lock: {program}"));
        if let Some(ttl) = self.ttl {
            builder = builder.ttl(ttl);
        }
        for (key, value) in &self.label {
            builder = builder.label(key, value);
        }
        Ok(builder.connect().await?)
    }

    fn request(&self, client: &Client) -> LockRequest {
        let mut request = client.lock(&self.name);
        if let Some(limit) = self.wait {
            request = request.wait(limit);
        }
        if self.no_wait {
            request = request.no_wait();
        }
        if let Some(limit) = self.longest_hold {
            request = request.longest_hold(limit);
        }
        if let Some(duration) = self.lease_duration {
            request = request.lease_duration(duration);
        }
        request
    }

    /// How long the grant is valid after each sign of life, at most.
    fn validity(&self, client: &Client, guard: &Guard) -> Duration {
        let ttl = client.session().map(|session| session.ttl);
        let ttl = ttl.unwrap_or_else(|| guard.deadline().remaining());
        self.longest_hold.map_or(ttl, |limit| limit.min(ttl))
    }
}

/// Gives the lock back, unless that takes until it is free anyway.
async fn give_back(guard: Guard, client: &Client, signals: &mut Signals, notes: &Notes) {
    let (name, was_valid) = (guard.name().to_owned(), guard.is_valid());
    let limit = guard.deadline().max(Moment::now() + FAREWELL);
    let not_given_back = |why: &dyn fmt::Display| {
        if was_valid {
            notes.tell(format_args!(
                "could not give back {name:?}; it is free after its ttl: {why}"
            ));
        }
    };
    // Those that came before were for the command.
    signals.forget().await;
    let mut answered = false;
    let released = async {
        let released = guard.release().await;
        answered = true;
        if let Err(error) = released {
            not_given_back(&error);
        }
        client.close().await;
    };
    within(limit, signals, released).await;
    if !answered {
        not_given_back(&"the daemon does not answer");
    }
}

/// Does `work`, but not for longer than that, nor when a signal asks us to
/// end.
async fn within(limit: Moment, signals: &mut Signals, work: impl Future<Output = ()>) {
    tokio::select! {
        biased;
        () = work => {}
        () = clock::sleep_until(limit) => {}
        () = wait::asked_to_end(signals) => {}
    }
}

fn parse_label(text: &str) -> Result<(String, String), String> {
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
