//! Random orders of events between a session and a model of the daemon. Any message can
//! be delayed or lost.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use proptest::prelude::*;

use super::daemon::{Daemon, HandleBytes, Held, LOCK_COUNT, TTL};
use crate::session::{
    AcquireOptions, Profile, Wait,
    attachment::{Disconnect, Next},
    grant::{GrantId, Handle},
    pending_acquire::PendingAcquire,
    state::{Action, Outcome, State, Ticket},
};
use crate::{
    Error,
    pb::attach_response::Message as Incoming,
    pb::{self, attach_request::Message},
    value::Value,
};
use leasehold_time::{ClockPair, Moment};

#[derive(Clone, Debug)]
enum Event {
    Acquire(u8),
    Abandon(usize),
    DropUser(usize),
    /// Repeated, so that several proclaims are pending at a disconnect.
    Proclaim(usize, u8),
    KeepAlive,
    ToDaemon,
    ToClient,
    Cut,
    Attach,
    Restart,
    OtherAcquires(u8),
    OtherReleases(u8),
    Break(u8),
    RefuseNext,
    Advance(u64),
}

fn events() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (0..LOCK_COUNT).prop_map(Event::Acquire),
        1 => (0..8_usize).prop_map(Event::Abandon),
        3 => (0..8_usize).prop_map(Event::DropUser),
        3 => (0..8_usize, 1..4_u8).prop_map(|(at, times)| Event::Proclaim(at, times)),
        2 => Just(Event::KeepAlive),
        8 => Just(Event::ToDaemon),
        8 => Just(Event::ToClient),
        1 => Just(Event::Cut),
        3 => Just(Event::Attach),
        1 => Just(Event::Restart),
        1 => (0..LOCK_COUNT).prop_map(Event::OtherAcquires),
        2 => (0..LOCK_COUNT).prop_map(Event::OtherReleases),
        1 => (0..LOCK_COUNT).prop_map(Event::Break),
        1 => Just(Event::RefuseNext),
        2 => (1..4000_u64).prop_map(Event::Advance),
    ]
}

struct World {
    state: State,
    daemon: Daemon,
    now: Moment,
    to_daemon: VecDeque<Message>,
    to_client: VecDeque<Incoming>,
    attached: bool,
    open: Vec<Ticket>,
    guards: Vec<(GrantId, bool)>,
    /// Proclaims without a result.
    proclaims: Vec<Proclaimed>,
    values: u32,
}

/// Pending proclaim. Values increase.
struct Proclaimed {
    ticket: Ticket,
    grant: GrantId,
    handle: Option<HandleBytes>,
    value: u32,
}

impl World {
    fn new() -> Self {
        let profile = Profile { ttl: None, holder: pb::Holder::default(), fenced: false };
        Self {
            state: State::new(Arc::new(profile)),
            daemon: Daemon::default(),
            now: Moment::from_boot(Duration::from_secs(1000)),
            to_daemon: VecDeque::new(),
            to_client: VecDeque::new(),
            attached: false,
            open: Vec::new(),
            guards: Vec::new(),
            proclaims: Vec::new(),
            values: 0,
        }
    }

