//! State machine of a session. Sans-IO: the methods take events and times, and
//! append [`Action`]s. It neither waits nor reads a clock.
//!
//! This file handles the requests of the program, `inbound.rs` the messages of
//! the daemon, `proclaim.rs` the values of a leader, and `attachment.rs` the start
//! and end of streams.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use super::{
    Profile, SessionInfo,
    attachment::Attachment,
    grant::{Grant, GrantId, Handle},
    keep_alives::KeepAlives,
    pending_acquire::PendingAcquire,
    proclaim::PendingProclaim,
};
use crate::{
    Error, Loss, Progress, Reason, Token,
    pb::{self, attach_request::Message},
};
use leasehold_time::{ClockPair, HashMap, Moment};

/// Number of a request within the client. Request numbers on the wire change when
/// a request is sent again; the ticket does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Ticket(u64);

/// Output of the state machine.
#[cfg_attr(test, derive(Debug, PartialEq))]
pub(crate) enum Action {
    /// Send this message on the stream.
    Send(Message),
    /// Complete the request with this ticket.
    Answer(Ticket, Outcome),
    /// Report the progress of the acquire with this ticket.
    Report(Ticket, Progress),
    /// Notify the guard of this grant of a change.
    Notify(GrantId),
}

/// Result of a request.
#[cfg_attr(test, derive(Debug, PartialEq))]
pub(crate) enum Outcome {
    /// The acquire holds the lock. The caller must release the grant.
    Granted {
        grant: GrantId,
        token: Token,
    },
    /// The lock is released.
    Released,
    /// The value is published.
    Proclaimed,
    Failed(Error),
}

/// Release without a response.
pub(super) struct PendingRelease {
    pub(super) handle: Handle,
    pub(super) ticket: Ticket,
    /// True if the daemon could not perform the release. It is sent again after
    /// the next keep-alive response.
    pub(super) refused: bool,
}

/// State of a handle of this session.
pub(super) enum HandleState {
    Held(GrantId),
    /// Released by the client; the daemon has not confirmed yet.
    Releasing,
}

/// Session opened by the daemon.
pub(super) struct Established {
    pub(super) info: SessionInfo,
    /// Secret that authorizes a client to resume the session.
    pub(super) secret: prost::bytes::Bytes,
    pub(super) keep_alive_interval: Duration,
}

/// Client side of a session.
pub(crate) struct State {
    pub(super) profile: Arc<Profile>,
    pub(super) established: Option<Established>,
    pub(super) attachment: Attachment,
    pub(super) keep_alives: KeepAlives,
    /// Pending acquires, ordered by creation. They are sent again in this order.
    pub(super) acquires: BTreeMap<Ticket, PendingAcquire>,
    /// Tickets of acquires by request number.
    pub(super) requests: HashMap<u64, Ticket>,
    /// Pending releases by request number.
    pub(super) releases: BTreeMap<u64, PendingRelease>,
    /// Pending proclaims by request number.
    pub(super) proclaims: BTreeMap<u64, PendingProclaim>,
    pub(super) grants: BTreeMap<GrantId, Grant>,
    pub(super) handles: HashMap<Handle, HandleState>,
    pub(super) actions: VecDeque<Action>,
    /// Human-readable cause of the current disconnect.
    pub(super) disconnect_cause: Option<String>,
    /// Time of the close by the program.
    pub(super) closed: Option<Moment>,
    last_number: u64,
}

impl State {
    pub(crate) fn new(profile: Arc<Profile>) -> Self {
        Self {
            profile,
            established: None,
            attachment: Attachment::None,
            keep_alives: KeepAlives::default(),
            acquires: BTreeMap::new(),
            requests: HashMap::default(),
            releases: BTreeMap::new(),
            proclaims: BTreeMap::new(),
            grants: BTreeMap::new(),
            handles: HashMap::default(),
            actions: VecDeque::new(),
            disconnect_cause: None,
            closed: None,
            last_number: 0,
        }
    }

    pub(crate) fn next_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    pub(crate) fn info(&self) -> Option<&SessionInfo> {
        self.established.as_ref().map(|session| &session.info)
    }

