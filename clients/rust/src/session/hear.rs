//! What the daemon says on the stream. Pure, a part of `state.rs`.

use std::{collections::HashMap, time::Duration};

use super::{
    attachment::Attachment,
    grant::{Grant, GrantId, Handle},
    keep_alives::Validity,
    state::{Action, Named, Outcome, Releasing, State, Ticket},
};
use crate::{
    Error, Loss, Operator, Progress, Reason, Risk,
    pb::{self, attach_request, attach_response::Message},
};
use leasehold_time::ClockPair;

impl State {
    /// A message of the daemon. What it may not say, or what is about nothing
    /// that is known, changes nothing.
    pub(crate) fn hear(&mut self, message: Message, now: ClockPair) {
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

    fn kept_alive(&mut self, kept: &pb::KeptAlive, now: ClockPair) {
        let validity = self.keep_alives.validity(kept.keep_alive_number, kept.valid_for_ms, now);
        let Some(validity) = validity else { return };
        self.keep_alives.answer(kept.keep_alive_number);
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

    /// The answer to an acquire, or a part of the list after a resume.
    fn granted(&mut self, granted: &pb::Granted, now: ClockPair) {
        let Some(handle) = Handle::parse(&granted.handle) else { return };
        let validity =
            self.keep_alives.validity(granted.keep_alive_number, granted.valid_for_ms, now);
        match self.handles.get(&handle) {
            Some(Named::Held(id)) => self.listed(*id, validity, now),
            // The daemon has not received the release yet; it is sent again.
            Some(Named::Leaving) => {}
            None => self.granted_to(granted, handle, validity, now),
        }
    }

    /// The daemon still knows a grant after a resume.
    fn listed(&mut self, id: GrantId, validity: Option<Validity>, now: ClockPair) {
        if let Attachment::Restoring(listed) = &mut self.attachment {
            listed.grants.insert(id);
        }
        let Some(grant) = self.grants.get_mut(&id) else { return };
        let mut news = validity.is_some_and(|validity| grant.renew(validity, &now));
        news |= grant.look_at_clocks(&now);
        if news {
            self.actions.push_back(Action::Ring(id));
        }
    }

    /// A new grant, which belongs to the acquire that it answers.
    fn granted_to(
        &mut self,
        granted: &pb::Granted,
        handle: Handle,
        validity: Option<Validity>,
        now: ClockPair,
    ) {
        let ticket = self.requests.remove(&granted.request);
        let acquire = ticket.and_then(|ticket| Some((ticket, self.asks.get(&ticket)?)));
        let wanted = acquire.filter(|(_, ask)| ask.wanted).map(|(ticket, _)| ticket);
        let validity = validity.filter(|validity| !validity.is_over(&now));
        let (Some(wanted), Some(validity)) = (wanted, validity) else {
            self.release(handle);
            self.ask_later(ticket);
            return;
        };
        self.asks.remove(&wanted);
        let (id, token) = (GrantId(self.number()), granted.token);
        self.grants.insert(id, Grant::new(handle, validity));
        self.handles.insert(handle, Named::Held(id));
        if let Attachment::Restoring(listed) = &mut self.attachment {
            listed.grants.insert(id);
        }
        self.actions.push_back(Action::Answer(wanted, Outcome::Granted { grant: id, token }));
    }

    /// The answer was of no use: acquires again after the next keep-alive, if
    /// the caller still waits.
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
            if leasehold_protocol::reason_from_wire(refused.reason()) == Reason::UnknownHandle {
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
            reason: leasehold_protocol::reason_from_wire(at_risk.reason()),
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
                reason: leasehold_protocol::reason_from_wire(lost.reason()),
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
