//! Random orders of events: several daemons with clients, and one store whose leases
//! expire. Answers come late, are lost, or report calls that were never applied. This
//! file has the simulated world; the tests are in `tests/cases.rs`.

mod cases;

use proptest::prelude::*;

use super::*;
use leasehold_store as lease;
use leasehold_store::{AcquireParams, Acquired, LeaseId, StoreAnswer, StoreCall, Value};
use leasehold_types::Reason;

use crate::journal::{Entry, Fact, Level, RefusalCause, Source};
use crate::lock::LeaseView;
use leasehold_types::{Token, TokenRange};

const DURATION: Duration = Duration::from_secs(15);
const TTL: Duration = Duration::from_secs(3);

/// Lock used as an election.
const ELECTION: u8 = 2;

/// Store as the core sees it: the pending calls, and the current state of the blobs.
#[derive(Default)]
struct Store {
    blobs: HashMap<LockName, Blob>,
    pending: Vec<(usize, LockId, StoreCall, Moment)>,
}

#[derive(Default)]
struct Blob {
    epoch: u64,
    lease: Option<(LeaseId, Moment)>,
    /// Token and value of the leader, as published.
    published: Option<(Token, Value)>,
}

/// Outcome of a call.
#[derive(Clone, Copy, Debug)]
enum Outcome {
    Answered,
    AnswerLost,
    NeverArrived,
    Refused,
}

/// Grant as its client knows it.
struct ClientGrant {
    name: LockName,
    token: u64,
    deadline: Moment,
    over: bool,
}

struct Client {
    daemon: usize,
    stream: Option<StreamId>,
    /// False if the client has lost its stream. Messages to it are then lost.
    connected: bool,
    secret: Option<Secret>,
    keep_alives: Vec<Moment>,
    requests: u64,
    pending: HashMap<u64, LockName>,
    grants: HashMap<Handle, ClientGrant>,
    /// Set between a resume and the end of the list that follows it.
    listed: Option<Vec<Handle>>,
    warnings: usize,
    kept_alive: usize,
}

struct World {
    now: Moment,
    daemons: Vec<Sessions>,
    store: Store,
    clients: Vec<Client>,
    streams: u32,
    highest: HashMap<LockName, u64>,
    grant_count: usize,
    journal: Vec<Entry>,
}

#[derive(Clone, Debug)]
enum Op {
    Pass(u64),
    KeepAlive(usize, u64),
    Acquire(usize, u8, Option<u64>, Option<u64>),
    CancelAll(usize),
    ReleaseAll(usize),
    Proclaim(usize, u8),
    StepDown(u8),
    ReleaseForeign(usize, usize),
    /// The stream breaks. The daemon does not notice.
    Cut(usize),
    /// The stream breaks, and the daemon notices.
    Noticed(usize),
    Resume(usize),
    Reopen(usize),
    Close(usize),
    Break(u8),
    Store(usize, Outcome),
    ClockJump(usize, u64),
    /// Seconds of normal operation: keep-alives arrive, and the store answers all
    /// daemons except this one.
    Run(u8, Option<usize>),
}

