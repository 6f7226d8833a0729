//! The command, from its start to its end, which the lock outlives.

use std::{ffi::OsString, io, time::Duration};

use leasehold_client::{Guard, Loss, Reason};
use tokio::signal::unix::{self, SignalKind};

use super::{
    launch,
    vigil::{Order, Vigil},
};
use crate::{
    cli::{
        exit::Failure,
        keeper::Keeper,
        output::{Output, length, note},
        process::{self, ChildState, Group, Signal, Signals, Terminal},
    },
    clock::{self, Moment},
};

/// How the command ended.
#[derive(Debug)]
pub(super) enum Ended {
    /// By itself while the lock was held, with this exit code.
    Itself(u8),
    /// Because the lock was lost, or after that.
    Lost(Cause),
}

/// Why the command was stopped.
#[derive(Debug, Clone)]
pub(super) struct Cause {
    pub(super) reason: Option<Reason>,
    pub(super) message: String,
}

/// Runs one command under one grant.
#[derive(Debug)]
pub(super) struct Supervisor<'a> {
    guard: &'a Guard,
    vigil: Vigil,
    ends_at: Option<(Moment, Duration)>,
    loss: Option<Loss>,
    cause: Option<Cause>,
}

impl<'a> Supervisor<'a> {
    /// For a grant that has just begun.
    pub(super) fn new(guard: &'a Guard, vigil: Vigil, longest_hold: Option<Duration>) -> Self {
        let ends_at = longest_hold.map(|limit| (Moment::now() + limit, limit));
        Self { guard, vigil, ends_at, loss: None, cause: None }
    }

    /// Starts the command and stays with it to its end.
    pub(super) async fn run(
        &mut self,
        command: &[OsString],
        output: Output,
        signals: &mut Signals,
    ) -> Result<Ended, Failure> {
        // Before there are children, so that no change is missed.
        let changes = unix::signal(SignalKind::child())?;
        let mut keeper = Keeper::start().await?;
        keeper.kill_at(self.vigil.keeper_kills_at(self.guard.deadline()))?;
        let group = launch::start(self.guard, command, output)?;
        let mut job = Job { group, terminal: Terminal::at_stdin(), started: false };
        let ended = self.stay(&mut job, &mut keeper, changes, signals).await;
        if !matches!(ended, Ok(Ended::Itself(_))) {
            group.signal(Signal::SIGKILL);
        }
        if let Some(terminal) = &job.terminal {
            terminal.take_back(group);
        }
        keeper.farewell();
        Ok(ended?)
    }

    async fn stay(
        &mut self,
        job: &mut Job,
        keeper: &mut Keeper,
        mut changes: unix::Signal,
        signals: &mut Signals,
    ) -> io::Result<Ended> {
        loop {
            let (deadline, now) = (self.guard.deadline(), Moment::now());
            if let Some(order) = self.vigil.on(deadline, self.loss.is_some(), now) {
                self.carry_out(order, job, now);
            }
            if self.vigil.is_calm() {
                // A keeper that can't be told is left with an earlier moment,
                // or has ended, which is noticed below.
                let _ = keeper.kill_at(self.vigil.keeper_kills_at(deadline));
            }
            let next = self.vigil.next(deadline, now);
            tokio::select! {
                biased;
                loss = self.guard.lost(), if self.loss.is_none() => self.loss = Some(loss),
                () = sleep_until(next) => {}
                _ = changes.recv() => {
                    if let Some(ended) = self.look_at_children(job, keeper)? {
                        return Ok(ended);
                    }
                }
                signal = signals.next() => job.pass_on(signal)?,
                risk = self.guard.at_risk(), if self.vigil.is_calm() => {
                    let ends_in = length(risk.ends_in);
                    note(format!("lock {:?} may end in {ends_in}: {}", self.guard.name(), risk.message));
                }
            }
        }
    }

    fn carry_out(&mut self, order: Order, job: &Job, now: Moment) {
        if self.cause.is_none() {
            self.cause = Some(self.explain(now));
        }
        match order {
            Order::Terminate if job.started => {
                job.group.signal(Signal::SIGTERM);
                // Who stands still could not obey.
                job.group.signal(Signal::SIGCONT);
            }
            Order::Terminate | Order::Kill => job.group.signal(Signal::SIGKILL),
        }
    }

