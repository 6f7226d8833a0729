//! New values of a leader, until the daemon has confirmed them. Pure, a part of
//! `state.rs`.

use super::{
    ask::refusal,
    grant::{Grant, GrantId},
    state::{Action, Outcome, State, Ticket},
};
use crate::{Error, Loss, Reason, pb, pb::attach_request::Message, value::Value};

/// A proclaim that has not been answered yet.
pub(super) struct Proclaiming {
    grant: GrantId,
    /// The election's name.
    name: String,
    value: Value,
    /// Who is told when it is answered. More than one after a break: of all
    /// values of a grant that may not have arrived, only the latest is sent
    /// again, and its answer holds for those that it replaces.
    tickets: Vec<Ticket>,
}

impl State {
    /// Shows a new value. It is answered by the daemon, or when the session is
    /// gone, or when nobody stands for the grant any more.
    pub(crate) fn proclaim(&mut self, grant: GrantId, name: &str, value: Value) -> Ticket {
        let ticket = self.ticket();
        let proclaiming =
            Proclaiming { grant, name: name.to_owned(), value, tickets: vec![ticket] };
        self.send_proclaim(proclaiming);
        ticket
    }

    fn send_proclaim(&mut self, proclaiming: Proclaiming) {
        if let Some(loss) = self.not_leading(&proclaiming) {
            self.answer_proclaim(proclaiming, || Outcome::Failed(loss.clone()));
            return;
        }
        let request = self.number();
        let handle = self.grants.get(&proclaiming.grant).and_then(|grant| grant.handle);
        if let Some(handle) = handle.filter(|_| self.attachment.is_ready()) {
            let (handle, value) = (handle.encoded(), proclaiming.value.encoded());
            self.send(Message::Proclaim(pb::Proclaim { request, handle, value }));
        }
        self.proclaims.insert(request, proclaiming);
    }

    /// After a break: what was under way may not have arrived. An older value
    /// must not be seen again after a newer one.
    pub(super) fn send_proclaims_again(&mut self) {
        let mut latest: Vec<Proclaiming> = Vec::new();
        for mut proclaiming in std::mem::take(&mut self.proclaims).into_values() {
            let replaced = latest.iter().position(|older| older.grant == proclaiming.grant);
            if let Some(older) = replaced.map(|at| latest.remove(at)) {
                proclaiming.tickets.splice(0..0, older.tickets);
            }
            latest.push(proclaiming);
        }
        for proclaiming in latest {
            self.send_proclaim(proclaiming);
        }
    }

    pub(super) fn proclaimed(&mut self, request: u64) {
        if let Some(proclaiming) = self.proclaims.remove(&request) {
            self.answer_proclaim(proclaiming, || Outcome::Proclaimed);
        }
    }

    pub(super) fn proclaim_refused(&mut self, refused: pb::Refused) {
        let Some(proclaiming) = self.proclaims.remove(&refused.request) else { return };
        let reason = leasehold_protocol::reason_from_wire(refused.reason());
        let error = match self.not_leading(&proclaiming) {
            Some(lost) => lost,
            None if reason == Reason::UnknownHandle => {
                Loss::new(reason, refused.message).of(&proclaiming.name)
            }
            None => refusal(&proclaiming.name, reason, refused),
        };
        self.answer_proclaim(proclaiming, || Outcome::Failed(error.clone()));
    }

    /// Nobody stands for the grant any more.
    pub(super) fn forget_proclaims(&mut self, grant: GrantId) {
        self.fail_proclaims(|proclaiming| proclaiming.grant == grant);
    }

    /// The session is gone, and its grants with it.
    pub(super) fn settle_proclaims(&mut self) {
        self.fail_proclaims(|_| true);
    }

    fn fail_proclaims(&mut self, which: impl Fn(&Proclaiming) -> bool) {
        let failed: Vec<_> =
            self.proclaims.extract_if(.., |_, proclaiming| which(proclaiming)).collect();
        for (_, proclaiming) in failed {
            let lost = self.not_leading(&proclaiming).unwrap_or_else(|| over(&proclaiming));
            self.answer_proclaim(proclaiming, || Outcome::Failed(lost.clone()));
        }
    }

    fn not_leading(&self, proclaiming: &Proclaiming) -> Option<Error> {
        match self.grants.get(&proclaiming.grant).map(Grant::loss) {
            Some(None) => None,
            Some(Some(loss)) => Some(loss.clone().of(&proclaiming.name)),
            None => Some(over(proclaiming)),
        }
    }

    fn answer_proclaim(&mut self, proclaiming: Proclaiming, outcome: impl Fn() -> Outcome) {
        let answers = proclaiming.tickets.into_iter().map(|to| Action::Answer(to, outcome()));
        self.actions.extend(answers);
    }
}

fn over(proclaiming: &Proclaiming) -> Error {
    let message = "the leadership was given up".to_owned();
    Loss::new(Reason::UnknownHandle, message).of(&proclaiming.name)
}
