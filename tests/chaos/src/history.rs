//! History from all recordings, and its check.

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
    daemons::Lifetime,
    inject::SETTLE_TIME,
    locks,
    record::{merge, nanos},
    recover::RECOVERY,
    report::Report,
    resource::Resource,
    world::{LEASE, POLL, World},
};

/// Bounds of the design, plus some seconds for a busy machine.
fn bounds() -> Bounds {
    let nanos = |length: Duration| Nanos::try_from(length.as_nanos()).unwrap();
    let second = Duration::from_secs(1);
    Bounds {
        // Includes the safety margin of a lease.
        takeover: nanos(LEASE + POLL + second + 8 * second),
        expiry: nanos(LONG_TTL + POLL + 6 * second),
        local_handoff: nanos(4 * second),
        remote_handoff: nanos(2 * POLL + 5 * second),
        // Leases in the storage are not recorded.
        orphan: 0,
        unwanted: 0,
        recovery: nanos(RECOVERY),
        // Elections are not recorded.
        visibility: 0,
        skew: nanos(Duration::from_millis(5)),
    }
}

/// Merges the recordings, writes the history next to them, and checks it and
/// the protected resources.
pub(crate) fn assemble(world: &World, report: &mut Report) {
    let mut entries = merge(&world.dir, world.stored(), world.start);
    name_daemons(&mut entries, &world.lifetimes(), nanos(world.start));
    report.count(&entries);
    for lock in locks::all() {
        report.resource(
            lock,
            Resource::fenced(&world.dir, lock, true).state(),
            Resource::unfenced(&world.dir, lock).state(),
        );
    }
    let history = History { bounds: bounds(), entries };
    // In the format of `leasehold-check`.
    let file = File::create(world.dir.join("history.jsonl")).unwrap();
    write(&history, BufWriter::new(file)).unwrap();
    report.checked = history.entries.len();
    report.figures = Stats::of(&history);
    for violation in check(&history) {
        report.fail(violation.to_string());
    }
}

/// Replaces the slots of daemons, which clients record, by the numbers of
/// daemons. An acquire that outlived its daemon was repeated at the next one
/// without being recorded: it becomes two acquires. A refusal while no daemon
/// was running is not a fault of the service.
fn name_daemons(entries: &mut Vec<Entry>, lifetimes: &[Lifetime], start: Nanos) {
    let since = |at| nanos(at).saturating_sub(start);
    let mut repeated = HashMap::new();
    let (mut acquires, mut requests) = (HashMap::new(), HashMap::new());
    let holds = holds(entries);
    for entry in entries.iter_mut() {
        let at = entry.at;
        match &mut entry.event {
            Event::Acquire { op, client, daemon, lock } => {
                let mut in_slot =
                    lifetimes.iter().filter(|lifetime| lifetime.slot == *daemon as usize);
                let is_running = |lifetime: &&Lifetime| lifetime.to.is_none_or(|to| since(to) > at);
                let lifetime = in_slot.clone().find(is_running).or(in_slot.next_back()).unwrap();
                let slot = mem::replace(daemon, lifetime.number) as usize;
                acquires.insert(*op, (*client, *lock, *daemon));
                requests.insert(*op, (slot, at));
            }
            Event::Refused { op, faulty, .. } => {
                let (slot, acquires) = requests[op];
                let in_slot: Vec<_> =
                    lifetimes.iter().filter(|lifetime| lifetime.slot == slot).collect();
                *faulty &= !in_slot.windows(2).any(|pair| {
                    let has_exited = pair[0].to.is_some_and(|to| since(to) <= at);
                    has_exited && since(pair[1].listens + SETTLE_TIME) >= acquires
                });
            }
            Event::Granted { op, token } => {
                let (client, lock, daemon) = acquires[op];
                let Some(granted_by) = hold(&holds, lock, *token) else { continue };
                if granted_by != daemon {
                    let lifetime =
                        lifetimes.iter().find(|lifetime| lifetime.number == granted_by).unwrap();
                    repeated.insert(*op, (since(lifetime.from), client, granted_by, lock));
                }
            }
            _ => {}
        }
    }
    // Numbers of operations do not use this bit.
    let repeated_op = |op: u64| op | 1 << 31;
    for Entry { at, event } in entries.iter_mut() {
        if let Event::Queued { op } | Event::Granted { op, .. } = event
            && repeated.get(op).is_some_and(|(from, ..)| from <= at)
        {
            *op = repeated_op(*op);
        }
    }
    for (op, (at, client, daemon, lock)) in repeated {
        let why = "its daemon died".to_owned();
        entries
            .push(Entry { at, event: Event::Refused { op, why, faulty: false, canceled: false } });
        let event = Event::Acquire { op: repeated_op(op), client, daemon, lock };
        entries.push(Entry { at, event });
    }
    entries.sort_by_key(|entry| entry.at);
}

/// Returns the daemon that stored each first token, by lock and token.
fn holds(entries: &[Entry]) -> BTreeMap<(u32, u64), u32> {
    let stored = entries.iter().filter_map(|entry| match entry.event {
        Event::Stored { daemon, lock, token } => Some(((lock, token), daemon)),
        _ => None,
    });
    stored.collect()
}

/// Returns the daemon of the hold that contains a token: each hold has 1,024
/// tokens.
fn hold(holds: &BTreeMap<(u32, u64), u32>, lock: u32, token: u64) -> Option<u32> {
    let ((_, first), daemon) = holds.range((lock, 0)..=(lock, token)).next_back()?;
    (token - first < 1024).then_some(*daemon)
}