    fn on(&mut self, event: &Event) {
        self.daemon.expire(self.now);
        match event {
            Event::Acquire(lock) => {
                let lock = pb::LockRef { namespace: String::new(), name: lock.to_string() };
                let acquire =
                    PendingAcquire::new(lock, Wait::Forever, AcquireOptions::default(), None);
                let ticket = self.state.acquire(acquire, self.now);
                self.open.push(ticket);
            }
            Event::Abandon(at) if *at < self.open.len() => {
                self.state.abandon(self.open.remove(*at));
            }
            Event::DropUser(at) if *at < self.guards.len() => {
                self.state.drop_user(self.guards.remove(*at).0);
            }
            Event::Proclaim(at, times) if !self.guards.is_empty() => {
                let (grant, _) = self.guards[at % self.guards.len()];
                (0..*times).for_each(|_| self.proclaim(grant));
            }
            Event::KeepAlive if self.state.next_keep_alive().is_some() => {
                self.state.send_keep_alive(ClockPair::in_sync_at(self.now));
            }
            Event::ToDaemon => self.daemon_receives(),
            Event::ToClient => {
                if let Some(message) = self.to_client.pop_front() {
                    self.state.on_message(message, ClockPair::in_sync_at(self.now));
                }
            }
            Event::Cut if self.attached => self.detach(Disconnect::ConnectionFailed("cut".into())),
            Event::Attach if !self.attached => {
                self.attached = true;
                let first = self.state.begin(ClockPair::in_sync_at(self.now));
                self.to_daemon.push_back(first);
            }
            // A restarted daemon grants nothing until the TTL has elapsed.
            Event::Restart => {
                self.now = self.now + TTL;
                self.daemon.end_session();
                if self.attached {
                    self.detach(Disconnect::ConnectionFailed("restart".into()));
                }
            }
            Event::OtherAcquires(lock) => {
                self.daemon.held.entry(*lock).or_insert(Held::Other);
            }
            Event::OtherReleases(lock) if self.daemon.held.get(lock) == Some(&Held::Other) => {
                self.daemon.held.remove(lock);
                self.daemon_grants_waiting();
            }
            Event::Break(lock) => {
                if let Some(Held::Own { handle, ending, .. }) = self.daemon.held.get_mut(lock) {
                    *ending = Some(self.now + TTL);
                    let (handle, reason) = (handle.clone(), pb::Reason::Broken.into());
                    let lost = pb::Lost { handle, reason, message: String::new(), operator: None };
                    if self.attached {
                        self.to_client.push_back(Incoming::Lost(lost));
                    }
                }
            }
            Event::RefuseNext => self.daemon.refusals = 2,
            Event::Advance(ms) => self.now = self.now + Duration::from_millis(*ms),
            _ => {}
        }
        self.act();
        self.check();
    }

    fn proclaim(&mut self, grant: GrantId) {
        self.values += 1;
        let handle = self.state.grant(grant).and_then(|grant| grant.handle);
        let value = Value::new(self.values.to_be_bytes()).expect("a short value");
        let ticket = self.state.proclaim(grant, "0", value);
        let handle = handle.map(Handle::encoded);
        self.proclaims.push(Proclaimed { ticket, grant, handle, value: self.values });
    }

    /// Checks the result of a proclaim. Returns false for other requests.
    fn proclaim_answered(&mut self, ticket: Ticket, outcome: &Outcome) -> bool {
        let Some(at) = self.proclaims.iter().position(|open| open.ticket == ticket) else {
            return false;
        };
        let Proclaimed { grant, handle, value, .. } = self.proclaims.remove(at);
        let loss = self.state.grant(grant).is_none_or(|grant| grant.loss().is_some());
        match outcome {
            Outcome::Proclaimed => {
                let published = handle.and_then(|handle| self.daemon.published.get(&handle));
                let latest = published.and_then(|published| published.last());
                assert!(latest >= Some(&value), "the value was never published");
            }
            Outcome::Failed(Error::Lost { .. }) => assert!(loss, "the leadership is not lost"),
            Outcome::Failed(Error::Unavailable { .. }) => {}
            other => panic!("{other:?}"),
        }
        true
    }

    fn daemon_grants_waiting(&mut self) {
        let mut out = VecDeque::new();
        self.daemon.grant_waiting(&mut out);
        if self.attached {
            self.to_client.append(&mut out);
        }
    }

    fn daemon_receives(&mut self) {
        let Some(message) = self.to_daemon.pop_front() else { return };
        let first = matches!(message, Message::Open(_) | Message::Resume(_));
        if !first && !self.daemon.alive {
            self.detach(Disconnect::UnknownSession);
            return;
        }
        match self.daemon.receive(message, self.now) {
            Some(mut out) => self.to_client.append(&mut out),
            None => self.detach(Disconnect::UnknownSession),
        }
    }

    fn detach(&mut self, disconnect: Disconnect) {
        self.attached = false;
        self.to_daemon.clear();
        self.to_client.clear();
        let next = self.state.detach(disconnect, ClockPair::in_sync_at(self.now));
        assert!(
            next != Next::Stop || self.open.is_empty(),
            "the session stopped with open acquires"
        );
    }