fn op(clients: usize) -> impl Strategy<Value = Op> {
    let client = 0..clients;
    let outcome = prop_oneof![
        6 => Just(Outcome::Answered),
        1 => Just(Outcome::AnswerLost),
        1 => Just(Outcome::NeverArrived),
        1 => Just(Outcome::Refused),
    ];
    prop_oneof![
        6 => (1..2500_u64).prop_map(Op::Pass),
        1 => (10_000..40_000_u64).prop_map(Op::Pass),
        8 => (client.clone(), 0..1500_u64).prop_map(|(c, d)| Op::KeepAlive(c, d)),
        8 => (
            client.clone(),
            0..3_u8,
            prop_oneof![Just(Some(0)), Just(None), (1..9000_u64).prop_map(Some)],
            prop::option::weighted(0.1, 1000..9000_u64),
        ).prop_map(|(c, l, w, h)| Op::Acquire(c, l, w, h)),
        1 => client.clone().prop_map(Op::CancelAll),
        4 => client.clone().prop_map(Op::ReleaseAll),
        2 => (client.clone(), any::<u8>()).prop_map(|(c, v)| Op::Proclaim(c, v)),
        1 => (0..3_u8).prop_map(Op::StepDown),
        1 => (client.clone(), client.clone()).prop_map(|(c, o)| Op::ReleaseForeign(c, o)),
        3 => client.clone().prop_map(Op::Cut),
        1 => client.clone().prop_map(Op::Noticed),
        2 => client.clone().prop_map(Op::Resume),
        2 => client.clone().prop_map(Op::Reopen),
        1 => client.prop_map(Op::Close),
        3 => (0..3_u8).prop_map(Op::Break),
        6 => (1..20_u8, prop::option::of(0..2_usize)).prop_map(|(s, d)| Op::Run(s, d)),
        16 => (0..8_usize, outcome).prop_map(|(n, f)| Op::Store(n, f)),
        1 => (0..2_usize, 500..40_000_u64).prop_map(|(d, l)| Op::ClockJump(d, l)),
    ]
}

fn lock_name(number: u8) -> LockName {
    LockName::parse("", &format!("lock-{number}")).unwrap()
}

/// Returns the duration that a client measures as `length` if its clock is as slow as
/// allowed.
fn on_a_slow_clock(length: Duration) -> Duration {
    length + length / 500
}

/// Returns the deadline as the store computes it (safety rule 3).
fn lease_deadline(sent: Moment) -> Moment {
    sent + (DURATION - DURATION / 500 - Duration::from_secs(1))
}

impl World {
    fn new(daemons: usize, clients: usize, seed: u64) -> Self {
        let settings = Settings {
            default_ttl: TTL,
            max_ttl: Duration::from_secs(60),
            max_sessions: 100,
            max_locks_per_session: 100,
        };
        let locks = lock::Settings {
            lease_duration: DURATION,
            linger: Duration::from_secs(2 * (seed % 3)),
            poll_interval: Duration::from_secs(2),
            max_locks: 100,
            max_waiters_per_lock: 100,
            journal: Level::All,
        };
        let daemons: Vec<_> = (0..daemons)
            .map(|n| Sessions::new(settings, locks, Entropy::seeded(seed + n as u64)))
            .collect();
        let count = daemons.len();
        let mut world = Self {
            now: Moment::from_boot(Duration::from_secs(1000)),
            daemons,
            store: Store::default(),
            clients: Vec::new(),
            streams: 0,
            highest: HashMap::default(),
            grant_count: 0,
            journal: Vec::new(),
        };
        for n in 0..clients {
            world.clients.push(Client {
                daemon: n % count,
                stream: None,
                connected: false,
                secret: None,
                keep_alives: Vec::new(),
                requests: 0,
                pending: HashMap::default(),
                grants: HashMap::default(),
                listed: None,
                warnings: 0,
                kept_alive: 0,
            });
            world.open(n);
        }
        world
    }

    fn event(&mut self, daemon: usize, event: Event) {
        let mut actions = Vec::new();
        self.daemons[daemon].on(event, self.now, &mut actions);
        for action in actions {
            match action {
                Action::Send(stream, message) => self.receive(daemon, stream, message),
                Action::End(stream, _) => {
                    for client in &mut self.clients {
                        if client.daemon == daemon && client.stream == Some(stream) {
                            client.stream = None;
                            client.connected = false;
                        }
                    }
                    self.event(daemon, Event::Detached(stream));
                }
                Action::Supersede(_) | Action::Expired(_) => {}
                Action::Journal(entry) => self.journal.push(entry),
                Action::Call(lock, call) => self.store.pending.push((daemon, lock, call, self.now)),
                Action::Changed(_) => {}
            }
        }
    }

    fn new_stream(&mut self, client: usize) -> StreamId {
        self.streams += 1;
        let stream = StreamId(self.streams);
        self.clients[client].stream = Some(stream);
        self.clients[client].connected = true;
        stream
    }

