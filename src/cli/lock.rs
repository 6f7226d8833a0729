//! `lock`: run a command while holding a lock.

use std::{ffi::OsString, process::ExitCode, time::Duration};

use leasehold_client::{Client, LockRequest};
use tokio::sync::watch;

use super::{
    Globals,
    designated::Which,
    exit::Failure,
    output::Output,
    process::{self, Signals},
    run::{self, Aim, Denied, Ended, Notes, Program, Seen, Supervisor, Terms, Waiting},
};
use crate::clock::Moment;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "The command sees LEASEHOLD_LOCK, LEASEHOLD_NAMESPACE and LEASEHOLD_TOKEN in its \
environment. No shell is in between; signals are passed on to it.

Hand LEASEHOLD_TOKEN to the resource that NAME protects, and let the resource refuse a token that \
is smaller than one it has seen. No lock service can stop a command that was paused while it was \
writing; the token can.

A lock can be designated for a resource of a storage account (--table and the like): its name \
follows from the resource, so that all programs that touch it agree without talking. The locks of a \
table and of one of its partitions are two, and so are those of a container and of a blob in it.

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
  leasehold lock --table orders --account acme -- ./import
  leasehold lock orders --wait 30s --longest-hold 5m -- sh -c './import --fence $LEASEHOLD_TOKEN'"
)]
pub(super) struct Lock {
    #[command(flatten)]
    which: Which,
    /// What that comes to.
    #[arg(skip)]
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
    #[arg(long, value_name = "KEY=VALUE", value_parser = run::parse_label)]
    label: Vec<(String, String)>,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

impl Lock {
    pub(super) async fn run(mut self, globals: &Globals) -> Result<ExitCode, Failure> {
        self.name = self.which.lock_name()?;
        let client = self.connect(globals).await?;
        let notes = Notes::begin(globals.output)?;
        process::reap_orphans()?;
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
        let mut signals = Signals::listen(&run::HEARD)?;
        let limit = if self.no_wait { Some(Duration::ZERO) } else { self.wait };
        let waiting = Waiting::new(Aim::Hold(&self.name), limit, output, notes.clone());
        let (sender, news) = watch::channel(Seen::default());
        let request = self.request(client).on_progress(move |progress| {
            sender.send_modify(|seen| seen.progress = Some((progress, Moment::now())));
        });
        let guard = match waiting.until(request.acquire(), news, &mut signals).await {
            Ok(guard) => guard,
            Err(denied) => {
                run::close(client, &mut signals).await;
                return match denied {
                    Denied::Refused(error) => Err((*error).into()),
                    Denied::Interrupted(signal) => Ok(ExitCode::from(run::code_of(signal))),
                };
            }
        };
        let validity = run::validity(client, &guard);
        let terms = Terms {
            validity: self.longest_hold.map_or(validity, |limit| limit.min(validity)),
            longest_hold: self.longest_hold,
            drain: None,
            notes,
        };
        let program = Program { command: &self.command, environment: &[], output };
        let mut supervisor = Supervisor::new(&guard, &terms);
        let ended = supervisor.run(&program, std::future::pending(), &mut signals).await;
        run::give_back(guard, &mut signals, notes).await;
        run::close(client, &mut signals).await;
        match ended? {
            Ended::Itself(code) | Ended::Stopped { code, .. } => Ok(ExitCode::from(code)),
            Ended::Lost(cause) => {
                let message = format!("lock {:?}: {}", self.name, cause.message);
                Err(Failure::lost(&self.name, cause.reason, message))
            }
        }
    }

    async fn connect(&self, globals: &Globals) -> Result<Client, Failure> {
        let mut builder = globals.builder().client_name(run::client_name("lock", &self.command));
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
}