    pub(crate) fn grant(&self, grant: GrantId) -> Option<&Grant> {
        self.grants.get(&grant)
    }

    /// Returns the human-readable cause of the current disconnect.
    pub(crate) fn disconnect_cause(&self) -> Option<&str> {
        self.disconnect_cause.as_deref()
    }

    pub(crate) fn acquire(&mut self, acquire: PendingAcquire, now: Moment) -> Ticket {
        let ticket = self.ticket();
        if self.is_closing() {
            self.actions.push_back(Action::Answer(ticket, Outcome::Failed(closed())));
            return ticket;
        }
        self.acquires.insert(ticket, acquire);
        if self.attachment.is_ready() {
            self.send_acquire(ticket, now);
        }
        ticket
    }

    /// Cancels an acquire whose caller has dropped its future.
    pub(crate) fn abandon(&mut self, ticket: Ticket) {
        let Some(acquire) = self.acquires.get_mut(&ticket) else { return };
        match acquire.request {
            Some(request) => {
                acquire.wanted = false;
                if self.attachment.is_ready() {
                    self.send(Message::Cancel(pb::Cancel { request }));
                }
            }
            None => {
                self.acquires.remove(&ticket);
            }
        }
    }

    /// Returns a pending acquire.
    pub(crate) fn pending(&self, ticket: Ticket) -> Option<&PendingAcquire> {
        self.acquires.get(&ticket)
    }

    /// Returns whether the acquire was sent on the current stream. The daemon then
    /// enforces its time limit.
    pub(crate) fn is_at_daemon(&self, ticket: Ticket) -> bool {
        self.attachment.is_ready()
            && self.acquires.get(&ticket).is_some_and(|acquire| acquire.request.is_some())
    }

    /// Releases the lock of a dropped guard. Returns the ticket of the release, if
    /// there is anything to release.
    pub(crate) fn drop_user(&mut self, id: GrantId) -> Option<Ticket> {
        let handle = self.grants.remove(&id)?.handle;
        self.fail_proclaims_of(id);
        let handle = handle?;
        if self.is_closing() {
            return None;
        }
        Some(self.release(handle))
    }

    /// Releases a lost grant whose guard still exists. The caller must have waited
    /// until its deadline.
    pub(crate) fn release_lost(&mut self, id: GrantId) {
        let grant = self.grants.get_mut(&id).filter(|grant| grant.loss().is_some());
        if let Some(handle) = grant.and_then(|grant| grant.handle.take())
            && !self.is_closing()
        {
            self.release(handle);
        }
    }

    /// Returns the grant, after an update of its loss by the clocks.
    pub(crate) fn check_grant(&mut self, id: GrantId, now: &ClockPair) -> Option<&Grant> {
        let grant = self.grants.get_mut(&id)?;
        if grant.check_expiry(now) {
            self.actions.push_back(Action::Notify(id));
        }
        Some(grant)
    }

    pub(super) fn lose(&mut self, id: GrantId, loss: Loss) {
        if self.grants.get_mut(&id).is_some_and(|grant| grant.lose(loss)) {
            self.actions.push_back(Action::Notify(id));
        }
    }

    /// Applies `update` to every grant, and notifies the guards of those for which
    /// it returns true.
    pub(super) fn update_grants(&mut self, mut update: impl FnMut(&mut Grant) -> bool) {
        for (id, grant) in &mut self.grants {
            if update(grant) {
                self.actions.push_back(Action::Notify(*id));
            }
        }
    }

    /// Returns whether the session needs a stream.
    pub(crate) fn has_work(&self) -> bool {
        !self.is_closing()
            && (!self.acquires.is_empty()
                || !self.releases.is_empty()
                || self.grants.values().any(|grant| grant.loss().is_none()))
    }

