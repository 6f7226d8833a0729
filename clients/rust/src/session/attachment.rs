//! How a session's streams begin and end: open, resume, and what is made good
//! after a break. Pure, a part of `state.rs`.

use std::{collections::HashSet, fmt, time::Duration};

use super::{
    ask::Wait,
    grant::GrantId,
    keep_alives::KeepAlives,
    state::{Action, Established, Releasing, State, Ticket},
};
use crate::{
    Error, Loss, Progress, Reason, SessionInfo,
    pb::{self, attach_request::Message},
};
use leasehold_time::{ClockPair, Moment};

/// The versions of the protocol that this client speaks.
const NEWEST_PROTOCOL: u32 = 1;
const OLDEST_PROTOCOL: u32 = 1;

/// The session's present stream.
pub(super) enum Attachment {
    None,
    /// `open` or `resume` has been sent, with this keep-alive.
    Opening {
        keep_alive_number: u64,
    },
    /// The daemon lists what it still knows.
    Restoring(Listed),
    /// Everything may be sent.
    Ready,
}

/// What the daemon still knew after a resume.
#[derive(Default)]
pub(super) struct Listed {
    pub(super) grants: HashSet<GrantId>,
    pub(super) asks: HashSet<Ticket>,
}

impl Attachment {
    pub(super) const fn is_ready(&self) -> bool {
        matches!(self, Self::Ready)
    }

    pub(super) const fn is_open(&self) -> bool {
        matches!(self, Self::Restoring(_) | Self::Ready)
    }
}

/// Why a stream ended, or did not begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Setback {
    /// The daemon ended the stream.
    Ended,
    /// The connection failed: the session may still be alive.
    Broken(String),
    /// The daemon is there and can't serve anybody now.
    NotNow(Error),
    /// The daemon does not know the session.
    UnknownSession,
    /// Another stream resumed the session and has its grants. Resuming it again
    /// would end that stream, whose client would resume in turn.
    ResumedElsewhere,
    /// Trying again would not help.
    Refused(Error),
}

impl Setback {
    /// How long the daemon asked to be left alone.
    pub(crate) fn retry_after(&self) -> Duration {
        match self {
            Self::NotNow(Error::Unavailable { retry_after, .. }) => retry_after.unwrap_or_default(),
            _ => Duration::ZERO,
        }
    }
}

impl fmt::Display for Setback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ended => f.write_str("the daemon ended the stream"),
            Self::Broken(cause) => f.write_str(cause),
            Self::NotNow(error) | Self::Refused(error) => error.fmt(f),
            Self::UnknownSession => f.write_str("the daemon does not know the session"),
            Self::ResumedElsewhere => f.write_str("another stream resumed the session"),
        }
    }
}

/// What follows a setback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    TryAgain,
    TryAgainLater,
    /// There is nothing to do without a new request.
    Rest,
}

impl State {
    /// Begins a stream: its first message. The time must be taken before the
    /// message is on its way.
    pub(crate) fn begin(&mut self, now: ClockPair) -> Message {
        let Some(session) = &self.established else {
            self.keep_alives = KeepAlives::default();
            let keep_alive_number = self.keep_alives.send(now);
            self.attachment = Attachment::Opening { keep_alive_number };
            return Message::Open(pb::Open {
                protocol_version: NEWEST_PROTOCOL,
                min_protocol_version: OLDEST_PROTOCOL,
                ttl_ms: self
                    .profile
                    .ttl
                    .map_or(0, |ttl| u32::try_from(ttl.as_millis()).unwrap_or(u32::MAX)),
                holder: Some(self.profile.holder.clone()),
                fenced: self.profile.fenced,
            });
        };
        let resume_secret = session.secret.clone();
        let keep_alive_number = self.keep_alives.send(now);
        self.attachment = Attachment::Opening { keep_alive_number };
        Message::Resume(pb::Resume {
            protocol_version: NEWEST_PROTOCOL,
            min_protocol_version: OLDEST_PROTOCOL,
            resume_secret,
            keep_alive_number,
        })
    }

    pub(super) fn opened(&mut self, opened: pb::Opened, now: Moment) {
        let Attachment::Opening { keep_alive_number } = self.attachment else { return };
        self.keep_alives.answer(keep_alive_number);
        self.trouble = None;
        if let Some(session) = &mut self.established {
            if self.closed.is_some() {
                self.attachment = Attachment::Ready;
                self.catch_up(now);
                return;
            }
            session.info.daemon_version = opened.daemon_version;
            // No grant counts on this answer before it has been listed.
            self.attachment = Attachment::Restoring(Listed::default());
            return;
        }
        self.established = Some(Established {
            info: SessionInfo {
                id: opened.session_id,
                ttl: Duration::from_millis(opened.ttl_ms.into()),
                protocol_version: opened.protocol_version,
                daemon_version: opened.daemon_version,
            },
            secret: opened.resume_secret,
            keep_alive_every: Duration::from_millis(opened.keep_alive_interval_ms.max(1).into()),
        });
        self.attachment = Attachment::Ready;
        self.catch_up(now);
    }

