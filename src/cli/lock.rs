//! `lock`: holds a lock, while a command runs or until interrupted.

use std::{
    ffi::OsString,
    io::{self, IsTerminal},
    process::ExitCode,
    time::Duration,
};

use leasehold_client::{Client, Error, Guard, LockRequest};
use serde_json::json;
use tokio::sync::watch;

use super::{
    Globals,
    designated::LockSelector,
    exit::Failure,
    options::connected,
    output::{Output, lock_name, optional_line},
    process::{self, Signals},
    run::{
        self, Cause, Denied, Ended, Held, Notes, Program, RunOptions, Supervisor, WaitState,
        WaitTarget, Waiting,
    },
    times,
};
use leasehold_time::Moment;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "With COMMAND: runs it while holding the lock. The command sees LEASEHOLD_LOCK, \
LEASEHOLD_NAMESPACE and LEASEHOLD_TOKEN in its environment, and TRACEPARENT within a trace. There \
is no shell in between; signals are forwarded to the command.

Without COMMAND: prints the token, one line, and holds the lock until SIGINT (Ctrl-C), SIGTERM, \
SIGHUP or SIGQUIT; then releases it and exits with 0. With --output json, the line is an object with \
the keys lock, namespace and token. If the lock is lost, it exits with 73 and leaves the lock to \
expire, so that the work that it protects can stop until then.

Pass LEASEHOLD_TOKEN to the resource that the lock protects, and let the resource refuse a token \
lower than the highest it has seen. No lock service can stop the write of a command that was paused \
and resumes after its lock was lost; the token can.

A lock can be designated for a resource of a storage account (--table and others): its name is \
derived from the resource, so that all programs that use the resource agree on it. A table and its \
partitions have different locks, and so do a container and its blobs.

When the lock is lost, or can't be kept alive, the command and its whole process group get SIGTERM \
early, and SIGKILL shortly before the lock could be granted to another client. This holds also if \
`leasehold lock` itself is stopped or killed. Processes that the command leaves in the background \
when it exits are not waited for, and not protected.

Exit codes:
  the command's own; 128 + N if it died of signal N, or signal N ended the wait
  0    without COMMAND: released after a signal
  64   usage error
  65   invalid NAME, --ttl or other value
  69   daemon unreachable or unable to serve the request
  73   the lock was lost
  75   the lock was not granted in time
  126  the command can't be run
  127  the command was not found

Examples:
  leasehold lock nightly-report -- ./report.sh
  leasehold lock deploy --no-wait -- make deploy
  leasehold lock maintenance
  leasehold lock --table orders --account acme -- ./import
  leasehold lock orders -w 30s --max-hold-time 5m -- sh -c './import --fence $LEASEHOLD_TOKEN'"
)]
pub(super) struct Lock {
    #[command(flatten)]
    lock: LockSelector,
    #[arg(skip)]
    name: String,
    #[arg(skip)]
    namespace: String,
    /// Maximum time to wait for the lock [default: no limit]
    #[arg(long, short, value_name = "TIME", value_parser = times::parse_duration)]
    wait: Option<Duration>,
    /// Fail immediately if the lock is held
    #[arg(long, conflicts_with = "wait")]
    no_wait: bool,
    /// Session TTL: how long the lock stays held if this process dies (1s to 60s) [default: the
    /// daemon's default_ttl]
    #[arg(long, value_name = "TIME", value_parser = times::parse_duration)]
    ttl: Option<Duration>,
    /// End the grant and stop the command after this time (minimum 1s)
    #[arg(long, value_name = "TIME", value_parser = times::parse_duration)]
    max_hold_time: Option<Duration>,
    /// Duration of the storage lease without renewals, if it is not held yet (15s to 60s)
    /// [default: the daemon's lease_duration]
    #[arg(long, value_name = "TIME", value_parser = times::parse_duration)]
    lease_duration: Option<Duration>,
    /// Label shown with the holder in `ls`, `get` and errors (repeatable)
    #[arg(long, short, value_name = "KEY=VALUE", value_parser = run::parse_label)]
    label: Vec<(String, String)>,
    /// Command and its arguments; without it, hold the lock until interrupted
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

impl Lock {
    pub(super) async fn run(mut self, globals: &Globals) -> Result<ExitCode, Failure> {
        self.name = self.lock.lock_name()?;
        self.namespace = globals.namespace();
        let client = connected(self.connect(globals).await)?;
        let notes = Notes::start(globals.output)?;
        process::reap_untracked_children()?;
        let ended = self.run_with(&client, globals.output, &notes).await;
        // After the release, so that a slow reader does not delay it.
        notes.flush().await;
        ended
    }

