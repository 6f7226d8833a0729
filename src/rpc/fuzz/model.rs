//! Model of the protocol, which checks every message of the daemon.

use prost::bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};

use tonic::Status;

use super::daemon::STREAMS;
use crate::{
    rpc::pb::attach_response::Message as Received,
    rpc::{decode, pb, pb::attach_request::Message},
};
use leasehold_core::session::Request;

/// Request without a response.
#[derive(Debug)]
enum Owed {
    Acquire { name: (String, String), queued: bool },
    Release { handle: Bytes },
    Proclaim,
}

#[derive(Debug)]
struct Grant {
    name: (String, String),
    token: u64,
    /// Number of the acquire.
    request: u64,
    lost: bool,
    /// False during the list after a resume, until the grant is listed.
    listed: bool,
}

#[derive(Debug, Default)]
struct Session {
    secret: Bytes,
    fenced: bool,
    keep_alive_number: u64,
    /// Highest request number on any stream, and on the current one.
    highest: u64,
    last: u64,
    /// Requests without a response, by number.
    owed: BTreeMap<u64, Vec<Owed>>,
    /// Grants by handle. A lost grant stays until it is released.
    grants: BTreeMap<Bytes, Grant>,
    /// True during the list after a resume.
    restoring: bool,
    /// True if the session was closed, or if it is fenced and its stream ended.
    over: bool,
}

/// First message of a stream, and the session that it carries.
#[derive(Debug, Default)]
struct Carried {
    begun: Option<Message>,
    session: Option<usize>,
    /// The client violated the protocol, so that the daemon must end the stream.
    must_end: bool,
}

/// State of all clients.
#[derive(Debug, Default)]
pub(super) struct Model {
    sessions: Vec<Session>,
    streams: [Carried; STREAMS],
    handles: Vec<Bytes>,
    /// Highest token of each lock.
    tokens: BTreeMap<(String, String), u64>,
    coverage: BTreeSet<String>,
    sent: usize,
    received: usize,
    released: usize,
}

impl Model {
    pub(super) fn fill_in_secret(&self, secret: &mut Bytes) {
        if let [number] = **secret
            && !self.sessions.is_empty()
        {
            secret.clone_from(&self.sessions[number as usize % self.sessions.len()].secret);
        }
    }

    pub(super) fn fill_in_handle(&self, handle: &mut Bytes) {
        if let [number] = **handle
            && !self.handles.is_empty()
        {
            handle.clone_from(&self.handles[number as usize % self.handles.len()]);
        }
    }

    pub(super) fn released(&self) -> usize {
        self.released
    }

    pub(super) fn coverage(&self) -> String {
        self.coverage.iter().map(String::as_str).collect::<Vec<_>>().join(" ")
    }

    /// Returns an open session.
    pub(super) fn next_session(&self) -> Option<(Bytes, u64)> {
        let session = self.sessions.iter().find(|session| !session.over)?;
        Some((session.secret.clone(), session.keep_alive_number))
    }

    pub(super) fn sends(&mut self, stream: usize, message: &Message) {
        self.sent += 1;
        let carried = &mut self.streams[stream];
        if carried.begun.is_none() {
            carried.begun = Some(message.clone());
            return;
        }
        let Some(session) = carried.session.map(|session| &mut self.sessions[session]) else {
            return;
        };
        let (request, owed) = match message {
            Message::Acquire(acquire) => {
                let pb::LockRef { mut namespace, name } = acquire.lock.clone().unwrap_or_default();
                if namespace.is_empty() {
                    namespace.push_str("default");
                }
                (acquire.request, Owed::Acquire { name: (namespace, name), queued: false })
            }
            Message::Release(release) => {
                (release.request, Owed::Release { handle: release.handle.clone() })
            }
            Message::Proclaim(proclaim) => (proclaim.request, Owed::Proclaim),
            Message::KeepAlive(keep_alive) => {
                carried.must_end = keep_alive.keep_alive_number <= session.keep_alive_number;
                session.keep_alive_number =
                    session.keep_alive_number.max(keep_alive.keep_alive_number);
                return;
            }
            Message::Close(_) => {
                session.over = true;
                session.owed.clear();
                session.grants.clear();
                return;
            }
            Message::Cancel(_) | Message::Open(_) | Message::Resume(_) => return,
        };
        // Without a higher number, the stream ends instead of an answer.
        if request <= session.last {
            carried.must_end = true;
            return;
        }
        session.last = request;
        let is_repeat = request <= session.highest;
        session.highest = session.highest.max(request);
        if is_repeat
            && let Owed::Acquire { name, .. } = &owed
            && is_well_formed(message)
            // Repeated after a resume: the same request, which is answered again.
            && let Some(first) = session.lock_of(request)
        {
            carried.must_end = first != name;
            self.coverage.insert(format!("repeated{}", carried.must_end));
            return;
        }
        session.owed.entry(request).or_default().push(owed);
    }

