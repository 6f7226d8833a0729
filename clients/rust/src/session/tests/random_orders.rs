//! Random orders of events between a session and a model of the daemon, with
//! every message delayed or lost at will.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use proptest::prelude::*;

use super::daemon::{Daemon, HandleBytes, Held, LOCKS, TTL};
use crate::session::{
    AcquireOptions, Profile, Wait,
    attachment::{Disconnect, Next},
    grant::{GrantId, Handle},
    pending_acquire::PendingAcquire,
    state::{Action, Outcome, State, Ticket},
};
use crate::{
    Error,
    pb::attach_response::Message as Heard,
    pb::{self, attach_request::Message},
    value::Value,
};
use leasehold_time::{ClockPair, Moment};

#[derive(Clone, Debug)]
enum Event {
    Acquire(u8),
    Abandon(usize),
    DropUser(usize),
    /// More than once, so that several are under way at a break.
    Proclaim(usize, u8),
    Ping,
    ToDaemon,
    ToClient,
    Cut,
    Attach,
    Restart,
    OthersTake(u8),
    OthersFree(u8),
    Break(u8),
    Reluctance,
    Pass(u64),
}

fn events() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (0..LOCKS).prop_map(Event::Acquire),
        1 => (0..8_usize).prop_map(Event::Abandon),
        3 => (0..8_usize).prop_map(Event::DropUser),
        3 => (0..8_usize, 1..4_u8).prop_map(|(at, times)| Event::Proclaim(at, times)),
        2 => Just(Event::Ping),
        8 => Just(Event::ToDaemon),
        8 => Just(Event::ToClient),
        1 => Just(Event::Cut),
        3 => Just(Event::Attach),
        1 => Just(Event::Restart),
        1 => (0..LOCKS).prop_map(Event::OthersTake),
        2 => (0..LOCKS).prop_map(Event::OthersFree),
        1 => (0..LOCKS).prop_map(Event::Break),
        1 => Just(Event::Reluctance),
        2 => (1..4000_u64).prop_map(Event::Pass),
    ]
}

struct World {
    state: State,
    daemon: Daemon,
    now: Moment,
    to_daemon: VecDeque<Message>,
    to_client: VecDeque<Heard>,
    attached: bool,
    open: Vec<Ticket>,
    guards: Vec<(GrantId, bool)>,
    /// Values that were not confirmed yet.
    proclaims: Vec<Proclaimed>,
    values: u32,
}

