//! Check that all locks, daemons and clients recover after the faults.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use leasehold_checker::{Entry, Event, Nanos};
use leasehold_runtime::sleep;
use leasehold_time::Moment;

use crate::{
    clients::Clients,
    locks,
    record::{Reader, nanos},
    report::Report,
    world::{DAEMONS, LEASE, POLL, World},
};

/// Time until a lock of a lost daemon can be granted again, twice, plus some
/// seconds for a busy machine. No wait limit of a client is longer, so a client
/// that gets no answer in this time indicates an error.
pub(crate) const RECOVERY: Duration =
    Duration::from_secs(2 * (LEASE.as_secs() + 2) + 2 * POLL.as_secs() + 10);

/// Returns how many clients must be granted a lock.
fn required_clients(lock: u32) -> usize {
    if lock == locks::LONG { 1 } else { 3 }
}

/// Waits until each lock has been granted to several clients, each daemon has
/// granted a lock, and each client has received an answer, all after the call.
pub(crate) async fn recover(world: &World, when: &str, report: &mut Report) {
    let start = Moment::now();
    let mut reader = Reader::default();
    let mut recovered = Recovered { start: nanos(start), ..Recovered::default() };
    loop {
        let mut new_entries = reader.new_entries(&world.dir);
        new_entries.sort_by_key(|entry| entry.at);
        new_entries.into_iter().for_each(|entry| recovered.note(entry));
        world
            .unexpected_exits()
            .into_iter()
            .for_each(|what| report.fail(format!("{when}: {what}")));
        let missing = recovered.missing(world);
        let took = Moment::now().since(start);
        if missing.is_empty() {
            println!("{when}: recovered within {:.1} s", took.as_secs_f64());
            return report.recovered(took);
        }
        if took > RECOVERY {
            let limit = RECOVERY.as_secs();
            return missing
                .into_iter()
                .for_each(|what| report.fail(format!("{when}, within {limit} s: {what}")));
        }
        sleep(Duration::from_millis(200)).await;
    }
}

#[derive(Default)]
struct Recovered {
    start: Nanos,
    /// Client, slot and lock, by number of the operation.
    requests: BTreeMap<u64, (u32, u32, u32)>,
    /// Clients that were granted a lock, by lock.
    granted: BTreeMap<u32, BTreeSet<u32>>,
    /// Slots whose daemons granted a lock.
    granting: BTreeSet<u32>,
    /// Clients that received an answer.
    answered: BTreeSet<u32>,
    /// Last event, by client.
    last: BTreeMap<u32, Entry>,
}

impl Recovered {
    fn note(&mut self, entry: Entry) {
        let client = match entry.event {
            Event::Acquire { op, client, daemon, lock } => {
                self.requests.insert(op, (client, daemon, lock));
                client
            }
            Event::Release { op, client, lock, .. } => {
                self.requests.insert(op, (client, 0, lock));
                client
            }
            Event::Granted { op, .. } | Event::Refused { op, .. } | Event::Released { op } => {
                self.requests[&op].0
            }
            Event::Lost { client, .. } => client,
            _ => return,
        };
        if entry.at >= self.start {
            match &entry.event {
                Event::Granted { op, .. } => {
                    let (client, slot, lock) = self.requests[op];
                    self.granted.entry(lock).or_default().insert(client);
                    self.granting.insert(slot);
                    self.answered.insert(client);
                }
                Event::Released { .. } => {
                    self.answered.insert(client);
                }
                Event::Refused { why, .. } if why == "held" || why == "timed out" => {
                    self.answered.insert(client);
                }
                _ => {}
            }
        }
        self.last.insert(client, entry);
    }

    fn missing(&self, world: &World) -> Vec<String> {
        let mut missing = Vec::new();
        for lock in locks::all() {
            let count = self.granted.get(&lock).map_or(0, BTreeSet::len);
            if count < required_clients(lock) {
                let lock = locks::name(lock);
                missing.push(format!("{lock} was granted to only {count} clients"));
            }
        }
        for slot in (0..DAEMONS as u32).filter(|slot| !self.granting.contains(slot)) {
            missing.push(format!("the daemon in slot {slot} granted no lock"));
        }
        for (client, slot) in world.clients.iter().flat_map(Clients::living) {
            if !self.answered.contains(&client) {
                let last = self.last.get(&client).map_or("nothing".to_owned(), Entry::to_string);
                missing.push(format!(
                    "client {client} received no answer from slot {slot}; its last event: {last}"
                ));
            }
        }
        missing
    }
}