    pub(super) fn receives(&mut self, stream: usize, received: Received) {
        self.received += 1;
        assert!(self.received <= (self.sent + 4) * (self.sent + 4), "too many messages");
        if let Received::Opened(opened) = received {
            return self.opened(stream, opened);
        }
        assert!(!self.streams[stream].must_end, "the stream goes on after a violation");
        let number = self.streams[stream].session.expect("no session was opened");
        let session = &mut self.sessions[number];
        match received {
            Received::Opened(_) => {}
            Received::KeptAlive(kept) => {
                assert_eq!(kept.keep_alive_number, session.keep_alive_number);
                assert!(kept.limits.iter().all(|limit| session.grants.contains_key(&limit.handle)));
                self.coverage.insert(format!("kept{}", kept.limits.len().min(1)));
            }
            Received::Granted(granted) => self.granted(number, granted),
            Received::Refused(refused) => self.refused(number, &refused),
            Received::Queued(queued) => {
                assert!(queued.position > 0, "{queued:?}");
                let owed = session.owed.get_mut(&queued.request).into_iter().flatten();
                let mut waiting = owed.filter_map(|owed| match owed {
                    Owed::Acquire { queued, .. } => Some(queued),
                    _ => None,
                });
                *waiting.next().expect("no other acquire waits") = true;
                self.coverage.insert(format!("queued{}", queued.position.min(3)));
            }
            Received::AtRisk(at_risk) => {
                assert!(session.grants.contains_key(&at_risk.handle));
                self.coverage.insert(format!("risk{:?}", at_risk.reason()));
            }
            Received::Lost(lost) => {
                session.grants.get_mut(&lost.handle).expect("lost without a grant").lost = true;
                self.coverage.insert(format!("lost{:?}", lost.reason()));
            }
            Received::Released(released) => {
                let owed =
                    session.answer(released.request, |owed| matches!(owed, Owed::Release { .. }));
                let Some(Owed::Release { handle }) = owed else {
                    panic!("response without a release")
                };
                assert!(session.grants.remove(&handle).is_some(), "released without a grant");
                self.released += 1;
                self.coverage.insert("released".to_owned());
            }
            Received::Proclaimed(proclaimed) => {
                let owed =
                    session.answer(proclaimed.request, |owed| matches!(owed, Owed::Proclaim));
                assert!(owed.is_some(), "response without a proclaim");
                self.coverage.insert("proclaimed".to_owned());
            }
            Received::Restored(_) => {
                assert!(std::mem::take(&mut session.restoring));
                // A grant was lost while the session had no stream if it is not listed.
                for grant in session.grants.values_mut() {
                    grant.lost |= !grant.listed;
                }
                self.coverage.insert("restored".to_owned());
            }
        }
    }

    fn opened(&mut self, stream: usize, opened: pb::Opened) {
        assert_eq!(self.streams[stream].session, None, "the session was opened twice");
        assert!(opened.valid_for_ms < u64::from(opened.ttl_ms), "{opened:?}");
        let session = match &self.streams[stream].begun {
            Some(Message::Open(open)) => {
                assert!(!opened.resumed && opened.resume_secret.len() == 16);
                let (secret, fenced) = (opened.resume_secret, open.fenced);
                self.sessions.push(Session { secret, fenced, ..Session::default() });
                self.sessions.len() - 1
            }
            Some(Message::Resume(resume)) => {
                assert!(opened.resumed && opened.resume_secret.is_empty());
                let mut sessions = self.sessions.iter();
                let number = sessions.position(|session| session.secret == resume.resume_secret);
                let number = number.expect("resumed with an unknown secret");
                let session = &mut self.sessions[number];
                assert!(!session.over, "an ended session was resumed");
                assert!(
                    resume.keep_alive_number > session.keep_alive_number,
                    "a keep-alive number was reused"
                );
                (session.keep_alive_number, session.restoring) = (resume.keep_alive_number, true);
                session.last = 0;
                session.grants.values_mut().for_each(|grant| grant.listed = false);
                for carried in &mut self.streams {
                    carried.session.take_if(|other| *other == number);
                }
                number
            }
            other => panic!("opened by {other:?}"),
        };
        self.streams[stream].session = Some(session);
        self.coverage.insert(format!("opened{}", opened.resumed));
    }

