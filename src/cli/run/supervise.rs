//! Supervises the command from its start to its end, while the grant is held.

use std::{io, pin::pin, process::Stdio, time::Duration};

use leasehold_client::{Loss, Operator, Reason, Risk};
use tokio::signal::unix::{self, SignalKind};

use super::{
    Grant, Notes, Program,
    job::Job,
    kill_timer::{KillTimer, Order},
    launch,
    wait::is_exit_signal,
    wording,
};
use crate::cli::{
    exit::FAILED, exit::Failure, output::short_duration, process, process::ChildState,
    process::Group, process::Signal, process::Signals, watchdog::Watchdog,
};
use leasehold_time::{ClockPair, Moment};

/// Maximum time to wait for killed processes to end. A blocked system call, such as
/// to a device, may delay the end for longer.
const KILL_WAIT: Duration = Duration::from_millis(500);

/// Action of `lock` and `elect` after a loss, for messages.
const STOPPED: Option<&str> = Some("stopped the command");

/// End of a command.
#[derive(Debug)]
pub(in crate::cli) enum Ended {
    /// Exited while the grant was valid, without a request, with this exit code.
    Exited(u8),
    /// Exited while the grant was valid, after a request.
    Stopped { stop: Stop, code: u8 },
    /// Stopped because of a loss, or exited after it.
    Lost(Cause),
}

impl Ended {
    /// Returns whether the daemon did not respond, so that a failed release has the same
    /// cause.
    pub(in crate::cli) fn is_without_response(&self) -> bool {
        matches!(self, Self::Lost(cause) if cause.reason == Some(Reason::Expired))
    }
}

/// Reason to stop a command while its grant is valid.
#[derive(Debug, Clone)]
pub(in crate::cli) enum Stop {
    /// This process received the signal and forwarded it.
    Signal(Signal),
    /// The daemon requested a release.
    Requested(Cause),
    /// The command is unhealthy or stuck.
    Unhealthy(String),
}

/// End of a grant that was held without a command.
#[derive(Debug)]
pub(in crate::cli) enum Held {
    /// A signal, while the grant was valid.
    Interrupted,
    /// A loss, or missing keep-alives.
    Lost(Cause),
}

/// Cause of a grant's end, or of its expected end.
#[derive(Debug, Clone)]
pub(in crate::cli) struct Cause {
    pub(in crate::cli) reason: Option<Reason>,
    pub(in crate::cli) message: String,
    /// Operator that ended it, if any.
    pub(in crate::cli) operator: Option<Operator>,
}

/// Parameters of one run of a command.
#[derive(Debug)]
pub(in crate::cli) struct RunOptions<'a> {
    /// Maximum validity of the grant after a keep-alive.
    pub(in crate::cli) validity: Duration,
    /// Time after which the grant ends despite keep-alives.
    pub(in crate::cli) max_hold_time: Option<Duration>,
    /// Time from SIGTERM to SIGKILL. If set, the command is also stopped when the
    /// daemon requests a release, with the timeout of that request, and its process
    /// group is killed at the end. If `None`, the command itself decides when to exit.
    pub(in crate::cli) drain_timeout: Option<Duration>,
    pub(in crate::cli) notes: &'a Notes,
}

/// Runs one command under one grant.
#[derive(Debug)]
pub(in crate::cli) struct Supervisor<'a, G> {
    grant: &'a G,
    notes: &'a Notes,
    drain_timeout: Option<Duration>,
    kill_timer: KillTimer,
    ends_at: Option<(Moment, Duration)>,
    loss: Option<Loss>,
    /// Last warning of the daemon, and the announced end of the grant.
    risk: Option<(Cause, Moment)>,
    cause: Option<Cause>,
    stop: Option<Stop>,
}

impl<'a, G: Grant> Supervisor<'a, G> {
    /// Creates the supervisor of a new grant.
    pub(in crate::cli) fn new(grant: &'a G, options: &RunOptions<'a>) -> Self {
        Self {
            grant,
            notes: options.notes,
            drain_timeout: options.drain_timeout,
            kill_timer: KillTimer::new(options.validity),
            ends_at: options.max_hold_time.map(|limit| (Moment::now() + limit, limit)),
            loss: None,
            risk: None,
            cause: None,
            stop: None,
        }
    }

