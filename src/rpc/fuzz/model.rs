//! What the protocol promises, held against what the daemon says.

use prost::bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};

use tonic::Status;

use super::daemon::STREAMS;
use crate::{
    rpc::pb::attach_response::Message as Heard,
    rpc::{decode, pb, pb::attach_request::Message},
};
use leasehold_core::session::Request;

/// A request that has not been answered.
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
    /// Number of its acquire.
    request: u64,
    lost: bool,
}

#[derive(Debug, Default)]
struct Session {
    secret: Bytes,
    fenced: bool,
    keep_alive_number: u64,
    /// Highest request number, on any stream and on this one.
    highest: u64,
    last: u64,
    /// By the number of the request.
    owed: BTreeMap<u64, Vec<Owed>>,
    /// By handle. A lost one stays until it is released.
    grants: BTreeMap<Bytes, Grant>,
    /// The list after a resume is under way.
    restoring: bool,
    /// It was closed, or its stream ended and it is fenced.
    over: bool,
}

/// What a stream was begun with, and which session it carries.
#[derive(Debug, Default)]
struct Carried {
    begun: Option<Message>,
    session: Option<usize>,
    /// The client violated the protocol: the daemon ends the stream.
    must_end: bool,
}

/// All clients, and what they know.
#[derive(Debug, Default)]
pub(super) struct Model {
    sessions: Vec<Session>,
    streams: [Carried; STREAMS],
    handles: Vec<Bytes>,
    /// The greatest token of each lock.
    tokens: BTreeMap<(String, String), u64>,
    said: BTreeSet<String>,
    sent: usize,
    heard: usize,
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

    pub(super) fn said(&self) -> String {
        self.said.iter().map(String::as_str).collect::<Vec<_>>().join(" ")
    }

