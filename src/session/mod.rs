//! Sessions: who is alive, and what each holds and waits for. Pure: told what
//! happened and when, it says what to do.
//!
//! A session lives for its ttl after the last ping that arrived. What its
//! client is promised is a little shorter and counts from when the client sent
//! that ping, so that the client always stops before the session expires
//! (safety rule 11).

mod message;
mod view;

use std::{fmt, sync::Arc, time::Duration};

// Its hasher is fast; what is looked up by it is chosen by the daemon or
// concerns one session only.
use hashbrown::HashMap;

pub use message::{Message, Opened, Queued, Secret};
use slab::Slab;
pub use view::{HeldView, LockView};

use crate::{
    clock::{Entropy, Moment},
    error::{Problem, Reason},
    holder::Holder,
    lease::{Claim, LeaseId},
    lock::{self, Answer, Cause, Effect, Handle, LockId, Locks, Patience, SessionKey, Ticket},
    name::LockName,
    schedule::Schedule,
};

/// A stream that is or was open; numbers are used again after
/// [`Event::Detached`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u32);

/// Names a session for people. Gives no authority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionId(u64);

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// What sessions must know of the configuration.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The ttl of those who ask for none.
    pub default_ttl: Duration,
    /// The longest that may be asked for.
    pub longest_ttl: Duration,
    /// How many sessions there may be.
    pub max_sessions: usize,
    /// How many locks one session may hold or wait for.
    pub max_locks_per_session: usize,
}

/// The shortest ttl.
pub const SHORTEST_TTL: Duration = Duration::from_secs(1);

/// The shortest longest hold.
pub const SHORTEST_HOLD: Duration = Duration::from_secs(1);

/// How much room is kept for effects after a crowd has gone.
const KEPT: usize = 1024;

/// More waits than this are not searched one by one.
const MANY_WAITS: usize = 64;

/// Clocks may drift apart by this part of a length (a five-hundredth).
const DRIFT: u32 = 500;

impl Settings {
    /// The ttl that a session gets; zero asks for the default.
    pub fn ttl(&self, asked: Duration) -> Result<Duration, Problem> {
        if asked.is_zero() {
            return Ok(self.default_ttl);
        }
        if asked < SHORTEST_TTL || asked > self.longest_ttl {
            let (least, most) = (SHORTEST_TTL.as_millis(), self.longest_ttl.as_millis());
            let asked = asked.as_millis();
            return Err(Problem::invalid(
                "ttl_ms",
                format_args!("{asked} is outside of what this daemon allows, {least} to {most}"),
            ));
        }
        Ok(asked)
    }
}

/// A request to begin a session.
#[derive(Clone, Debug)]
pub struct Open {
    /// From [`Settings::ttl`].
    pub ttl: Duration,
    /// Who asks.
    pub holder: Holder,
    /// Whether to free everything as soon as the stream ends.
    pub fenced: bool,
}

/// What a client asks for on its stream, once its session is open.
#[derive(Clone, Debug)]
pub enum Request {
    /// "I am alive."
    KeepAlive {
        /// Rising.
        ping: u64,
    },
    /// A lock.
    Acquire {
        /// The client's number for this request.
        request: u64,
        /// The lock.
        name: LockName,
        /// How long to wait; none means for as long as the session lives.
        wait: Option<Duration>,
        /// The longest hold.
        longest_hold: Option<Duration>,
    },
    /// An acquire is taken back.
    Cancel {
        /// Its number.
        request: u64,
    },
    /// A lock is given back.
    Release {
        /// The client's number for this request.
        request: u64,
        /// The grant.
        handle: Handle,
    },
    /// The session is over.
    Close,
    /// It could not be understood; only to be answered.
    Malformed {
        /// The client's number for this request.
        request: u64,
        /// What is wrong with it.
        problem: Box<Problem>,
    },
}