    async fn run_with(
        self,
        client: &Client,
        output: Output,
        notes: &Notes,
    ) -> Result<ExitCode, Failure> {
        let mut signals = Signals::listen(&run::FORWARDED_SIGNALS)?;
        let limit = if self.no_wait { Some(Duration::ZERO) } else { self.wait };
        let waiting = Waiting::new(WaitTarget::Hold(&self.name), limit, output, notes.clone());
        let (sender, updates) = watch::channel(WaitState::default());
        let request = self.request(client).on_progress(move |progress| {
            sender.send_modify(|state| state.progress = Some((progress, Moment::now())));
        });
        let guard = match waiting.wait_for(request.acquire(), updates, &mut signals).await {
            Ok(guard) => guard,
            Err(denied) => {
                run::close(client, &mut signals).await;
                return match denied {
                    Denied::Refused(error) => {
                        Err(Failure::refused(*error, &self.namespace, self.wait))
                    }
                    Denied::Interrupted(signal) => Ok(ExitCode::from(run::code_of(signal))),
                };
            }
        };
        let validity = run::validity(client, &guard);
        let options = RunOptions {
            validity: self.max_hold_time.map_or(validity, |limit| limit.min(validity)),
            max_hold_time: self.max_hold_time,
            drain_timeout: None,
            notes,
        };
        if self.command.is_empty() {
            return self.hold(guard, client, output, &options, &mut signals).await;
        }
        if output == Output::Text && io::stderr().is_terminal() {
            let name = lock_name(guard.namespace(), guard.name());
            notes.note(format_args!("acquired lock {name} with token {}", guard.token()));
        }
        let program = Program { command: &self.command, environment: &[], output };
        let mut supervisor = Supervisor::new(&guard, &options);
        let ended = supervisor.run(&program, std::future::pending(), &mut signals).await;
        let is_reported = ended.as_ref().is_ok_and(Ended::is_without_response);
        run::release(guard, &mut signals, (!is_reported).then_some(notes)).await;
        run::close(client, &mut signals).await;
        match ended? {
            Ended::Exited(code) | Ended::Stopped { code, .. } => Ok(ExitCode::from(code)),
            Ended::Lost(cause) => {
                let Cause { reason, message, operator } = cause;
                Err(Failure::lost(&self.name, reason, operator.as_ref(), message))
            }
        }
    }

    /// Holds the lock without a command.
    async fn hold(
        &self,
        guard: Guard,
        client: &Client,
        output: Output,
        options: &RunOptions<'_>,
        signals: &mut Signals,
    ) -> Result<ExitCode, Failure> {
        match output {
            Output::Text => optional_line(guard.token())?,
            Output::Json => optional_line(json!({
                "lock": guard.name(),
                "namespace": guard.namespace(),
                "token": guard.token().get(),
            }))?,
        }
        if output == Output::Text && io::stderr().is_terminal() {
            let name = lock_name(guard.namespace(), guard.name());
            options.notes.note(format_args!("holding lock {name}; press Ctrl-C to release it"));
        }
        match Supervisor::new(&guard, options).hold(signals).await? {
            Held::Interrupted => {
                run::release(guard, signals, Some(options.notes)).await;
                run::close(client, signals).await;
                Ok(ExitCode::SUCCESS)
            }
            Held::Lost(Cause { reason, message, operator }) => {
                // Not released: the work that the lock protects runs in another process
                // and has until the deadline to stop.
                std::mem::forget(guard);
                Err(Failure::lost(&self.name, reason, operator.as_ref(), message))
            }
        }
    }

    async fn connect(&self, globals: &Globals) -> Result<Client, Error> {
        let builder = run::client_builder(globals, "lock", &self.command, self.ttl, &self.label);
        builder.connect().await
    }

    fn request(&self, client: &Client) -> LockRequest {
        let mut request = client.lock(&self.name);
        if let Some(limit) = self.wait {
            request = request.wait(limit);
        }
        if self.no_wait {
            request = request.no_wait();
        }
        if let Some(limit) = self.max_hold_time {
            request = request.max_hold_time(limit);
        }
        if let Some(duration) = self.lease_duration {
            request = request.lease_duration(duration);
        }
        request
    }
}