    fn open(&mut self, client: usize) {
        let stream = self.new_stream(client);
        let daemon = self.clients[client].daemon;
        for grant in self.clients[client].grants.values_mut() {
            grant.over = true;
        }
        self.clients[client].pending.clear();
        self.clients[client].keep_alives = vec![self.now];
        let open = Open { ttl: TTL, holder: Holder::default(), fenced: false };
        self.event(daemon, Event::Open(stream, Box::new(open)));
    }

    fn number(&mut self, client: usize) -> u64 {
        self.clients[client].requests += 1;
        self.clients[client].requests
    }

    fn request(&mut self, client: usize, request: Request) {
        let Client { daemon, stream, connected, .. } = self.clients[client];
        if let (true, Some(stream)) = (connected, stream) {
            self.event(daemon, Event::Request(stream, request));
        }
    }

    /// Breaks the client's stream. The daemon notices.
    fn cut(&mut self, client: usize) {
        self.clients[client].connected = false;
        if let Some(stream) = self.clients[client].stream.take() {
            self.event(self.clients[client].daemon, Event::Detached(stream));
        }
    }

    /// Handles a message by the rules that every client follows.
    fn receive(&mut self, daemon: usize, stream: StreamId, message: Message) {
        let now = self.now;
        let Some(at) = self.clients.iter().position(|client| {
            client.daemon == daemon && client.stream == Some(stream) && client.connected
        }) else {
            return;
        };
        let client = &mut self.clients[at];
        match message {
            Message::Opened(opened) => match opened.secret {
                Some(secret) => client.secret = Some(secret),
                None => client.listed = Some(Vec::new()),
            },
            Message::KeptAlive { keep_alive_number, valid_for, limits } => {
                client.kept_alive += 1;
                let sent = client.keep_alives[keep_alive_number as usize];
                let limits: HashMap<_, _> = limits.into_iter().collect();
                for (handle, grant) in &mut client.grants {
                    let length = limits.get(handle).copied().unwrap_or(valid_for);
                    grant.deadline = sent + on_a_slow_clock(length);
                }
            }
            Message::Granted { request, token, handle, keep_alive_number, valid_for } => {
                let deadline =
                    client.keep_alives[keep_alive_number as usize] + on_a_slow_clock(valid_for);
                let Some(name) = client.pending.get(&request).cloned() else {
                    // Granted to a request that was canceled: release it.
                    let request = self.number(at);
                    return self.request(at, Request::Release { request, handle });
                };
                let token = token.get();
                if let Some(listed) = &mut client.listed {
                    listed.push(handle);
                }
                if let Some(grant) = client.grants.get_mut(&handle) {
                    assert_eq!(grant.token, token, "two grants have the same handle");
                    grant.deadline = deadline;
                    return;
                }
                let grant = ClientGrant { name: name.clone(), token, deadline, over: false };
                client.grants.insert(handle, grant);
                self.grant_count += 1;
                let epoch = self.store.blobs[&name].epoch;
                assert!(token >> 20 <= epoch, "I5: a token of an epoch that is not durable");
                let highest = self.highest.entry(name.clone()).or_default();
                assert!(token > *highest, "I1, I2: {name} token {token} after {highest}");
                *highest = token;
                for (other, client) in self.clients.iter().enumerate() {
                    for (held, grant) in &client.grants {
                        assert!(
                            *held == handle
                                || grant.name != name
                                || grant.over
                                || grant.deadline <= now,
                            "I3: {name} granted to {at} while {other} may still act"
                        );
                    }
                }
            }
            Message::Lost { handle, .. } => {
                // The holder stops, and releases afterwards.
                if let Some(grant) = client.grants.get_mut(&handle) {
                    grant.over = true;
                }
            }
            Message::Refused { request, .. } => _ = client.pending.remove(&request),
            Message::AtRisk { .. } => client.warnings += 1,
            Message::Restored => {
                // Grants that were not listed are lost.
                let listed = client.listed.take().unwrap_or_default();
                for (handle, grant) in &mut client.grants {
                    grant.over |= !listed.contains(handle);
                }
            }
            Message::Queued(_) | Message::Released { .. } | Message::Proclaimed { .. } => {}
        }
    }