    /// Closes the session: ends its grants and fails its pending requests. The
    /// daemon releases the locks when it receives the message.
    pub(crate) fn close(&mut self, now: Moment) {
        if self.is_closing() {
            return;
        }
        let loss = Loss::new(Reason::UnknownSession, SESSION_CLOSED);
        self.update_grants(|grant| grant.end(loss.clone(), now));
        self.fail_acquires(|_| Some(closed()));
        self.complete_releases();
        self.fail_all_proclaims();
        self.closed = Some(now);
        if self.attachment.is_open() {
            self.send(Message::Close(pb::Close {}));
        }
    }

    /// Returns the time of the next keep-alive; `None` without a stream.
    pub(crate) fn next_keep_alive(&self) -> Option<Moment> {
        let session = self.established.as_ref().filter(|_| self.attachment.is_open())?;
        Some(self.keep_alives.last_sent()? + session.keep_alive_interval)
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closed.is_some()
    }

    pub(crate) fn send_keep_alive(&mut self, now: ClockPair) {
        let keep_alive_number = self.keep_alives.send(now);
        self.send(Message::KeepAlive(pb::KeepAlive { keep_alive_number }));
    }

    /// Returns whether the last keep-alive has no response. Always false for a
    /// fenced session, which would lose its locks with its stream.
    pub(crate) fn awaits_keep_alive(&self) -> bool {
        !self.profile.fenced && !self.keep_alives.last_is_answered()
    }

    /// Returns whether a message of the daemon is due: the response to a keep-alive
    /// or to the close.
    pub(crate) fn awaits_message(&self) -> bool {
        self.is_closing() || self.awaits_keep_alive()
    }

    pub(super) fn send(&mut self, message: Message) {
        self.actions.push_back(Action::Send(message));
    }

    pub(super) fn ticket(&mut self) -> Ticket {
        Ticket(self.number())
    }

    pub(super) fn number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    /// Sends an acquire, possibly again, under a new request number.
    pub(super) fn send_acquire(&mut self, ticket: Ticket, now: Moment) {
        let request = self.number();
        let Some(acquire) = self.acquires.get_mut(&ticket) else { return };
        acquire.request = Some(request);
        let message = acquire.message(request, now);
        self.requests.insert(request, ticket);
        self.send(Message::Acquire(message));
    }

    pub(super) fn send_unsent_acquires(&mut self, now: Moment) {
        let unsent: Vec<Ticket> = (self.acquires.iter())
            .filter(|(_, acquire)| acquire.request.is_none())
            .map(|(ticket, _)| *ticket)
            .collect();
        for ticket in unsent {
            self.send_acquire(ticket, now);
        }
    }

    pub(super) fn release(&mut self, handle: Handle) -> Ticket {
        let ticket = self.ticket();
        self.handles.insert(handle, HandleState::Releasing);
        self.send_release(PendingRelease { handle, ticket, refused: false });
        ticket
    }

    pub(super) fn send_release(&mut self, pending: PendingRelease) {
        let request = self.number();
        let handle = pending.handle.encoded();
        self.releases.insert(request, pending);
        if self.attachment.is_ready() {
            self.send(Message::Release(pb::Release { request, handle }));
        }
    }

    /// Fails the acquires for which `error` returns an error.
    pub(super) fn fail_acquires(
        &mut self,
        mut error: impl FnMut(&PendingAcquire) -> Option<Error>,
    ) {
        let actions = &mut self.actions;
        let requests = &mut self.requests;
        self.acquires.retain(|ticket, acquire| {
            let Some(error) = error(acquire) else { return true };
            if acquire.wanted {
                actions.push_back(Action::Answer(*ticket, Outcome::Failed(error)));
            }
            if let Some(request) = acquire.request {
                requests.remove(&request);
            }
            false
        });
    }

    /// Completes all releases, because the session and its locks no longer exist.
    pub(super) fn complete_releases(&mut self) {
        for pending in std::mem::take(&mut self.releases).into_values() {
            self.handles.remove(&pending.handle);
            self.actions.push_back(Action::Answer(pending.ticket, Outcome::Released));
        }
    }
}

const SESSION_CLOSED: &str = "the session was closed by this program";

fn closed() -> Error {
    Error::unavailable(SESSION_CLOSED)
}