    fn act(&mut self) {
        while let Some(action) = self.state.next_action() {
            match action {
                Action::Send(message) => {
                    assert!(self.attached, "sent without a stream: {message:?}");
                    self.to_daemon.push_back(message);
                }
                Action::Answer(ticket, outcome) if self.proclaim_answered(ticket, &outcome) => {}
                Action::Answer(ticket, outcome) => {
                    let at = self.open.iter().position(|open| *open == ticket);
                    match outcome {
                        Outcome::Granted { grant, .. } => {
                            self.open.remove(at.expect("the acquire is open"));
                            self.guards.push((grant, false));
                        }
                        Outcome::Released => assert_eq!(at, None),
                        Outcome::Proclaimed => panic!("a result without a proclaim"),
                        Outcome::Failed(error) => assert_eq!(at, None, "{error:?}"),
                    }
                }
                Action::Report(..) | Action::Notify(_) => {}
            }
        }
    }

    fn check(&mut self) {
        self.daemon.expire(self.now);
        let now = ClockPair::in_sync_at(self.now);
        for (grant, was_lost) in &mut self.guards {
            let grant = self.state.grant(*grant).expect("a guard exists");
            let lost = grant.loss().is_some() || self.now >= grant.deadline(&now);
            assert!(lost || !*was_lost, "a lost grant became active again");
            *was_lost = lost;
            if lost {
                continue;
            }
            // While the grant is valid at the client, the daemon holds the lock for it.
            let handle = grant.handle.expect("an active grant has a handle").encoded();
            let known = (self.daemon.held.values())
                .any(|held| matches!(held, Held::Own { handle: h, .. } if *h == handle));
            assert!(known, "the grant is valid at the client, but unknown to the daemon");
            let validity_end = self.daemon.keep_alive_number.1.map(|received| received + TTL);
            assert!(
                Some(grant.deadline(&now)) <= validity_end,
                "the deadline exceeds the validity"
            );
        }
    }

    /// Delivers all messages after other sessions have released their locks.
    fn settle(&mut self) {
        for lock in 0..LOCK_COUNT {
            self.on(&Event::OtherReleases(lock));
        }
        for round in 0.. {
            assert!(round < 200, "the session makes no progress");
            self.on(&Event::Attach);
            while !self.to_daemon.is_empty() || !self.to_client.is_empty() {
                self.on(&Event::ToDaemon);
                self.on(&Event::ToClient);
            }
            // The rounds are long enough for broken grants to end.
            assert!(self.proclaims.is_empty() || !self.attached, "a proclaim has no result");
            let done = self.open.is_empty() && self.state.releases.is_empty();
            if self.attached && (done || round > 20) {
                return;
            }
            self.on(&Event::Advance(1000));
            self.on(&Event::KeepAlive);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn no_order_of_events_violates_validity(
        cut: bool,
        events in prop::collection::vec(events(), 0..120),
    ) {
        let mut world = World::new();
        for event in &events {
            world.on(event);
        }
        // Pending messages may or may not have been delivered.
        if cut {
            world.on(&Event::Cut);
        }
        world.settle();
        while !world.guards.is_empty() || !world.open.is_empty() {
            // A guard of the session can block its own acquires, so one is dropped.
            prop_assert!(!world.guards.is_empty(), "an acquire is never granted");
            world.on(&Event::DropUser(0));
            world.settle();
        }
        // A grant broken before the client received it ends at its deadline.
        let ours = (world.daemon.held.values())
            .any(|held| matches!(held, Held::Own { ending: None, .. }));
        prop_assert!(!ours, "the daemon holds a lock without a guard");
        prop_assert!(world.daemon.waiting.is_empty(), "the daemon has an acquire of no caller");
        prop_assert!(world.state.requests.is_empty() && world.state.releases.is_empty());
        prop_assert!(world.state.handles.is_empty() && world.state.grants.is_empty());
        prop_assert!(world.proclaims.is_empty() && world.state.proclaims.is_empty());
    }
}
