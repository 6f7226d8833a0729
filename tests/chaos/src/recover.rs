//! Whether all goes on when nothing is disturbed any more.

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

/// Until a lock that was held when its holder's daemon was lost can be granted
/// again, twice over, and some seconds for a machine that has a lot to do. No
/// client waits for that long for one answer, unless nobody is granted the lock.
pub(crate) const RECOVERY: Duration =
    Duration::from_secs(2 * (LEASE.as_secs() + 2) + 2 * POLL.as_secs() + 10);

/// So many clients must be granted each lock again.
fn enough(lock: u32) -> usize {
    if lock == locks::LONG { 1 } else { 3 }
}

/// Waits until, from now on, several clients were granted each lock, some were
/// granted one by each daemon, and every client heard from its daemon.
pub(crate) async fn recover(world: &World, when: &str, report: &mut Report) {
    let start = Moment::now();
    let mut reader = Reader::default();
    let mut seen = Recovered { start: nanos(start), ..Recovered::default() };
    loop {
        let mut news = reader.news(&world.dir);
        news.sort_by_key(|entry| entry.at);
        news.into_iter().for_each(|entry| seen.note(entry));
        world.complaints().into_iter().for_each(|what| report.fail(format!("{when}: {what}")));
        let missing = seen.missing(world);
        let took = Moment::now().since(start);
        if missing.is_empty() {
            println!("{when}: all had recovered within {:.1} s", took.as_secs_f64());
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
    /// By operation: which client, by which slot, for which lock.
    asked: BTreeMap<u64, (u32, u32, u32)>,
    /// By lock: who was granted it.
    granted: BTreeMap<u32, BTreeSet<u32>>,
    /// The slots whose daemons granted something.
    granting: BTreeSet<u32>,
    /// Who was answered by a daemon.
    heard: BTreeSet<u32>,
    /// By client: what it did or was told last.
    last: BTreeMap<u32, Entry>,
}

impl Recovered {
    fn note(&mut self, entry: Entry) {
        let client = match entry.event {
            Event::Acquire { op, client, daemon, lock } => {
                self.asked.insert(op, (client, daemon, lock));
                client
            }
            Event::Release { op, client, lock, .. } => {
                self.asked.insert(op, (client, 0, lock));
                client
            }
            Event::Granted { op, .. } | Event::Refused { op, .. } | Event::Released { op } => {
                self.asked[&op].0
            }
            Event::Lost { client, .. } => client,
            _ => return,
        };
        if entry.at >= self.start {
            match &entry.event {
                Event::Granted { op, .. } => {
                    let (client, slot, lock) = self.asked[op];
                    self.granted.entry(lock).or_default().insert(client);
                    self.granting.insert(slot);
                    self.heard.insert(client);
                }
                Event::Released { .. } => {
                    self.heard.insert(client);
                }
                Event::Refused { why, .. } if why == "held" || why == "timed out" => {
                    self.heard.insert(client);
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
            if count < enough(lock) {
                let lock = locks::name(lock);
                missing.push(format!("{lock} was granted to no more than {count} clients"));
            }
        }
        for slot in (0..DAEMONS as u32).filter(|slot| !self.granting.contains(slot)) {
            missing.push(format!("the daemon in slot {slot} granted nothing"));
        }
        for (client, slot) in world.clients.iter().flat_map(Clients::living) {
            if !self.heard.contains(&client) {
                let last = self.last.get(&client).map_or("nothing".to_owned(), Entry::to_string);
                missing.push(format!(
                    "client {client} was not answered by slot {slot}; the last of it: {last}"
                ));
            }
        }
        missing
    }
}
