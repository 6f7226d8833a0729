//! History of grants as seen by the clients, and its checks.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard},
};

use leasehold_client::Guard;
use leasehold_time::Moment;

/// Time in which a client held a lock, from its own view.
#[derive(Clone, Debug)]
pub(crate) struct Hold {
    pub(crate) token: u64,
    pub(crate) start: Moment,
    pub(crate) end: Moment,
    pub(crate) client: String,
}

/// All grants of a test, by lock. It is also the fenced resource: it refuses a
/// token lower than the highest one seen.
#[derive(Default)]
pub(crate) struct History(Mutex<BTreeMap<String, Lock>>);

#[derive(Default)]
struct Lock {
    holds: Vec<Hold>,
    highest_token: u64,
}

impl History {
    /// Writes under a lock. Returns false if the write is refused.
    pub(crate) fn write(&self, guard: &Guard) -> bool {
        self.write_with(guard.name(), guard.token().get())
    }

    /// Writes with a token that may be stale.
    pub(crate) fn write_with(&self, lock: &str, token: u64) -> bool {
        let mut locks = self.locks();
        let lock = locks.entry(lock.to_owned()).or_default();
        let accepted = token >= lock.highest_token;
        lock.highest_token = lock.highest_token.max(token);
        accepted
    }

    /// Records that the client stopped using the lock, and releases it.
    pub(crate) async fn record_release(&self, guard: Guard, start: Moment, client: &str) {
        self.record(&guard, start, Moment::now().min(guard.deadline()), client);
        // The daemon, and with it the grant, may no longer exist.
        _ = guard.release().await;
    }

    /// Records the loss of a lock that the client used until its deadline.
    pub(crate) fn record_loss(&self, guard: &Guard, start: Moment, client: &str) {
        self.record(guard, start, guard.deadline(), client);
    }

    fn record(&self, guard: &Guard, start: Moment, end: Moment, client: &str) {
        let hold = Hold { token: guard.token().get(), start, end, client: client.to_owned() };
        self.locks().entry(guard.name().to_owned()).or_default().holds.push(hold);
    }

    pub(crate) fn holds(&self, lock: &str) -> Vec<Hold> {
        let mut holds = self.locks().get(lock).map(|lock| lock.holds.clone()).unwrap_or_default();
        holds.sort_by_key(|hold| hold.start);
        holds
    }

    /// Asserts that holds of a lock do not overlap and that tokens increase.
    #[track_caller]
    pub(crate) fn check(&self) {
        let names: Vec<_> = self.locks().keys().cloned().collect();
        for name in names {
            for pair in self.holds(&name).windows(2) {
                let [earlier, later] = pair else { unreachable!("pairs") };
                assert!(earlier.end <= later.start, "{name}: holds overlap: {pair:#?}");
                assert!(earlier.token < later.token, "{name}: token not increased: {pair:#?}");
            }
        }
    }

    fn locks(&self) -> MutexGuard<'_, BTreeMap<String, Lock>> {
        self.0.lock().unwrap()
    }
}
