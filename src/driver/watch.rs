//! The driver's part of watching: subscriptions, and polls of watched locks that
//! a peer may hold. Which lock is due, and who is notified of a change, is decided
//! in the core.

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
    /// Begins to collect changes; of a single lock also those that happen at
    /// other daemons.
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

    /// The next lock whose poll is due and whose state this daemon does not know
    /// itself.
    fn next_to_poll(&self) -> Option<LockName> {
        let now = Moment::now();
        let mut state = self.state();
        loop {
            let name = state.observed.pop(now)?;
            // What a waiter's poll found may have been out of date by then.
            let missed = state.sessions.peer_lease(&name);
            let missed = missed.is_some_and(|info| !state.observed.matches(&name, info));
            if missed || !state.sessions.knows_holder(&name) {
                return Some(name);
            }
            state.observed.record_failed_poll(&name, now);
        }
    }

    /// Takes what a read of the store found, or that it failed.
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
                    state.watches.changed(name);
                }
            }
            Err(_) => state.observed.record_failed_poll(name, now),
        }
        // It may have become ours while it was polled.
        if state.sessions.has_lease(name) {
            let granted = state.sessions.granted_token(name);
            state.observed.invalidate(name, granted);
        }
        // While all polls were in flight, nothing was due.
        self.shared.observed.notify_one();
    }
}

impl State {
    /// Updates the last known state of a lock that this daemon's sessions changed,
    /// and notifies its watchers.
    pub(super) fn on_changed(&mut self, name: &LockName) {
        if self.sessions.has_lease(name) {
            let granted = self.sessions.granted_token(name);
            self.observed.invalidate(name, granted);
        } else if let Some(since) = self.asked
            && let Some(info) = self.sessions.peer_lease(name)
        {
            self.observed.record_waiter_poll(name, info, since);
        }
        self.watches.changed(name);
    }
}

/// A client that watches locks. Dropping it ends the watch.
pub struct Watch {
    driver: Driver,
    id: WatchId,
    /// If it is a single lock.
    name: Option<LockName>,
}

impl Watch {
    /// The next lock that has changed, as it is now.
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
