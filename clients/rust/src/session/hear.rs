//! What the daemon says on the stream. Pure, a part of `state.rs`.

use std::{collections::HashMap, time::Duration};

use super::{
    attachment::Attachment,
    grant::{Grant, GrantId, Handle},
    pings::Validity,
    state::{Action, Named, Outcome, Releasing, State, Ticket},
};
use crate::{
    Error, Loss, Operator, Progress, Reason, Risk,
    clock::{Anchor, Moment},
    mutant::{self, Mutant},
    pb,
    pb::{attach_request, attach_response::Message},
};

impl State {
    /// A message of the daemon. What it may not say, or what is about nothing
    /// that is known, changes nothing.
    pub(crate) fn hear(&mut self, message: Message, now: Anchor) {
        match message {
            Message::Opened(opened) => self.opened(opened, now.at()),
            _ if !self.attachment.is_open() || self.is_closing() => {}
            Message::KeptAlive(kept) => self.kept_alive(&kept, now),
            Message::Granted(granted) => self.granted(&granted, now),
            Message::Refused(refused) => self.refused(refused),
            Message::Queued(queued) => self.queued(queued),
            Message::AtRisk(at_risk) => self.at_risk(at_risk),
            Message::Lost(lost) => self.lost(lost),
            Message::Released(released) => self.released(released.request),
            Message::Restored(_) => self.restored(now.at()),
            Message::Proclaimed(proclaimed) => self.proclaimed(proclaimed.request),
        }
    }

    fn kept_alive(&mut self, kept: &pb::KeptAlive, now: Anchor) {
        let Some(mut validity) = self.pings.validity(kept.ping, kept.valid_for_ms) else { return };
        if mutant::is(Mutant::CountFromAnswer) {
            validity.sent = now;
        }
        self.pings.answer(kept.ping);
        let limits: HashMap<Handle, Duration> = (kept.limits.iter())
            .filter_map(|limit| {
                let handle = Handle::parse(&limit.handle)?;
                Some((handle, Duration::from_millis(limit.valid_for_ms)))
            })
            .collect();
        let listed = match &self.attachment {
            Attachment::Restoring(listed) => Some(&listed.grants),
            _ => None,
        };
        for (id, grant) in &mut self.grants {
            // What the daemon has not listed yet, it may not know any more.
            if listed.is_some_and(|listed| !listed.contains(id)) {
                continue;
            }
            let limit = (grant.handle).and_then(|handle| limits.get(&handle));
            let length = limit.copied().unwrap_or(validity.length);
            if grant.renew(Validity { length, ..validity }, &now) {
                self.actions.push_back(Action::Ring(*id));
            }
        }
        if self.attachment.is_ready() {
            self.send_refused_releases();
            self.send_unsent_asks(now.at());
        }
    }

    fn granted(&mut self, granted: &pb::Granted, now: Anchor) {
        let Some(handle) = Handle::parse(&granted.handle) else { return };
        let ticket = self.requests.remove(&granted.request);
        let validity = self.pings.validity(granted.ping, granted.valid_for_ms);
        match self.handles.get(&handle) {
            Some(Named::Held(id)) => self.granted_again(*id, ticket, validity, granted.token, now),
            Some(Named::Leaving) if self.is_release_refused(handle) => self.ask_later(ticket),
            // The release overtook this answer: the grant is over.
            Some(Named::Leaving) => self.ask_again(ticket, now.at()),
            None => self.granted_anew(handle, ticket, validity, granted.token, now),
        }
    }

    /// The answer to an acquire of what the session holds, or a part of the
    /// list after a resume.
    fn granted_again(
        &mut self,
        id: GrantId,
        ticket: Option<Ticket>,
        validity: Option<Validity>,
        token: u64,
        now: Anchor,
    ) {
        if let Attachment::Restoring(listed) = &mut self.attachment {
            listed.grants.insert(id);
        }
        let Some(grant) = self.grants.get_mut(&id) else { return };
        let mut news = validity.is_some_and(|validity| grant.renew(validity, &now));
        news |= grant.look_at_clocks(&now);
        if news {
            self.actions.push_back(Action::Ring(id));
        }
        if grant.loss().is_none() {
            self.hand_out(id, ticket, token);
            return;
        }
        // Lost stays lost: who asks now gets a new grant. Until the deadline
        // the guards of this one may not have let go yet.
        if ticket.is_some() && now.at() >= grant.deadline(&now) {
            if let Some(handle) = grant.handle.take() {
                self.release(handle);
            }
            self.ask_again(ticket, now.at());
        } else {
            self.ask_later(ticket);
        }
    }

    fn granted_anew(
        &mut self,
        handle: Handle,
        ticket: Option<Ticket>,
        validity: Option<Validity>,
        token: u64,
        now: Anchor,
    ) {
        let wanted = ticket.and_then(|ticket| self.asks.get(&ticket)).is_some_and(|ask| ask.wanted);
        let validity = validity.filter(|validity| !validity.is_over(&now));
        let (true, Some(validity)) = (wanted, validity) else {
            self.release(handle);
            self.ask_later(ticket);
            return;
        };
        let id = GrantId(self.number());
        self.grants.insert(id, Grant::new(handle, validity));
        self.handles.insert(handle, Named::Held(id));
        if let Attachment::Restoring(listed) = &mut self.attachment {
            listed.grants.insert(id);
        }
        self.hand_out(id, ticket, token);
    }