    /// Runs the command to its end. `unhealthy` returns the reason to stop it early.
    pub(in crate::cli) async fn run(
        &mut self,
        program: &Program<'_>,
        unhealthy: impl Future<Output = String>,
        signals: &mut Signals,
    ) -> Result<Ended, Failure> {
        // Before the first child, so that no change is missed.
        let mut changes = unix::signal(SignalKind::child())?;
        let subject = wording::subject(self.grant);
        let watchdog = Watchdog::start(program.output, &subject, Stdio::inherit()).await;
        let mut watchdog = watchdog.map_err(cannot("start the watchdog"))?;
        let known = ClockPair::now();
        let kill_at = self.kill_timer.watchdog_kill_at(self.grant.deadline());
        let sent = watchdog.kill_at(kill_at, known);
        sent.map_err(cannot("reach the watchdog, so the command was not run"))?;
        let child = launch::start(self.grant, program).map_err(cannot("start the command"))?;
        let Some(group) = Group::of(child.id()) else {
            let error = io::Error::other("it has no process group");
            return Err(cannot("start the command")(error));
        };
        let mut job = Job::of(group);
        let ended = self.supervise(&mut job, &mut watchdog, &mut changes, signals, unhealthy).await;
        if self.drain_timeout.is_some() || !matches!(ended, Ok(Ended::Exited(_))) {
            group.signal(Signal::SIGKILL);
        }
        if ended.is_err() {
            self.wait_for_end(group, &mut changes).await;
        }
        job.take_terminal_back();
        watchdog.finish();
        drop(child);
        if self.drain_timeout.is_some() {
            wait_until_empty(group).await;
        }
        ended
    }

    /// Holds the grant without a command, until a signal asks this process to end.
    /// Reports a loss as early as a command would get SIGTERM, so that processes that
    /// depend on this one have the same time to stop.
    pub(in crate::cli) async fn hold(&mut self, signals: &mut Signals) -> Result<Held, Failure> {
        loop {
            let (deadline, now) = (self.grant.deadline(), Moment::now());
            if self.kill_timer.on(deadline, self.loss.is_some(), now).is_some() {
                return Ok(Held::Lost(self.explain(now, None)));
            }
            let next = self.kill_timer.next(deadline, now);
            tokio::select! {
                biased;
                loss = self.grant.lost(), if self.loss.is_none() => self.loss = Some(loss),
                () = sleep_until(next) => {}
                signal = signals.next() => match signal {
                    Signal::SIGTSTP => process::stop_self()?,
                    signal if is_exit_signal(signal) => return Ok(Held::Interrupted),
                    _ => {}
                },
                risk = self.grant.at_risk() => self.warn(risk, false),
            }
        }
    }

    /// Returns the signal that asked this process to exit, if any.
    pub(in crate::cli) const fn interrupted(&self) -> Option<Signal> {
        match self.stop {
            Some(Stop::Signal(signal)) => Some(signal),
            _ => None,
        }
    }

    /// Waits until a killed command has ended, so that the lock outlives it.
    async fn wait_for_end(&self, group: Group, changes: &mut unix::Signal) {
        let ended = async {
            while let Ok(ChildState::Running | ChildState::Stopped(_)) =
                process::poll_child(group.id())
            {
                changes.recv().await;
            }
        };
        tokio::select! {
            biased;
            () = ended => {}
            () = leasehold_runtime::sleep_until(self.grant.deadline()) => {}
        }
    }