    fn look_at_children(&self, job: &mut Job, keeper: &mut Keeper) -> io::Result<Option<Ended>> {
        let code = match process::look_at(job.group.id())? {
            ChildState::Exited(code) => Some(u8::try_from(code).unwrap_or(u8::MAX)),
            ChildState::Killed(signal) => Some(code_of(signal)),
            ChildState::Stopped(_) if !job.started => {
                job.start(keeper)?;
                None
            }
            ChildState::Stopped(signal) => {
                job.on_stop(signal)?;
                None
            }
            ChildState::Running => None,
        };
        match code {
            Some(code) if self.is_held() => return Ok(Some(Ended::Itself(code))),
            Some(_) => {
                let cause = self.cause.clone().unwrap_or_else(|| self.explain(Moment::now()));
                return Ok(Some(Ended::Lost(cause)));
            }
            None => {}
        }
        if keeper.has_just_ended()? && self.is_held() {
            note("the keeper ended: if this process dies too, the command will outlive the lock");
        }
        Ok(None)
    }

    fn is_held(&self) -> bool {
        self.vigil.is_calm() && self.guard.is_valid()
    }

    /// Why the command is stopped, or was before this was noticed.
    fn explain(&self, now: Moment) -> Cause {
        if let Some(loss) = &self.loss {
            let message =
                format!("lost while the command ran, which was stopped: {}", loss.message);
            return Cause { reason: Some(loss.reason), message };
        }
        let deadline = self.guard.deadline();
        let left = deadline.since(now);
        match self.ends_at {
            // The daemon began to count a little earlier than we did.
            Some((ends_at, limit)) if deadline + self.vigil.early() >= ends_at => Cause {
                reason: Some(Reason::HeldTooLong),
                message: format!(
                    "the longest hold of {} is over; the command was stopped",
                    humantime::format_duration(limit)
                ),
            },
            _ if left.is_zero() => Cause {
                reason: Some(Reason::Expired),
                message: "expired while this process or the machine stood still; the command was \
                          killed"
                    .to_owned(),
            },
            _ => Cause {
                reason: Some(Reason::Expired),
                message: format!(
                    "could not be kept alive, and ends in {}: the daemon does not answer; the \
                     command was stopped",
                    length(left)
                ),
            },
        }
    }
}

/// The command's process group, and its place at the terminal.
#[derive(Debug)]
struct Job {
    group: Group,
    terminal: Option<Terminal>,
    started: bool,
}

impl Job {
    /// Lets the command begin, now that it can't escape.
    fn start(&mut self, keeper: &Keeper) -> io::Result<()> {
        keeper.watch_over(self.group)?;
        self.started = true;
        // In a pipeline, the terminal may be needed by the next program, such
        // as a pager; the command gets it if it asks.
        if process::shows_output() {
            self.hand_over_terminal();
        }
        self.group.signal(Signal::SIGCONT);
        Ok(())
    }

    fn pass_on(&self, signal: Signal) -> io::Result<()> {
        match signal {
            // Would let it begin too early.
            Signal::SIGCONT if !self.started => {}
            Signal::SIGCONT => {
                if process::shows_output() {
                    self.hand_over_terminal();
                }
                self.group.signal(Signal::SIGCONT);
            }
            Signal::SIGTSTP => {
                self.group.signal(signal);
                self.stand_still()?;
            }
            _ => self.group.signal(signal),
        }
        Ok(())
    }

    /// When the terminal stops the command, our shell must see us stop. If
    /// that lasts longer than the lock, the keeper kills the command.
    fn on_stop(&self, signal: Signal) -> io::Result<()> {
        match signal {
            // It wants the terminal.
            Signal::SIGTTIN | Signal::SIGTTOU if self.hand_over_terminal() => {
                self.group.signal(Signal::SIGCONT);
            }
            Signal::SIGTTIN | Signal::SIGTTOU | Signal::SIGTSTP if self.terminal.is_some() => {
                self.stand_still()?;
            }
            _ => {}
        }
        Ok(())
    }

    fn stand_still(&self) -> io::Result<()> {
        if let Some(terminal) = &self.terminal {
            terminal.take_back(self.group);
        }
        process::stop_self()
    }

    fn hand_over_terminal(&self) -> bool {
        self.terminal.as_ref().is_some_and(|terminal| terminal.hand_to(self.group))
    }
}

/// As shells say it.
pub(super) fn code_of(signal: Signal) -> u8 {
    u8::try_from(128 + signal as i32).unwrap_or(u8::MAX)
}

async fn sleep_until(moment: Option<Moment>) {
    match moment {
        Some(moment) => clock::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