    /// A session that is not over.
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
        // Without a higher number there is no answer: the stream ends.
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
            self.said.insert(format!("repeated{}", carried.must_end));
            return;
        }
        session.owed.entry(request).or_default().push(owed);
    }

    pub(super) fn hears(&mut self, stream: usize, heard: Heard) {
        self.heard += 1;
        assert!(self.heard <= (self.sent + 4) * (self.sent + 4), "it says more and more");
        if let Heard::Opened(opened) = heard {
            return self.opened(stream, opened);
        }
        assert!(!self.streams[stream].must_end, "the stream goes on after a violation");
        let number = self.streams[stream].session.expect("it was opened first");
        let session = &mut self.sessions[number];
        match heard {
            Heard::Opened(_) => {}
            Heard::KeptAlive(kept) => {
                assert_eq!(kept.keep_alive_number, session.keep_alive_number);
                assert!(kept.limits.iter().all(|limit| session.grants.contains_key(&limit.handle)));
                self.said.insert(format!("kept{}", kept.limits.len().min(1)));
            }
            Heard::Granted(granted) => self.granted(number, granted),
            Heard::Refused(refused) => self.refused(number, &refused),
            Heard::Queued(queued) => {
                assert!(queued.position > 0, "{queued:?}");
                let owed = session.owed.get_mut(&queued.request).into_iter().flatten();
                let mut waiting = owed.filter_map(|owed| match owed {
                    Owed::Acquire { queued, .. } => Some(queued),
                    _ => None,
                });
                *waiting.next().expect("nobody else waits") = true;
                self.said.insert(format!("queued{}", queued.position.min(3)));
            }
            Heard::AtRisk(at_risk) => {
                assert!(session.grants.contains_key(&at_risk.handle));
                self.said.insert(format!("risk{:?}", at_risk.reason()));
            }
            Heard::Lost(lost) => {
                session.grants.get_mut(&lost.handle).expect("it was granted").lost = true;
                self.said.insert(format!("lost{:?}", lost.reason()));
            }
            Heard::Released(released) => {
                let owed =
                    session.answer(released.request, |owed| matches!(owed, Owed::Release { .. }));
                let Some(Owed::Release { handle }) = owed else { panic!("nothing is released") };
                assert!(session.grants.remove(&handle).is_some(), "it was not held");
                self.released += 1;
                self.said.insert("released".to_owned());
            }
            Heard::Proclaimed(proclaimed) => {
                let owed =
                    session.answer(proclaimed.request, |owed| matches!(owed, Owed::Proclaim));
                assert!(owed.is_some(), "nothing was proclaimed");
                self.said.insert("proclaimed".to_owned());
            }
            Heard::Restored(_) => {
                assert!(std::mem::take(&mut session.restoring));
                self.said.insert("restored".to_owned());
            }
        }
    }

    fn opened(&mut self, stream: usize, opened: pb::Opened) {
        assert_eq!(self.streams[stream].session, None, "it is opened twice");
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
                let number = number.expect("a secret that nobody was told");
                let session = &mut self.sessions[number];
                assert!(!session.over, "a session that is over is resumed");
                assert!(
                    resume.keep_alive_number > session.keep_alive_number,
                    "a keep-alive is used twice"
                );
                (session.keep_alive_number, session.restoring) = (resume.keep_alive_number, true);
                session.last = 0;
                for carried in &mut self.streams {
                    carried.session.take_if(|other| *other == number);
                }
                number
            }
            other => panic!("opened by {other:?}"),
        };
        self.streams[stream].session = Some(session);
        self.said.insert(format!("opened{}", opened.resumed));
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
        let kind = match owed.expect("nothing is refused that was not asked for") {
            Owed::Acquire { queued, .. } => format!("acquire{queued}"),
            Owed::Release { .. } => "release".to_owned(),
            Owed::Proclaim => "proclaim".to_owned(),
        };
        self.said.insert(format!("{kind}-{reason:?}{}", refused.field));
    }

    fn granted(&mut self, number: usize, granted: pb::Granted) {
        let pb::Granted { request, token, handle, keep_alive_number, .. } = granted;
        let session = &mut self.sessions[number];
        assert_eq!((handle.len(), keep_alive_number), (16, session.keep_alive_number));
        if let Some(grant) = session.grants.get(&handle) {
            // Listed after a resume, or the answer to a repeated acquire.
            assert_eq!((grant.request, grant.token), (request, token));
            self.said.insert(format!("listed{}", session.restoring));
            return;
        }
        let owed = session.answer(request, |owed| matches!(owed, Owed::Acquire { .. }));
        let Some(Owed::Acquire { name, queued }) = owed else { panic!("it was not asked for") };
        let grant = Grant { name: name.clone(), token, request, lost: false };
        session.grants.insert(handle.clone(), grant);
        let holders = self.sessions.iter().flat_map(|session| session.grants.values());
        assert_eq!(holders.filter(|grant| grant.name == name).count(), 1, "two hold {name:?}");
        let before = self.tokens.insert(name, token);
        assert!(before < Some(token) && token < 1 << 53, "a token falls: {before:?}, {token}");
        self.handles.push(handle);
        self.said.insert(format!("granted{queued}"));
    }

    /// The daemon ended the stream.
    pub(super) fn ends(&mut self, stream: usize, with: Option<&Status>) {
        let code = with.map(Status::code);
        self.said.insert(format!("end{code:?}"));
        self.cut(stream);
    }

    /// The stream is gone.
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

    /// Only who waits in a queue, and was told so, may be without an answer.
    pub(super) fn all_is_answered(&self) {
        for session in &self.sessions {
            for (request, owed) in &session.owed {
                let waits = |owed: &Owed| matches!(owed, Owed::Acquire { queued: true, .. });
                assert!(owed.iter().all(waits), "request {request} is not answered: {owed:?}");
            }
        }
    }
}

/// Whether the daemon takes an acquire as one, and does not refuse it unread.
fn is_well_formed(message: &Message) -> bool {
    let message = pb::AttachRequest { message: Some(message.clone()) };
    matches!(decode::request(message), Ok(Request::Acquire { .. }))
}

impl Session {
    /// The lock that an acquire of this number waits for or was granted.
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

    /// Takes what is answered, of the latest that were asked for.
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
