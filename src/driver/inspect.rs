//! Reads of locks: their state in this daemon, and their record in the store.

use std::collections::BTreeMap;

use super::{Driver, State};
use leasehold_core::session::{HeldView, LockView};
use leasehold_store as lease;
use leasehold_store::{CallCount, LeaseInfo, Page};
use leasehold_time::Moment;
use leasehold_types::LockName;

impl Driver {
    /// Returns the current state of a lock.
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

    /// Returns the current state of a lock, and its record in the store.
    pub async fn inspect_stored(
        &self,
        name: &LockName,
    ) -> Result<(LockView, Option<LeaseInfo>), lease::Error> {
        let stored = self.shared.store.inspect(name).await?;
        Ok((self.overlay(stored.as_ref(), name, true), stored))
    }

    /// Returns the human-readable location of the leases, and the counters of storage
    /// calls.
    #[must_use]
    pub fn store(&self) -> (String, Vec<CallCount>) {
        (self.shared.store.describe(), self.shared.store.calls())
    }

    /// Returns one page of the locks that have a holder or a waiter, in the order of
    /// their names.
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

    /// Combines the store's record with this daemon's state, which takes precedence.
    /// `is_read` is set if the store was read for this lock: without a record, no peer
    /// holds it.
    fn overlay(
        &self,
        stored: Option<&lease::LeaseInfo>,
        name: &LockName,
        is_read: bool,
    ) -> LockView {
        let state = self.state_after_timers();
        let mut view = state.sessions.view(name, Moment::now());
        // The result of the latest poll is older than the record.
        view.held.take_if(|held| is_read && held.session.is_none());
        // The record of our own lease has the first holder, which may not be the current
        // one.
        if view.held.is_none()
            && !state.sessions.has_lease(name)
            && let Some(info) = stored.filter(|info| info.held)
        {
            view.held = Some(HeldView::from_peer(info));
        }
        view
    }

    /// Returns the state of a lock, as known without a read of the store.
    #[must_use]
    pub fn view(&self, name: &LockName) -> LockView {
        self.state_after_timers().view(name)
    }
}

impl State {
    /// Returns the state of a lock, as known without a read of the store.
    pub(super) fn view(&self, name: &LockName) -> LockView {
        let mut view = self.sessions.view(name, Moment::now());
        // The result of a waiter's poll may be older than the last known state.
        if self.observed.is_watched(name) {
            view.held.take_if(|held| held.session.is_none());
        }
        if view.held.is_none()
            && !self.sessions.has_lease(name)
            && let Some(info) = self.observed.known(name)
        {
            view.held = Some(HeldView::from_peer(info));
        }
        view
    }
}
