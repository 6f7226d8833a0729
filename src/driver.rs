//! Driver of the sans-IO core: supplies events and the time, sends its calls to the
//! store and its messages to the streams. No other module connects the core to the
//! outside.
//!
//! - [`Stream`]: a session's stream, with its pending messages.
//! - `inspect`: reads of locks. `operate`: break and step-down. `diagnose`: one lock in
//!   detail, a survey of all locks. `reading`: metrics.
//! - [`Watch`]: watchers, and polls of locks that a peer may hold.
//!
//! Every event enters through `Driver::run`, under one mutex: first clock jumps, then
//! the event, then the answers that the store returns immediately.

mod diagnose;
mod inspect;
mod operate;
mod reading;
mod search;
#[cfg(feature = "simulation")]
mod simulation;
mod stream;
#[cfg(test)]
mod tests;
mod watch;

use std::{
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use opentelemetry::{Context, trace::FutureExt as _};
use slab::Slab;
use tokio::sync::Notify;

use self::stream::Outbox;
pub use self::{
    diagnose::{Diagnosed, MAX_LISTED_LOCKS, Overview},
    search::Found,
    stream::Stream,
    watch::Watch,
};
use crate::telemetry::{Telemetry, traces::Tracing};
use leasehold_core::{
    error::RequestError,
    lock::{self, LockId},
    session::{Action, Event, ExpiredSession, Sessions, Settings},
    watch::{PollSchedule, Watches},
};
use leasehold_rules::{JumpDetector, next_clock_check};
use leasehold_runtime as task;
use leasehold_runtime::{sleep_until, sleep_until_any};
use leasehold_store as lease;
use leasehold_store::{Call, LeaseId, LeaseStore, StoreAnswer, StoreCall};
use leasehold_time::{ClockPair, Entropy, Moment};
use leasehold_types::Reason;

/// Capacity to which the list of actions is shrunk after a burst.
const ACTIONS_CAPACITY: usize = 1024;

/// Runs the core. Cheap to clone.
#[derive(Clone)]
pub struct Driver {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    store: Arc<dyn LeaseStore>,
    settings: Settings,
    /// Start of traces, unless they are off.
    tracing: Option<Tracing>,
    /// Notified when a watched lock may be due for a poll.
    observed: Notify,
    /// Notified when the earliest deadline has changed.
    rearmed: Notify,
    /// Notified when the last lock is free.
    drained: Notify,
}

struct State {
    sessions: Sessions,
    streams: Slab<Outbox>,
    watches: Watches,
    observed: PollSchedule,
    /// While an answer is processed: generation of the known states when its call was
    /// sent.
    answered_generation: Option<u64>,
    jumps: JumpDetector,
    /// Time at which the timer fires.
    timer: Option<Moment>,
    /// Empty list for reuse.
    actions: Vec<Action>,
    telemetry: Telemetry,
    /// Number of changes of locks, for observers that read again after changes.
    changes: u64,
}

impl Driver {
    /// Creates a driver without sessions and locks. `locks.journal` must be set if the
    /// telemetry wants the journal.
    pub fn new(
        settings: Settings,
        locks: lock::Settings,
        store: Arc<dyn LeaseStore>,
        mut entropy: Entropy,
        telemetry: Telemetry,
    ) -> Self {
        let poll_entropy = Entropy::seeded_by(&mut entropy);
        let tracing = telemetry.tracing().cloned();
        let state = State {
            sessions: Sessions::new(settings, locks, entropy),
            streams: Slab::new(),
            watches: Watches::default(),
            observed: PollSchedule::new(locks.poll_interval, poll_entropy),
            answered_generation: None,
            jumps: JumpDetector::since(ClockPair::now()),
            timer: None,
            actions: Vec::new(),
            telemetry,
            changes: 0,
        };
        Self {
            shared: Arc::new(Shared {
                state: Mutex::new(state),
                store,
                settings,
                tracing,
                observed: Notify::new(),
                rearmed: Notify::new(),
                drained: Notify::new(),
            }),
        }
    }

    /// Returns the limits of sessions.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.shared.settings
    }

    /// Returns the start of traces, unless they are off.
    pub(crate) fn tracing(&self) -> Option<&Tracing> {
        self.shared.tracing.as_ref()
    }

    /// Persists a TTL. Must succeed before a session with this TTL opens.
    #[must_use]
    pub fn persist_ttl(&self, ttl: Duration) -> Call<()> {
        self.shared.store.persist_ttl(ttl)
    }

    /// Runs the core's timers. Never ends.
    pub async fn keep_time(self) {
        loop {
            let due = {
                let mut state = self.state();
                state.timer = state.sessions.next_due();
                state.timer
            };
            // While a timer is armed, a pause must be detected before a wall-clock
            // adjustment can hide it.
            let due = due.map(|due| next_clock_check(due, Moment::now()));
            tokio::select! {
                biased;
                () = sleep_until_any(due) => self.handle(Event::Tick),
                () = self.shared.rearmed.notified() => {}
            }
        }
    }

    /// Stops granting, and gives holders this time to release. Then declares the
    /// remaining grants lost, and returns when all locks are free.
    pub async fn drain(&self, length: Duration) {
        let until = Moment::now() + length;
        self.handle(Event::Drain(until));
        tokio::select! {
            biased;
            () = self.drained() => return,
            () = sleep_until(until) => {}
        }
        self.handle(Event::EndDrain);
        self.drained().await;
    }

    async fn drained(&self) {
        loop {
            let drained = self.shared.drained.notified();
            if self.state().sessions.is_drained() {
                return;
            }
            drained.await;
        }
    }

    /// Ends all streams and watches.
    pub fn end_streams(&self) {
        let problem = RequestError::new(Reason::ShuttingDown, "the daemon has stopped");
        let mut state = self.state();
        for (_, outbox) in &mut state.streams {
            outbox.end(Some(Box::new(problem.clone())));
        }
        state.watches.end(&problem);
    }

    /// Returns the number of sessions and of locks.
    #[must_use]
    pub fn counts(&self) -> (usize, usize) {
        self.state().sessions.counts()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // After a panic during an update, the state can't be trusted.
        self.shared.state.lock().unwrap_or_else(|_| std::process::abort())
    }

    /// Returns the state after all timers that are due.
    fn state_after_timers(&self) -> MutexGuard<'_, State> {
        let mut state = self.state();
        self.run(&mut state, Event::Tick);
        state
    }

    fn handle(&self, event: Event) {
        self.run(&mut self.state(), event);
    }

    fn run(&self, state: &mut State, event: Event) {
        let here = ClockPair::now();
        if let Some(jump) = state.jumps.check(here) {
            tracing::warn!(?jump, "clock jump detected: this machine may have been paused");
            state.telemetry.on_clock_jump();
            self.step(state, Event::ClockJumped(jump), here.at());
        }
        self.step(state, event, here.at());

        let due = state.sessions.next_due();
        if due.is_some_and(|due| state.timer.is_none_or(|timer| due < timer)) {
            state.timer = due;
            self.shared.rearmed.notify_one();
        }
        if state.sessions.is_drained() {
            self.shared.drained.notify_waiters();
        }
    }

    /// Handles an event, and the answers that the store returns immediately.
    fn step(&self, state: &mut State, event: Event, now: Moment) {
        let mut next = Some(event);
        let mut more = Vec::new();
        while let Some(event) = next {
            let mut actions = std::mem::take(&mut state.actions);
            state.sessions.on(event, now, &mut actions);
            for action in actions.drain(..) {
                match action {
                    Action::Send(stream, message) => {
                        if let Some(outbox) = state.streams.get_mut(stream.0 as usize) {
                            outbox.push(message);
                        }
                    }
                    Action::End(stream, problem) => {
                        if let Some(outbox) = state.streams.get_mut(stream.0 as usize) {
                            outbox.end(problem);
                        }
                    }
                    Action::Supersede(stream) => {
                        if let Some(outbox) = state.streams.get_mut(stream.0 as usize) {
                            outbox.supersede();
                        }
                    }
                    Action::Call(lock, call) => {
                        let context = match self.shared.tracing {
                            Some(_) => {
                                let trace = state.sessions.trace(lock);
                                state.telemetry.call_context(trace, &call).map(Box::new)
                            }
                            None => None,
                        };
                        let since = state.observed.generation();
                        more.extend(self.call(lock, call, CallOptions { since, context }));
                    }
                    Action::Changed(name) => state.on_changed(&name),
                    Action::Expired(expired) => log_expired(&expired),
                    Action::Journal(entry) => state.telemetry.on_entry(entry, now),
                }
            }
            actions.shrink_to(ACTIONS_CAPACITY);
            state.actions = actions;
            next = more.pop();
        }
    }

    /// Calls the store. Returns the answer if it is available immediately; a later one
    /// arrives as a separate event.
    fn call(&self, lock: LockId, call: StoreCall, options: CallOptions) -> Option<Event> {
        let store = &self.shared.store;
        match call {
            StoreCall::Acquire(params) => {
                let id = params.id;
                let unknown = |why| lease::Acquire::Unknown { why };
                self.start(lock, id, store.acquire(params), StoreAnswer::Acquire, unknown, options)
            }
            StoreCall::NextTokens(name, id) => {
                let unknown = |why| lease::Acquire::Unknown { why };
                let call = store.next_tokens(&name, id);
                self.start(lock, id, call, StoreAnswer::NextTokens, unknown, options)
            }
            StoreCall::Renew(name, id, duration) => {
                let unknown = |why| lease::Renew::Unknown { why };
                let call = store.renew(&name, id, duration);
                self.start(lock, id, call, StoreAnswer::Renew, unknown, options)
            }
            StoreCall::Release(name, id) => {
                let unknown = |why| lease::Release::Unknown { why };
                let call = store.release(&name, id);
                self.start(lock, id, call, StoreAnswer::Release, unknown, options)
            }
            StoreCall::Publish(name, id, publication) => {
                let unknown = |why| lease::Publish::Unknown { why };
                let call = store.publish(&name, id, publication);
                self.start(lock, id, call, StoreAnswer::Publish, unknown, options)
            }
        }
    }

    fn start<T: Send + 'static>(
        &self,
        lock: LockId,
        id: LeaseId,
        call: Call<T>,
        answer: fn(Result<T, lease::Error>) -> StoreAnswer,
        unknown: fn(String) -> T,
        options: CallOptions,
    ) -> Option<Event> {
        match call {
            Call::Done(result) => Some(Event::Answered(lock, id, answer(result))),
            Call::Pending(call) => {
                let driver = self.clone();
                task::spawn(async move {
                    let reporter = PanicReporter { driver: &driver, lock, id, answer, unknown };
                    let CallOptions { since, context } = options;
                    let result = match context {
                        Some(context) => call.with_context(*context).await,
                        None => call.await,
                    };
                    drop(reporter);
                    let mut state = driver.state();
                    state.answered_generation = Some(since);
                    driver.run(&mut state, Event::Answered(lock, id, answer(result)));
                    state.answered_generation = None;
                });
                None
            }
        }
    }
}

