//! Start and end of the streams of a session: open, resume, and the messages that
//! are sent again after a disconnect. Part of the sans-IO `State`.

use std::{collections::HashSet, fmt, time::Duration};

use super::{
    grant::GrantId,
    keep_alives::KeepAlives,
    pending_acquire::Wait,
    state::{Action, Established, PendingRelease, State, Ticket},
};
use crate::{
    Error, Loss, Progress, Reason, SessionInfo,
    pb::{self, attach_request::Message},
};
use leasehold_time::{ClockPair, Moment};

/// Newest supported version of the protocol.
const NEWEST_PROTOCOL: u32 = 1;
/// Oldest supported version of the protocol.
const OLDEST_PROTOCOL: u32 = 1;

/// State of the stream of a session.
pub(super) enum Attachment {
    None,
    /// `Open` or `Resume` was sent, with this keep-alive number.
    Opening {
        keep_alive_number: u64,
    },
    /// The daemon lists the grants and acquires that it still has.
    Restoring(Listed),
    /// All requests may be sent.
    Ready,
}

/// Grants and acquires that the daemon has listed since a resume.
#[derive(Default)]
pub(super) struct Listed {
    pub(super) grants: HashSet<GrantId>,
    pub(super) acquires: HashSet<Ticket>,
}

impl Attachment {
    pub(super) const fn is_ready(&self) -> bool {
        matches!(self, Self::Ready)
    }

    pub(super) const fn is_open(&self) -> bool {
        matches!(self, Self::Restoring(_) | Self::Ready)
    }
}

/// Cause of the end of a stream, or of a failed attempt to open one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Disconnect {
    /// The daemon ended the stream.
    Ended,
    /// The connection failed. The session may still exist.
    ConnectionFailed(String),
    /// The daemon is reachable but can't serve the session now.
    Unavailable(Error),
    /// The daemon does not know the session.
    UnknownSession,
    /// Another stream resumed the session and has its grants. Resuming it again
    /// would end that stream, whose client would resume in turn.
    ResumedElsewhere,
    /// Permanent error; a retry would fail too.
    Refused(Error),
}

impl Disconnect {
    /// Returns the minimum delay before a retry, as requested by the daemon.
    pub(crate) fn retry_after(&self) -> Duration {
        match self {
            Self::Unavailable(Error::Unavailable { retry_after, .. }) => {
                retry_after.unwrap_or_default()
            }
            _ => Duration::ZERO,
        }
    }
}

impl fmt::Display for Disconnect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ended => f.write_str("the daemon ended the stream"),
            Self::ConnectionFailed(cause) => f.write_str(cause),
            Self::Unavailable(error) | Self::Refused(error) => error.fmt(f),
            Self::UnknownSession => f.write_str("the daemon does not know the session"),
            Self::ResumedElsewhere => f.write_str("another stream resumed the session"),
        }
    }
}

/// Next step after a disconnect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Reconnect,
    /// Reconnect after a backoff delay.
    ReconnectLater,
    /// No stream is needed until the next request.
    Stop,
}

