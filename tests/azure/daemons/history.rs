//! What the clients saw, and what must be true of it.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard},
};

use leasehold_client::Guard;
use leasehold_time::Moment;

/// A grant as its client knew it: with this token, between these moments.
#[derive(Clone, Debug)]
pub(crate) struct Turn {
    pub(crate) token: u64,
    pub(crate) from: Moment,
    pub(crate) to: Moment,
    pub(crate) who: String,
}

/// All grants of a test, by lock. It is also what the locks protect: it takes
/// a token only if it has not seen a greater one.
#[derive(Default)]
pub(crate) struct History(Mutex<BTreeMap<String, Lock>>);

#[derive(Default)]
struct Lock {
    turns: Vec<Turn>,
    greatest: u64,
}

impl History {
    /// Somebody writes under a lock. False if that is refused.
    pub(crate) fn write(&self, guard: &Guard) -> bool {
        self.write_with(guard.name(), guard.token().get())
    }

    /// The same, with a token that may have been kept for too long.
    pub(crate) fn write_with(&self, lock: &str, token: u64) -> bool {
        let mut locks = self.locks();
        let lock = locks.entry(lock.to_owned()).or_default();
        let accepted = token >= lock.greatest;
        lock.greatest = lock.greatest.max(token);
        accepted
    }

    /// The client lets go by itself. It has stopped by now.
    pub(crate) async fn let_go(&self, guard: Guard, from: Moment, who: &str) {
        self.ended(&guard, from, Moment::now().min(guard.deadline()), who);
        // The daemon may be gone, and with it the grant.
        _ = guard.release().await;
    }

    /// The client has lost the lock, and counts on it to the last.
    pub(crate) fn lost(&self, guard: &Guard, from: Moment, who: &str) {
        self.ended(guard, from, guard.deadline(), who);
    }

    fn ended(&self, guard: &Guard, from: Moment, to: Moment, who: &str) {
        let turn = Turn { token: guard.token().get(), from, to, who: who.to_owned() };
        self.locks().entry(guard.name().to_owned()).or_default().turns.push(turn);
    }

    pub(crate) fn turns(&self, lock: &str) -> Vec<Turn> {
        let mut turns = self.locks().get(lock).map(|lock| lock.turns.clone()).unwrap_or_default();
        turns.sort_by_key(|turn| turn.from);
        turns
    }

    /// No two had a lock at a time, and whoever was later has the greater
    /// token.
    #[track_caller]
    pub(crate) fn check(&self) {
        let names: Vec<_> = self.locks().keys().cloned().collect();
        for name in names {
            for pair in self.turns(&name).windows(2) {
                let [earlier, later] = pair else { unreachable!("pairs") };
                assert!(earlier.to <= later.from, "{name}: two at a time: {pair:#?}");
                assert!(earlier.token < later.token, "{name}: the token fell: {pair:#?}");
            }
        }
    }

    fn locks(&self) -> MutexGuard<'_, BTreeMap<String, Lock>> {
        self.0.lock().unwrap()
    }
}
