//! Drives the pure core: gives it the time, carries its calls to the store and
//! its messages to the streams. The only place where it meets the outside.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard},
    task::{Context, Poll, Waker},
    time::Duration,
};

use slab::Slab;
use tokio::sync::Notify;

use crate::{
    clock::{Anchor, Entropy, Moment, sleep_until},
    error::{Problem, Reason},
    lease::{self, Break, Breaker, Call, CallCount, LeaseId, LeaseInfo, LeaseStore},
    lock::{self, Answer, LockId},
    name::{LockName, Namespace},
    observe::Observed,
    session::{
        Action, Event, HeldView, LockView, Message, Open, Request, Secret, Sessions, Settings,
        StoreCall, StreamId,
    },
    watch::{Target, WatchId, Watches},
};

/// A wall clock that runs ahead by less than this is being adjusted; by more,
/// this machine may have been frozen.
const LEAP: Duration = Duration::from_secs(1);

/// How many streams there may be beyond one for each session: some have none
/// yet, others none any more.
const SPARE_STREAMS: usize = 1000;

/// How much room is kept for actions after a crowd has gone.
const KEPT: usize = 1024;

/// Runs the core. Cheap to clone.
#[derive(Clone)]
pub struct Driver {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    store: Arc<dyn LeaseStore>,
    settings: Settings,
    /// Somebody watches a lock.
    observed: Notify,
    /// The earliest deadline has changed.
    rearmed: Notify,
    /// Nothing is held any more.
    drained: Notify,
}

struct State {
    sessions: Sessions,
    streams: Slab<Outbox>,
    watches: Watches,
    observed: Observed,
    anchor: Anchor,
    /// What the timer is waiting for.
    timer: Option<Moment>,
    /// Kept to be used again.
    actions: Vec<Action>,
}

/// What a stream has yet to send. Bounded by what its session has asked for: a
/// stream is read from only while nothing is left to be sent.
#[derive(Default)]
struct Outbox {
    messages: VecDeque<Message>,
    end: Option<Option<Box<Problem>>>,
    waker: Option<Waker>,
}

impl Driver {
    /// Nothing is held.
    pub fn new(
        settings: Settings,
        locks: lock::Settings,
        store: Arc<dyn LeaseStore>,
        mut entropy: Entropy,
    ) -> Self {
        let for_looks = Entropy::seeded_by(&mut entropy);
        let state = State {
            sessions: Sessions::new(settings, locks, entropy),
            streams: Slab::new(),
            watches: Watches::default(),
            observed: Observed::new(locks.poll_interval, for_looks),
            anchor: Anchor::now(),
            timer: None,
            actions: Vec::new(),
        };
        Self {
            shared: Arc::new(Shared {
                state: Mutex::new(state),
                store,
                settings,
                observed: Notify::new(),
                rearmed: Notify::new(),
                drained: Notify::new(),
            }),
        }
    }

