//! What a session knows and decides. Pure: it is told what happened and when,
//! and says what to do. Nothing here waits, and nothing reads a clock.
//!
//! This file has what the program asks for; `hear.rs` what the daemon says;
//! `proclaim.rs` what a leader shows; `attachment.rs` how streams begin and end.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use super::{
    Profile, SessionInfo,
    ask::Ask,
    attachment::Attachment,
    grant::{Grant, GrantId, Handle},
    keep_alives::KeepAlives,
    proclaim::Proclaiming,
};
use crate::{
    Error, Loss, Progress, Reason,
    pb::{self, attach_request::Message},
};
use leasehold_time::{ClockPair, Moment};

/// The client's own number for something that will be answered. Numbers on the
/// wire change when a request is sent again; this one does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Ticket(u64);

/// What to do next.
#[cfg_attr(test, derive(Debug, PartialEq))]
pub(crate) enum Action {
    /// Put this into the stream.
    Send(Message),
    /// Answer whoever has this ticket.
    Answer(Ticket, Outcome),
    /// Tell whoever has this ticket how it stands.
    Tell(Ticket, Progress),
    /// Tell the guards of this grant to look at it.
    Ring(GrantId),
}

/// How a ticket ends.
#[cfg_attr(test, derive(Debug, PartialEq))]
pub(crate) enum Outcome {
    /// The acquire holds the lock. Its caller lets go of the grant.
    Granted {
        grant: GrantId,
        token: u64,
    },
    /// The lock is given back.
    Released,
    /// The value is shown.
    Proclaimed,
    Failed(Error),
}

/// A release that has not been answered yet.
pub(super) struct Releasing {
    pub(super) handle: Handle,
    pub(super) ticket: Ticket,
    /// The daemon could not do it, and is asked again after the next
    /// keep-alive.
    pub(super) refused: bool,
}

/// What a handle of this session stands for.
pub(super) enum Named {
    Held(GrantId),
    /// Let go of: the daemon may not have heard of it yet.
    Leaving,
}

/// A session that the daemon has opened.
pub(super) struct Established {
    pub(super) info: SessionInfo,
    /// Whoever has this can take up the session.
    pub(super) secret: prost::bytes::Bytes,
    pub(super) keep_alive_every: Duration,
}

/// A session, from the client's side.
pub(crate) struct State {
    pub(super) profile: Arc<Profile>,
    pub(super) established: Option<Established>,
    pub(super) attachment: Attachment,
    pub(super) keep_alives: KeepAlives,
    /// In the order in which they were made, which is the order in which they
    /// are sent again.
    pub(super) asks: BTreeMap<Ticket, Ask>,
    /// The tickets of acquires, by their number on the wire.
    pub(super) requests: HashMap<u64, Ticket>,
    /// By their number on the wire.
    pub(super) releases: BTreeMap<u64, Releasing>,
    /// By their number on the wire.
    pub(super) proclaims: BTreeMap<u64, Proclaiming>,
    pub(super) grants: BTreeMap<GrantId, Grant>,
    pub(super) handles: HashMap<Handle, Named>,
    pub(super) actions: VecDeque<Action>,
    /// Why there is no stream, for people.
    pub(super) trouble: Option<String>,
    /// Since when the session is to end.
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
            asks: BTreeMap::new(),
            requests: HashMap::new(),
            releases: BTreeMap::new(),
            proclaims: BTreeMap::new(),
            grants: BTreeMap::new(),
            handles: HashMap::new(),
            actions: VecDeque::new(),
            trouble: None,
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

    /// Why there is no stream, for people.
    pub(crate) fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    pub(crate) fn acquire(&mut self, ask: Ask, now: Moment) -> Ticket {
        let ticket = self.ticket();
        if self.is_closing() {
            self.actions.push_back(Action::Answer(ticket, Outcome::Failed(closed())));
            return ticket;
        }
        self.asks.insert(ticket, ask);
        if self.attachment.is_ready() {
            self.send_ask(ticket, now);
        }
        ticket
    }

    /// Nobody waits for this acquire any more.
    pub(crate) fn abandon(&mut self, ticket: Ticket) {
        let Some(ask) = self.asks.get_mut(&ticket) else { return };
        match ask.request {
            Some(request) => {
                ask.wanted = false;
                if self.attachment.is_ready() {
                    self.send(Message::Cancel(pb::Cancel { request }));
                }
            }
            None => {
                self.asks.remove(&ticket);
            }
        }
    }

    /// Whether the daemon has this acquire, and will answer it in time.
    pub(crate) fn is_with_daemon(&self, ticket: Ticket) -> bool {
        self.attachment.is_ready()
            && self.asks.get(&ticket).is_some_and(|ask| ask.request.is_some())
    }

    /// Releases the lock of a guard that is gone. Returns the ticket that is
    /// answered when that is done.
    pub(crate) fn let_go(&mut self, id: GrantId) -> Option<Ticket> {
        let handle = self.grants.remove(&id)?.handle;
        self.forget_proclaims(id);
        let handle = handle?;
        if self.is_closing() {
            return None;
        }
        Some(self.release(handle))
    }