    async fn supervise(
        &mut self,
        job: &mut Job,
        watchdog: &mut Watchdog,
        changes: &mut unix::Signal,
        signals: &mut Signals,
        unhealthy: impl Future<Output = String>,
    ) -> Result<Ended, Failure> {
        let mut unhealthy = pin!(unhealthy);
        loop {
            let known = ClockPair::now();
            let (deadline, now) = (self.grant.deadline(), Moment::now());
            if let Some(order) = self.kill_timer.on(deadline, self.loss.is_some(), now) {
                self.carry_out(order, job, now);
            }
            if self.kill_timer.follows_deadline() {
                // On an error, the watchdog keeps an earlier time, or has ended, which is
                // detected below.
                let _ = watchdog.kill_at(self.kill_timer.watchdog_kill_at(deadline), known);
            }
            let next = self.kill_timer.next(deadline, now);
            tokio::select! {
                biased;
                loss = self.grant.lost(), if self.loss.is_none() => self.loss = Some(loss),
                () = sleep_until(next) => {}
                _ = changes.recv() => {
                    if let Some(ended) = self.check_children(job, watchdog)? {
                        return Ok(ended);
                    }
                }
                signal = signals.next() => {
                    job.forward(signal).map_err(cannot("stop this process"))?;
                    self.on_signal(signal);
                }
                risk = self.grant.at_risk(), if self.kill_timer.follows_deadline() => self.on_risk(risk, job),
                reason = &mut unhealthy, if self.stop.is_none() && self.kill_timer.follows_deadline() => {
                    self.on_unhealthy(reason, job);
                }
            }
        }
    }

    /// Handles a signal that was forwarded to the command.
    fn on_signal(&mut self, signal: Signal) {
        if let Some(limit) = self.drain_timeout.filter(|_| is_exit_signal(signal)) {
            self.kill_timer.drain(Moment::now() + limit);
            // Takes precedence over any other reason.
            self.stop = Some(Stop::Signal(signal));
        }
    }

    fn on_risk(&mut self, risk: Risk, job: &Job) {
        let is_release_request = matches!(risk.reason, Reason::StepDown | Reason::ShuttingDown);
        let is_terminated = is_release_request && self.drain_timeout.is_some();
        self.warn(risk, is_terminated);
        if is_terminated && let Some((cause, ends_at)) = self.risk.clone() {
            // At the announced end of the grant, but not before the deadline that the
            // daemon has confirmed.
            let ends_at = ends_at.max(self.grant.deadline());
            self.terminate_before(ends_at - self.kill_timer.kill_margin(), job);
            self.stop.get_or_insert(Stop::Requested(cause));
        }
    }

    /// Reports a warning and keeps it for the explanation of a loss.
    fn warn(&mut self, risk: Risk, is_terminated: bool) {
        self.notes.note(wording::warning(self.grant, &risk, is_terminated));
        let ends_at = Moment::now() + risk.ends_in;
        let message = wording::risk(&risk);
        let cause = Cause { reason: Some(risk.reason), message, operator: risk.operator };
        self.risk = Some((cause, ends_at));
    }

    fn on_unhealthy(&mut self, reason: String, job: &Job) {
        self.notes.note(format_args!("{reason}; sent SIGTERM"));
        self.terminate_before(Moment::now() + self.drain_timeout.unwrap_or_default(), job);
        self.stop.get_or_insert(Stop::Unhealthy(reason));
    }

    fn terminate_before(&mut self, kill_at: Moment, job: &Job) {
        if self.kill_timer.drain(kill_at) {
            terminate(job);
        }
    }

    fn carry_out(&mut self, order: Order, job: &Job, now: Moment) {
        if self.cause.is_none() && self.stop.is_none() {
            self.cause = Some(self.explain(now, STOPPED));
        }
        match order {
            Order::Terminate => terminate(job),
            Order::Kill => job.group().signal(Signal::SIGKILL),
        }
    }