/// What happened.
#[derive(Debug)]
pub enum Event {
    /// A stream asks for a new session.
    Open(StreamId, Box<Open>),
    /// A stream takes up a session, with a fresh ping.
    Resume(StreamId, Secret, u64),
    /// A stream asks for something.
    Request(StreamId, Request),
    /// A stream is gone.
    Detached(StreamId),
    /// An operator breaks a lock.
    Break {
        /// The lock.
        name: LockName,
        /// Who.
        by: Box<str>,
        /// Why.
        reason: Box<str>,
    },
    /// The store answered.
    Answered(LockId, LeaseId, Answer),
    /// The daemon will stop at that moment: grant nothing more, warn holders.
    Drain(Moment),
    /// The time for holders to let go is over: what they hold is lost.
    EndDrain,
    /// The wall clock has run ahead of ours by this much.
    Leapt(Duration),
    /// Time has passed.
    Tick,
}

/// What to do.
#[derive(Debug)]
pub enum Action {
    /// Tell a stream.
    Send(StreamId, Message),
    /// End a stream, after what it was sent before.
    End(StreamId, Option<Box<Problem>>),
    /// End a stream whose session goes on elsewhere, with nothing more sent.
    Supersede(StreamId),
    /// Ask the store; the answer comes back as [`Event::Answered`].
    Call(LockId, StoreCall),
    /// A lock's state, as seen from outside, may have changed.
    Changed(LockName),
}

/// What to ask the store.
#[derive(Clone, Debug)]
pub enum StoreCall {
    /// Acquire the lease.
    Acquire(Claim),
    /// Get more tokens.
    NextTokens(LockName, LeaseId),
    /// Renew the lease.
    Renew(LockName, LeaseId),
    /// Release the lease.
    Release(LockName, LeaseId),
}

#[derive(Debug)]
struct Session {
    id: SessionId,
    secret: Secret,
    ttl: Duration,
    holder: Arc<Holder>,
    fenced: bool,
    /// None while the stream is broken.
    stream: Option<StreamId>,
    /// The last ping, and when it arrived.
    ping: u64,
    pinged_at: Moment,
    grants: HashMap<Handle, Held>,
    waits: HashMap<u64, (LockId, Ticket)>,
    /// How many of the grants may end before the session does.
    limited: usize,
    /// When the schedule looks at this session: not after its deadline.
    armed: Option<Moment>,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    lock: LockId,
    /// Whether it may end before the session does.
    limited: bool,
}

impl Session {
    /// When it expires unless another ping arrives.
    fn deadline(&self) -> Moment {
        self.pinged_at + self.ttl
    }

    /// How long its client may count on it, from when it sent the last ping.
    fn valid_for(&self) -> Duration {
        self.valid_until(None)
    }

    /// The same for a grant with a limit of its own. The ping was sent before
    /// it arrived, and clocks may drift: so what counts from its sending ends
    /// before the limit.
    fn valid_until(&self, limit: Option<Moment>) -> Duration {
        let length = limit.map_or(self.ttl, |limit| limit.since(self.pinged_at).min(self.ttl));
        length - length / DRIFT
    }

    fn forget_grant(&mut self, handle: Handle) -> Option<LockId> {
        let held = self.grants.remove(&handle)?;
        self.limited -= usize::from(held.limited);
        Some(held.lock)
    }
}

/// All sessions of this daemon, on top of its locks.
#[derive(Debug)]
pub struct Sessions {
    settings: Settings,
    lease_duration: Duration,
    sessions: Slab<Session>,
    secrets: HashMap<Secret, SessionKey>,
    /// By stream: numbers that are used again, so few.
    streams: Vec<Option<SessionKey>>,
    locks: Locks,
    schedule: Schedule<SessionKey>,
    entropy: Entropy,
    /// Set once the daemon stops: when holders must have let go.
    draining: Option<Moment>,
    /// Kept to be used again.
    effects: Vec<Effect>,
}

