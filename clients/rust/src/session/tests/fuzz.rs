//! A session that hears whatever a daemon might say.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use leasehold_fuzz::{
    Fuzz,
    wire::{self, Field, Value},
};
use prost::Message as _;

use super::harness::{Subject, granted, kept_alive, lost, opened, queued, refused, restored};
use crate::{
    pb::attach_response::Message as Heard,
    pb::{self, attach_request::Message},
    session::{
        Wait, attachment::Disconnect, grant::GrantId, state::Action, state::Outcome, state::Ticket,
    },
    value,
};
use leasehold_time::Moment;

/// The steps of a script, by number.
const HEAR: u32 = 1;
const ACQUIRE: u32 = 2;
const DROP_USER: u32 = 3;
const ABANDON: u32 = 4;
const PROCLAIM: u32 = 5;
const PING: u32 = 6;
const PASS: u32 = 7;
const BEGIN: u32 = 8;
const DETACH: u32 = 9;
const FREEZE: u32 = 10;
const CLOSE: u32 = 11;

struct World {
    subject: Subject,
    attached: bool,
    /// Not answered yet.
    open: Vec<Ticket>,
    /// Acquires and proclaims that were answered. A release that can't be done
    /// yet is answered so, and once more when it is done.
    answered: BTreeSet<Ticket>,
    guards: Vec<GrantId>,
    /// Those that were found lost.
    gone: BTreeSet<GrantId>,
    /// When each keep-alive was sent; a new session counts anew.
    keep_alives: BTreeMap<u64, Moment>,
    /// The furthest that any answer to a keep-alive reaches.
    promised: Option<Moment>,
    /// The same for each handle that was granted.
    granted: BTreeMap<Vec<u8>, Moment>,
    /// The numbers of the last requests, in their order.
    requests: Vec<u64>,
    heard: usize,
    sent: usize,
    said: BTreeSet<&'static str>,
}

impl World {
    fn new(fenced: bool) -> Self {
        let mut world = Self {
            subject: Subject::new(fenced),
            attached: false,
            open: Vec::new(),
            answered: BTreeSet::new(),
            guards: Vec::new(),
            gone: BTreeSet::new(),
            keep_alives: BTreeMap::new(),
            promised: None,
            granted: BTreeMap::new(),
            requests: Vec::new(),
            heard: 0,
            sent: 0,
            said: BTreeSet::new(),
        };
        world.begin();
        world
    }

    fn begin(&mut self) {
        if self.attached {
            return;
        }
        self.attached = true;
        match self.subject.state.begin(self.subject.clocks()) {
            Message::Open(_) => self.keep_alives = [(0, self.subject.now)].into(),
            Message::Resume(resume) => {
                _ = self.keep_alives.insert(resume.keep_alive_number, self.subject.now)
            }
            other => panic!("{other:?}"),
        }
    }

    fn step(&mut self, number: u32, value: Value) {
        let state = &mut self.subject.state;
        match (number, value) {
            (HEAR, Value::Bytes(bytes)) => self.hear(&bytes),
            (ACQUIRE, Value::Varint(how)) => {
                let wait = match how % 3 {
                    0 => Wait::Forever,
                    1 => Wait::Not,
                    _ => Wait::AtMost(Duration::from_millis(how)),
                };
                let ticket = self.subject.ask(&(how % 4).to_string(), wait);
                self.open.push(ticket);
            }
            (DROP_USER, Value::Varint(at)) if !self.guards.is_empty() => {
                let grant = self.guards.remove(at as usize % self.guards.len());
                state.drop_user(grant);
            }
            (ABANDON, Value::Varint(at)) if !self.open.is_empty() => {
                let ticket = self.open.remove(at as usize % self.open.len());
                state.abandon(ticket);
            }
            (PROCLAIM, Value::Varint(at)) if !self.guards.is_empty() => {
                let grant = self.guards[at as usize % self.guards.len()];
                let value = value::Value::new(*b"v").expect("it is short");
                let ticket = state.proclaim(grant, "x", value);
                self.open.push(ticket);
            }
            (PING, _) if self.attached && state.next_keep_alive().is_some() => {
                self.subject.send_keep_alive()
            }
            (PASS, Value::Varint(ms)) => {
                let length = Duration::from_millis(ms % 20_000);
                self.subject.now = self.subject.now + length;
            }
            (FREEZE, Value::Varint(seconds)) => self.subject.freeze(seconds % 20),
            (BEGIN, _) => self.begin(),
            (DETACH, Value::Varint(how)) if self.attached => {
                self.attached = false;
                let error = crate::Error::unavailable("not now");
                self.subject.detach_by(match how % 5 {
                    0 => Disconnect::Ended,
                    1 => Disconnect::ConnectionFailed("cut".into()),
                    2 => Disconnect::UnknownSession,
                    3 => Disconnect::Unavailable(error),
                    _ => Disconnect::Refused(error),
                });
            }
            (CLOSE, _) => state.close(self.subject.now),
            _ => return,
        }
        self.act();
        self.check();
    }