impl State {
    /// Begins a stream and returns its first message. `now` must be read before the
    /// message is sent.
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
        self.disconnect_cause = None;
        if let Some(session) = &mut self.established {
            if self.closed.is_some() {
                self.attachment = Attachment::Ready;
                self.send_pending(now);
                return;
            }
            session.info.daemon_version = opened.daemon_version;
            // This response extends a grant only once the daemon has listed it.
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
            keep_alive_interval: Duration::from_millis(opened.keep_alive_interval_ms.max(1).into()),
        });
        self.attachment = Attachment::Ready;
        self.send_pending(now);
    }

    /// Ends the list of the daemon. Grants missing from it are lost, and acquires
    /// missing from it are sent again.
    pub(super) fn restored(&mut self, now: Moment) {
        let Attachment::Restoring(listed) = &mut self.attachment else { return };
        let listed = std::mem::take(listed);
        self.attachment = Attachment::Ready;
        let missing: Vec<GrantId> =
            self.grants.keys().filter(|id| !listed.grants.contains(id)).copied().collect();
        for id in missing {
            let message = "the daemon no longer had the grant when the session was resumed";
            self.lose(id, Loss::new(Reason::Unknown, message));
        }
        for (ticket, acquire) in &mut self.acquires {
            if !listed.acquires.contains(ticket)
                && let Some(request) = acquire.request.take()
            {
                self.requests.remove(&request);
            }
        }
        self.acquires.retain(|_, acquire| acquire.wanted || acquire.request.is_some());
        self.send_pending(now);
    }

    /// Sends the messages that could not be sent without a stream. Releases are
    /// first, so that an acquire of the same lock finds it free.
    fn send_pending(&mut self, now: Moment) {
        if self.is_closing() {
            self.send(Message::Close(pb::Close {}));
            return;
        }
        for pending in std::mem::take(&mut self.releases).into_values() {
            self.send_release(PendingRelease { refused: false, ..pending });
        }
        self.resend_proclaims();
        let unwanted: Vec<u64> = (self.acquires.values())
            .filter(|acquire| !acquire.wanted)
            .filter_map(|acquire| acquire.request)
            .collect();
        for request in unwanted {
            self.send(Message::Cancel(pb::Cancel { request }));
        }
        self.send_unsent_acquires(now);
    }

    /// Handles the end of a stream, or a failed attempt to open one.
    pub(crate) fn detach(&mut self, disconnect: Disconnect, now: ClockPair) -> Next {
        let before = std::mem::replace(&mut self.attachment, Attachment::None);
        let was_known = self.established.is_some();
        // The program may not check its guards, and an expired grant needs no stream.
        self.update_grants(|grant| grant.check_expiry(&now));
        let now = now.at();
        if self.profile.fenced {
            // The daemon releases the locks of a fenced session at once.
            let loss = session_lost("the stream of the fenced session ended");
            self.update_grants(|grant| grant.end(loss.clone(), now));
            self.discard_session(&loss);
        }
        match disconnect {
            Disconnect::UnknownSession if was_known => {
                self.discard_session(&session_lost("the daemon no longer has the session"));
                // After a failed resume, open a new session at once. If the
                // session ended on an open stream, wait first.
                let resume_failed = matches!(before, Attachment::Opening { .. });
                let next = if resume_failed { Next::Reconnect } else { Next::ReconnectLater };
                return self.next(next, now);
            }
            Disconnect::ResumedElsewhere => {
                let loss = Loss::new(
                    Reason::ResumedElsewhere,
                    "another client resumed the session and has its grants",
                );
                self.update_grants(|grant| grant.end(loss.clone(), now));
                self.discard_session(&loss);
                self.set_disconnect_cause("another client resumed the session");
            }
            Disconnect::UnknownSession => {
                self.set_disconnect_cause("the daemon ended the session before it was open");
            }
            Disconnect::Refused(error) => {
                self.set_disconnect_cause(&error.to_string());
                self.fail_acquires(|_| Some(error.clone()));
            }
            Disconnect::Unavailable(error) => {
                self.set_disconnect_cause(&error.to_string());
                self.fail_acquires(|acquire| (acquire.wait == Wait::Not).then(|| error.clone()));
            }
            Disconnect::Ended if self.is_closing() => return Next::Stop,
            Disconnect::Ended => self.set_disconnect_cause("the daemon ended the stream"),
            Disconnect::ConnectionFailed(cause) => self.set_disconnect_cause(&cause),
        }
        let cause = self.disconnect_cause.clone().unwrap_or_default();
        self.fail_acquires(|acquire| {
            acquire.is_overdue(now).then(|| acquire.unanswered(None, Some(&cause)))
        });
        self.next(Next::ReconnectLater, now)
    }

    /// Discards a session whose daemon has been silent for the session TTL. The
    /// next stream opens a new session.
    pub(crate) fn abandon_session(&mut self) {
        let loss = session_lost("no response from the daemon within the session TTL");
        self.discard_session(&loss);
    }

    fn next(&self, next: Next, now: Moment) -> Next {
        let wanted = match (self.closed, &self.established) {
            // Until the session expires at the daemon. The time counts from the
            // close, because each attempt to resume is a keep-alive.
            (Some(closed), Some(session)) => now.since(closed) < session.info.ttl,
            (Some(_), None) => false,
            (None, _) => self.has_work(),
        };
        if wanted { next } else { Next::Stop }
    }

    /// Handles the end of the session at the daemon: its grants are lost, and there
    /// is nothing to release.
    fn discard_session(&mut self, loss: &Loss) {
        self.established = None;
        self.handles.clear();
        self.update_grants(|grant| {
            grant.handle = None;
            grant.lose(loss.clone())
        });
        self.fail_all_proclaims();
        self.complete_releases();
        self.requests.clear();
        self.acquires.retain(|_, acquire| acquire.wanted);
        for acquire in self.acquires.values_mut() {
            acquire.request = None;
        }
    }

    /// Sets the cause of the disconnect, and reports it to the waiters unless it is
    /// unchanged.
    fn set_disconnect_cause(&mut self, cause: &str) {
        if self.disconnect_cause.as_deref() == Some(cause) {
            return;
        }
        self.disconnect_cause = Some(cause.to_owned());
        for (ticket, _) in self.acquires.iter().filter(|(_, acquire)| acquire.wanted) {
            let progress = Progress { note: cause.to_owned(), ..Progress::default() };
            self.actions.push_back(Action::Report(*ticket, progress));
        }
    }
}

fn session_lost(message: &str) -> Loss {
    Loss::new(Reason::UnknownSession, message)
}