    fn release_all(&mut self, client: usize) {
        let handles: Vec<_> = self.clients[client].grants.keys().copied().collect();
        for handle in handles {
            if let Some(grant) = self.clients[client].grants.get_mut(&handle) {
                grant.over = true;
            }
            let request = self.number(client);
            self.request(client, Request::Release { request, handle });
        }
    }

    fn apply(&mut self, op: Op) {
        match op {
            Op::Pass(millis) => self.pass(Duration::from_millis(millis)),
            Op::KeepAlive(client, delay) => {
                let sent = self.now - Duration::from_millis(delay);
                let sent =
                    self.clients[client].keep_alives.last().map_or(sent, |last| sent.max(*last));
                if self.clients[client].connected {
                    self.clients[client].keep_alives.push(sent);
                    let keep_alive_number = self.clients[client].keep_alives.len() as u64 - 1;
                    self.request(client, Request::KeepAlive { keep_alive_number });
                }
            }
            Op::Acquire(client, lock, wait, hold) => {
                if self.clients[client].connected {
                    let request = self.number(client);
                    let name = lock_name(lock);
                    self.clients[client].pending.insert(request, name.clone());
                    let wait = wait.map(Duration::from_millis);
                    let max_hold_time = hold.map(Duration::from_millis);
                    self.request(
                        client,
                        Request::Acquire {
                            request,
                            name,
                            wait,
                            max_hold_time,
                            lease_duration: None,
                            // One of the locks is used as an election.
                            value: (lock == ELECTION).then(|| [client as u8].into()),
                            trace: None,
                        },
                    );
                }
            }
            Op::CancelAll(client) => {
                let pending: Vec<_> = self.clients[client].pending.keys().copied().collect();
                for request in pending {
                    self.request(client, Request::Cancel { request });
                }
            }
            Op::ReleaseAll(client) => self.release_all(client),
            Op::Proclaim(client, value) => {
                let handles: Vec<_> = self.clients[client].grants.keys().copied().collect();
                for handle in handles {
                    let value = [client as u8, value].into();
                    let request = self.number(client);
                    self.request(client, Request::Proclaim { request, handle, value });
                }
            }
            Op::StepDown(lock) => {
                let (name, timeout) = (lock_name(lock), Duration::from_secs(2));
                for daemon in 0..self.daemons.len() {
                    let until = self.daemons[daemon].step_down_deadline(&name, timeout, self.now);
                    if let Some(until) = until {
                        let (by, reason, name) = ("me".into(), "why".into(), name.clone());
                        self.event(daemon, Event::StepDown { name, by, reason, until });
                    }
                }
            }
            Op::ReleaseForeign(client, other) => {
                let mine = self.clients[client].grants.keys().copied().collect::<Vec<_>>();
                let theirs: Vec<_> = self.clients[other].grants.keys().copied().collect();
                for handle in theirs.into_iter().filter(|handle| !mine.contains(handle)) {
                    let before = self.daemons[self.clients[other].daemon].counts();
                    let request = self.number(client);
                    self.request(client, Request::Release { request, handle });
                    let after = self.daemons[self.clients[other].daemon].counts();
                    assert_eq!(before, after, "another session's handle had an effect");
                }
            }
            Op::Cut(client) => self.clients[client].connected = false,
            Op::Noticed(client) => self.cut(client),
            Op::Resume(client) => {
                if let (false, Some(secret)) =
                    (self.clients[client].connected, self.clients[client].secret)
                {
                    let stream = self.new_stream(client);
                    self.clients[client].keep_alives.push(self.now);
                    let keep_alive_number = self.clients[client].keep_alives.len() as u64 - 1;
                    self.event(
                        self.clients[client].daemon,
                        Event::Resume(stream, secret, keep_alive_number),
                    );
                }
            }
            Op::Reopen(client) => {
                if self.clients[client].stream.is_none() {
                    self.open(client);
                }
            }
            Op::Close(client) => {
                if self.clients[client].connected {
                    for grant in self.clients[client].grants.values_mut() {
                        grant.over = true;
                    }
                    self.request(client, Request::Close);
                }
            }
            Op::Break(lock) => {
                for daemon in 0..self.daemons.len() {
                    let name = lock_name(lock);
                    self.event(daemon, Event::Break { name, by: "x".into(), reason: "y".into() });
                }
            }
            Op::Store(number, outcome) => {
                if !self.store.pending.is_empty() {
                    let number = number % self.store.pending.len();
                    let (daemon, lock, call, sent) = self.store.pending.remove(number);
                    let (id, answer) = self.store.answer(&call, outcome, sent, self.now);
                    self.event(daemon, Event::Answered(lock, id, answer));
                }
            }
            Op::Run(seconds, cut_off) => {
                for _ in 0..seconds {
                    self.pass(Duration::from_secs(1));
                    for client in 0..self.clients.len() {
                        self.apply(Op::KeepAlive(client, 100));
                    }
                    for _ in 0..self.store.pending.len() {
                        let daemon = self.store.pending[0].0;
                        let lost = cut_off == Some(daemon);
                        let outcome = if lost { Outcome::NeverArrived } else { Outcome::Answered };
                        self.apply(Op::Store(0, outcome));
                    }
                }
            }
            Op::ClockJump(daemon, millis) => {
                let daemon = daemon % self.daemons.len();
                self.event(daemon, Event::ClockJumped(Duration::from_millis(millis)));
            }
        }
    }

