//! The pure core under random orders of events: several daemons with clients,
//! one store whose leases expire, answers that come late, are lost, or speak of
//! something that never happened. This is the world; the tests are in
//! `tests/cases.rs`.

mod cases;

use proptest::prelude::*;

use super::*;
use leasehold_store as lease;
use leasehold_store::{AcquireParams, Acquired, LeaseId, StoreAnswer, StoreCall, Value};
use leasehold_types::Reason;
use leasehold_types::{Token, TokenRange};

const DURATION: Duration = Duration::from_secs(15);
const TTL: Duration = Duration::from_secs(3);

/// The lock that is an election.
const ELECTION: u8 = 2;

/// A store as the pure core sees it: what was asked and not answered yet, and
/// what is true meanwhile.
#[derive(Default)]
struct Store {
    blobs: HashMap<LockName, Blob>,
    asked: Vec<(usize, LockId, StoreCall, Moment)>,
}

#[derive(Default)]
struct Blob {
    epoch: u64,
    lease: Option<(LeaseId, Moment)>,
    /// Who leads with which value, as others see it.
    shown: Option<(Token, Value)>,
}

/// What becomes of a call.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Answered,
    AnswerLost,
    NeverArrived,
    Refused,
}

/// What a client believes.
struct Belief {
    name: LockName,
    token: u64,
    deadline: Moment,
    over: bool,
}

struct Client {
    daemon: usize,
    stream: Option<StreamId>,
    /// False: the client has lost its stream, and what it is sent is lost.
    connected: bool,
    secret: Option<Secret>,
    keep_alives: Vec<Moment>,
    requests: u64,
    asked: HashMap<u64, LockName>,
    beliefs: HashMap<Handle, Belief>,
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
    grants: usize,
}

#[derive(Clone, Debug)]
enum Op {
    Pass(u64),
    Ping(usize, u64),
    Acquire(usize, u8, Option<u64>, Option<u64>),
    CancelAll(usize),
    ReleaseAll(usize),
    Proclaim(usize, u8),
    StepDown(u8),
    ReleaseForeign(usize, usize),
    Cut(usize),
    Noticed(usize),
    Resume(usize),
    Reopen(usize),
    Close(usize),
    Break(u8),
    Store(usize, Fate),
    Leap(usize, u64),
    /// Seconds of ordinary life: keep-alives arrive, the store answers; but not to
    /// the daemon that is named.
    Live(u8, Option<usize>),
}

fn op(clients: usize) -> impl Strategy<Value = Op> {
    let client = 0..clients;
    let fate = prop_oneof![
        6 => Just(Fate::Answered),
        1 => Just(Fate::AnswerLost),
        1 => Just(Fate::NeverArrived),
        1 => Just(Fate::Refused),
    ];
    prop_oneof![
        6 => (1..2500_u64).prop_map(Op::Pass),
        1 => (10_000..40_000_u64).prop_map(Op::Pass),
        8 => (client.clone(), 0..1500_u64).prop_map(|(c, d)| Op::Ping(c, d)),
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
        6 => (1..20_u8, prop::option::of(0..2_usize)).prop_map(|(s, d)| Op::Live(s, d)),
        16 => (0..8_usize, fate).prop_map(|(n, f)| Op::Store(n, f)),
        1 => (0..2_usize, 500..40_000_u64).prop_map(|(d, l)| Op::Leap(d, l)),
    ]
}

fn lock_name(number: u8) -> LockName {
    LockName::parse("", &format!("lock-{number}")).unwrap()
}

/// How long a client takes for this length if its clock is as slow as is
/// allowed.
fn on_a_slow_clock(length: Duration) -> Duration {
    length + length / 500
}