impl Sessions {
    /// No sessions.
    pub fn new(settings: Settings, locks: lock::Settings, mut entropy: Entropy) -> Self {
        let for_locks = Entropy::seeded_by(&mut entropy);
        Self {
            settings,
            lease_duration: locks.lease_duration,
            sessions: Slab::new(),
            secrets: HashMap::new(),
            streams: Vec::new(),
            locks: Locks::new(locks, for_locks),
            schedule: Schedule::default(),
            entropy,
            draining: None,
            effects: Vec::new(),
        }
    }

    /// Something happened. What has fallen due by now comes first, so that
    /// nothing is granted or kept alive on a deadline that has passed (safety
    /// rule 5).
    pub fn on(&mut self, event: Event, now: Moment, out: &mut Vec<Action>) {
        if self.next_due().is_some_and(|due| due <= now) {
            self.tick(now, out);
        }
        match event {
            Event::Open(stream, open) => self.open(stream, *open, now, out),
            Event::Resume(stream, secret, ping) => self.resume(stream, secret, ping, now, out),
            Event::Request(stream, request) => {
                // Without a session, the stream has been told so already.
                if let Some(Some(key)) = self.streams.get(stream.0 as usize) {
                    self.request(*key, request, now, out);
                }
            }
            Event::Detached(stream) => self.detached(stream, now, out),
            Event::Break { name, by, reason } => {
                if let Some(lock) = self.locks.find(&name) {
                    self.end_grant(lock, Cause::Broken { by, reason }, now, out);
                }
            }
            Event::Answered(lock, id, answer) => {
                self.locks(lock::Event::Answered(lock, id, answer), now, out);
            }
            Event::Drain(until) => self.drain(until, now, out),
            Event::EndDrain => {
                for lock in self.held() {
                    self.end_grant(lock, Cause::ShuttingDown, now, out);
                }
            }
            Event::Leapt(by) => self.locks(lock::Event::Leapt(by), now, out),
            Event::Tick => {}
        }
    }