    /// The limits for sessions.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.shared.settings
    }

    /// Must have succeeded before a session with this ttl is opened.
    #[must_use]
    pub fn cover(&self, ttl: Duration) -> Call<()> {
        self.shared.store.cover(ttl)
    }

    /// Calls the core whenever something falls due. Never ends.
    pub async fn keep_time(self) {
        loop {
            let due = {
                let mut state = self.state();
                state.timer = state.sessions.next_due();
                state.timer
            };
            let come = async {
                match due {
                    Some(due) => sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = come => self.handle(Event::Tick),
                () = self.shared.rearmed.notified() => {}
            }
        }
    }

    /// Looks at locks that are watched here and other daemons may hold. Never
    /// ends.
    pub async fn look_elsewhere(self) {
        if !self.shared.store.is_shared() {
            return std::future::pending().await;
        }
        loop {
            let due = self.state().observed.next_due();
            let come = async {
                match due {
                    Some(due) => sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = come => {}
                () = self.shared.observed.notified() => {}
            }
            while let Some(name) = self.next_to_look_at() {
                let driver = self.clone();
                tokio::spawn(async move {
                    let since = driver.state().observed.stamp();
                    let seen = driver.shared.store.inspect(&name).await;
                    driver.looked(&name, seen, since);
                });
            }
        }
    }

    /// A lock to look at now, of which this daemon does not know anyway.
    fn next_to_look_at(&self) -> Option<LockName> {
        let now = Moment::now();
        let mut state = self.state();
        loop {
            let name = state.observed.pop(now)?;
            if !state.sessions.knows(&name) {
                return Some(name);
            }
            state.observed.missed(&name, now);
        }
    }

    fn looked(&self, name: &LockName, seen: Result<Option<LeaseInfo>, lease::Error>, since: u64) {
        let now = Moment::now();
        let mut state = self.state();
        match seen {
            Ok(info) => {
                if state.observed.saw(name, info.map(Arc::new), since, now) {
                    state.watches.changed(name);
                }
            }
            Err(_) => state.observed.missed(name, now),
        }
        // It may have become ours while it was looked at.
        if state.sessions.is_ours(name) {
            state.observed.forget(name);
        }
        // While all looks were under way, nothing was due.
        self.shared.observed.notify_one();
    }

    /// A new stream, without a session yet.
    pub fn attach(&self) -> Result<Stream, Problem> {
        let mut state = self.state();
        let most = self.shared.settings.max_sessions + SPARE_STREAMS;
        if state.streams.len() >= most {
            let message = format!("this daemon keeps at most {most} streams (max_sessions)");
            return Err(Problem::new(Reason::Limit, message));
        }
        let id = StreamId(state.streams.insert(Outbox::default()) as u32);
        Ok(Stream { driver: self.clone(), id })
    }

    /// A lock as it is now.
    pub async fn inspect(&self, name: &LockName) -> Result<LockView, lease::Error> {
        let view = self.view(name);
        if view.held.as_ref().is_some_and(|held| held.session.is_some()) {
            return Ok(view);
        }
        let since = self.state().observed.stamp();
        let stored = self.shared.store.inspect(name).await?;
        let view = self.overlay(stored.as_ref(), name);
        self.looked(name, Ok(stored), since);
        Ok(view)
    }

    /// A lock as it is now, and as it is stored.
    pub async fn inspect_stored(
        &self,
        name: &LockName,
    ) -> Result<(LockView, Option<LeaseInfo>), lease::Error> {
        let stored = self.shared.store.inspect(name).await?;
        Ok((self.overlay(stored.as_ref(), name), stored))
    }

    /// Where leases are kept, for people, and how often the storage was called.
    #[must_use]
    pub fn store(&self) -> (String, Vec<CallCount>) {
        (self.shared.store.describe(), self.shared.store.calls())
    }

    /// Locks that are held or waited for, in the order of their names.
    pub async fn list(
        &self,
        namespace: &Namespace,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<LockView>, lease::Error> {
        let stored = self.shared.store.list(namespace.as_str(), prefix, after, limit).await?;
        let mut names: BTreeMap<_, _> =
            stored.into_iter().map(|info| (info.name.clone(), Some(info))).collect();
        let stranded: Vec<_> = {
            let state = self.settled();
            let stranded = state.sessions.stranded(namespace.as_str(), prefix, after);
            stranded.take(limit).cloned().collect()
        };
        for name in stranded {
            names.entry(name).or_default();
        }
        Ok(names
            .into_iter()
            .take(limit)
            .map(|(name, info)| self.overlay(info.as_ref(), &name))
            .collect())
    }

    /// What the store knows, and over it what this daemon knows.
    fn overlay(&self, stored: Option<&lease::LeaseInfo>, name: &LockName) -> LockView {
        let state = self.settled();
        let mut view = state.sessions.view(name, Moment::now());
        // What was seen at the last poll is older than what is stored.
        view.held.take_if(|held| stored.is_some() && held.session.is_none());
        // A lease of our own says who was first, not who holds the lock now.
        if view.held.is_none()
            && !state.sessions.is_ours(name)
            && let Some(info) = stored.filter(|info| info.held)
        {
            view.held = Some(HeldView::elsewhere(info));
        }
        view
    }

    /// A lock as it is now, as far as this daemon knows without asking.
    #[must_use]
    pub fn view(&self, name: &LockName) -> LockView {
        self.settled().view(name)
    }

    /// Takes a lock from its holder. Gives the lock as it was, and how long it
    /// takes at most until it is free; none if nobody held it.
    pub async fn break_lock(
        &self,
        name: LockName,
        breaker: Breaker,
    ) -> Result<(LockView, Option<Duration>), lease::Error> {
        let Breaker { by, reason } = &breaker;
        let (by, reason) = (by.clone(), reason.clone());
        if let Some((before, free_within)) = self.break_here(&name, &breaker) {
            tracing::warn!(lock = %name, %by, %reason, "a lock was broken");
            // The holder has been told, and the log says it: the note is for
            // those who look later.
            if let Err(error) = self.shared.store.note_break(&name, breaker).await {
                tracing::warn!(lock = %name, %error, "the break could not be noted");
            }
            return Ok((before, Some(free_within)));
        }
        let before = self.inspect(&name).await?;
        if before.held.is_none() {
            return Ok((before, None));
        }
        let free_within = match self.shared.store.break_lease(&name, breaker).await? {
            Break::Broken { free_within } => Some(free_within),
            Break::NotHeld => None,
            Break::Unknown { why } => {
                return Err(lease::Error::Unavailable { why, retry_after: None });
            }
        };
        tracing::warn!(lock = %name, %by, %reason, "a lock held through another daemon was broken");
        Ok((before, free_within))
    }

    /// Breaks a lock that a session of this daemon holds.
    fn break_here(&self, name: &LockName, breaker: &Breaker) -> Option<(LockView, Duration)> {
        let mut state = self.settled();
        let now = Moment::now();
        let before = state.sessions.view(name, now);
        let free_within = state.sessions.free_within(name, now)?;
        let Breaker { by, reason } = breaker.clone();
        self.run(&mut state, Event::Break { name: name.clone(), by, reason });
        Some((before, free_within))
    }

    /// Begins to collect changes. Of a single lock also those that happen at
    /// other daemons.
    pub fn watch(&self, target: Target) -> Result<Watch, Problem> {
        let mut state = self.state();
        let name = match &target {
            Target::Name(name) => Some(name.clone()),
            Target::Prefix(..) => None,
        };
        let id = state.watches.add(target)?;
        if let Some(name) = &name {
            state.observed.add(name, Moment::now());
            self.shared.observed.notify_one();
        }
        Ok(Watch { driver: self.clone(), id, name })
    }

    /// Asks the holder of a lock to let go within some time. Gives the lock as
    /// it was, and how long it is given; none if no session of this daemon
    /// holds it.
    pub async fn step_down(
        &self,
        name: LockName,
        breaker: Breaker,
        within: Duration,
    ) -> Result<(LockView, Option<Duration>), lease::Error> {
        {
            let mut state = self.settled();
            let now = Moment::now();
            if let Some(until) = state.sessions.step_down_by(&name, within, now) {
                let before = state.sessions.view(&name, now);
                let Breaker { by, reason } = breaker;
                tracing::info!(lock = %name, %by, %reason, "a holder is asked to step down");
                self.run(&mut state, Event::StepDown { name, by, reason, until });
                return Ok((before, Some(until.since(now))));
            }
        }
        Ok((self.inspect(&name).await?, None))
    }

    /// Grants nothing more, gives holders until then to let go, then counts
    /// what they hold as lost; ends when all is free.
    pub async fn drain(&self, length: Duration) {
        let until = Moment::now() + length;
        self.handle(Event::Drain(until));
        tokio::select! {
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
        let problem = Problem::new(Reason::ShuttingDown, "the daemon has stopped");
        let mut state = self.state();
        for (_, outbox) in &mut state.streams {
            outbox.end.get_or_insert_with(|| Some(Box::new(problem.clone())));
            outbox.wake();
        }
        state.watches.end(&problem);
    }

    /// How many sessions and locks there are.
    #[must_use]
    pub fn counts(&self) -> (usize, usize) {
        self.state().sessions.counts()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // After a panic in the middle of a change nothing here can be trusted.
        self.shared.state.lock().unwrap_or_else(|_| std::process::abort())
    }

    /// The state after all that has fallen due by now.
    fn settled(&self) -> MutexGuard<'_, State> {
        let mut state = self.state();
        self.run(&mut state, Event::Tick);
        state
    }

    fn handle(&self, event: Event) {
        self.run(&mut self.state(), event);
    }

    fn run(&self, state: &mut State, event: Event) {
        let here = Anchor::now();
        let leap = state.anchor.leap_until(&here);
        if leap > LEAP {
            tracing::warn!(?leap, "the wall clock ran ahead: this machine may have been frozen");
            self.step(state, Event::Leapt(leap), here.at());
        }
        if leap > LEAP || here.at().since(state.anchor.at()) > 10 * LEAP {
            state.anchor = here;
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

    /// One event, and what the store answers at once.
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
                            outbox.messages.push_back(message);
                            outbox.wake();
                        }
                    }
                    Action::End(stream, problem) => {
                        if let Some(outbox) = state.streams.get_mut(stream.0 as usize) {
                            outbox.end.get_or_insert(problem);
                            outbox.wake();
                        }
                    }
                    Action::Supersede(stream) => {
                        if let Some(outbox) = state.streams.get_mut(stream.0 as usize) {
                            let elsewhere = "the session was resumed on another stream";
                            let problem = Problem::new(Reason::Protocol, elsewhere);
                            outbox.messages = VecDeque::new();
                            outbox.end = Some(Some(Box::new(problem)));
                            outbox.wake();
                        }
                    }
                    Action::Call(lock, call) => more.extend(self.call(lock, call)),
                    Action::Changed(name) => {
                        if state.sessions.is_ours(&name) {
                            state.observed.forget(&name);
                        } else if let Some(info) = state.sessions.held_elsewhere(&name) {
                            state.observed.learn(&name, Some(Arc::clone(info)));
                        }
                        state.watches.changed(&name);
                    }
                }
            }
            actions.shrink_to(KEPT);
            state.actions = actions;
            next = more.pop();
        }
    }

    /// Asks the store. An answer that is there at once is given back; one that
    /// takes time comes as an event of its own.
    fn call(&self, lock: LockId, call: StoreCall) -> Option<Event> {
        let store = &self.shared.store;
        match call {
            StoreCall::Acquire(claim) => {
                let id = claim.id;
                self.start(lock, id, store.acquire(claim), Answer::Acquire)
            }
            StoreCall::NextTokens(name, id) => {
                self.start(lock, id, store.next_tokens(&name, id), Answer::NextTokens)
            }
            StoreCall::Renew(name, id, duration) => {
                self.start(lock, id, store.renew(&name, id, duration), Answer::Renew)
            }
            StoreCall::Release(name, id) => {
                self.start(lock, id, store.release(&name, id), Answer::Release)
            }
            StoreCall::Publish(name, id, publication) => {
                self.start(lock, id, store.publish(&name, id, publication), Answer::Publish)
            }
        }
    }

    fn start<T: Send + 'static>(
        &self,
        lock: LockId,
        id: LeaseId,
        call: Call<T>,
        answer: fn(Result<T, lease::Error>) -> Answer,
    ) -> Option<Event> {
        match call {
            Call::Done(result) => Some(Event::Answered(lock, id, answer(result))),
            Call::Pending(call) => {
                let driver = self.clone();
                tokio::spawn(async move {
                    let result = call.await;
                    driver.handle(Event::Answered(lock, id, answer(result)));
                });
                None
            }
        }
    }
}