/// As the store layer computes it (safety rule 3).
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
            grants: 0,
        };
        for n in 0..clients {
            world.clients.push(Client {
                daemon: n % count,
                stream: None,
                connected: false,
                secret: None,
                keep_alives: Vec::new(),
                requests: 0,
                asked: HashMap::default(),
                beliefs: HashMap::default(),
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
                Action::Call(lock, call) => self.store.asked.push((daemon, lock, call, self.now)),
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
        for belief in self.clients[client].beliefs.values_mut() {
            belief.over = true;
        }
        self.clients[client].asked.clear();
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

    /// The client's stream breaks, and the daemon knows.
    fn cut(&mut self, client: usize) {
        self.clients[client].connected = false;
        if let Some(stream) = self.clients[client].stream.take() {
            self.event(self.clients[client].daemon, Event::Detached(stream));
        }
    }

    /// What a client makes of a message: the rules that every client follows.
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
                for (handle, belief) in &mut client.beliefs {
                    let length = limits.get(handle).copied().unwrap_or(valid_for);
                    belief.deadline = sent + on_a_slow_clock(length);
                }
            }
            Message::Granted { request, token, handle, keep_alive_number, valid_for } => {
                let deadline =
                    client.keep_alives[keep_alive_number as usize] + on_a_slow_clock(valid_for);
                let Some(name) = client.asked.get(&request).cloned() else {
                    // Granted to a request that was given up: let it go.
                    let request = self.number(at);
                    return self.request(at, Request::Release { request, handle });
                };
                let token = token.get();
                if let Some(listed) = &mut client.listed {
                    listed.push(handle);
                }
                if let Some(belief) = client.beliefs.get_mut(&handle) {
                    assert_eq!(belief.token, token, "a handle belongs to one grant");
                    belief.deadline = deadline;
                    return;
                }
                let belief = Belief { name: name.clone(), token, deadline, over: false };
                client.beliefs.insert(handle, belief);
                self.grants += 1;
                let epoch = self.store.blobs[&name].epoch;
                assert!(token >> 20 <= epoch, "I5: a token of an epoch that is not durable");
                let highest = self.highest.entry(name.clone()).or_default();
                assert!(token > *highest, "I1, I2: {name} token {token} after {highest}");
                *highest = token;
                for (other, client) in self.clients.iter().enumerate() {
                    for (held, belief) in &client.beliefs {
                        assert!(
                            *held == handle
                                || belief.name != name
                                || belief.over
                                || belief.deadline <= now,
                            "I3: {name} granted to {at} while {other} may believe in it"
                        );
                    }
                }
            }
            Message::Lost { handle, .. } => {
                // The holder stops, and then lets go.
                if let Some(belief) = client.beliefs.get_mut(&handle) {
                    belief.over = true;
                }
            }
            Message::Refused { request, .. } => _ = client.asked.remove(&request),
            Message::AtRisk { .. } => client.warnings += 1,
            Message::Restored => {
                // What was not listed is lost.
                let listed = client.listed.take().unwrap_or_default();
                for (handle, belief) in &mut client.beliefs {
                    belief.over |= !listed.contains(handle);
                }
            }
            Message::Queued(_) | Message::Released { .. } | Message::Proclaimed { .. } => {}
        }
    }

    fn release_all(&mut self, client: usize) {
        let handles: Vec<_> = self.clients[client].beliefs.keys().copied().collect();
        for handle in handles {
            if let Some(belief) = self.clients[client].beliefs.get_mut(&handle) {
                belief.over = true;
            }
            let request = self.number(client);
            self.request(client, Request::Release { request, handle });
        }
    }

    fn apply(&mut self, op: Op) {
        match op {
            Op::Pass(millis) => self.pass(Duration::from_millis(millis)),
            Op::Ping(client, delay) => {
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
                    self.clients[client].asked.insert(request, name.clone());
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
                            // One of the locks is an election.
                            value: (lock == ELECTION).then(|| [client as u8].into()),
                        },
                    );
                }
            }
            Op::CancelAll(client) => {
                let asked: Vec<_> = self.clients[client].asked.keys().copied().collect();
                for request in asked {
                    self.request(client, Request::Cancel { request });
                }
            }
            Op::ReleaseAll(client) => self.release_all(client),
            Op::Proclaim(client, value) => {
                let handles: Vec<_> = self.clients[client].beliefs.keys().copied().collect();
                for handle in handles {
                    let value = [client as u8, value].into();
                    let request = self.number(client);
                    self.request(client, Request::Proclaim { request, handle, value });
                }
            }
            Op::StepDown(lock) => {
                let (name, within) = (lock_name(lock), Duration::from_secs(2));
                for daemon in 0..self.daemons.len() {
                    let until = self.daemons[daemon].step_down_deadline(&name, within, self.now);
                    if let Some(until) = until {
                        let (by, reason, name) = ("me".into(), "why".into(), name.clone());
                        self.event(daemon, Event::StepDown { name, by, reason, until });
                    }
                }
            }
            Op::ReleaseForeign(client, other) => {
                let mine = self.clients[client].beliefs.keys().copied().collect::<Vec<_>>();
                let theirs: Vec<_> = self.clients[other].beliefs.keys().copied().collect();
                for handle in theirs.into_iter().filter(|handle| !mine.contains(handle)) {
                    let before = self.daemons[self.clients[other].daemon].counts();
                    let request = self.number(client);
                    self.request(client, Request::Release { request, handle });
                    let after = self.daemons[self.clients[other].daemon].counts();
                    assert_eq!(before, after, "another session's handle freed something");
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
                    for belief in self.clients[client].beliefs.values_mut() {
                        belief.over = true;
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
            Op::Store(number, fate) => {
                if !self.store.asked.is_empty() {
                    let number = number % self.store.asked.len();
                    let (daemon, lock, call, sent) = self.store.asked.remove(number);
                    let (id, answer) = self.store.answer(&call, fate, sent, self.now);
                    self.event(daemon, Event::Answered(lock, id, answer));
                }
            }
            Op::Live(seconds, cut_off) => {
                for _ in 0..seconds {
                    self.pass(Duration::from_secs(1));
                    for client in 0..self.clients.len() {
                        self.apply(Op::Ping(client, 100));
                    }
                    for _ in 0..self.store.asked.len() {
                        let daemon = self.store.asked[0].0;
                        let lost = cut_off == Some(daemon);
                        let fate = if lost { Fate::NeverArrived } else { Fate::Answered };
                        self.apply(Op::Store(0, fate));
                    }
                }
            }
            Op::Leap(daemon, millis) => {
                let daemon = daemon % self.daemons.len();
                self.event(daemon, Event::ClockJumped(Duration::from_millis(millis)));
            }
        }
    }

    /// Time passes, and every daemon's timer goes off when it should.
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

    /// All clients leave and the store is well: nothing stays behind (L4, L5).
    fn heal(&mut self) {
        for client in 0..self.clients.len() {
            self.cut(client);
        }
        for _ in 0..200 {
            while !self.store.asked.is_empty() {
                self.apply(Op::Store(0, Fate::Answered));
            }
            self.pass(Duration::from_secs(1));
        }
        for daemon in &self.daemons {
            assert!(daemon.is_drained(), "locks are left behind: {daemon:?}");
            assert_eq!(daemon.counts(), (0, 0));
            assert_eq!(daemon.next_due(), None, "a timer is left behind");
        }
        // And the next one is served at once.
        self.open(0);
        self.apply(Op::Acquire(0, 0, Some(0), None));
        let before = self.grants;
        self.apply(Op::Store(0, Fate::Answered));
        assert_eq!(self.grants, before + 1, "a free lock was not granted");
    }
}