    /// Advances the time. Every daemon's timers fire when they are due.
    fn pass(&mut self, length: Duration) {
        let end = self.now + length;
        while let Some((due, daemon)) = (0..self.daemons.len())
            .filter_map(|daemon| Some((self.daemons[daemon].next_due()?, daemon)))
            .min()
            .filter(|(due, _)| *due <= end)
        {
            self.now = self.now.max(due);
            self.event(daemon, Event::Tick);
        }
        self.now = end;
    }

    /// Disconnects all clients and repairs the store. Nothing may be left behind (L4,
    /// L5).
    fn heal(&mut self) {
        for client in 0..self.clients.len() {
            self.cut(client);
        }
        for _ in 0..200 {
            while !self.store.pending.is_empty() {
                self.apply(Op::Store(0, Outcome::Answered));
            }
            self.pass(Duration::from_secs(1));
        }
        for daemon in &self.daemons {
            assert!(daemon.is_drained(), "locks are left behind: {daemon:?}");
            assert_eq!(daemon.counts(), (0, 0));
            assert_eq!(daemon.next_due(), None, "a timer is left behind");
        }
        // The next client is served immediately.
        self.open(0);
        self.apply(Op::Acquire(0, 0, Some(0), None));
        let before = self.grant_count;
        self.apply(Op::Store(0, Outcome::Answered));
        assert_eq!(self.grant_count, before + 1, "a free lock was not granted");
    }
}

