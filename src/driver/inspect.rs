//! Reads of the state of locks: as this daemon knows it, and as it is stored.

use std::collections::BTreeMap;

use super::{Driver, State};
use leasehold_core::session::{HeldView, LockView};
use leasehold_store as lease;
use leasehold_store::{CallCount, LeaseInfo, Page};
use leasehold_time::Moment;
use leasehold_types::LockName;

impl Driver {
    /// A lock as it is now.
    pub async fn inspect(&self, name: &LockName) -> Result<LockView, lease::Error> {
        let view = self.view(name);
        if view.held.as_ref().is_some_and(|held| held.session.is_some()) {
            return Ok(view);
        }
        let since = self.state().observed.generation();
        let stored = self.shared.store.inspect(name).await?;
        let view = self.overlay(stored.as_ref(), name, true);
        self.on_poll_result(name, Ok(stored), since);
        Ok(view)
    }

    /// A lock as it is now, and as it is stored.
    pub async fn inspect_stored(
        &self,
        name: &LockName,
    ) -> Result<(LockView, Option<LeaseInfo>), lease::Error> {
        let stored = self.shared.store.inspect(name).await?;
        Ok((self.overlay(stored.as_ref(), name, true), stored))
    }

    /// Where leases are kept, for people, and how often the storage was called.
    #[must_use]
    pub fn store(&self) -> (String, Vec<CallCount>) {
        (self.shared.store.describe(), self.shared.store.calls())
    }

    /// One page of the locks that have a holder or a waiter, in the order of their
    /// names.
    pub async fn list(&self, page: &Page) -> Result<Vec<LockView>, lease::Error> {
        let stored = self.shared.store.list(page).await?;
        let mut names: BTreeMap<_, _> =
            stored.into_iter().map(|info| (info.name.clone(), Some(info))).collect();
        let stranded = self.state_after_timers().sessions.blocked(page);
        for name in stranded {
            names.entry(name).or_default();
        }
        Ok(names
            .into_iter()
            .take(page.limit)
            .map(|(name, info)| self.overlay(info.as_ref(), &name, info.is_some()))
            .collect())
    }

    /// What the store knows, and over it what this daemon knows. `is_read` if the store was
    /// asked for this lock: then what it does not know is not held.
    fn overlay(
        &self,
        stored: Option<&lease::LeaseInfo>,
        name: &LockName,
        is_read: bool,
    ) -> LockView {
        let state = self.state_after_timers();
        let mut view = state.sessions.view(name, Moment::now());
        // What was seen at the last poll is older than what is stored.
        view.held.take_if(|held| is_read && held.session.is_none());
        // A lease of our own says who was first, not who holds the lock now.
        if view.held.is_none()
            && !state.sessions.has_lease(name)
            && let Some(info) = stored.filter(|info| info.held)
        {
            view.held = Some(HeldView::of_peer(info));
        }
        view
    }

    /// A lock as it is now, as far as this daemon knows without asking.
    #[must_use]
    pub fn view(&self, name: &LockName) -> LockView {
        self.state_after_timers().view(name)
    }
}

impl State {
    /// A lock as it is now, as far as is known here without asking.
    pub(super) fn view(&self, name: &LockName) -> LockView {
        let mut view = self.sessions.view(name, Moment::now());
        // What a waiter's last poll found may be older than what was read since.
        if self.observed.is_watched(name) {
            view.held.take_if(|held| held.session.is_none());
        }
        if view.held.is_none()
            && !self.sessions.has_lease(name)
            && let Some(info) = self.observed.known(name)
        {
            view.held = Some(HeldView::of_peer(info));
        }
        view
    }
}