    fn refused(&mut self, number: usize, refused: &pb::Refused) {
        let session = &mut self.sessions[number];
        let reason = refused.reason();
        assert_ne!(reason, pb::Reason::Unspecified);
        assert!(!refused.message.is_empty(), "{refused:?}");
        assert_eq!(reason == pb::Reason::Invalid, !refused.field.is_empty());
        let owed = session
            .answer(refused.request, |owed| !matches!(owed, Owed::Acquire { queued: true, .. }));
        let owed = owed.or_else(|| session.answer(refused.request, |_| true));
        let kind = match owed.expect("refused without a request") {
            Owed::Acquire { queued, .. } => format!("acquire{queued}"),
            Owed::Release { .. } => "release".to_owned(),
            Owed::Proclaim => "proclaim".to_owned(),
        };
        self.coverage.insert(format!("{kind}-{reason:?}{}", refused.field));
    }

    fn granted(&mut self, number: usize, granted: pb::Granted) {
        let pb::Granted { request, token, handle, keep_alive_number, .. } = granted;
        let session = &mut self.sessions[number];
        assert_eq!((handle.len(), keep_alive_number), (16, session.keep_alive_number));
        if let Some(grant) = session.grants.get_mut(&handle) {
            grant.listed = true;
            // Listed after a resume, or the response to a repeated acquire.
            assert_eq!((grant.request, grant.token), (request, token));
            self.coverage.insert(format!("listed{}", session.restoring));
            return;
        }
        let owed = session.answer(request, |owed| matches!(owed, Owed::Acquire { .. }));
        let Some(Owed::Acquire { name, queued }) = owed else {
            panic!("granted without an acquire")
        };
        let grant = Grant { name: name.clone(), token, request, lost: false, listed: true };
        session.grants.insert(handle.clone(), grant);
        let holders = self.sessions.iter().flat_map(|session| session.grants.values());
        assert_eq!(
            holders.filter(|grant| grant.name == name).count(),
            1,
            "two sessions hold {name:?}"
        );
        let before = self.tokens.insert(name, token);
        assert!(
            before < Some(token) && token < 1 << 53,
            "the token did not increase: {before:?}, {token}"
        );
        self.handles.push(handle);
        self.coverage.insert(format!("granted{queued}"));
    }

    /// Records that the daemon ended the stream.
    pub(super) fn ends(&mut self, stream: usize, with: Option<&Status>) {
        let code = with.map(Status::code);
        self.coverage.insert(format!("end{code:?}"));
        self.cut(stream);
    }

    /// Records the end of a stream.
    pub(super) fn cut(&mut self, stream: usize) {
        let Carried { session, .. } = std::mem::take(&mut self.streams[stream]);
        let Some(session) = session.map(|session| &mut self.sessions[session]) else { return };
        session.restoring = false;
        if session.fenced {
            session.over = true;
            session.owed.clear();
            session.grants.clear();
        }
    }

    /// Checks that only queued acquires are without a response.
    pub(super) fn check_all_answered(&self) {
        for session in &self.sessions {
            for (request, owed) in &session.owed {
                let waits = |owed: &Owed| matches!(owed, Owed::Acquire { queued: true, .. });
                assert!(owed.iter().all(waits), "request {request} is not answered: {owed:?}");
            }
        }
    }
}

/// Returns whether the daemon accepts a message as an acquire.
fn is_well_formed(message: &Message) -> bool {
    let message = pb::AttachRequest { message: Some(message.clone()) };
    matches!(decode::request(message), Ok(Request::Acquire { .. }))
}

impl Session {
    /// Returns the lock that an acquire with this number waits for or was granted.
    fn lock_of(&self, request: u64) -> Option<&(String, String)> {
        let waiting = self.owed.get(&request).into_iter().flatten();
        let waiting = waiting.filter_map(|owed| match owed {
            Owed::Acquire { name, .. } => Some(name),
            _ => None,
        });
        let grants = self.grants.values().filter(|grant| !grant.lost);
        let granted = grants.filter(|grant| grant.request == request).map(|grant| &grant.name);
        waiting.chain(granted).next()
    }

    /// Removes the latest request with this number that matches.
    fn answer(&mut self, request: u64, which: impl Fn(&Owed) -> bool) -> Option<Owed> {
        let owed = self.owed.get_mut(&request)?;
        let at = owed.iter().rposition(which)?;
        let answered = owed.remove(at);
        if owed.is_empty() {
            self.owed.remove(&request);
        }
        Some(answered)
    }
}
