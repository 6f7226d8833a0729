//! Messages of the daemon on the session stream. Part of the sans-IO `State`.

use std::time::Duration;

use super::{
    attachment::Attachment,
    grant::{Grant, GrantId, Handle},
    keep_alives::Validity,
    state::{Action, HandleState, Outcome, PendingRelease, State, Ticket},
};
use crate::{
    Error, Loss, Operator, Progress, Reason, Risk, Token,
    pb::{self, attach_request, attach_response::Message},
};
use leasehold_time::{ClockPair, HashMap};

impl State {
    /// Handles a message of the daemon. Ignores messages that are not allowed in the
    /// current state, or that refer to unknown requests or handles.
    pub(crate) fn on_message(&mut self, message: Message, now: ClockPair) {
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
            // The daemon may no longer have a grant that it has not listed yet.
            if listed.is_some_and(|listed| !listed.contains(id)) {
                continue;
            }
            let limit = (grant.handle).and_then(|handle| limits.get(&handle));
            let length = limit.copied().unwrap_or(validity.length);
            if grant.renew(Validity { length, ..validity }, &now) {
                self.actions.push_back(Action::Notify(*id));
            }
        }
        if self.attachment.is_ready() {
            self.send_refused_releases();
            self.send_unsent_acquires(now.at());
        }
    }

    /// Handles the response to an acquire, or an entry of the list after a resume.
    fn granted(&mut self, granted: &pb::Granted, now: ClockPair) {
        let Some(handle) = Handle::parse(&granted.handle) else { return };
        let validity =
            self.keep_alives.validity(granted.keep_alive_number, granted.valid_for_ms, now);
        match self.handles.get(&handle) {
            Some(HandleState::Held(id)) => self.listed(*id, validity, now),
            // The daemon has not received the release yet; it is sent again.
            Some(HandleState::Releasing) => {}
            None => self.granted_to(granted, handle, validity, now),
        }
    }

    /// Handles a listed grant that this client already has.
    fn listed(&mut self, id: GrantId, validity: Option<Validity>, now: ClockPair) {
        if let Attachment::Restoring(listed) = &mut self.attachment {
            listed.grants.insert(id);
        }
        let Some(grant) = self.grants.get_mut(&id) else { return };
        let mut changed = validity.is_some_and(|validity| grant.renew(validity, &now));
        changed |= grant.check_expiry(&now);
        if changed {
            self.actions.push_back(Action::Notify(id));
        }
    }

    /// Handles a new grant, which belongs to the acquire with this request number.
    /// Releases it if the acquire was canceled or the grant has already expired.
    fn granted_to(
        &mut self,
        granted: &pb::Granted,
        handle: Handle,
        validity: Option<Validity>,
        now: ClockPair,
    ) {
        let ticket = self.requests.remove(&granted.request);
        let acquire = ticket.and_then(|ticket| Some((ticket, self.acquires.get(&ticket)?)));
        let wanted = acquire.filter(|(_, acquire)| acquire.wanted).map(|(ticket, _)| ticket);
        let validity = validity.filter(|validity| !validity.is_over(&now));
        let (Some(wanted), Some(validity)) = (wanted, validity) else {
            self.release(handle);
            self.retry_later(ticket);
            return;
        };
        self.acquires.remove(&wanted);
        let (id, token) = (GrantId(self.number()), Token::new(granted.token));
        self.grants.insert(id, Grant::new(handle, validity));
        self.handles.insert(handle, HandleState::Held(id));
        if let Attachment::Restoring(listed) = &mut self.attachment {
            listed.grants.insert(id);
        }
        self.actions.push_back(Action::Answer(wanted, Outcome::Granted { grant: id, token }));
    }

    /// Marks an acquire as unsent, so that it is sent again after the next keep-alive
    /// response. Removes it if it was canceled.
    fn retry_later(&mut self, ticket: Option<Ticket>) {
        let Some(ticket) = ticket else { return };
        let Some(acquire) = self.acquires.get_mut(&ticket) else { return };
        acquire.request = None;
        if !acquire.wanted {
            self.acquires.remove(&ticket);
        }
    }

    fn refused(&mut self, refused: pb::Refused) {
        if self.proclaims.contains_key(&refused.request) {
            self.proclaim_refused(refused);
            return;
        }
        if let Some(pending) = self.releases.get_mut(&refused.request) {
            if leasehold_protocol::reason_from_wire(refused.reason()) == Reason::UnknownHandle {
                self.released(refused.request);
                return;
            }
            // This session still holds the lock. The caller receives the error, and
            // the release stays pending.
            pending.refused = true;
            let error = Error::Unavailable {
                message: format!("the release failed and is being retried: {}", refused.message),
                retry_after: refused.retry_after_ms.map(Duration::from_millis),
            };
            self.actions.push_back(Action::Answer(pending.ticket, Outcome::Failed(error)));
            return;
        }
        let Some(ticket) = self.requests.remove(&refused.request) else { return };
        let Some(acquire) = self.acquires.get_mut(&ticket) else { return };
        if !acquire.wanted {
            self.acquires.remove(&ticket);
            return;
        }
        let note = refused.message.clone();
        match acquire.refusal(refused) {
            Some(error) => {
                self.acquires.remove(&ticket);
                self.actions.push_back(Action::Answer(ticket, Outcome::Failed(error)));
            }
            None => {
                acquire.request = None;
                let progress = Progress { note, ..Progress::default() };
                self.actions.push_back(Action::Report(ticket, progress));
            }
        }
    }

    fn released(&mut self, request: u64) {
        let Some(pending) = self.releases.remove(&request) else { return };
        self.handles.remove(&pending.handle);
        self.actions.push_back(Action::Answer(pending.ticket, Outcome::Released));
    }

    fn send_refused_releases(&mut self) {
        let refused: Vec<u64> = (self.releases.iter())
            .filter(|(_, pending)| pending.refused)
            .map(|(request, _)| *request)
            .collect();
        for request in refused {
            if let Some(pending) = self.releases.remove(&request) {
                self.send_release(PendingRelease { refused: false, ..pending });
            }
        }
    }

    fn queued(&mut self, queued: pb::Queued) {
        let Some(ticket) = self.requests.get(&queued.request).copied() else {
            // The acquire has failed during a disconnect; its caller has the error.
            self.send(attach_request::Message::Cancel(pb::Cancel { request: queued.request }));
            return;
        };
        if let Attachment::Restoring(listed) = &mut self.attachment {
            listed.acquires.insert(ticket);
        }
        if self.acquires.get(&ticket).is_some_and(|acquire| acquire.wanted) {
            self.actions.push_back(Action::Report(ticket, Progress::from(queued)));
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
        self.actions.push_back(Action::Notify(id));
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
            HandleState::Held(id) => Some(*id),
            HandleState::Releasing => None,
        }
    }
}
