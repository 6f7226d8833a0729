//! `elect`: runs a command whenever this process leads an election.
//!
//! Steps: [`campaign`], run the command under the supervision of `run` and
//! [`health`], resign, and decide the [`next`] step. One such cycle is a term.

mod campaign;
mod health;
mod next;
mod probe;
mod progress;

use std::{ffi::OsString, process::ExitCode, time::Duration};

use leasehold_client::{Client, Leadership};

use self::{
    health::Health,
    next::{Backoff, Next, Policy},
};
use super::{
    Globals,
    designated::LockSelector,
    exit::Failure,
    options::connected,
    output::{Output, short_duration},
    process::{self, Signal, Signals},
    run::{self, Denied, Ended, Notes, Program, RunOptions, Supervisor},
};
use leasehold_time::Moment;

#[derive(Debug, clap::Args)]
#[command(after_help = "Many processes may campaign for NAME; at most one of them leads and runs \
its COMMAND. The others wait in turn. A command is required, because `elect` stops it before another \
candidate leads; to hold the lock of an election without a command, use `leasehold lock NAME`. The \
command sees LEASEHOLD_ELECTION, LEASEHOLD_NAMESPACE and LEASEHOLD_TOKEN in its environment (and \
LEASEHOLD_LOCK: an election is the lock of the same name). There is no shell in between.

Pass LEASEHOLD_TOKEN to the resources that a leader writes to, and let them refuse a token lower than \
the highest they have seen. `elect` can't stop the write of a command that was paused and resumes \
after its leadership was lost; the token can.

How leadership ends:
  The command exits: `elect` resigns and exits with the same code. With --restart, it campaigns again \
after 5s to 1m instead, unless the command exited with 0, could not be run, or was interrupted from \
the keyboard.
  The leadership is lost, or can't be kept alive: the command's whole process group gets SIGTERM \
early, and SIGKILL shortly before another candidate could lead, also if `elect` itself is stopped or \
killed. Then `elect` campaigns again, after 0.1s to 5s.
  An operator asks for a step-down (`leasehold step-down`), or the daemon shuts down: the group gets \
SIGTERM immediately, and SIGKILL at the end of the announced time. Then `elect` resigns and campaigns \
again; after a step-down, at least 5s later, so that other candidates can lead.
  The command is unhealthy (--probe-…) or stuck (--progress-timeout): the group gets SIGTERM, and \
SIGKILL after --drain-timeout. Then `elect` resigns, and campaigns again after 5s to 1m, because no \
probe can succeed before the command runs again.
  `elect` gets SIGTERM, SIGINT, SIGHUP or SIGQUIT: the group gets the same, and SIGKILL after \
--drain-timeout. Then `elect` resigns, so that the next candidate leads immediately, and exits with \
the code of the command.
Processes that the command leaves in its process group are killed before `elect` resigns; those of a \
--probe-command when the probe ends.

Exit codes:
  the command's own; 128 + N if it died of signal N, or signal N ended the wait
  0    --once: stepped down on request, or because the daemon shut down
  1    --progress-timeout: the file can't be created in $TMPDIR; or another failure
  64   usage error
  65   invalid NAME, --value, --ttl or other value
  69   daemon unreachable at the start
  73   --once: the leadership was lost, or the command was unhealthy or stuck; without --once: \
lost after a signal asked `elect` to exit
  126  the command can't be run
  127  the command was not found

Examples:
  leasehold elect scheduler -- ./scheduler
  leasehold elect scheduler --value \"$POD_IP:8080\" --restart -- ./scheduler --fence-from-env
  leasehold elect api --probe-http http://127.0.0.1:8080/healthz --probe-grace 30s -- ./api
  leasehold elect batch --progress-timeout 1m -- \\
    sh -c 'while ./next-item; do touch \"$LEASEHOLD_PROGRESS_FILE\"; done'")]
pub(super) struct Elect {
    #[command(flatten)]
    election: LockSelector,
    #[arg(skip)]
    name: String,
    /// Value published while leading, for example an address (at most 4096 bytes)
    #[arg(long, short, value_name = "VALUE", default_value = "", hide_default_value = true)]
    #[arg(allow_hyphen_values = true)]
    value: OsString,
    /// Session TTL: how long the leadership lasts if this process dies (1s to 60s) [default: the
    /// daemon's default_ttl]
    #[arg(long, value_name = "TIME", value_parser = crate::cli::times::parse_duration)]
    ttl: Option<Duration>,
    /// Duration of the storage lease without renewals, if it is not held yet (15s to 60s)
    /// [default: the daemon's lease_duration]
    #[arg(long, value_name = "TIME", value_parser = crate::cli::times::parse_duration)]
    lease_duration: Option<Duration>,
    /// Exit when the leadership has ended, instead of campaigning again
    #[arg(long)]
    once: bool,
    /// Campaign again after the command has failed
    #[arg(long, conflicts_with = "once")]
    restart: bool,
    /// Time from SIGTERM to SIGKILL, unless a step-down sets another one
    #[arg(long, value_name = "TIME", value_parser = crate::cli::times::parse_duration)]
    #[arg(default_value = "30s")]
    drain_timeout: Duration,
    /// Label shown with the candidate in `ls`, `get` and errors (repeatable)
    #[arg(long, short, value_name = "KEY=VALUE", value_parser = run::parse_label)]
    label: Vec<(String, String)>,
    /// Command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
    #[command(flatten)]
    health: Health,
}

