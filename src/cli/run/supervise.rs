//! The command, from its start to its end, which the grant outlives.

use std::{io, pin::pin, process::Stdio, time::Duration};

use leasehold_client::{Loss, Operator, Reason, Risk};
use tokio::signal::unix::{self, SignalKind};

use super::{
    Grant, Notes, Program,
    job::Job,
    kill_timer::{KillTimer, Order},
    launch,
    wait::asks_to_end,
    wording,
};
use crate::cli::{
    exit::FAILED, exit::Failure, output::length, process, process::ChildState, process::Group,
    process::Signal, process::Signals, watchdog::Watchdog,
};
use leasehold_time::{ClockPair, Moment};

/// How long to wait for killed processes to be gone. The system may hold one
/// back for longer, such as in a call to a device.
const KILL_WAIT: Duration = Duration::from_millis(500);

/// What becomes of the command when its grant is lost.
const STOPPED: Option<&str> = Some("stopped the command");

/// How the command ended.
#[derive(Debug)]
pub(in crate::cli) enum Ended {
    /// By itself while the grant stood, with this exit code.
    Exited(u8),
    /// While the grant stood, after it was asked to.
    Stopped { why: Stop, code: u8 },
    /// Because the grant was lost, or after that.
    Lost(Cause),
}

/// Why a command was asked to end although its grant stood.
#[derive(Debug, Clone)]
pub(in crate::cli) enum Stop {
    /// We got this signal, and it too.
    Signal(Signal),
    /// The grant is wanted back.
    Asked(Cause),
    /// It does not do its work.
    Unhealthy(String),
}

/// End of a grant that was held without a command.
#[derive(Debug)]
pub(in crate::cli) enum Held {
    /// By a signal, while the grant was valid.
    Interrupted,
    /// By a loss, or because it can't be kept alive.
    Lost(Cause),
}

/// Why a grant ended, or will.
#[derive(Debug, Clone)]
pub(in crate::cli) struct Cause {
    pub(in crate::cli) reason: Option<Reason>,
    pub(in crate::cli) message: String,
    /// Operator who ended it, if one did.
    pub(in crate::cli) operator: Option<Operator>,
}

/// What is agreed for one run of a command.
#[derive(Debug)]
pub(in crate::cli) struct RunOptions<'a> {
    /// How long the grant is valid after each sign of life, at most.
    pub(in crate::cli) validity: Duration,
    /// When the grant is lost however alive we are.
    pub(in crate::cli) max_hold_time: Option<Duration>,
    /// Set if the command is to run only as long as its grant is wanted: it is
    /// asked to end when the grant is wanted back, and killed if that takes
    /// longer than agreed there, or this long after any other request to end;
    /// and nothing of its group stays. Otherwise its end is its own affair.
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
    /// What the daemon has warned of last, and when the grant was to end of it.
    risk: Option<(Cause, Moment)>,
    cause: Option<Cause>,
    stop: Option<Stop>,
}

impl<'a, G: Grant> Supervisor<'a, G> {
    /// For a grant that has just begun.
    pub(in crate::cli) fn new(grant: &'a G, options: &RunOptions<'a>) -> Self {
        Self {
            grant,
            notes: options.notes,
            drain_timeout: options.drain_timeout,
            kill_timer: KillTimer::over(options.validity),
            ends_at: options.max_hold_time.map(|limit| (Moment::now() + limit, limit)),
            loss: None,
            risk: None,
            cause: None,
            stop: None,
        }
    }

    /// Starts the command and stays with it to its end. What comes out of
    /// `unhealthy` is why it has to end before.
    pub(in crate::cli) async fn run(
        &mut self,
        program: &Program<'_>,
        unhealthy: impl Future<Output = String>,
        signals: &mut Signals,
    ) -> Result<Ended, Failure> {
        // Before there are children, so that no change is missed.
        let mut changes = unix::signal(SignalKind::child())?;
        let watchdog = Watchdog::start(program.output, Stdio::inherit()).await;
        let mut watchdog = watchdog.map_err(cannot("start the keeper"))?;
        let known = ClockPair::now();
        let kill_at = self.kill_timer.watchdog_kills_at(self.grant.deadline());
        let told = watchdog.kill_at(kill_at, known);
        told.map_err(cannot("tell the keeper, so the command was not run"))?;
        let child = launch::start(self.grant, program).map_err(cannot("start the command"))?;
        let Some(group) = Group::of(child.id()) else {
            let error = io::Error::other("it has no process group");
            return Err(cannot("start the command")(error));
        };
        let mut job = Job::of(group);
        let ended = self.stay(&mut job, &mut watchdog, &mut changes, signals, unhealthy).await;
        if self.drain_timeout.is_some() || !matches!(ended, Ok(Ended::Exited(_))) {
            group.signal(Signal::SIGKILL);
        }
        if ended.is_err() {
            self.bury(group, &mut changes).await;
        }
        job.take_terminal_back();
        watchdog.farewell();
        drop(child);
        if self.drain_timeout.is_some() {
            vanished(group).await;
        }
        ended
    }