    /// When [`Event::Tick`] must come next.
    #[must_use]
    pub fn next_due(&self) -> Option<Moment> {
        match (self.schedule.next(), self.locks.next_due()) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        }
    }

    /// Whether nothing is held, waited for or asked of the store.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.locks.is_empty()
    }

    /// Locks of a namespace that are waited for while their lease is not to be
    /// had: the store does not know of them. In order, after `after`.
    pub fn stranded(
        &self,
        namespace: &str,
        prefix: &str,
        after: Option<&str>,
    ) -> impl Iterator<Item = &LockName> {
        self.locks.stranded(namespace, prefix, after)
    }

    /// Whether this daemon has the lease of a lock, or is about to.
    #[must_use]
    pub fn is_ours(&self, name: &LockName) -> bool {
        self.locks.find(name).is_some_and(|lock| self.locks.is_ours(lock))
    }

    /// How many sessions there are, and how many locks.
    #[must_use]
    pub fn counts(&self) -> (usize, usize) {
        (self.sessions.len(), self.locks.len())
    }

    fn tick(&mut self, now: Moment, out: &mut Vec<Action>) {
        let mut expired = Vec::new();
        while let Some(key) = self.schedule.pop(now) {
            let Some(session) = self.sessions.get_mut(key.0 as usize) else { continue };
            session.armed = None;
            if session.deadline() <= now {
                expired.push(key);
            } else {
                self.arm(key);
            }
        }
        // None of them may be granted what another of them gives up.
        for key in &expired {
            self.leave_queues(*key, now, out);
        }
        for key in expired {
            self.end_session(key, Some(Cause::Expired), now, out);
        }
        self.locks(lock::Event::Tick, now, out);
    }

    /// The schedule looks at a session at what was its deadline then; if pings
    /// have arrived since, it is armed anew. So a ping does not touch the
    /// schedule.
    fn arm(&mut self, key: SessionKey) {
        if let Some(session) = self.sessions.get_mut(key.0 as usize) {
            let deadline = session.deadline();
            self.schedule.rearm(key, &mut session.armed, Some(deadline));
        }
    }

    fn open(&mut self, stream: StreamId, open: Open, now: Moment, out: &mut Vec<Action>) {
        if self.draining.is_some() {
            let problem = Problem::new(Reason::ShuttingDown, "the daemon is stopping");
            return out.push(Action::End(stream, Some(Box::new(problem))));
        }
        if self.sessions.len() >= self.settings.max_sessions {
            let most = self.settings.max_sessions;
            let problem = Problem {
                retry_after: Some(self.settings.default_ttl),
                ..Problem::new(
                    Reason::Limit,
                    format!("this daemon keeps at most {most} sessions (max_sessions)"),
                )
            };
            return out.push(Action::End(stream, Some(Box::new(problem))));
        }
        let session = Session {
            id: SessionId(self.entropy.bits() as u64),
            secret: Secret::new(self.entropy.bits()),
            ttl: open.ttl,
            holder: Arc::new(open.holder),
            fenced: open.fenced,
            stream: Some(stream),
            ping: 0,
            pinged_at: now,
            grants: HashMap::new(),
            waits: HashMap::new(),
            limited: 0,
            armed: None,
        };
        let opened = self.opened(&session, Some(session.secret));
        let secret = session.secret;
        let key = SessionKey(self.sessions.insert(session) as u32);
        self.secrets.insert(secret, key);
        self.bind(stream, Some(key));
        self.arm(key);
        out.push(Action::Send(stream, opened));
    }

    /// Which session a stream carries; gives what it carried before.
    fn bind(&mut self, stream: StreamId, key: Option<SessionKey>) -> Option<SessionKey> {
        let at = stream.0 as usize;
        if self.streams.len() <= at {
            self.streams.resize(at + 1, None);
        }
        std::mem::replace(&mut self.streams[at], key)
    }

    fn opened(&self, session: &Session, secret: Option<Secret>) -> Message {
        Message::Opened(Box::new(Opened {
            id: session.id,
            secret,
            ttl: session.ttl,
            // A grant is valid no longer than its lease, so pings must come
            // often enough for both.
            keep_alive_every: session.ttl.min(self.lease_duration) / 3,
            valid_for: session.valid_for(),
        }))
    }

    fn resume(
        &mut self,
        stream: StreamId,
        secret: Secret,
        ping: u64,
        now: Moment,
        out: &mut Vec<Action>,
    ) {
        let Some(key) = self.secrets.get(&secret).copied() else {
            let problem = Problem::new(
                Reason::UnknownSession,
                "this session has expired or was closed, or the daemon was restarted: what it \
                 held is lost; open a new one",
            );
            return out.push(Action::End(stream, Some(Box::new(problem))));
        };
        let Some(session) = self.sessions.get_mut(key.0 as usize) else { return };
        if ping <= session.ping {
            let last = session.ping;
            let problem = Problem::invalid(
                "ping",
                format_args!("{ping} is not greater than {last}, the last of this session"),
            );
            return out.push(Action::End(stream, Some(Box::new(problem))));
        }
        session.ping = ping;
        session.pinged_at = now;
        if let Some(old) = session.stream.replace(stream) {
            // From here on nothing that arrives on the old stream counts.
            self.bind(old, None);
            out.push(Action::Supersede(old));
        }
        self.bind(stream, Some(key));
        let session = &self.sessions[key.0 as usize];
        out.push(Action::Send(stream, self.opened(session, None)));
        for held in session.grants.values() {
            let grant = self.locks.grant(held.lock).filter(|grant| grant.ends_at.is_none());
            if let Some(grant) = grant {
                let message = Message::Granted {
                    request: grant.request,
                    token: grant.token,
                    handle: grant.handle,
                    ping,
                    valid_for: session.valid_until(self.locks.limit(held.lock)),
                };
                out.push(Action::Send(stream, message));
            }
        }
        let waits: Vec<_> = session.waits.iter().map(|(request, wait)| (*request, *wait)).collect();
        for (request, (lock, ticket)) in &waits {
            if let Some(position) = self.locks.position_news(*lock, *ticket, true) {
                let queued = self.queued(*request, *lock, position, now);
                out.push(Action::Send(stream, queued));
            }
        }
        out.push(Action::Send(stream, Message::Restored));
        self.warn_of_stop(&self.sessions[key.0 as usize], now, out);
        for (_, (lock, ticket)) in waits {
            self.locks(lock::Event::Present(lock, ticket, true), now, out);
        }
    }

    fn detached(&mut self, stream: StreamId, now: Moment, out: &mut Vec<Action>) {
        let Some(key) = self.bind(stream, None) else { return };
        let Some(session) = self.sessions.get_mut(key.0 as usize) else { return };
        session.stream = None;
        if session.fenced {
            return self.end_session(key, None, now, out);
        }
        let waits: Vec<_> = session.waits.values().copied().collect();
        for (lock, ticket) in waits {
            self.locks(lock::Event::Present(lock, ticket, false), now, out);
        }
    }

    fn request(&mut self, key: SessionKey, request: Request, now: Moment, out: &mut Vec<Action>) {
        match request {
            Request::KeepAlive { ping } => self.keep_alive(key, ping, now, out),
            Request::Acquire { request, name, wait, longest_hold } => {
                let patience = match wait {
                    None => Patience::Forever,
                    Some(Duration::ZERO) => Patience::None,
                    Some(wait) => Patience::Until(now + wait),
                };
                let acquire = lock::Acquire { name, session: key, request, patience, longest_hold };
                self.acquire(acquire, now, out);
            }
            Request::Cancel { request } => {
                let session = self.sessions.get_mut(key.0 as usize);
                if let Some((lock, ticket)) =
                    session.and_then(|session| session.waits.remove(&request))
                {
                    let problem = Problem::new(Reason::Cancelled, "the acquire was cancelled");
                    self.refuse(key, request, problem, out);
                    self.locks(lock::Event::Leave(lock, ticket), now, out);
                }
            }
            Request::Release { request, handle } => {
                let session = self.sessions.get_mut(key.0 as usize);
                match session.and_then(|session| session.forget_grant(handle)) {
                    Some(lock) => {
                        self.send(key, Message::Released { request }, out);
                        self.locks(lock::Event::Free(lock), now, out);
                    }
                    None => {
                        let problem = Problem::new(
                            Reason::UnknownHandle,
                            "handle: names no grant of this session; it was released or lost \
                             before, or it is another session's. Nothing was released",
                        );
                        self.refuse(key, request, problem, out);
                    }
                }
            }
            Request::Close => self.end_session(key, None, now, out),
            Request::Malformed { request, problem } => self.refuse(key, request, *problem, out),
        }
    }

    fn keep_alive(&mut self, key: SessionKey, ping: u64, now: Moment, out: &mut Vec<Action>) {
        let Some(session) = self.sessions.get_mut(key.0 as usize) else { return };
        if ping <= session.ping {
            return;
        }
        session.ping = ping;
        session.pinged_at = now;
        let session = &self.sessions[key.0 as usize];
        let valid_for = session.valid_for();
        let limited = session.grants.iter().filter(|(_, held)| held.limited);
        let limits = if session.limited == 0 {
            Vec::new()
        } else {
            limited
                .map(|(handle, held)| (*handle, session.valid_until(self.locks.limit(held.lock))))
                .filter(|(_, length)| *length < valid_for)
                .collect()
        };
        let waits: Vec<_> = session.waits.iter().map(|(request, wait)| (*request, *wait)).collect();
        self.send(key, Message::KeptAlive { ping, valid_for, limits }, out);
        for (request, (lock, ticket)) in waits {
            if let Some(position) = self.locks.position_news(lock, ticket, false) {
                let queued = self.queued(request, lock, position, now);
                self.send(key, queued, out);
            }
        }
    }

    fn acquire(&mut self, acquire: lock::Acquire, now: Moment, out: &mut Vec<Action>) {
        let (key, request) = (acquire.session, acquire.request);
        let Some(session) = self.sessions.get(key.0 as usize) else { return };
        if session.waits.contains_key(&request) {
            let problem = Problem::invalid(
                "request",
                format_args!("{request} is the number of an acquire that is still waiting"),
            );
            return self.refuse(key, request, problem, out);
        }
        let lock = self.locks.find(&acquire.name);
        let holds = lock
            .and_then(|lock| self.locks.grant(lock))
            .is_some_and(|grant| grant.session == key && grant.ends_at.is_none());
        let most = self.settings.max_locks_per_session;
        if !holds && session.grants.len() + session.waits.len() >= most {
            let message = format!(
                "a session may hold or wait for at most {most} locks (max_locks_per_session)"
            );
            let problem =
                Problem { lock: Some(acquire.name), ..Problem::new(Reason::Limit, message) };
            return self.refuse(key, request, problem, out);
        }
        // A session that waits for a great many is not searched: it may wait
        // for this one too.
        let again = lock.is_some_and(|lock| {
            self.locks.waiting(lock) > 0
                && (session.waits.len() > MANY_WAITS
                    || session.waits.values().any(|(other, _)| *other == lock))
        });
        self.locks(lock::Event::Acquire(acquire, again), now, out);
    }

    fn drain(&mut self, until: Moment, now: Moment, out: &mut Vec<Action>) {
        self.draining = Some(until);
        self.locks(lock::Event::Drain, now, out);
        for (_, session) in &self.sessions {
            self.warn_of_stop(session, now, out);
        }
    }

    /// Tells a session with a stream to let go, if the daemon stops.
    fn warn_of_stop(&self, session: &Session, now: Moment, out: &mut Vec<Action>) {
        let (Some(stream), Some(until)) = (session.stream, self.draining) else { return };
        for held in session.grants.values() {
            if let Some(grant) = self.locks.grant(held.lock).filter(|grant| grant.ends_at.is_none())
            {
                let message = view::stopping(grant.handle, until.since(now));
                out.push(Action::Send(stream, message));
            }
        }
    }

    fn held(&self) -> Vec<LockId> {
        self.sessions
            .iter()
            .flat_map(|(_, session)| session.grants.values().map(|held| held.lock))
            .collect()
    }

    /// Takes a lock from its holder, who may count on it until what it was
    /// last promised is over.
    fn end_grant(&mut self, lock: LockId, cause: Cause, now: Moment, out: &mut Vec<Action>) {
        if let Some(at) = self.free_by(lock) {
            self.locks(lock::Event::End(lock, at, cause), now, out);
        }
    }

    /// When the lock is free at the latest if its grant is ended now.
    fn free_by(&self, lock: LockId) -> Option<Moment> {
        let grant = self.locks.grant(lock)?;
        let session = self.sessions.get(grant.session.0 as usize)?;
        let at = grant.ends_at.unwrap_or_else(|| session.deadline());
        Some(self.locks.limit(lock).map_or(at, |limit| limit.min(at)))
    }

    fn leave_queues(&mut self, key: SessionKey, now: Moment, out: &mut Vec<Action>) {
        let Some(session) = self.sessions.get_mut(key.0 as usize) else { return };
        for (lock, ticket) in std::mem::take(&mut session.waits).into_values() {
            self.locks(lock::Event::Leave(lock, ticket), now, out);
        }
    }

    /// The session is over: what it waits for and holds is free for others.
    fn end_session(
        &mut self,
        key: SessionKey,
        cause: Option<Cause>,
        now: Moment,
        out: &mut Vec<Action>,
    ) {
        let Some(session) = self.sessions.get_mut(key.0 as usize) else { return };
        self.schedule.rearm(key, &mut session.armed, None);
        self.secrets.remove(&session.secret);
        self.leave_queues(key, now, out);
        let Some(session) = self.sessions.get_mut(key.0 as usize) else { return };
        for (handle, held) in std::mem::take(&mut session.grants) {
            if let Some(cause) = &cause
                && let Some(name) = self.locks.name(held.lock).cloned()
            {
                self.send(key, view::lost(handle, &name, cause), out);
            }
            self.locks(lock::Event::Free(held.lock), now, out);
        }
        let session = self.sessions.remove(key.0 as usize);
        if let Some(stream) = session.stream {
            self.bind(stream, None);
            let problem = cause.map(|_| {
                let ttl = humantime::format_duration(session.ttl);
                let message = format!(
                    "the session was silent for longer than its ttl of {ttl} and has expired"
                );
                Box::new(Problem::new(Reason::Expired, message))
            });
            out.push(Action::End(stream, problem));
        }
    }

    /// Lets the locks act, and passes on what comes of it.
    fn locks(&mut self, event: lock::Event, now: Moment, out: &mut Vec<Action>) {
        let mut effects = std::mem::take(&mut self.effects);
        self.locks.on(event, now, &mut effects);
        for effect in effects.drain(..) {
            self.effect(effect, now, out);
        }
        effects.shrink_to(KEPT);
        self.effects = effects;
    }

    fn effect(&mut self, effect: Effect, now: Moment, out: &mut Vec<Action>) {
        match effect {
            Effect::Waits { session, request, lock, ticket } => {
                if let Some(session) = self.sessions.get_mut(session.0 as usize) {
                    session.waits.insert(request, (lock, ticket));
                }
            }
            Effect::Queued { session, request, lock, position } => {
                let queued = self.queued(request, lock, position, now);
                self.send(session, queued, out);
            }
            Effect::Granted { session: key, request, lock, handle, token, limit } => {
                let Some(session) = self.sessions.get_mut(key.0 as usize) else { return };
                session.waits.remove(&request);
                let held = Held { lock, limited: limit.is_some() };
                if session.grants.insert(handle, held).is_none() {
                    session.limited += usize::from(held.limited);
                }
                let (ping, valid_for) = (session.ping, session.valid_until(limit));
                let granted = Message::Granted { request, token, handle, ping, valid_for };
                self.send(key, granted, out);
            }
            Effect::Refused { session: key, request, name, why } => {
                if let Some(session) = self.sessions.get_mut(key.0 as usize) {
                    session.waits.remove(&request);
                }
                let problem = self.refusal(name, why, now);
                self.refuse(key, request, problem, out);
            }
            Effect::AtRisk { session, handle, name, until } => {
                self.send(session, view::at_risk(handle, &name, until.since(now)), out);
            }
            Effect::Lost { session, handle, name, cause } => {
                self.send(session, view::lost(handle, &name, &cause), out);
            }
            Effect::Ended { session, handle } => {
                if let Some(session) = self.sessions.get_mut(session.0 as usize) {
                    session.forget_grant(handle);
                }
            }
            Effect::Call { lock, call } => {
                if let Some(call) = self.store_call(lock, call) {
                    out.push(Action::Call(lock, call));
                }
            }
            Effect::Changed(name) => out.push(Action::Changed(name)),
        }
    }

    fn store_call(&self, lock: LockId, call: lock::Call) -> Option<StoreCall> {
        let name = self.locks.name(lock)?.clone();
        Some(match call {
            lock::Call::Acquire { id, session } => StoreCall::Acquire(Claim {
                name,
                id,
                duration: self.lease_duration,
                holder: Arc::clone(&self.sessions.get(session.0 as usize)?.holder),
            }),
            lock::Call::NextTokens { id } => StoreCall::NextTokens(name, id),
            lock::Call::Renew { id } => StoreCall::Renew(name, id),
            lock::Call::Release { id } => StoreCall::Release(name, id),
        })
    }

    fn refuse(&self, key: SessionKey, request: u64, problem: Problem, out: &mut Vec<Action>) {
        self.send(key, Message::Refused { request, problem: Box::new(problem) }, out);
    }

    /// To a session without a stream nothing is said: it learns on resuming.
    fn send(&self, key: SessionKey, message: Message, out: &mut Vec<Action>) {
        let stream = self.sessions.get(key.0 as usize).and_then(|session| session.stream);
        if let Some(stream) = stream {
            out.push(Action::Send(stream, message));
        }
    }
}

#[cfg(test)]
mod tests;
