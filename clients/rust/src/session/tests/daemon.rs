//! Model of a daemon that follows the protocol, with one session, and locks that other
//! sessions acquire too.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use crate::{
    pb::attach_response::Message as Incoming,
    pb::{self, attach_request::Message},
};
use leasehold_time::Moment;

pub(super) const TTL: Duration = Duration::from_secs(9);
pub(super) const LOCK_COUNT: u8 = 3;

pub(super) type HandleBytes = prost::bytes::Bytes;

/// Holder of a lock.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Held {
    /// The session under test. A broken grant ends at `ending` at the latest.
    Own { handle: HandleBytes, request: u64, ending: Option<Moment> },
    /// Another session.
    Other,
}

/// State of the model.
#[derive(Default)]
pub(super) struct Daemon {
    /// Resume secret of the session; each new session increments it.
    pub(super) secret: u8,
    pub(super) alive: bool,
    /// Number of the last keep-alive, and its time of receipt.
    pub(super) keep_alive_number: (u64, Option<Moment>),
    pub(super) held: BTreeMap<u8, Held>,
    pub(super) waiting: VecDeque<(u8, u64)>,
    pub(super) handles: u8,
    /// Last request number.
    last_request: u64,
    /// Published values by handle, in order.
    pub(super) published: BTreeMap<HandleBytes, Vec<u32>>,
    /// Number of upcoming releases and proclaims that are refused, because the store is
    /// unavailable.
    pub(super) refusals: u8,
}

impl Daemon {
    pub(super) fn validity_ms(&self) -> u64 {
        u64::try_from(TTL.as_millis()).expect("a short duration")
    }

    pub(super) fn granted(&self, request: u64, handle: HandleBytes) -> Incoming {
        let (keep_alive_number, valid_for_ms) = (self.keep_alive_number.0, self.validity_ms());
        Incoming::Granted(pb::Granted {
            request,
            token: 1,
            handle,
            keep_alive_number,
            valid_for_ms,
        })
    }

    /// Ends the session if its TTL has elapsed.
    pub(super) fn expire(&mut self, now: Moment) {
        if self.keep_alive_number.1.is_some_and(|received| now.since(received) >= TTL) {
            self.end_session();
        }
        self.held
            .retain(|_, held| !matches!(held, Held::Own { ending: Some(end), .. } if now >= *end));
    }

    pub(super) fn end_session(&mut self) {
        self.alive = false;
        self.held.retain(|_, held| *held == Held::Other);
        self.waiting.clear();
    }

    /// Grants free locks to waiting acquires.
    pub(super) fn grant_waiting(&mut self, out: &mut VecDeque<Incoming>) {
        for lock in 0..LOCK_COUNT {
            if self.held.contains_key(&lock) {
                continue;
            }
            let waiting = self.waiting.iter().position(|(wanted, _)| *wanted == lock);
            if let Some((_, request)) = waiting.and_then(|at| self.waiting.remove(at)) {
                self.handles += 1;
                let handle = HandleBytes::from(vec![self.handles; 16]);
                out.push_back(self.granted(request, handle.clone()));
                self.held.insert(lock, Held::Own { handle, request, ending: None });
            }
        }
    }

    /// Asserts that request numbers increase.
    fn check_number(&mut self, request: u64) {
        assert!(request > self.last_request, "{request} after {}", self.last_request);
        self.last_request = request;
    }

    /// Processes a message and returns the responses. `None` if the daemon refuses the
    /// stream.
    pub(super) fn receive(&mut self, message: Message, now: Moment) -> Option<VecDeque<Incoming>> {
        let mut out = VecDeque::new();
        match message {
            Message::Open(_) => {
                self.end_session();
                self.secret += 1;
                (self.alive, self.keep_alive_number) = (true, (0, Some(now)));
                out.push_back(Incoming::Opened(self.opened(false)));
            }
            Message::Resume(resume) => {
                if !self.alive || resume.resume_secret.first() != Some(&self.secret) {
                    return None;
                }
                assert!(
                    resume.keep_alive_number > self.keep_alive_number.0,
                    "a keep-alive number was used twice"
                );
                self.keep_alive_number = (resume.keep_alive_number, Some(now));
                out.push_back(Incoming::Opened(self.opened(true)));
                for held in self.held.values() {
                    if let Held::Own { handle, request, ending: None } = held {
                        out.push_back(self.granted(*request, handle.clone()));
                    }
                }
                for (_, request) in &self.waiting {
                    out.push_back(queued(*request));
                }
                out.push_back(Incoming::Restored(pb::Restored {}));
            }
            Message::KeepAlive(pb::KeepAlive { keep_alive_number }) => {
                assert!(
                    keep_alive_number > self.keep_alive_number.0,
                    "a keep-alive number was used twice"
                );
                self.keep_alive_number = (keep_alive_number, Some(now));
                let (valid_for_ms, limits) = (self.validity_ms(), vec![]);
                out.push_back(Incoming::KeptAlive(pb::KeptAlive {
                    keep_alive_number,
                    valid_for_ms,
                    limits,
                }));
            }
            Message::Acquire(acquire) => {
                let name = acquire.lock.expect("the lock is named").name;
                let lock = name.parse().expect("a number");
                self.check_number(acquire.request);
                self.waiting.push_back((lock, acquire.request));
                out.push_back(queued(acquire.request));
            }
            Message::Cancel(pb::Cancel { request }) => {
                let before = self.waiting.len();
                self.waiting.retain(|(_, waiting)| *waiting != request);
                if self.waiting.len() < before {
                    out.push_back(refused(request, pb::Reason::Canceled));
                }
            }
            Message::Release(pb::Release { request, .. }) if self.refusals > 0 => {
                self.check_number(request);
                self.refusals -= 1;
                out.push_back(refused(request, pb::Reason::StoreUnavailable));
            }
            Message::Release(pb::Release { request, handle: named }) => {
                self.check_number(request);
                let before = self.held.len();
                self.held.retain(
                    |_, held| !matches!(held, Held::Own { handle, .. } if *handle == named),
                );
                out.push_back(if self.held.len() < before {
                    Incoming::Released(pb::Released { request })
                } else {
                    refused(request, pb::Reason::UnknownHandle)
                });
            }
            Message::Proclaim(pb::Proclaim { request, .. }) if self.refusals > 0 => {
                self.check_number(request);
                self.refusals -= 1;
                out.push_back(refused(request, pb::Reason::StoreUnavailable));
            }
            Message::Proclaim(pb::Proclaim { request, handle: named, value }) => {
                self.check_number(request);
                let leads = (self.held.values()).any(
                    |held| matches!(held, Held::Own { handle, ending: None, .. } if *handle == named),
                );
                out.push_back(if leads {
                    let value = u32::from_be_bytes((*value).try_into().expect("a number"));
                    let published = self.published.entry(named).or_default();
                    assert!(published.last() <= Some(&value), "an older value was published again");
                    published.push(value);
                    Incoming::Proclaimed(pb::Proclaimed { request })
                } else {
                    refused(request, pb::Reason::UnknownHandle)
                });
            }
            Message::Close(_) => self.end_session(),
        }
        self.grant_waiting(&mut out);
        Some(out)
    }

    pub(super) fn opened(&self, resumed: bool) -> pb::Opened {
        let ttl_ms = u32::try_from(TTL.as_millis()).expect("a short duration");
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

fn queued(request: u64) -> Incoming {
    Incoming::Queued(pb::Queued { request, position: 1, ..Default::default() })
}

fn refused(request: u64, reason: pb::Reason) -> Incoming {
    Incoming::Refused(pb::Refused { request, reason: reason.into(), ..Default::default() })
}
