//! The rules and the recorded calls, under one mutex, so that rules count calls
//! in the order in which they are recorded.

use std::sync::{Arc, Mutex, MutexGuard};

use hyper::http::request::Parts;
use leasehold_time::Moment;
use tokio::sync::watch;

use super::{
    call::RecordedCall,
    rule::{Fault, Match, RuleId, Rules},
};

#[derive(Default)]
pub(super) struct Record {
    state: Mutex<State>,
    /// Notifies of every change of a call.
    changed: watch::Sender<()>,
}

#[derive(Default)]
struct State {
    rules: Rules,
    calls: Vec<RecordedCall>,
    /// Number of calls removed from the start of `calls`.
    cleared: usize,
}

/// Identifies a call. Stays valid when the record is cleared.
#[derive(Clone, Copy)]
pub(super) struct CallId(usize);

impl Record {
    /// Records a new call. Dropping the returned [`PendingCall`] records its end.
    pub(super) fn add_call(self: &Arc<Self>, head: &Parts) -> (PendingCall, Option<Fault>) {
        let mut state = self.state();
        let mut call = RecordedCall::read(head, Moment::now());
        call.fault = state.rules.apply(&call);
        let fault = call.fault;
        let id = CallId(state.cleared + state.calls.len());
        state.calls.push(call);
        drop(state);
        self.changed.send_replace(());
        (PendingCall { record: Arc::clone(self), id, status: None }, fault)
    }

    pub(super) fn update(&self, id: CallId, change: impl FnOnce(&mut RecordedCall)) {
        let mut state = self.state();
        let index = id.0.checked_sub(state.cleared);
        if let Some(call) = index.and_then(|index| state.calls.get_mut(index)) {
            change(call);
        }
        drop(state);
        self.changed.send_replace(());
    }

    pub(super) fn calls(&self, wanted: impl Fn(&RecordedCall) -> bool) -> Vec<RecordedCall> {
        self.state().calls.iter().filter(|call| wanted(call)).cloned().collect()
    }

    pub(super) async fn wait_for_many(
        &self,
        count: usize,
        wanted: impl Fn(&RecordedCall) -> bool,
    ) -> Vec<RecordedCall> {
        // Subscribe before the check, so that no change after it is missed.
        let mut changed = self.changed.subscribe();
        loop {
            let found = self.calls(&wanted);
            if found.len() >= count {
                return found;
            }
            changed.changed().await.unwrap();
        }
    }

    pub(super) fn clear(&self) {
        let mut state = self.state();
        state.cleared += state.calls.len();
        state.calls.clear();
    }

    pub(super) fn add(&self, matching: Match, nth: usize, times: usize, fault: Fault) -> RuleId {
        self.state().rules.add(matching, nth, times, fault)
    }

    pub(super) fn remove(&self, rule: RuleId) {
        self.state().rules.remove(rule);
    }

    pub(super) fn used(&self, rule: RuleId) -> usize {
        self.state().rules.used(rule)
    }

    pub(super) fn remove_all(&self) {
        self.state().rules.remove_all();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

/// A call whose client waits for the response. Dropping it records the end of
/// the call.
pub(super) struct PendingCall {
    record: Arc<Record>,
    id: CallId,
    status: Option<u16>,
}

impl PendingCall {
    pub(super) fn id(&self) -> CallId {
        self.id
    }

    pub(super) fn complete(mut self, status: u16) {
        self.status = Some(status);
    }
}

impl Drop for PendingCall {
    fn drop(&mut self) {
        let status = self.status;
        self.record.update(self.id, |call| {
            call.ended_at = Some(Moment::now());
            call.status = status;
        });
    }
}
