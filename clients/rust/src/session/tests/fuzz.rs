//! Fuzzed scripts: a session with arbitrary messages of a daemon.

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
    pb::attach_response::Message as Incoming,
    pb::{self, attach_request::Message},
    session::{
        Wait, attachment::Disconnect, grant::GrantId, state::Action, state::Outcome, state::Ticket,
    },
    value,
};
use leasehold_time::Moment;

/// Numbers of the steps of a script.
const RECEIVE: u32 = 1;
const ACQUIRE: u32 = 2;
const DROP_USER: u32 = 3;
const ABANDON: u32 = 4;
const PROCLAIM: u32 = 5;
const KEEP_ALIVE: u32 = 6;
const ADVANCE: u32 = 7;
const BEGIN: u32 = 8;
const DETACH: u32 = 9;
const PAUSE: u32 = 10;
const CLOSE: u32 = 11;

struct World {
    subject: Subject,
    attached: bool,
    /// Requests without a result.
    open: Vec<Ticket>,
    /// Completed acquires and proclaims. Excludes releases: a release that is not
    /// possible yet completes with an error, and again when the lock is released.
    answered: BTreeSet<Ticket>,
    guards: Vec<GrantId>,
    /// Lost grants.
    lost: BTreeSet<GrantId>,
    /// Sending time of each keep-alive of the current session, by number.
    keep_alives: BTreeMap<u64, Moment>,
    /// Latest end of a validity in any keep-alive response.
    max_validity_end: Option<Moment>,
    /// Latest end of a validity in any grant message, by handle.
    granted: BTreeMap<Vec<u8>, Moment>,
    /// Request numbers, in order of sending.
    requests: Vec<u64>,
    received: usize,
    sent: usize,
    outcomes: BTreeSet<&'static str>,
}