    /// Answers an acquire with a grant that stands.
    fn hand_out(&mut self, id: GrantId, ticket: Option<Ticket>, token: u64) {
        let Some(ticket) = ticket else { return };
        let Some(ask) = self.asks.remove(&ticket) else { return };
        let Some(grant) = self.grants.get_mut(&id) else { return };
        if ask.wanted {
            grant.users += 1;
            self.actions.push_back(Action::Answer(ticket, Outcome::Granted { grant: id, token }));
        }
    }

    /// The answer was of no use: asks again at once, if somebody still waits.
    fn ask_again(&mut self, ticket: Option<Ticket>, now: Moment) {
        self.ask_later(ticket);
        if let Some(ticket) = ticket.filter(|_| self.attachment.is_ready()) {
            self.send_ask(ticket, now);
        }
    }

    /// The same, but after the next keep-alive, where asking at once might go
    /// in circles.
    fn ask_later(&mut self, ticket: Option<Ticket>) {
        let Some(ticket) = ticket else { return };
        let Some(ask) = self.asks.get_mut(&ticket) else { return };
        ask.request = None;
        if !ask.wanted {
            self.asks.remove(&ticket);
        }
    }

    fn refused(&mut self, refused: pb::Refused) {
        if self.proclaims.contains_key(&refused.request) {
            self.proclaim_refused(refused);
            return;
        }
        if let Some(releasing) = self.releases.get_mut(&refused.request) {
            if Reason::from(refused.reason()) == Reason::UnknownHandle {
                self.released(refused.request);
                return;
            }
            // The daemon still holds the lock for this session. Who waits is
            // told, the release stays.
            releasing.refused = true;
            let why =
                format!("the lock is not given back yet, it is tried again: {}", refused.message);
            let error = Error::Unavailable {
                message: why,
                retry_after: refused.retry_after_ms.map(Duration::from_millis),
            };
            self.actions.push_back(Action::Answer(releasing.ticket, Outcome::Failed(error)));
            return;
        }
        let Some(ticket) = self.requests.remove(&refused.request) else { return };
        let Some(ask) = self.asks.get_mut(&ticket) else { return };
        if !ask.wanted {
            self.asks.remove(&ticket);
            return;
        }
        let note = refused.message.clone();
        match ask.refusal(refused) {
            Some(error) => {
                self.asks.remove(&ticket);
                self.actions.push_back(Action::Answer(ticket, Outcome::Failed(error)));
            }
            None => {
                ask.request = None;
                let progress = Progress { note, ..Progress::default() };
                self.actions.push_back(Action::Tell(ticket, progress));
            }
        }
    }

    fn released(&mut self, request: u64) {
        let Some(releasing) = self.releases.remove(&request) else { return };
        self.handles.remove(&releasing.handle);
        self.actions.push_back(Action::Answer(releasing.ticket, Outcome::Released));
    }

    fn is_release_refused(&self, handle: Handle) -> bool {
        self.releases.values().any(|releasing| releasing.refused && releasing.handle == handle)
    }

    fn send_refused_releases(&mut self) {
        let refused: Vec<u64> = (self.releases.iter())
            .filter(|(_, releasing)| releasing.refused)
            .map(|(request, _)| *request)
            .collect();
        for request in refused {
            if let Some(releasing) = self.releases.remove(&request) {
                self.send_release(Releasing { refused: false, ..releasing });
            }
        }
    }

    fn queued(&mut self, queued: pb::Queued) {
        let Some(ticket) = self.requests.get(&queued.request).copied() else {
            // Its caller was told that it failed when there was no stream.
            self.send(attach_request::Message::Cancel(pb::Cancel { request: queued.request }));
            return;
        };
        if let Attachment::Restoring(listed) = &mut self.attachment {
            listed.asks.insert(ticket);
        }
        if self.asks.get(&ticket).is_some_and(|ask| ask.wanted) {
            self.actions.push_back(Action::Tell(ticket, Progress::from(queued)));
        }
    }

    fn at_risk(&mut self, at_risk: pb::AtRisk) {
        let Some(id) = self.held(&at_risk.handle) else { return };
        let Some(grant) = self.grants.get_mut(&id) else { return };
        grant.warn(Risk {
            reason: at_risk.reason().into(),
            message: at_risk.message,
            ends_in: Duration::from_millis(at_risk.ends_in_ms),
            operator: at_risk.operator.map(Operator::from),
        });
        self.actions.push_back(Action::Ring(id));
    }

    fn lost(&mut self, lost: pb::Lost) {
        let Some(id) = self.held(&lost.handle) else { return };
        self.lose(
            id,
            Loss {
                reason: lost.reason().into(),
                message: lost.message,
                operator: lost.operator.map(Operator::from),
            },
        );
    }

    fn held(&self, handle: &[u8]) -> Option<GrantId> {
        match self.handles.get(&Handle::parse(handle)?)? {
            Named::Held(id) => Some(*id),
            Named::Leaving => None,
        }
    }
}