impl Elect {
    pub(super) async fn run(mut self, globals: &Globals) -> Result<ExitCode, Failure> {
        self.name = self.election.lock_name()?;
        // Fails now, instead of after the election.
        self.health.monitor()?;
        let client = self.connect(globals).await?;
        let notes = Notes::start(globals.output)?;
        process::adopt_orphans()?;
        process::reap_untracked_children()?;
        let mut signals = Signals::listen(&run::FORWARDED_SIGNALS)?;
        let ended = self.run_terms(&client, globals.output, &mut signals, &notes).await;
        run::close(&client, &mut signals).await;
        // After the resignation, so that a slow reader does not delay it.
        notes.flush().await;
        ended
    }

    /// Campaigns and leads, until the policy ends the command.
    async fn run_terms(
        &self,
        client: &Client,
        output: Output,
        signals: &mut Signals,
        notes: &Notes,
    ) -> Result<ExitCode, Failure> {
        let policy = Policy { once: self.once, restart: self.restart };
        let mut backoff = Backoff::new()?;
        loop {
            let campaigned = campaign::campaign(self, client, output, signals, notes).await;
            let next = match campaigned {
                Ok(leadership) => {
                    let start = Moment::now();
                    let (ended, interrupted) =
                        self.lead(leadership, client, output, signals, notes).await;
                    backoff.on_term(Moment::now().since(start));
                    policy.after(&self.name, ended?, interrupted)
                }
                Err(Denied::Interrupted(signal)) => Next::Exit(run::code_of(signal)),
                Err(Denied::Refused(error)) => Policy::refused(*error),
            };
            let (delay, cause) = match next {
                Next::Exit(code) => return Ok(ExitCode::from(code)),
                Next::Fail(failure) => return Err(failure),
                Next::Again { purpose, cause } => (backoff.delay(purpose), cause),
            };
            notes.note(format_args!("{cause}; next campaign in {}", short_duration(delay)));
            if let Err(signal) = run::pause(delay, signals).await {
                return Ok(ExitCode::from(run::code_of(signal)));
            }
        }
    }

    /// Runs one term: the command, and the resignation. Also returns whether a signal
    /// asked this process to exit.
    async fn lead(
        &self,
        leadership: Leadership,
        client: &Client,
        output: Output,
        signals: &mut Signals,
        notes: &Notes,
    ) -> (Result<Ended, Failure>, Option<Signal>) {
        notes.note(format_args!("leading {:?} with token {}", self.name, leadership.token()));
        let options = RunOptions {
            validity: run::validity(client, &leadership),
            max_hold_time: None,
            drain_timeout: Some(self.drain_timeout),
            notes,
        };
        let mut supervisor = Supervisor::new(&leadership, &options);
        let ended = self.supervise(&mut supervisor, &leadership, output, signals).await;
        let interrupted = supervisor.interrupted();
        let is_reported = ended.as_ref().is_ok_and(Ended::is_without_response);
        let notes = (!is_reported).then_some(notes);
        let during_release = run::release(leadership, signals, notes).await;
        (ended, interrupted.or(during_release))
    }

    async fn supervise(
        &self,
        supervisor: &mut Supervisor<'_, Leadership>,
        leadership: &Leadership,
        output: Output,
        signals: &mut Signals,
    ) -> Result<Ended, Failure> {
        let monitor = self.health.monitor()?;
        let mut environment = vec![("LEASEHOLD_ELECTION", OsString::from(&self.name))];
        environment.extend(monitor.environment());
        let program = Program { command: &self.command, environment: &environment, output };
        supervisor.run(&program, monitor.unhealthy(leadership, &environment), signals).await
    }

    async fn connect(&self, globals: &Globals) -> Result<Client, Failure> {
        let builder = run::client_builder(globals, "elect", &self.command, self.ttl, &self.label);
        connected(builder.connect().await)
    }
}