    /// Releases the lock although its guard is still there: the grant is lost,
    /// and until its deadline the holder had time to notice.
    pub(crate) fn give_up(&mut self, id: GrantId) {
        let grant = self.grants.get_mut(&id).filter(|grant| grant.loss().is_some());
        if let Some(handle) = grant.and_then(|grant| grant.handle.take())
            && !self.is_closing()
        {
            self.release(handle);
        }
    }

    /// The grant, by what the clocks show too.
    pub(crate) fn look_at(&mut self, id: GrantId, now: &ClockPair) -> Option<&Grant> {
        let grant = self.grants.get_mut(&id)?;
        if grant.look_at_clocks(now) {
            self.actions.push_back(Action::Ring(id));
        }
        Some(grant)
    }

    pub(super) fn lose(&mut self, id: GrantId, loss: Loss) {
        if self.grants.get_mut(&id).is_some_and(|grant| grant.lose(loss)) {
            self.actions.push_back(Action::Ring(id));
        }
    }

    /// Judges every grant. The judgement says whether a loss is news.
    pub(super) fn judge(&mut self, mut judgement: impl FnMut(&mut Grant) -> bool) {
        for (id, grant) in &mut self.grants {
            if judgement(grant) {
                self.actions.push_back(Action::Ring(*id));
            }
        }
    }

    /// Whether something needs a stream.
    pub(crate) fn has_work(&self) -> bool {
        !self.is_closing()
            && (!self.asks.is_empty()
                || !self.releases.is_empty()
                || self.grants.values().any(|grant| grant.loss().is_none()))
    }

    /// Ends the session: what it holds is given back, what it waits for is not
    /// wanted any more. The daemon frees the locks as soon as it hears of it.
    pub(crate) fn close(&mut self, now: Moment) {
        if self.is_closing() {
            return;
        }
        let loss = Loss::new(Reason::UnknownSession, "the session was closed by its own program");
        self.judge(|grant| grant.end(loss.clone(), now));
        self.answer_asks(|_| Some(closed()));
        self.answer_releases();
        self.settle_proclaims();
        self.closed = Some(now);
        if self.attachment.is_open() {
            self.send(Message::Close(pb::Close {}));
        }
    }

    /// When the next keep-alive is due; none without a stream.
    pub(crate) fn next_keep_alive(&self) -> Option<Moment> {
        let session = self.established.as_ref().filter(|_| self.attachment.is_open())?;
        Some(self.keep_alives.last_sent()? + session.keep_alive_every)
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closed.is_some()
    }

    pub(crate) fn send_keep_alive(&mut self, now: ClockPair) {
        let keep_alive_number = self.keep_alives.send(now);
        self.send(Message::KeepAlive(pb::KeepAlive { keep_alive_number }));
    }

    /// Whether the daemon owes an answer to the last keep-alive. Not of interest for
    /// a fenced session: a new stream would not save its locks, but cost them.
    pub(crate) fn is_owed_an_answer(&self) -> bool {
        !self.profile.fenced && !self.keep_alives.last_is_answered()
    }

    /// Whether the daemon would be in the wrong if it said nothing more: it has
    /// a keep-alive to answer, or the session to end.
    pub(crate) fn awaits_word(&self) -> bool {
        self.is_closing() || self.is_owed_an_answer()
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

    /// Sends an acquire, or sends it again, under a number that was never
    /// used.
    pub(super) fn send_ask(&mut self, ticket: Ticket, now: Moment) {
        let request = self.number();
        let Some(ask) = self.asks.get_mut(&ticket) else { return };
        ask.request = Some(request);
        let message = ask.message(request, now);
        self.requests.insert(request, ticket);
        self.send(Message::Acquire(message));
    }

    pub(super) fn send_unsent_asks(&mut self, now: Moment) {
        let unsent: Vec<Ticket> = (self.asks.iter())
            .filter(|(_, ask)| ask.request.is_none())
            .map(|(ticket, _)| *ticket)
            .collect();
        for ticket in unsent {
            self.send_ask(ticket, now);
        }
    }

    pub(super) fn release(&mut self, handle: Handle) -> Ticket {
        let ticket = self.ticket();
        self.handles.insert(handle, Named::Leaving);
        self.send_release(Releasing { handle, ticket, refused: false });
        ticket
    }

    pub(super) fn send_release(&mut self, releasing: Releasing) {
        let request = self.number();
        let handle = releasing.handle.encoded();
        self.releases.insert(request, releasing);
        if self.attachment.is_ready() {
            self.send(Message::Release(pb::Release { request, handle }));
        }
    }

    /// Ends the acquires that this finds an error for.
    pub(super) fn answer_asks(&mut self, mut error: impl FnMut(&Ask) -> Option<Error>) {
        let actions = &mut self.actions;
        let requests = &mut self.requests;
        self.asks.retain(|ticket, ask| {
            let Some(error) = error(ask) else { return true };
            if ask.wanted {
                actions.push_back(Action::Answer(*ticket, Outcome::Failed(error)));
            }
            if let Some(request) = ask.request {
                requests.remove(&request);
            }
            false
        });
    }

    /// The session is gone, and its locks with it: everything is released.
    pub(super) fn answer_releases(&mut self) {
        for releasing in std::mem::take(&mut self.releases).into_values() {
            self.handles.remove(&releasing.handle);
            self.actions.push_back(Action::Answer(releasing.ticket, Outcome::Released));
        }
    }
}

fn closed() -> Error {
    Error::unavailable("the session was closed by its own program")
}
