//! Pending proclaims. Part of the sans-IO `State`.

use super::{
    grant::{Grant, GrantId},
    pending_acquire::refusal,
    state::{Action, Outcome, State, Ticket},
};
use crate::{Error, Loss, Reason, pb, pb::attach_request::Message, value::Value};

/// Proclaim without a response.
pub(super) struct PendingProclaim {
    grant: GrantId,
    /// Name of the election.
    name: String,
    value: Value,
    /// Tickets completed by the response. After a disconnect, only the latest
    /// unconfirmed value of a grant is sent again, and its response also completes
    /// the proclaims that it replaces.
    tickets: Vec<Ticket>,
}

impl State {
    /// Proclaims a value. The request completes with the response of the daemon, or
    /// fails when the session has ended or the guard was dropped.
    pub(crate) fn proclaim(&mut self, grant: GrantId, name: &str, value: Value) -> Ticket {
        let ticket = self.ticket();
        let pending =
            PendingProclaim { grant, name: name.to_owned(), value, tickets: vec![ticket] };
        self.send_proclaim(pending);
        ticket
    }

    fn send_proclaim(&mut self, pending: PendingProclaim) {
        if let Some(loss) = self.leadership_loss(&pending) {
            self.complete_proclaim(pending, || Outcome::Failed(loss.clone()));
            return;
        }
        let request = self.number();
        let handle = self.grants.get(&pending.grant).and_then(|grant| grant.handle);
        if let Some(handle) = handle.filter(|_| self.attachment.is_ready()) {
            let (handle, value) = (handle.encoded(), pending.value.encoded());
            self.send(Message::Proclaim(pb::Proclaim { request, handle, value }));
        }
        self.proclaims.insert(request, pending);
    }

    /// Sends the pending proclaims again after a disconnect, because they may not
    /// have arrived. Sends only the latest value per grant, so that an older value
    /// never replaces a newer one.
    pub(super) fn resend_proclaims(&mut self) {
        let mut latest: Vec<PendingProclaim> = Vec::new();
        for mut pending in std::mem::take(&mut self.proclaims).into_values() {
            let replaced = latest.iter().position(|older| older.grant == pending.grant);
            if let Some(older) = replaced.map(|at| latest.remove(at)) {
                pending.tickets.splice(0..0, older.tickets);
            }
            latest.push(pending);
        }
        for pending in latest {
            self.send_proclaim(pending);
        }
    }

    pub(super) fn proclaimed(&mut self, request: u64) {
        if let Some(pending) = self.proclaims.remove(&request) {
            self.complete_proclaim(pending, || Outcome::Proclaimed);
        }
    }

    pub(super) fn proclaim_refused(&mut self, refused: pb::Refused) {
        let Some(pending) = self.proclaims.remove(&refused.request) else { return };
        let reason = leasehold_protocol::reason_from_wire(refused.reason());
        let error = match self.leadership_loss(&pending) {
            Some(lost) => lost,
            None if reason == Reason::UnknownHandle => {
                Loss::new(reason, refused.message).into_error(&pending.name)
            }
            None => refusal(&pending.name, reason, refused),
        };
        self.complete_proclaim(pending, || Outcome::Failed(error.clone()));
    }

    /// Fails the proclaims of a grant whose guard was dropped.
    pub(super) fn fail_proclaims_of(&mut self, grant: GrantId) {
        self.fail_proclaims(|pending| pending.grant == grant);
    }

    /// Fails all proclaims, because the session has ended.
    pub(super) fn fail_all_proclaims(&mut self) {
        self.fail_proclaims(|_| true);
    }

    fn fail_proclaims(&mut self, predicate: impl Fn(&PendingProclaim) -> bool) {
        let failed: Vec<_> =
            self.proclaims.extract_if(.., |_, pending| predicate(pending)).collect();
        for (_, pending) in failed {
            let lost = self.leadership_loss(&pending).unwrap_or_else(|| released(&pending));
            self.complete_proclaim(pending, || Outcome::Failed(lost.clone()));
        }
    }

    fn leadership_loss(&self, pending: &PendingProclaim) -> Option<Error> {
        match self.grants.get(&pending.grant).map(Grant::loss) {
            Some(None) => None,
            Some(Some(loss)) => Some(loss.clone().into_error(&pending.name)),
            None => Some(released(pending)),
        }
    }

    fn complete_proclaim(&mut self, pending: PendingProclaim, outcome: impl Fn() -> Outcome) {
        let answers = pending.tickets.into_iter().map(|to| Action::Answer(to, outcome()));
        self.actions.extend(answers);
    }
}

fn released(pending: &PendingProclaim) -> Error {
    let message = "the leadership was released".to_owned();
    Loss::new(Reason::UnknownHandle, message).into_error(&pending.name)
}
