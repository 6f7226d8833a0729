//! One history of all that was written down, and the checks.

use std::{
    collections::{BTreeMap, HashMap},
    fs::File,
    io::BufWriter,
    mem,
    time::Duration,
};

use leasehold_checker::{Bounds, Entry, Event, History, Nanos, Stats, check, write};

use crate::{
    client::LONG_TTL,
    daemons::Life,
    inject::SETTLE,
    locks,
    record::{merge, nanos},
    recover::RECOVERY,
    report::Report,
    resource::Resource,
    world::{LEASE, POLL, World},
};

/// What the design says, and some seconds for a machine that has a lot to do.
fn bounds() -> Bounds {
    let nanos = |length: Duration| Nanos::try_from(length.as_nanos()).unwrap();
    let second = Duration::from_secs(1);
    Bounds {
        // With the margin that a daemon leaves to its lease.
        takeover: nanos(LEASE + POLL + second + 8 * second),
        expiry: nanos(LONG_TTL + POLL + 6 * second),
        local_handover: nanos(4 * second),
        remote_handover: nanos(2 * POLL + 5 * second),
        // What the storage leased to whom is not written down.
        orphan: 0,
        vain: 0,
        recovery: nanos(RECOVERY),
        // Elections are not recorded.
        visibility: 0,
        skew: nanos(Duration::from_millis(5)),
    }
}

/// Puts the pages together, keeps the whole next to them, and checks it and
/// what the locks protected.
pub(crate) fn assemble(world: &World, report: &mut Report) {
    let mut entries = merge(&world.dir, world.stored(), world.start);
    name_daemons(&mut entries, &world.lives(), nanos(world.start));
    report.count(&entries);
    for lock in locks::all() {
        report.resource(
            lock,
            Resource::fenced(&world.dir, lock, true).state(),
            Resource::unfenced(&world.dir, lock).state(),
        );
    }
    let history = History { bounds: bounds(), entries };
    // As `leasehold-check` reads it.
    let file = File::create(world.dir.join("history.jsonl")).unwrap();
    write(&history, BufWriter::new(file)).unwrap();
    report.checked = history.entries.len();
    report.figures = Stats::of(&history);
    for violation in check(&history) {
        report.fail(violation.to_string());
    }
}

/// Clients only know the slot of their daemon; the history wants to know which
/// daemon was there. An acquire that outlived its daemon was asked for again at
/// the next one, which nobody wrote down: it becomes two. Where there was no
/// daemon, none failed to serve.
fn name_daemons(entries: &mut Vec<Entry>, lives: &[Life], start: Nanos) {
    let since = |at| nanos(at).saturating_sub(start);
    let mut asked_again = HashMap::new();
    let (mut asked, mut asked_of) = (HashMap::new(), HashMap::new());
    let holds = holds(entries);
    for entry in entries.iter_mut() {
        let at = entry.at;
        match &mut entry.event {
            Event::Acquire { op, client, daemon, lock } => {
                let mut those = lives.iter().filter(|life| life.slot == *daemon as usize);
                let there = |life: &&Life| life.to.is_none_or(|to| since(to) > at);
                let life = those.clone().find(there).or(those.next_back()).unwrap();
                let slot = mem::replace(daemon, life.number) as usize;
                asked.insert(*op, (*client, *lock, *daemon));
                asked_of.insert(*op, (slot, at));
            }
            Event::Refused { op, faulty, .. } => {
                let (slot, asked) = asked_of[op];
                let those: Vec<_> = lives.iter().filter(|life| life.slot == slot).collect();
                *faulty &= !those.windows(2).any(|pair| {
                    let gone = pair[0].to.is_some_and(|to| since(to) <= at);
                    gone && since(pair[1].listens + SETTLE) >= asked
                });
            }
            Event::Granted { op, token } => {
                let (client, lock, daemon) = asked[op];
                let Some(granted_by) = hold(&holds, lock, *token) else { continue };
                if granted_by != daemon {
                    let life = lives.iter().find(|life| life.number == granted_by).unwrap();
                    asked_again.insert(*op, (since(life.from), client, granted_by, lock));
                }
            }
            _ => {}
        }
    }
    // Numbers of operations do not reach as far as this bit.
    let again = |op: u64| op | 1 << 31;
    for Entry { at, event } in entries.iter_mut() {
        if let Event::Queued { op } | Event::Granted { op, .. } = event
            && asked_again.get(op).is_some_and(|(from, ..)| from <= at)
        {
            *op = again(*op);
        }
    }
    for (op, (at, client, daemon, lock)) in asked_again {
        let why = "its daemon died".to_owned();
        entries
            .push(Entry { at, event: Event::Refused { op, why, faulty: false, canceled: false } });
        let event = Event::Acquire { op: again(op), client, daemon, lock };
        entries.push(Entry { at, event });
    }
    entries.sort_by_key(|entry| entry.at);
}

/// By lock and first token: which daemon had it stored.
fn holds(entries: &[Entry]) -> BTreeMap<(u32, u64), u32> {
    let stored = entries.iter().filter_map(|entry| match entry.event {
        Event::Stored { daemon, lock, token } => Some(((lock, token), daemon)),
        _ => None,
    });
    stored.collect()
}

/// The daemon of the hold that a token belongs to: each has 1,024.
fn hold(holds: &BTreeMap<(u32, u64), u32>, lock: u32, token: u64) -> Option<u32> {
    let ((_, first), daemon) = holds.range((lock, 0)..=(lock, token)).next_back()?;
    (token - first < 1024).then_some(*daemon)
}