    /// Holds the grant without a command, until a signal asks this process to end.
    /// Reports a loss as early as a command would get SIGTERM, so that whoever
    /// depends on this process has the same time to stop.
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
                    signal if asks_to_end(signal) => return Ok(Held::Interrupted),
                    _ => {}
                },
                risk = self.grant.at_risk() => self.warn(risk, false),
            }
        }
    }

    /// The signal that asked us to end, if one did.
    pub(in crate::cli) const fn interrupted(&self) -> Option<Signal> {
        match self.stop {
            Some(Stop::Signal(signal)) => Some(signal),
            _ => None,
        }
    }

    /// Waits until a killed command is dead, so that the lock outlives it.
    async fn bury(&self, group: Group, changes: &mut unix::Signal) {
        let dead = async {
            while let Ok(ChildState::Running | ChildState::Stopped(_)) =
                process::look_at(group.id())
            {
                changes.recv().await;
            }
        };
        tokio::select! {
            biased;
            () = dead => {}
            () = leasehold_runtime::sleep_until(self.grant.deadline()) => {}
        }
    }

    async fn stay(
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
            if self.kill_timer.keeps() {
                // A watchdog that can't be told is left with an earlier moment,
                // or has ended, which is noticed below.
                let _ = watchdog.kill_at(self.kill_timer.watchdog_kills_at(deadline), known);
            }
            let next = self.kill_timer.next(deadline, now);
            tokio::select! {
                biased;
                loss = self.grant.lost(), if self.loss.is_none() => self.loss = Some(loss),
                () = sleep_until(next) => {}
                _ = changes.recv() => {
                    if let Some(ended) = self.look_at_children(job, watchdog)? {
                        return Ok(ended);
                    }
                }
                signal = signals.next() => {
                    job.pass_on(signal).map_err(cannot("stand still"))?;
                    self.on_signal(signal);
                }
                risk = self.grant.at_risk(), if self.kill_timer.keeps() => self.on_risk(risk, job),
                why = &mut unhealthy, if self.stop.is_none() && self.kill_timer.keeps() => {
                    self.on_unhealthy(why, job);
                }
            }
        }
    }

    /// The command has got it too.
    fn on_signal(&mut self, signal: Signal) {
        if let Some(limit) = self.drain_timeout.filter(|_| asks_to_end(signal)) {
            self.kill_timer.drain(Moment::now() + limit);
            // The last word, whatever else it was asked to end for.
            self.stop = Some(Stop::Signal(signal));
        }
    }

    fn on_risk(&mut self, risk: Risk, job: &Job) {
        let wanted_back = matches!(risk.reason, Reason::StepDown | Reason::ShuttingDown);
        let is_terminated = wanted_back && self.drain_timeout.is_some();
        self.warn(risk, is_terminated);
        if is_terminated && let Some((cause, ends_at)) = self.risk.clone() {
            // Before it is taken from us, but not before what we have been
            // promised is over.
            let taken_at = ends_at.max(self.grant.deadline());
            self.ask_to_end(job, taken_at - self.kill_timer.margin());
            self.stop.get_or_insert(Stop::Asked(cause));
        }
    }

    /// Reports a warning and keeps it for the explanation of a loss.
    fn warn(&mut self, risk: Risk, is_terminated: bool) {
        self.notes.tell(wording::warning(self.grant, &risk, is_terminated));
        let ends_at = Moment::now() + risk.ends_in;
        let message = wording::risk(&risk);
        let cause = Cause { reason: Some(risk.reason), message, operator: risk.operator };
        self.risk = Some((cause, ends_at));
    }

    fn on_unhealthy(&mut self, why: String, job: &Job) {
        self.notes.tell(format_args!("{why}; sent SIGTERM"));
        self.ask_to_end(job, Moment::now() + self.drain_timeout.unwrap_or_default());
        self.stop.get_or_insert(Stop::Unhealthy(why));
    }

    fn ask_to_end(&mut self, job: &Job, kill_at: Moment) {
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

    fn look_at_children(
        &self,
        job: &mut Job,
        watchdog: &mut Watchdog,
    ) -> Result<Option<Ended>, Failure> {
        let state = process::look_at(job.group().id()).map_err(cannot("look after the command"))?;
        let code = match state {
            ChildState::Exited(code) => Some(u8::try_from(code).unwrap_or(u8::MAX)),
            ChildState::Killed(signal) => Some(code_of(signal)),
            ChildState::Stopped(Signal::SIGSTOP) if !job.is_started() => {
                watchdog
                    .watch_over(job.group())
                    .map_err(cannot("tell the keeper, so the command was not run"))?;
                // It may have taken long to get here.
                if self.is_held() {
                    job.start();
                } else {
                    job.group().signal(Signal::SIGKILL);
                }
                None
            }
            ChildState::Stopped(_) if !job.is_started() => {
                // It has yet to stop itself.
                job.group().signal(Signal::SIGCONT);
                None
            }
            ChildState::Stopped(signal) => {
                job.on_stop(signal).map_err(cannot("stand still"))?;
                None
            }
            ChildState::Running => None,
        };
        match code {
            Some(code) if self.is_held() => {
                return Ok(Some(match self.stop.clone() {
                    Some(why) => Ended::Stopped { why, code },
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
        let watchdog_ended = watchdog.has_just_ended().map_err(cannot("look after the keeper"))?;
        if watchdog_ended && self.is_held() {
            self.notes.tell(
                "the keeper ended: if this process dies too, the command will outlive its grant",
            );
        }
        Ok(None)
    }

    fn is_held(&self) -> bool {
        self.cause.is_none() && self.grant.is_valid()
    }

    /// Explains the end of the grant. `then` is what was done about it.
    fn explain(&self, now: Moment, then: Option<&str>) -> Cause {
        let subject = wording::subject(self.grant);
        let with = |sentence: String, then: Option<&str>| match then {
            Some(then) => format!("{sentence}; {then}"),
            None => sentence,
        };
        if let Some(loss) = &self.loss {
            let message = with(wording::lost(self.grant, loss), then);
            let operator = loss.operator.clone();
            return Cause { reason: Some(loss.reason), message, operator };
        }
        let deadline = self.grant.deadline();
        let left = deadline.since(now);
        match self.ends_at {
            // The daemon began to count a little earlier than we did.
            Some((ends_at, limit)) if deadline + self.kill_timer.early() >= ends_at => {
                let limit = humantime::format_duration(limit);
                let sentence = format!("lost {subject}: its maximum hold time of {limit} is over");
                let reason = Some(Reason::MaxHoldTime);
                Cause { reason, message: with(sentence, then), operator: None }
            }
            _ if left.is_zero() => {
                let sentence = format!(
                    "lost {subject}: its deadline passed while this process or the machine was \
                     paused"
                );
                let message = with(sentence, then.map(|_| "killed the command"));
                Cause { reason: Some(Reason::Expired), message, operator: None }
            }
            _ => {
                // A warning is over once the grant lasts longer.
                let warned = self.risk.as_ref().filter(|(_, ends_at)| deadline <= *ends_at);
                let silent = "no keep-alive response from the daemon";
                let (reason, why, operator) = warned
                    .map_or((Some(Reason::Expired), silent, None), |(cause, _)| {
                        (cause.reason, cause.message.as_str(), cause.operator.clone())
                    });
                let sentence = format!("{subject} expires in {}: {why}", length(left));
                Cause { reason, message: with(sentence, then), operator }
            }
        }
    }
}

fn terminate(job: &Job) {
    if job.is_started() {
        job.group().signal(Signal::SIGTERM);
        // Who stands still could not obey.
        job.group().signal(Signal::SIGCONT);
    } else {
        job.group().signal(Signal::SIGKILL);
    }
}

/// Waits until a killed group has no members any more, for a short time.
async fn vanished(group: Group) {
    let limit = Moment::now() + KILL_WAIT;
    loop {
        process::reap_strays();
        if group.is_gone() || limit.has_passed() {
            return;
        }
        leasehold_runtime::sleep(KILL_WAIT / 500).await;
    }
}

/// What failed, for people.
fn cannot(what: &'static str) -> impl FnOnce(io::Error) -> Failure {
    move |error| Failure::new(FAILED, "io", format_args!("can't {what}: {error}"))
}

/// As shells say it.
pub(in crate::cli) fn code_of(signal: Signal) -> u8 {
    u8::try_from(128 + signal as i32).unwrap_or(u8::MAX)
}

async fn sleep_until(moment: Option<Moment>) {
    match moment {
        Some(moment) => leasehold_runtime::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