    fn check_children(
        &self,
        job: &mut Job,
        watchdog: &mut Watchdog,
    ) -> Result<Option<Ended>, Failure> {
        let state =
            process::poll_child(job.group().id()).map_err(cannot("supervise the command"))?;
        let code = match state {
            ChildState::Exited(code) => Some(u8::try_from(code).unwrap_or(u8::MAX)),
            ChildState::Killed(signal) => Some(code_of(signal)),
            ChildState::Stopped(Signal::SIGSTOP) if !job.is_started() => {
                watchdog
                    .watch_over(job.group())
                    .map_err(cannot("reach the watchdog, so the command was not run"))?;
                // The start may have been slow.
                if self.is_held() {
                    job.start();
                } else {
                    job.group().signal(Signal::SIGKILL);
                }
                None
            }
            ChildState::Stopped(_) if !job.is_started() => {
                // Another signal stopped it before its own SIGSTOP.
                job.group().signal(Signal::SIGCONT);
                None
            }
            ChildState::Stopped(signal) => {
                job.on_stop(signal).map_err(cannot("stop this process"))?;
                None
            }
            ChildState::Running => None,
        };
        match code {
            Some(code) if self.is_held() => {
                return Ok(Some(match self.stop.clone() {
                    Some(stop) => Ended::Stopped { stop, code },
                    None => Ended::Exited(code),
                }));
            }
            Some(_) => {
                let cause =
                    self.cause.clone().unwrap_or_else(|| self.explain(Moment::now(), STOPPED));
                return Ok(Some(Ended::Lost(cause)));
            }
            None => {}
        }
        let watchdog_ended = watchdog.take_end().map_err(cannot("supervise the watchdog"))?;
        if watchdog_ended && self.is_held() {
            self.notes.note(
                "the watchdog process ended: if this process dies too, the command may outlive its \
                 grant",
            );
        }
        Ok(None)
    }

    fn is_held(&self) -> bool {
        self.cause.is_none() && self.grant.is_valid()
    }

    /// Explains the end of the grant. `action` is what this process did about it.
    fn explain(&self, now: Moment, action: Option<&str>) -> Cause {
        let subject = wording::subject(self.grant);
        let with = |sentence: String, action: Option<&str>| match action {
            Some(action) => format!("{sentence}; {action}"),
            None => sentence,
        };
        if let Some(loss) = &self.loss {
            let message = with(wording::lost(self.grant, loss), action);
            let operator = loss.operator.clone();
            return Cause { reason: Some(loss.reason), message, operator };
        }
        let deadline = self.grant.deadline();
        let left = deadline.since(now);
        match self.ends_at {
            // The daemon's time started slightly earlier than ours.
            Some((ends_at, limit)) if deadline + self.kill_timer.terminate_lead() >= ends_at => {
                let limit = humantime::format_duration(limit);
                let sentence =
                    format!("lost {subject}: its maximum hold time of {limit} has elapsed");
                let reason = Some(Reason::MaxHoldTime);
                Cause { reason, message: with(sentence, action), operator: None }
            }
            _ if left.is_zero() => {
                let sentence = format!(
                    "lost {subject}: its deadline passed while this process or the machine was \
                     paused"
                );
                let message = with(sentence, action.map(|_| "killed the command"));
                Cause { reason: Some(Reason::Expired), message, operator: None }
            }
            _ => {
                // A warning is obsolete once the deadline has moved past it.
                let warned = self.risk.as_ref().filter(|(_, ends_at)| deadline <= *ends_at);
                let silent = "no keep-alive response from the daemon";
                let (reason, why, operator) = warned
                    .map_or((Some(Reason::Expired), silent, None), |(cause, _)| {
                        (cause.reason, cause.message.as_str(), cause.operator.clone())
                    });
                let sentence = format!("{subject} expires in {}: {why}", short_duration(left));
                Cause { reason, message: with(sentence, action), operator }
            }
        }
    }
}

fn terminate(job: &Job) {
    if job.is_started() {
        job.group().signal(Signal::SIGTERM);
        // A stopped process can't handle the signal.
        job.group().signal(Signal::SIGCONT);
    } else {
        job.group().signal(Signal::SIGKILL);
    }
}

/// Waits until a killed group is empty, at most [`KILL_WAIT`].
async fn wait_until_empty(group: Group) {
    let limit = Moment::now() + KILL_WAIT;
    loop {
        process::reap_untracked_now();
        if group.is_gone() || limit.has_passed() {
            return;
        }
        leasehold_runtime::sleep(KILL_WAIT / 500).await;
    }
}

/// Adds the failed action to an I/O error.
fn cannot(what: &'static str) -> impl FnOnce(io::Error) -> Failure {
    move |error| Failure::new(FAILED, "io", format_args!("can't {what}: {error}"))
}

/// Exit code for a signal, as in shells.
pub(in crate::cli) fn code_of(signal: Signal) -> u8 {
    u8::try_from(128 + signal as i32).unwrap_or(u8::MAX)
}

async fn sleep_until(moment: Option<Moment>) {
    match moment {
        Some(moment) => leasehold_runtime::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