    /// Request numbers and keep-alives of few bits stand for those that are used.
    fn hear(&mut self, bytes: &[u8]) {
        let Ok(pb::AttachResponse { message: Some(mut message) }) =
            pb::AttachResponse::decode(bytes)
        else {
            return;
        };
        if !self.attached {
            return;
        }
        let request = |number: &mut u64| {
            if let Some(last) = self.requests.len().checked_sub(1 + *number as usize % 16)
                && *number < 16
            {
                *number = self.requests[last];
            }
        };
        match &mut message {
            Heard::Granted(granted) => {
                request(&mut granted.request);
                if let Some(until) =
                    until(&self.keep_alives, granted.keep_alive_number, granted.valid_for_ms)
                {
                    let furthest = self.granted.entry(granted.handle.to_vec()).or_insert(until);
                    *furthest = until.max(*furthest);
                }
            }
            Heard::KeptAlive(kept) => {
                let limits = kept.limits.iter().map(|limit| limit.valid_for_ms);
                let longest = limits.fold(kept.valid_for_ms, u64::max);
                self.promised =
                    self.promised.max(until(&self.keep_alives, kept.keep_alive_number, longest));
            }
            Heard::Refused(refused) => request(&mut refused.request),
            Heard::Queued(queued) => request(&mut queued.request),
            Heard::Released(released) => request(&mut released.request),
            Heard::Proclaimed(proclaimed) => request(&mut proclaimed.request),
            _ => {}
        }
        self.heard += 1;
        self.subject.hear(message);
    }

    fn act(&mut self) {
        for action in self.subject.actions() {
            match action {
                Action::Send(message) => self.sends(message),
                Action::Answer(ticket, outcome) => {
                    assert!(!self.answered.contains(&ticket), "{ticket:?} is answered twice");
                    let at = self.open.iter().position(|open| *open == ticket);
                    if let Some(at) = at {
                        self.answered.insert(self.open.remove(at));
                    }
                    match outcome {
                        Outcome::Granted { grant, .. } => {
                            assert!(at.is_some(), "it is granted to nobody");
                            self.guards.push(grant);
                            self.said.insert("granted");
                        }
                        Outcome::Released => _ = self.said.insert("released"),
                        Outcome::Proclaimed => _ = self.said.insert("proclaimed"),
                        Outcome::Failed(error) => {
                            assert!(error.to_string().len() < 100_000);
                            self.said.insert("failed");
                        }
                    }
                }
                Action::Report(..) => _ = self.said.insert("told"),
                Action::Notify(_) => _ = self.said.insert("rung"),
            }
        }
    }

    fn sends(&mut self, message: Message) {
        assert!(self.attached, "sent without a stream: {message:?}");
        self.sent += 1;
        match message {
            Message::KeepAlive(pb::KeepAlive { keep_alive_number }) => {
                assert_eq!(
                    self.keep_alives.insert(keep_alive_number, self.subject.now),
                    None,
                    "a keep-alive is used twice"
                );
            }
            Message::Acquire(pb::Acquire { request, .. })
            | Message::Release(pb::Release { request, .. })
            | Message::Proclaim(pb::Proclaim { request, .. }) => {
                assert!(!self.requests.contains(&request), "a number is used twice");
                self.requests.push(request);
            }
            _ => {}
        }
    }

