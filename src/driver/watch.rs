//! Watches: subscriptions, and polls of watched locks that a peer may hold. The core
//! decides which lock is due and which watchers are notified.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use super::{Driver, State};
use leasehold_core::{
    error::RequestError,
    session::LockView,
    watch::{Target, WatchId},
};
use leasehold_runtime as task;
use leasehold_runtime::sleep_until_any;
use leasehold_store as lease;
use leasehold_store::LeaseInfo;
use leasehold_time::Moment;
use leasehold_types::LockName;

impl Driver {
    /// Starts a watch. A watch of a single lock includes changes by peers.
    pub fn watch(&self, target: Target) -> Result<Watch, RequestError> {
        let mut state = self.state();
        let name = match &target {
            Target::Name(name) => Some(name.clone()),
            Target::Prefix(..) => None,
        };
        let id = state.watches.add(target)?;
        if let Some(name) = &name {
            let granted = state.sessions.granted_token(name);
            state.observed.add(name, granted, Moment::now());
            self.shared.observed.notify_one();
        }
        Ok(Watch { driver: self.clone(), id, name })
    }

    /// Polls watched locks that a peer may hold. Never ends.
    pub async fn poll_peers(self) {
        if !self.shared.store.is_shared() {
            return std::future::pending().await;
        }
        loop {
            let due = self.state().observed.next_due();
            tokio::select! {
                biased;
                () = sleep_until_any(due) => {}
                () = self.shared.observed.notified() => {}
            }
            while let Some(name) = self.next_to_poll() {
                let driver = self.clone();
                task::spawn(async move {
                    let since = driver.state().observed.generation();
                    let seen = driver.shared.store.inspect(&name).await;
                    driver.on_poll_result(&name, seen, since);
                });
            }
        }
    }

    /// Returns the next lock whose poll is due, unless this daemon knows its state.
    fn next_to_poll(&self) -> Option<LockName> {
        let now = Moment::now();
        let mut state = self.state();
        loop {
            let name = state.observed.pop(now)?;
            // The waiter's poll may have been out of date when it was recorded.
            let missed = state.sessions.peer_lease(&name);
            let missed = missed.is_some_and(|info| !state.observed.matches(&name, info));
            if missed || !state.sessions.knows_holder(&name) {
                return Some(name);
            }
            state.observed.record_failed_poll(&name, now);
        }
    }

    /// Handles the result of a poll.
    pub(super) fn on_poll_result(
        &self,
        name: &LockName,
        seen: Result<Option<LeaseInfo>, lease::Error>,
        since: u64,
    ) {
        let now = Moment::now();
        let mut state = self.state();
        match seen {
            Ok(info) => {
                if state.observed.record_poll(name, info.map(Arc::new), since, now) {
                    state.changes += 1;
                    state.watches.changed(name);
                }
            }
            Err(_) => state.observed.record_failed_poll(name, now),
        }
        // This daemon may have acquired the lock during the poll.
        if state.sessions.has_lease(name) {
            let granted = state.sessions.granted_token(name);
            state.observed.invalidate(name, granted);
        }
        // No poll is due while all are in flight: check again.
        self.shared.observed.notify_one();
    }
}

impl State {
    /// Updates the last known state of a lock that this daemon's sessions changed,
    /// and notifies its watchers.
    pub(super) fn on_changed(&mut self, name: &LockName) {
        self.changes += 1;
        if self.sessions.has_lease(name) {
            let granted = self.sessions.granted_token(name);
            self.observed.invalidate(name, granted);
        } else if let Some(since) = self.answered_generation
            && let Some(info) = self.sessions.peer_lease(name)
        {
            self.observed.record_waiter_poll(name, info, since);
        }
        self.watches.changed(name);
    }
}

/// Watch of a client. Dropping it ends the watch.
pub struct Watch {
    driver: Driver,
    id: WatchId,
    /// Name of the lock, if it is a single one.
    name: Option<LockName>,
}

impl Watch {
    /// Returns the current state of the next changed lock.
    pub fn poll_changed(&self, cx: &Context<'_>) -> Poll<Option<Result<LockView, RequestError>>> {
        let mut state = self.driver.state();
        state
            .watches
            .poll_changed(self.id, cx)
            .map(|changed| changed.map(|name| Ok(state.view(&name?))))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut state = self.driver.state();
        state.watches.remove(self.id);
        if let Some(name) = &self.name {
            state.observed.remove(name);
        }
    }
}