impl Store {
    fn answer(
        &mut self,
        call: &StoreCall,
        outcome: Outcome,
        sent: Moment,
        now: Moment,
    ) -> (LeaseId, StoreAnswer) {
        let applied = matches!(outcome, Outcome::Answered | Outcome::AnswerLost);
        let unavailable = || lease::Error::Unavailable { why: "x".into(), retry_after: None };
        let why = || "no answer".to_owned();
        let (StoreCall::NextTokens(name, id)
        | StoreCall::Renew(name, id, _)
        | StoreCall::Release(name, id)
        | StoreCall::Publish(name, id, _)
        | StoreCall::Acquire(AcquireParams { name, id, .. })) = call;
        let blob = self.blobs.entry(name.clone()).or_default();
        let free = blob.lease.is_none_or(|(held, expires)| held == *id || expires <= now);
        let ours = blob.lease.is_some_and(|(held, expires)| held == *id && expires > now);
        let mut acquired = None;
        match call {
            StoreCall::Acquire(claim) if applied && free => {
                blob.lease = Some((*id, now + DURATION));
                blob.epoch += 1;
                let token = TokenRange::from_epoch(blob.epoch).take().unwrap();
                blob.published = claim.value.clone().map(|value| (token, value));
                acquired = Some(blob.epoch);
            }
            StoreCall::NextTokens(..) if applied && ours => {
                blob.epoch += 1;
                acquired = Some(blob.epoch);
            }
            StoreCall::Renew(..) if applied && ours => {
                blob.lease = Some((*id, now + DURATION));
            }
            StoreCall::Release(..) if applied && ours => blob.lease = None,
            StoreCall::Publish(_, _, publication) if applied && ours => {
                blob.published = publication.value.clone().map(|value| (publication.token, value));
            }
            _ => {}
        }
        let answer = match (call, outcome) {
            (StoreCall::Acquire(_), Outcome::Refused) => StoreAnswer::Acquire(Err(unavailable())),
            (StoreCall::NextTokens(..), Outcome::Refused) => {
                StoreAnswer::NextTokens(Err(unavailable()))
            }
            (StoreCall::Renew(..), Outcome::Refused) => StoreAnswer::Renew(Err(unavailable())),
            (StoreCall::Release(..), Outcome::Refused) => StoreAnswer::Release(Err(unavailable())),
            (StoreCall::Publish(..), Outcome::Refused) => StoreAnswer::Publish(Err(unavailable())),
            (StoreCall::Publish(..), Outcome::Answered) if ours => {
                StoreAnswer::Publish(Ok(lease::Publish::Published))
            }
            (StoreCall::Publish(..), Outcome::Answered) => {
                StoreAnswer::Publish(Ok(lease::Publish::Lost))
            }
            (StoreCall::Publish(..), _) => {
                StoreAnswer::Publish(Ok(lease::Publish::Unknown { why: why() }))
            }
            (StoreCall::Acquire(_) | StoreCall::NextTokens(..), Outcome::Answered) => {
                // Few tokens at a time, so that they run out.
                let answer = match acquired {
                    Some(epoch) => lease::Acquire::Acquired(Acquired {
                        tokens: TokenRange::from_epoch(epoch).split(2),
                        deadline: Some(lease_deadline(sent)),
                    }),
                    None => lease::Acquire::Held { by: None },
                };
                match call {
                    StoreCall::Acquire(_) => StoreAnswer::Acquire(Ok(answer)),
                    _ => StoreAnswer::NextTokens(Ok(answer)),
                }
            }
            (StoreCall::Renew(..), Outcome::Answered) if ours => {
                StoreAnswer::Renew(Ok(lease::Renew::Renewed {
                    deadline: Some(lease_deadline(sent)),
                }))
            }
            (StoreCall::Renew(..), Outcome::Answered) => {
                StoreAnswer::Renew(Ok(lease::Renew::Lost { why: why(), broken: None }))
            }
            (StoreCall::Release(..), Outcome::Answered) => {
                StoreAnswer::Release(Ok(lease::Release::Released))
            }
            (StoreCall::Acquire(_), _) => {
                StoreAnswer::Acquire(Ok(lease::Acquire::Unknown { why: why() }))
            }
            (StoreCall::NextTokens(..), _) => {
                StoreAnswer::NextTokens(Ok(lease::Acquire::Unknown { why: why() }))
            }
            (StoreCall::Renew(..), _) => {
                StoreAnswer::Renew(Ok(lease::Renew::Unknown { why: why() }))
            }
            (StoreCall::Release(..), _) => {
                StoreAnswer::Release(Ok(lease::Release::Unknown { why: why() }))
            }
        };
        (*id, answer)
    }
}