    /// A grant that was lost stays lost, and none reaches further than what was
    /// promised.
    fn check(&mut self) {
        let now = self.subject.clocks();
        for id in &self.guards {
            let grant = self.subject.state.check_grant(*id, &now).expect("a guard stands for it");
            let lost = grant.loss().is_some();
            assert!(lost || now.at() < grant.deadline(&now), "its deadline has passed");
            assert!(lost || !self.gone.contains(id), "a lost grant came back");
            let handle = grant.handle.map(|handle| handle.encoded().to_vec());
            let granted = handle.and_then(|handle| self.granted.get(&handle).copied());
            let promised = self.promised.max(granted);
            assert!(lost || Some(grant.deadline(&now)) <= promised, "more than was promised");
            if lost {
                self.gone.insert(*id);
                self.said.insert("lost");
            }
        }
        self.act();
    }
}

/// How far a promise for a keep-alive reaches, if that was sent.
fn until(keep_alives: &BTreeMap<u64, Moment>, keep_alive_number: u64, ms: u64) -> Option<Moment> {
    keep_alives.get(&keep_alive_number).map(|sent| *sent + Duration::from_millis(ms))
}

fn hear(message: Heard) -> Field {
    Field::bytes(HEAR, pb::AttachResponse { message: Some(message) }.encode_to_vec())
}

fn scripts() -> Vec<Vec<u8>> {
    let step = Field::varint;
    let opened = |resumed| hear(Heard::Opened(opened(resumed)));
    let start = || vec![step(12, 0), opened(false), step(ACQUIRE, 0)];
    let grant = || [start(), vec![hear(granted(0, 7, 0, 9000))]].concat();
    let unavailable = pb::Reason::StoreUnavailable;
    [
        grant(),
        [grant(), vec![step(DROP_USER, 0), hear(Heard::Released(pb::Released { request: 0 }))]]
            .concat(),
        [grant(), vec![step(DROP_USER, 0), hear(refused(0, unavailable)), step(PING, 0)]].concat(),
        [grant(), vec![hear(lost(7)), step(ACQUIRE, 0), hear(granted(0, 7, 0, 9000))]].concat(),
        [grant(), vec![step(PASS, 3000), step(PING, 0), hear(kept_alive(1, 9000))]].concat(),
        [grant(), vec![step(PASS, 9000), hear(granted(0, 7, 0, u64::MAX))]].concat(),
        [grant(), vec![step(FREEZE, 19), step(PING, 0), hear(kept_alive(1, 9000))]].concat(),
        [grant(), vec![step(PROCLAIM, 0), hear(Heard::Proclaimed(pb::Proclaimed { request: 0 }))]]
            .concat(),
        [grant(), vec![step(PROCLAIM, 0), hear(refused(0, pb::Reason::UnknownHandle))]].concat(),
        [
            grant(),
            vec![step(ACQUIRE, 1), step(DETACH, 1), step(BEGIN, 0), opened(true)],
            vec![hear(granted(1, 7, 1, 9000)), hear(queued(0)), hear(restored())],
        ]
        .concat(),
        [grant(), vec![step(DETACH, 2), step(BEGIN, 0), opened(false)]].concat(),
        [start(), vec![hear(queued(0)), step(ABANDON, 0), hear(granted(0, 8, 0, 9000))]].concat(),
        [start(), vec![hear(refused(0, pb::Reason::Held)), step(CLOSE, 0)]].concat(),
    ]
    .map(|steps| wire::write(&steps))
    .into()
}

#[test]
fn whatever_a_daemon_says_no_promise_grows() {
    Fuzz::new("client-session").nested().seeds(scripts()).run(|input| {
        let steps = wire::read(input).0;
        let fenced = steps.iter().any(|step| *step == Field::varint(12, 1));
        let mut world = World::new(fenced);
        let count = steps.len();
        for Field { number, value } in steps {
            world.step(number, value);
        }
        let state = &world.subject.state;
        let known = state.acquires.len() + state.requests.len() + state.releases.len();
        let known = known + state.grants.len() + state.handles.len() + state.proclaims.len();
        assert!(known <= 8 * (count + 1), "{known} after {count} steps");
        assert!(world.sent <= (count + 1) * (count + 1), "{} after {count} steps", world.sent);
        let Subject { state, .. } = &world.subject;
        format!(
            "{:?} {} {} {} {} {}",
            world.said,
            state.info().is_some(),
            state.acquires.is_empty(),
            state.releases.is_empty(),
            state.proclaims.is_empty(),
            state.handles.len() > state.grants.len(),
        )
    });
}