    /// What the daemon did not list, it does not know.
    pub(super) fn restored(&mut self, now: Moment) {
        let Attachment::Restoring(listed) = &mut self.attachment else { return };
        let listed = std::mem::take(listed);
        self.attachment = Attachment::Ready;
        let missing: Vec<GrantId> =
            self.grants.keys().filter(|id| !listed.grants.contains(id)).copied().collect();
        for id in missing {
            self.lose(
                id,
                Loss::new(
                    Reason::Unknown,
                    "the daemon did not know the grant any more when the connection was restored",
                ),
            );
        }
        for (ticket, ask) in &mut self.asks {
            if !listed.asks.contains(ticket)
                && let Some(request) = ask.request.take()
            {
                self.requests.remove(&request);
            }
        }
        self.asks.retain(|_, ask| ask.wanted || ask.request.is_some());
        self.catch_up(now);
    }

    /// Sends what could not be sent while there was no stream. Releases come
    /// first: an acquire of the same lock must find it free.
    fn catch_up(&mut self, now: Moment) {
        if self.is_closing() {
            self.send(Message::Close(pb::Close {}));
            return;
        }
        for releasing in std::mem::take(&mut self.releases).into_values() {
            self.send_release(Releasing { refused: false, ..releasing });
        }
        self.send_proclaims_again();
        let unwanted: Vec<u64> =
            self.asks.values().filter(|ask| !ask.wanted).filter_map(|ask| ask.request).collect();
        for request in unwanted {
            self.send(Message::Cancel(pb::Cancel { request }));
        }
        self.send_unsent_asks(now);
    }

    /// The stream has ended, or did not begin.
    pub(crate) fn detach(&mut self, setback: Setback, now: ClockPair) -> Next {
        let before = std::mem::replace(&mut self.attachment, Attachment::None);
        let was_known = self.established.is_some();
        // Nobody may be looking at a guard, and what is over needs no stream.
        self.judge(|grant| grant.look_at_clocks(&now));
        let now = now.at();
        if self.profile.fenced {
            // The daemon frees the locks of such a session at once.
            let loss = gone("the stream of this fenced session ended, and the session with it");
            self.judge(|grant| grant.end(loss.clone(), now));
            self.forget_session(&loss);
        }
        match setback {
            Setback::UnknownSession if was_known => {
                self.forget_session(&gone("the daemon does not know the session any more"));
                // After a resume in vain, opening a new session is the next
                // step. A session that was open and is gone is a setback.
                let resumed_in_vain = matches!(before, Attachment::Opening { .. });
                let next = if resumed_in_vain { Next::TryAgain } else { Next::TryAgainLater };
                return self.next(next, now);
            }
            Setback::ResumedElsewhere => {
                let loss = Loss::new(
                    Reason::ResumedElsewhere,
                    "another client resumed the session and has its grants",
                );
                self.judge(|grant| grant.end(loss.clone(), now));
                self.forget_session(&loss);
                self.set_trouble("another client resumed the session");
            }
            Setback::UnknownSession => {
                self.set_trouble("the daemon ended the session before it began");
            }
            Setback::Refused(error) => {
                self.set_trouble(&error.to_string());
                self.answer_asks(|_| Some(error.clone()));
            }
            Setback::NotNow(error) => {
                self.set_trouble(&error.to_string());
                self.answer_asks(|ask| (ask.wait == Wait::Not).then(|| error.clone()));
            }
            Setback::Ended if self.is_closing() => return Next::Rest,
            Setback::Ended => self.set_trouble("the daemon ended the stream"),
            Setback::Broken(why) => self.set_trouble(&why),
        }
        let trouble = self.trouble.clone().unwrap_or_default();
        self.answer_asks(|ask| {
            ask.is_overdue(now).then(|| Error::unavailable(out_of_reach(&trouble)))
        });
        self.next(Next::TryAgainLater, now)
    }

    /// Gives up a session whose daemon has been silent for the session's TTL: the
    /// next stream opens a new one.
    pub(crate) fn abandon_session(&mut self) {
        self.forget_session(&gone("the session's daemon has been silent for the session's TTL"));
    }

    fn next(&self, next: Next, now: Moment) -> Next {
        let wanted = match (self.closed, &self.established) {
            // For as long as the daemon would take to end the session by
            // itself. Counted from the close: an attempt to resume is a keep-alive,
            // so counting from the last of them would never end.
            (Some(closed), Some(session)) => now.since(closed) < session.info.ttl,
            (Some(_), None) => false,
            (None, _) => self.has_work(),
        };
        if wanted { next } else { Next::Rest }
    }

    /// The session is gone: so are its grants, and the daemon has nothing to
    /// release.
    fn forget_session(&mut self, loss: &Loss) {
        self.established = None;
        self.handles.clear();
        self.judge(|grant| {
            grant.handle = None;
            grant.lose(loss.clone())
        });
        self.settle_proclaims();
        self.answer_releases();
        self.requests.clear();
        self.asks.retain(|_, ask| ask.wanted);
        for ask in self.asks.values_mut() {
            ask.request = None;
        }
    }

    /// Waiters are told what is wrong, once.
    fn set_trouble(&mut self, why: &str) {
        if self.trouble.as_deref() == Some(why) {
            return;
        }
        self.trouble = Some(why.to_owned());
        let note = out_of_reach(why);
        for (ticket, _) in self.asks.iter().filter(|(_, ask)| ask.wanted) {
            let progress = Progress { note: note.clone(), ..Progress::default() };
            self.actions.push_back(Action::Tell(*ticket, progress));
        }
    }
}

fn gone(why: &str) -> Loss {
    Loss::new(Reason::UnknownSession, why)
}

pub(crate) fn out_of_reach(trouble: &str) -> String {
    format!("the daemon can't be reached: {trouble}")
}