/// Each is greater than the one before.
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
                let ask = PendingAcquire::new(lock, Wait::Forever, AcquireOptions::default(), None);
                let ticket = self.state.acquire(ask, self.now);
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
            Event::Ping if self.state.next_keep_alive().is_some() => {
                self.state.send_keep_alive(ClockPair::in_sync_at(self.now));
            }
            Event::ToDaemon => self.daemon_hears(),
            Event::ToClient => {
                if let Some(heard) = self.to_client.pop_front() {
                    self.state.on_message(heard, ClockPair::in_sync_at(self.now));
                }
            }
            Event::Cut if self.attached => self.detach(Disconnect::ConnectionFailed("cut".into())),
            Event::Attach if !self.attached => {
                self.attached = true;
                let first = self.state.begin(ClockPair::in_sync_at(self.now));
                self.to_daemon.push_back(first);
            }
            // What the predecessor granted is kept from others for a ttl.
            Event::Restart => {
                self.now = self.now + TTL;
                self.daemon.end_session();
                if self.attached {
                    self.detach(Disconnect::ConnectionFailed("restart".into()));
                }
            }
            Event::OthersTake(lock) => {
                self.daemon.held.entry(*lock).or_insert(Held::Others);
            }
            Event::OthersFree(lock) if self.daemon.held.get(lock) == Some(&Held::Others) => {
                self.daemon.held.remove(lock);
                self.daemon_serves();
            }
            Event::Break(lock) => {
                if let Some(Held::Ours { handle, ending, .. }) = self.daemon.held.get_mut(lock) {
                    *ending = Some(self.now + TTL);
                    let (handle, reason) = (handle.clone(), pb::Reason::Broken.into());
                    let lost = pb::Lost { handle, reason, message: String::new(), operator: None };
                    if self.attached {
                        self.to_client.push_back(Heard::Lost(lost));
                    }
                }
            }
            Event::Reluctance => self.daemon.reluctant = 2,
            Event::Pass(ms) => self.now = self.now + Duration::from_millis(*ms),
            _ => {}
        }
        self.act();
        self.check();
    }

    fn proclaim(&mut self, grant: GrantId) {
        self.values += 1;
        let handle = self.state.grant(grant).and_then(|grant| grant.handle);
        let value = Value::new(self.values.to_be_bytes()).expect("it is short");
        let ticket = self.state.proclaim(grant, "0", value);
        let handle = handle.map(Handle::encoded);
        self.proclaims.push(Proclaimed { ticket, grant, handle, value: self.values });
    }

    /// The answer to a proclaim, if it is one.
    fn proclaim_answered(&mut self, ticket: Ticket, outcome: &Outcome) -> bool {
        let Some(at) = self.proclaims.iter().position(|open| open.ticket == ticket) else {
            return false;
        };
        let Proclaimed { grant, handle, value, .. } = self.proclaims.remove(at);
        let loss = self.state.grant(grant).is_none_or(|grant| grant.loss().is_some());
        match outcome {
            Outcome::Proclaimed => {
                let shown = handle.and_then(|handle| self.daemon.shown.get(&handle));
                let latest = shown.and_then(|shown| shown.last());
                assert!(latest >= Some(&value), "it was never shown");
            }
            Outcome::Failed(Error::Lost { .. }) => assert!(loss, "it still leads"),
            Outcome::Failed(Error::Unavailable { .. }) => {}
            other => panic!("{other:?}"),
        }
        true
    }

    fn daemon_serves(&mut self) {
        let mut out = VecDeque::new();
        self.daemon.serve(&mut out);
        if self.attached {
            self.to_client.append(&mut out);
        }
    }

    fn daemon_hears(&mut self) {
        let Some(message) = self.to_daemon.pop_front() else { return };
        let first = matches!(message, Message::Open(_) | Message::Resume(_));
        if !first && !self.daemon.alive {
            self.detach(Disconnect::UnknownSession);
            return;
        }
        match self.daemon.hear(message, self.now) {
            Some(mut out) => self.to_client.append(&mut out),
            None => self.detach(Disconnect::UnknownSession),
        }
    }

    fn detach(&mut self, disconnect: Disconnect) {
        self.attached = false;
        self.to_daemon.clear();
        self.to_client.clear();
        let next = self.state.detach(disconnect, ClockPair::in_sync_at(self.now));
        assert!(next != Next::Stop || self.open.is_empty(), "a waiter was forgotten");
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
                            self.open.remove(at.expect("it is granted to one who waits"));
                            self.guards.push((grant, false));
                        }
                        Outcome::Released => assert_eq!(at, None),
                        Outcome::Proclaimed => panic!("nobody proclaimed"),
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
            let grant = self.state.grant(*grant).expect("a guard stands for it");
            let lost = grant.loss().is_some() || self.now >= grant.deadline(&now);
            assert!(lost || !*was_lost, "a lost grant came back");
            *was_lost = lost;
            if lost {
                continue;
            }
            // Others are kept out for as long as the client believes in it.
            let handle = grant.handle.expect("it stands").encoded();
            let known = (self.daemon.held.values())
                .any(|held| matches!(held, Held::Ours { handle: h, .. } if *h == handle));
            assert!(known, "the client believes in a grant that the daemon does not know");
            let promised = self.daemon.keep_alive_number.1.map(|came| came + TTL);
            assert!(Some(grant.deadline(&now)) <= promised, "more than was promised");
        }
    }

    /// Lets everything arrive, with the others out of the way.
    fn settle(&mut self) {
        for lock in 0..LOCKS {
            self.on(&Event::OthersFree(lock));
        }
        for round in 0.. {
            assert!(round < 200, "it goes in circles");
            self.on(&Event::Attach);
            while !self.to_daemon.is_empty() || !self.to_client.is_empty() {
                self.on(&Event::ToDaemon);
                self.on(&Event::ToClient);
            }
            // Long enough for what was broken to end.
            assert!(self.proclaims.is_empty() || !self.attached, "a proclaim was forgotten");
            let done = self.open.is_empty() && self.state.releases.is_empty();
            if self.attached && (done || round > 20) {
                return;
            }
            self.on(&Event::Pass(1000));
            self.on(&Event::Ping);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn no_order_of_events_breaks_the_promises(
        cut: bool,
        events in prop::collection::vec(events(), 0..120),
    ) {
        let mut world = World::new();
        for event in &events {
            world.on(event);
        }
        // What is under way now may have arrived, or not.
        if cut {
            world.on(&Event::Cut);
        }
        world.settle();
        while !world.guards.is_empty() || !world.open.is_empty() {
            // A lock that the session itself holds is not free for its others.
            prop_assert!(!world.guards.is_empty(), "a waiter is never served");
            world.on(&Event::DropUser(0));
            world.settle();
        }
        // One that was broken before the client heard of it ends by itself.
        let ours = (world.daemon.held.values())
            .any(|held| matches!(held, Held::Ours { ending: None, .. }));
        prop_assert!(!ours, "a lock that nobody stands for is still held");
        prop_assert!(world.daemon.waiting.is_empty(), "the daemon waits for nobody");
        prop_assert!(world.state.requests.is_empty() && world.state.releases.is_empty());
        prop_assert!(world.state.handles.is_empty() && world.state.grants.is_empty());
        prop_assert!(world.proclaims.is_empty() && world.state.proclaims.is_empty());
    }
}