impl Store {
    fn answer(
        &mut self,
        call: &StoreCall,
        fate: Fate,
        sent: Moment,
        now: Moment,
    ) -> (LeaseId, StoreAnswer) {
        let applied = matches!(fate, Fate::Answered | Fate::AnswerLost);
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
                let token = TokenRange::of_epoch(blob.epoch).take().unwrap();
                blob.shown = claim.value.clone().map(|value| (token, value));
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
                blob.shown = publication.value.clone().map(|value| (publication.token, value));
            }
            _ => {}
        }
        let answer = match (call, fate) {
            (StoreCall::Acquire(_), Fate::Refused) => StoreAnswer::Acquire(Err(unavailable())),
            (StoreCall::NextTokens(..), Fate::Refused) => {
                StoreAnswer::NextTokens(Err(unavailable()))
            }
            (StoreCall::Renew(..), Fate::Refused) => StoreAnswer::Renew(Err(unavailable())),
            (StoreCall::Release(..), Fate::Refused) => StoreAnswer::Release(Err(unavailable())),
            (StoreCall::Publish(..), Fate::Refused) => StoreAnswer::Publish(Err(unavailable())),
            (StoreCall::Publish(..), Fate::Answered) if ours => {
                StoreAnswer::Publish(Ok(lease::Publish::Published))
            }
            (StoreCall::Publish(..), Fate::Answered) => {
                StoreAnswer::Publish(Ok(lease::Publish::Lost))
            }
            (StoreCall::Publish(..), _) => {
                StoreAnswer::Publish(Ok(lease::Publish::Unknown { why: why() }))
            }
            (StoreCall::Acquire(_) | StoreCall::NextTokens(..), Fate::Answered) => {
                // Few tokens at a time, so that they run out.
                let answer = match acquired {
                    Some(epoch) => lease::Acquire::Acquired(Acquired {
                        tokens: TokenRange::of_epoch(epoch).split(2),
                        deadline: Some(lease_deadline(sent)),
                    }),
                    None => lease::Acquire::Held { by: None },
                };
                match call {
                    StoreCall::Acquire(_) => StoreAnswer::Acquire(Ok(answer)),
                    _ => StoreAnswer::NextTokens(Ok(answer)),
                }
            }
            (StoreCall::Renew(..), Fate::Answered) if ours => {
                StoreAnswer::Renew(Ok(lease::Renew::Renewed {
                    deadline: Some(lease_deadline(sent)),
                }))
            }
            (StoreCall::Renew(..), Fate::Answered) => {
                StoreAnswer::Renew(Ok(lease::Renew::Lost { why: why(), broken: None }))
            }
            (StoreCall::Release(..), Fate::Answered) => {
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