impl State {
    /// A lock as it is now, as far as is known here without asking.
    fn view(&self, name: &LockName) -> LockView {
        let mut view = self.sessions.view(name, Moment::now());
        if view.held.is_none()
            && !self.sessions.is_ours(name)
            && let Some(info) = self.observed.seen(name)
        {
            view.held = Some(HeldView::elsewhere(info));
        }
        view
    }
}

impl Outbox {
    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

/// A client's stream. Dropping it says that the stream is gone.
pub struct Stream {
    driver: Driver,
    id: StreamId,
}

impl Stream {
    /// Begins a session. The store must have covered its ttl.
    pub fn open(&self, open: Open) {
        self.driver.handle(Event::Open(self.id, Box::new(open)));
    }

    /// Takes up a session.
    pub fn resume(&self, secret: Secret, ping: u64) {
        self.driver.handle(Event::Resume(self.id, secret, ping));
    }

    /// Asks for something. Messages must be polled for after that: whoever
    /// asks is awake, and is not woken for the answer.
    pub fn request(&self, request: Request) {
        let mut state = self.driver.state();
        if let Some(outbox) = state.streams.get_mut(self.id.0 as usize) {
            outbox.waker = None;
        }
        self.driver.run(&mut state, Event::Request(self.id, request));
    }

