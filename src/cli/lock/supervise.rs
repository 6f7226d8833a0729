//! The command, from its start to its end, which the lock outlives.

use std::{ffi::OsString, io, time::Duration};

use leasehold_client::{Guard, Loss, Reason};
use tokio::signal::unix::{self, SignalKind};

use super::{
    job::Job,
    launch,
    notes::Notes,
    vigil::{Order, Vigil},
};
use crate::{
    cli::{
        exit::{FAILED, Failure},
        keeper::Keeper,
        output::{Output, length},
        process::{self, ChildState, Group, Signal, Signals},
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
    notes: &'a Notes,
    vigil: Vigil,
    ends_at: Option<(Moment, Duration)>,
    loss: Option<Loss>,
    cause: Option<Cause>,
}

impl<'a> Supervisor<'a> {
    /// For a grant that has just begun.
    pub(super) fn new(
        guard: &'a Guard,
        vigil: Vigil,
        longest_hold: Option<Duration>,
        notes: &'a Notes,
    ) -> Self {
        let ends_at = longest_hold.map(|limit| (Moment::now() + limit, limit));
        Self { guard, notes, vigil, ends_at, loss: None, cause: None }
    }

    /// Starts the command and stays with it to its end.
    pub(super) async fn run(
        &mut self,
        command: &[OsString],
        output: Output,
        signals: &mut Signals,
    ) -> Result<Ended, Failure> {
        // Before there are children, so that no change is missed.
        let mut changes = unix::signal(SignalKind::child())?;
        let mut keeper = Keeper::start(output).await.map_err(cannot("start the keeper"))?;
        let kill_at = self.vigil.keeper_kills_at(self.guard.deadline());
        keeper.kill_at(kill_at).map_err(cannot("tell the keeper, so the command was not run"))?;
        let group =
            launch::start(self.guard, command, output).map_err(cannot("start the command"))?;
        let mut job = Job::of(group);
        let ended = self.stay(&mut job, &mut keeper, &mut changes, signals).await;
        if !matches!(ended, Ok(Ended::Itself(_))) {
            group.signal(Signal::SIGKILL);
        }
        if ended.is_err() {
            self.bury(group, &mut changes).await;
        }
        job.take_terminal_back();
        keeper.farewell();
        ended
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
            () = clock::sleep_until(self.guard.deadline()) => {}
        }
    }

    async fn stay(
        &mut self,
        job: &mut Job,
        keeper: &mut Keeper,
        changes: &mut unix::Signal,
        signals: &mut Signals,
    ) -> Result<Ended, Failure> {
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
                signal = signals.next() => job.pass_on(signal).map_err(cannot("stand still"))?,
                risk = self.guard.at_risk(), if self.vigil.is_calm() => {
                    let ends_in = length(risk.ends_in);
                    let name = self.guard.name();
                    self.notes.tell(format_args!("lock {name:?} may end in {ends_in}: {}", risk.message));
                }
            }
        }
    }

    fn carry_out(&mut self, order: Order, job: &Job, now: Moment) {
        if self.cause.is_none() {
            self.cause = Some(self.explain(now));
        }
        match order {
            Order::Terminate if job.is_started() => {
                job.group().signal(Signal::SIGTERM);
                // Who stands still could not obey.
                job.group().signal(Signal::SIGCONT);
            }
            Order::Terminate | Order::Kill => job.group().signal(Signal::SIGKILL),
        }
    }

    fn look_at_children(
        &self,
        job: &mut Job,
        keeper: &mut Keeper,
    ) -> Result<Option<Ended>, Failure> {
        let state = process::look_at(job.group().id()).map_err(cannot("look after the command"))?;
        let code = match state {
            ChildState::Exited(code) => Some(u8::try_from(code).unwrap_or(u8::MAX)),
            ChildState::Killed(signal) => Some(code_of(signal)),
            ChildState::Stopped(Signal::SIGSTOP) if !job.is_started() => {
                keeper
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
            Some(code) if self.is_held() => return Ok(Some(Ended::Itself(code))),
            Some(_) => {
                let cause = self.cause.clone().unwrap_or_else(|| self.explain(Moment::now()));
                return Ok(Some(Ended::Lost(cause)));
            }
            None => {}
        }
        let keeper_ended = keeper.has_just_ended().map_err(cannot("look after the keeper"))?;
        if keeper_ended && self.is_held() {
            self.notes.tell(
                "the keeper ended: if this process dies too, the command will outlive the lock",
            );
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

/// What failed, for people.
fn cannot(what: &'static str) -> impl FnOnce(io::Error) -> Failure {
    move |error| Failure::new(FAILED, "io", format_args!("can't {what}: {error}"))
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