/// Circumstances of a call to the store.
struct CallOptions {
    /// Generation of the known states.
    since: u64,
    /// Trace that the call belongs to.
    context: Option<Box<Context>>,
}

/// Maximum number of locks in one log line.
const MAX_LOGGED_LOCKS: usize = 10;

/// Logs one line for a session that expired while it held locks.
fn log_expired(expired: &ExpiredSession) {
    let ExpiredSession { id, holder, ttl, locks } = expired;
    let mut names: Vec<String> =
        locks.iter().take(MAX_LOGGED_LOCKS).map(ToString::to_string).collect();
    let more = locks.len() - names.len();
    names.extend((more > 0).then(|| format!("{more} more")));
    let ttl = humantime::format_duration(*ttl);
    let locks = names.join(", ");
    tracing::info!(session = %id, %holder, %locks, %ttl, "a session expired while it held locks");
}

/// Reports an unknown outcome for a store call that panics. Without an answer, its lock
/// would be stuck.
struct PanicReporter<'d, T> {
    driver: &'d Driver,
    lock: LockId,
    id: LeaseId,
    answer: fn(Result<T, lease::Error>) -> StoreAnswer,
    unknown: fn(String) -> T,
}

impl<T> Drop for PanicReporter<'_, T> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            tracing::error!("a storage call panicked");
            let answer = (self.unknown)("the call failed inside the daemon".to_owned());
            let answer = (self.answer)(Ok(answer));
            self.driver.handle(Event::Answered(self.lock, self.id, answer));
        }
    }
}