    /// The next message to send; none once the stream has ended.
    pub fn poll_message(&self, cx: &Context<'_>) -> Poll<Option<Result<Message, Problem>>> {
        let mut state = self.driver.state();
        let Some(outbox) = state.streams.get_mut(self.id.0 as usize) else {
            return Poll::Ready(None);
        };
        if let Some(message) = outbox.messages.pop_front() {
            return Poll::Ready(Some(Ok(message)));
        }
        // A session that once got a great many messages must not keep their
        // room for ever.
        if outbox.messages.capacity() > 64 {
            outbox.messages = VecDeque::new();
        }
        match &mut outbox.end {
            Some(end) => Poll::Ready(end.take().map(|problem| Err(*problem))),
            None => {
                if !outbox.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
                    outbox.waker = Some(cx.waker().clone());
                }
                Poll::Pending
            }
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let mut state = self.driver.state();
        self.driver.run(&mut state, Event::Detached(self.id));
        state.streams.try_remove(self.id.0 as usize);
    }
}

/// A client that watches locks. Dropping it ends the watch.
pub struct Watch {
    driver: Driver,
    id: WatchId,
    /// If it is a single lock.
    name: Option<LockName>,
}

impl Watch {
    /// The next lock that has changed, as it is now.
    pub fn poll_changed(&self, cx: &Context<'_>) -> Poll<Option<Result<LockView, Problem>>> {
        let mut state = self.driver.state();
        state
            .watches
            .poll_changed(self.id, cx)
            .map(|changed| changed.map(|name| Ok(state.view(&name?))))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut state = self.driver.state();
        state.watches.remove(self.id);
        if let Some(name) = &self.name {
            state.observed.remove(name);
        }
    }
}
