//! A model of the daemon, as the protocol describes it: one session, and locks
//! that others want too.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use crate::{
    pb::attach_response::Message as Heard,
    pb::{self, attach_request::Message},
};
use leasehold_time::Moment;

pub(super) const TTL: Duration = Duration::from_secs(9);
pub(super) const LOCKS: u8 = 3;

pub(super) type HandleBytes = prost::bytes::Bytes;

/// A lock of the daemon, held by the session or by somebody else.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Held {
    /// Ends at this time, if not before, once it was broken.
    Ours {
        handle: HandleBytes,
        request: u64,
        ending: Option<Moment>,
    },
    Others,
}

/// The daemon's side: one session, and locks that others want too.
#[derive(Default)]
pub(super) struct Daemon {
    pub(super) secret: u8,
    pub(super) alive: bool,
    /// The last keep-alive, and when it came.
    pub(super) keep_alive_number: (u64, Option<Moment>),
    pub(super) held: BTreeMap<u8, Held>,
    pub(super) waiting: VecDeque<(u8, u64)>,
    pub(super) handles: u8,
    /// The last request number.
    number: u64,
    /// The values that were shown under each handle, in their order.
    pub(super) shown: BTreeMap<HandleBytes, Vec<u32>>,
    /// How many of the next releases and proclaims can't be done.
    pub(super) reluctant: u8,
}

impl Daemon {
    pub(super) fn promise(&self) -> u64 {
        u64::try_from(TTL.as_millis()).expect("it is short")
    }

    pub(super) fn granted(&self, request: u64, handle: HandleBytes) -> Heard {
        let (keep_alive_number, valid_for_ms) = (self.keep_alive_number.0, self.promise());
        Heard::Granted(pb::Granted { request, token: 1, handle, keep_alive_number, valid_for_ms })
    }

    /// Ends the session if it was silent for too long.
    pub(super) fn expire(&mut self, now: Moment) {
        if self.keep_alive_number.1.is_some_and(|came| now.since(came) >= TTL) {
            self.end_session();
        }
        self.held
            .retain(|_, held| !matches!(held, Held::Ours { ending: Some(end), .. } if now >= *end));
    }

    pub(super) fn end_session(&mut self) {
        self.alive = false;
        self.held.retain(|_, held| *held == Held::Others);
        self.waiting.clear();
    }

    pub(super) fn serve(&mut self, out: &mut VecDeque<Heard>) {
        for lock in 0..LOCKS {
            if self.held.contains_key(&lock) {
                continue;
            }
            let waiting = self.waiting.iter().position(|(wanted, _)| *wanted == lock);
            if let Some((_, request)) = waiting.and_then(|at| self.waiting.remove(at)) {
                self.handles += 1;
                let handle = HandleBytes::from(vec![self.handles; 16]);
                out.push_back(self.granted(request, handle.clone()));
                self.held.insert(lock, Held::Ours { handle, request, ending: None });
            }
        }
    }

    /// The client numbers its requests in increasing order.
    fn number(&mut self, request: u64) {
        assert!(request > self.number, "{request} after {}", self.number);
        self.number = request;
    }

    /// None: the stream is refused.
    pub(super) fn hear(&mut self, message: Message, now: Moment) -> Option<VecDeque<Heard>> {
        let mut out = VecDeque::new();
        match message {
            Message::Open(_) => {
                self.end_session();
                self.secret += 1;
                (self.alive, self.keep_alive_number) = (true, (0, Some(now)));
                out.push_back(Heard::Opened(self.opened(false)));
            }
            Message::Resume(resume) => {
                if !self.alive || resume.resume_secret.first() != Some(&self.secret) {
                    return None;
                }
                assert!(
                    resume.keep_alive_number > self.keep_alive_number.0,
                    "a keep-alive was used twice"
                );
                self.keep_alive_number = (resume.keep_alive_number, Some(now));
                out.push_back(Heard::Opened(self.opened(true)));
                for held in self.held.values() {
                    if let Held::Ours { handle, request, ending: None } = held {
                        out.push_back(self.granted(*request, handle.clone()));
                    }
                }
                for (_, request) in &self.waiting {
                    out.push_back(queued(*request));
                }
                out.push_back(Heard::Restored(pb::Restored {}));
            }
            Message::KeepAlive(pb::KeepAlive { keep_alive_number }) => {
                assert!(
                    keep_alive_number > self.keep_alive_number.0,
                    "a keep-alive was used twice"
                );
                self.keep_alive_number = (keep_alive_number, Some(now));
                let (valid_for_ms, limits) = (self.promise(), vec![]);
                out.push_back(Heard::KeptAlive(pb::KeptAlive {
                    keep_alive_number,
                    valid_for_ms,
                    limits,
                }));
            }
            Message::Acquire(acquire) => {
                let name = acquire.lock.expect("it is named").name;
                let lock = name.parse().expect("a number");
                self.number(acquire.request);
                self.waiting.push_back((lock, acquire.request));
                out.push_back(queued(acquire.request));
            }
            Message::Cancel(pb::Cancel { request }) => {
                let before = self.waiting.len();
                self.waiting.retain(|(_, waiting)| *waiting != request);
                if self.waiting.len() < before {
                    out.push_back(refused(request, pb::Reason::Cancelled));
                }
            }
            Message::Release(pb::Release { request, .. }) if self.reluctant > 0 => {
                self.number(request);
                self.reluctant -= 1;
                out.push_back(refused(request, pb::Reason::StoreUnavailable));
            }
            Message::Release(pb::Release { request, handle: named }) => {
                self.number(request);
                let before = self.held.len();
                self.held.retain(
                    |_, held| !matches!(held, Held::Ours { handle, .. } if *handle == named),
                );
                out.push_back(if self.held.len() < before {
                    Heard::Released(pb::Released { request })
                } else {
                    refused(request, pb::Reason::UnknownHandle)
                });
            }
            Message::Proclaim(pb::Proclaim { request, .. }) if self.reluctant > 0 => {
                self.number(request);
                self.reluctant -= 1;
                out.push_back(refused(request, pb::Reason::StoreUnavailable));
            }
            Message::Proclaim(pb::Proclaim { request, handle: named, value }) => {
                self.number(request);
                let leads = (self.held.values()).any(
                    |held| matches!(held, Held::Ours { handle, ending: None, .. } if *handle == named),
                );
                out.push_back(if leads {
                    let value = u32::from_be_bytes((*value).try_into().expect("a number"));
                    let shown = self.shown.entry(named).or_default();
                    assert!(shown.last() <= Some(&value), "an older value came back");
                    shown.push(value);
                    Heard::Proclaimed(pb::Proclaimed { request })
                } else {
                    refused(request, pb::Reason::UnknownHandle)
                });
            }
            Message::Close(_) => self.end_session(),
        }
        self.serve(&mut out);
        Some(out)
    }

    pub(super) fn opened(&self, resumed: bool) -> pb::Opened {
        let ttl_ms = u32::try_from(TTL.as_millis()).expect("it is short");
        pb::Opened {
            resume_secret: vec![self.secret; 16].into(),
            ttl_ms,
            keep_alive_interval_ms: ttl_ms / 3,
            valid_for_ms: ttl_ms.into(),
            resumed,
            ..Default::default()
        }
    }
}

fn queued(request: u64) -> Heard {
    Heard::Queued(pb::Queued { request, position: 1, ..Default::default() })
}

fn refused(request: u64, reason: pb::Reason) -> Heard {
    Heard::Refused(pb::Refused { request, reason: reason.into(), ..Default::default() })
}
