//! Facts about a lock, as the journal records them.

use std::sync::Arc;

use leasehold_types::Holder;

use super::{Effect, Refusal, grant::Grant, queue::Waiter, state::Lock, table::Cx};
use crate::journal::{Entry, Fact, TraceKey};

impl Lock {
    /// Appends a fact about an active grant.
    pub(super) fn journal_grant(&self, cx: &mut Cx<'_>, fact: impl FnOnce(&Grant) -> Fact) {
        if cx.settings.journal.is_on()
            && let Some(grant) = self.grant.as_ref().filter(|grant| grant.is_active())
        {
            let fact = fact(grant);
            self.append(Some(Arc::clone(&grant.holder)), grant.trace, fact, cx);
        }
    }

    /// Appends a fact about an acquire.
    pub(super) fn journal_waiter(
        &self,
        waiter: &Waiter,
        cx: &mut Cx<'_>,
        fact: impl FnOnce(&Waiter) -> Fact,
    ) {
        if cx.settings.journal.is_on() {
            self.append(Some(Arc::clone(&waiter.holder)), waiter.trace, fact(waiter), cx);
        }
    }

    /// Appends the refusal of an acquire.
    pub(super) fn journal_refusal(&self, waiter: &Waiter, why: &Refusal, cx: &mut Cx<'_>) {
        let now = cx.now;
        self.journal_waiter(waiter, cx, |waiter| Fact::Refused {
            cause: why.into(),
            waited: now.since(waiter.since),
        });
    }

    /// Appends a successful call to the store.
    pub(super) fn journal_call(&self, cx: &mut Cx<'_>, fact: impl FnOnce() -> Fact) {
        if cx.settings.journal.has_calls() {
            self.journal_lease(cx, fact);
        }
    }

    /// Appends a fact about the lease.
    pub(super) fn journal_lease(&self, cx: &mut Cx<'_>, fact: impl FnOnce() -> Fact) {
        if cx.settings.journal.is_on() {
            let holder = self.grant.as_ref().map(|grant| Arc::clone(&grant.holder));
            self.append(holder, self.trace, fact(), cx);
        }
    }

    #[inline(never)]
    fn append(
        &self,
        holder: Option<Arc<Holder>>,
        trace: Option<TraceKey>,
        fact: Fact,
        cx: &mut Cx<'_>,
    ) {
        let name = self.name.clone();
        cx.out.push(Effect::Journal(Entry { name, holder, trace, fact }));
    }
}
