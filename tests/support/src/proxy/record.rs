//! The rules, and the calls that came: under one mutex, so that rules count
//! calls in the order in which these are recorded.

use std::sync::{Arc, Mutex, MutexGuard};

use hyper::http::request::Parts;
use leasehold_time::Moment;
use tokio::sync::watch;

use super::{
    call::Seen,
    rule::{Fault, Match, RuleId, Rules},
};

#[derive(Default)]
pub(super) struct Record {
    book: Mutex<Book>,
    /// Tells of every change of a call.
    changed: watch::Sender<()>,
}

#[derive(Default)]
struct Book {
    rules: Rules,
    calls: Vec<Seen>,
    /// How many came before the first that is still there.
    cleared: usize,
}

/// Names a call, whatever was cleared meanwhile.
#[derive(Clone, Copy)]
pub(super) struct CallId(usize);

impl Record {
    /// A call comes in. The guard sees to it that its end is recorded.
    pub(super) fn arrived(self: &Arc<Self>, head: &Parts) -> (Underway, Option<Fault>) {
        let mut book = self.book();
        let mut seen = Seen::read(head, Moment::now());
        seen.fault = book.rules.apply(&seen);
        let fault = seen.fault;
        let id = CallId(book.cleared + book.calls.len());
        book.calls.push(seen);
        drop(book);
        self.changed.send_replace(());
        (Underway { record: Arc::clone(self), id, status: None }, fault)
    }

    pub(super) fn update(&self, id: CallId, change: impl FnOnce(&mut Seen)) {
        let mut book = self.book();
        let index = id.0.checked_sub(book.cleared);
        if let Some(seen) = index.and_then(|index| book.calls.get_mut(index)) {
            change(seen);
        }
        drop(book);
        self.changed.send_replace(());
    }

    pub(super) fn calls(&self, wanted: impl Fn(&Seen) -> bool) -> Vec<Seen> {
        self.book().calls.iter().filter(|seen| wanted(seen)).cloned().collect()
    }

    pub(super) async fn wait_for_many(
        &self,
        count: usize,
        wanted: impl Fn(&Seen) -> bool,
    ) -> Vec<Seen> {
        // What changes between a look and the wait after it is not missed.
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
        let mut book = self.book();
        book.cleared += book.calls.len();
        book.calls.clear();
    }

    pub(super) fn add(&self, what: Match, nth: usize, times: usize, fault: Fault) -> RuleId {
        self.book().rules.add(what, nth, times, fault)
    }

    pub(super) fn remove(&self, rule: RuleId) {
        self.book().rules.remove(rule);
    }

    pub(super) fn used(&self, rule: RuleId) -> usize {
        self.book().rules.used(rule)
    }

    pub(super) fn remove_all(&self) {
        self.book().rules.remove_all();
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap()
    }
}

/// A call whose client waits. However that ends, it is recorded.
pub(super) struct Underway {
    record: Arc<Record>,
    id: CallId,
    status: Option<u16>,
}

impl Underway {
    pub(super) fn id(&self) -> CallId {
        self.id
    }

    pub(super) fn answered(mut self, status: u16) {
        self.status = Some(status);
    }
}

impl Drop for Underway {
    fn drop(&mut self) {
        let status = self.status;
        self.record.update(self.id, |seen| {
            seen.ended = Some(Moment::now());
            seen.status = status;
        });
    }
}