impl World {
    fn new(fenced: bool) -> Self {
        let mut world = Self {
            subject: Subject::new(fenced),
            attached: false,
            open: Vec::new(),
            answered: BTreeSet::new(),
            guards: Vec::new(),
            lost: BTreeSet::new(),
            keep_alives: BTreeMap::new(),
            max_validity_end: None,
            granted: BTreeMap::new(),
            requests: Vec::new(),
            received: 0,
            sent: 0,
            outcomes: BTreeSet::new(),
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
            (RECEIVE, Value::Bytes(bytes)) => self.receive(&bytes),
            (ACQUIRE, Value::Varint(how)) => {
                let wait = match how % 3 {
                    0 => Wait::Forever,
                    1 => Wait::Not,
                    _ => Wait::AtMost(Duration::from_millis(how)),
                };
                let ticket = self.subject.acquire(&(how % 4).to_string(), wait);
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
                let value = value::Value::new(*b"v").expect("a short value");
                let ticket = state.proclaim(grant, "x", value);
                self.open.push(ticket);
            }
            (KEEP_ALIVE, _) if self.attached && state.next_keep_alive().is_some() => {
                self.subject.send_keep_alive()
            }
            (ADVANCE, Value::Varint(ms)) => {
                let length = Duration::from_millis(ms % 20_000);
                self.subject.now = self.subject.now + length;
            }
            (PAUSE, Value::Varint(seconds)) => self.subject.pause(seconds % 20),
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

    /// Delivers a fuzzed message. Request numbers below 16 are replaced by those of the
    /// last requests, so that responses often match a request.
    fn receive(&mut self, bytes: &[u8]) {
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
            Incoming::Granted(granted) => {
                request(&mut granted.request);
                if let Some(until) =
                    until(&self.keep_alives, granted.keep_alive_number, granted.valid_for_ms)
                {
                    let latest = self.granted.entry(granted.handle.to_vec()).or_insert(until);
                    *latest = until.max(*latest);
                }
            }
            Incoming::KeptAlive(kept) => {
                let limits = kept.limits.iter().map(|limit| limit.valid_for_ms);
                let longest = limits.fold(kept.valid_for_ms, u64::max);
                self.max_validity_end = self.max_validity_end.max(until(
                    &self.keep_alives,
                    kept.keep_alive_number,
                    longest,
                ));
            }
            Incoming::Refused(refused) => request(&mut refused.request),
            Incoming::Queued(queued) => request(&mut queued.request),
            Incoming::Released(released) => request(&mut released.request),
            Incoming::Proclaimed(proclaimed) => request(&mut proclaimed.request),
            _ => {}
        }
        self.received += 1;
        self.subject.receive(message);
    }

    fn act(&mut self) {
        for action in self.subject.actions() {
            match action {
                Action::Send(message) => self.check_sent(message),
                Action::Answer(ticket, outcome) => {
                    assert!(!self.answered.contains(&ticket), "{ticket:?} completed twice");
                    let at = self.open.iter().position(|open| *open == ticket);
                    if let Some(at) = at {
                        self.answered.insert(self.open.remove(at));
                    }
                    match outcome {
                        Outcome::Granted { grant, .. } => {
                            assert!(at.is_some(), "a grant without an open acquire");
                            self.guards.push(grant);
                            self.outcomes.insert("granted");
                        }
                        Outcome::Released => _ = self.outcomes.insert("released"),
                        Outcome::Proclaimed => _ = self.outcomes.insert("proclaimed"),
                        Outcome::Failed(error) => {
                            assert!(error.to_string().len() < 100_000);
                            self.outcomes.insert("failed");
                        }
                    }
                }
                Action::Report(..) => _ = self.outcomes.insert("progress"),
                Action::Notify(_) => _ = self.outcomes.insert("notified"),
            }
        }
    }

    fn check_sent(&mut self, message: Message) {
        assert!(self.attached, "sent without a stream: {message:?}");
        self.sent += 1;
        match message {
            Message::KeepAlive(pb::KeepAlive { keep_alive_number }) => {
                assert_eq!(
                    self.keep_alives.insert(keep_alive_number, self.subject.now),
                    None,
                    "a keep-alive number is used twice"
                );
            }
            Message::Acquire(pb::Acquire { request, .. })
            | Message::Release(pb::Release { request, .. })
            | Message::Proclaim(pb::Proclaim { request, .. }) => {
                assert!(!self.requests.contains(&request), "a request number is used twice");
                self.requests.push(request);
            }
            _ => {}
        }
    }

    /// Asserts that lost grants stay lost, and that no deadline is later than the end of
    /// the received validities.
    fn check(&mut self) {
        let now = self.subject.clocks();
        for id in &self.guards {
            let grant = self.subject.state.check_grant(*id, &now).expect("a guard exists");
            let lost = grant.loss().is_some();
            assert!(
                lost || now.at() < grant.deadline(&now),
                "an active grant is past its deadline"
            );
            assert!(lost || !self.lost.contains(id), "a lost grant became active again");
            let handle = grant.handle.map(|handle| handle.encoded().to_vec());
            let granted = handle.and_then(|handle| self.granted.get(&handle).copied());
            let max_validity_end = self.max_validity_end.max(granted);
            assert!(
                lost || Some(grant.deadline(&now)) <= max_validity_end,
                "the deadline exceeds the validity"
            );
            if lost {
                self.lost.insert(*id);
                self.outcomes.insert("lost");
            }
        }
        self.act();
    }
}

/// Returns the end of a validity that counts from a keep-alive; `None` if that keep-alive
/// was not sent.
fn until(keep_alives: &BTreeMap<u64, Moment>, keep_alive_number: u64, ms: u64) -> Option<Moment> {
    keep_alives.get(&keep_alive_number).map(|sent| *sent + Duration::from_millis(ms))
}

fn receive(message: Incoming) -> Field {
    Field::bytes(RECEIVE, pb::AttachResponse { message: Some(message) }.encode_to_vec())
}

fn scripts() -> Vec<Vec<u8>> {
    let step = Field::varint;
    let opened = |resumed| receive(Incoming::Opened(opened(resumed)));
    let start = || vec![step(12, 0), opened(false), step(ACQUIRE, 0)];
    let grant = || [start(), vec![receive(granted(0, 7, 0, 9000))]].concat();
    let unavailable = pb::Reason::StoreUnavailable;
    [
        grant(),
        [
            grant(),
            vec![step(DROP_USER, 0), receive(Incoming::Released(pb::Released { request: 0 }))],
        ]
        .concat(),
        [grant(), vec![step(DROP_USER, 0), receive(refused(0, unavailable)), step(KEEP_ALIVE, 0)]]
            .concat(),
        [grant(), vec![receive(lost(7)), step(ACQUIRE, 0), receive(granted(0, 7, 0, 9000))]]
            .concat(),
        [grant(), vec![step(ADVANCE, 3000), step(KEEP_ALIVE, 0), receive(kept_alive(1, 9000))]]
            .concat(),
        [grant(), vec![step(ADVANCE, 9000), receive(granted(0, 7, 0, u64::MAX))]].concat(),
        [grant(), vec![step(PAUSE, 19), step(KEEP_ALIVE, 0), receive(kept_alive(1, 9000))]]
            .concat(),
        [
            grant(),
            vec![step(PROCLAIM, 0), receive(Incoming::Proclaimed(pb::Proclaimed { request: 0 }))],
        ]
        .concat(),
        [grant(), vec![step(PROCLAIM, 0), receive(refused(0, pb::Reason::UnknownHandle))]].concat(),
        [
            grant(),
            vec![step(ACQUIRE, 1), step(DETACH, 1), step(BEGIN, 0), opened(true)],
            vec![receive(granted(1, 7, 1, 9000)), receive(queued(0)), receive(restored())],
        ]
        .concat(),
        [grant(), vec![step(DETACH, 2), step(BEGIN, 0), opened(false)]].concat(),
        [start(), vec![receive(queued(0)), step(ABANDON, 0), receive(granted(0, 8, 0, 9000))]]
            .concat(),
        [start(), vec![receive(refused(0, pb::Reason::Held)), step(CLOSE, 0)]].concat(),
    ]
    .map(|steps| wire::write(&steps))
    .into()
}

#[test]
fn no_deadline_exceeds_received_validity_fuzzed() {
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
            world.outcomes,
            state.info().is_some(),
            state.acquires.is_empty(),
            state.releases.is_empty(),
            state.proclaims.is_empty(),
            state.handles.len() > state.grants.len(),
        )
    });
}
