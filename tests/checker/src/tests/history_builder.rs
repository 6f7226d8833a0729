//! Short constructors of histories and events. Times are in milliseconds; every event
//! concerns lock 0.

use crate::{Bounds, Entry, Event, History, Kind, Nanos, Violation, check};

pub(crate) const MS: Nanos = 1_000_000;

/// Builds a history without bounds: of the liveness checks, only L3 applies.
pub(crate) fn unbounded(entries: &[(u64, Event)]) -> History {
    bounded(Bounds::default(), entries)
}

/// Returns plausible bounds for a lease of 15 s.
pub(crate) fn bounds() -> Bounds {
    Bounds {
        takeover: 20_000 * MS,
        expiry: 20_000 * MS,
        local_handoff: 100 * MS,
        remote_handoff: 3_000 * MS,
        orphan: 18_000 * MS,
        unwanted: 2_000 * MS,
        recovery: 30_000 * MS,
        visibility: 5_000 * MS,
        skew: 0,
    }
}

pub(crate) fn bounded(bounds: Bounds, entries: &[(u64, Event)]) -> History {
    let entries = entries.iter().map(|(at, event)| Entry { at: at * MS, event: event.clone() });
    History { bounds, entries: entries.collect() }
}

/// Asserts that the history has no violation.
#[track_caller]
pub(crate) fn assert_passes(history: &History) {
    let found = check(history);
    assert!(found.is_empty(), "{}", all(&found));
}

/// Asserts that the history has a violation of this kind, and of no other kind.
#[track_caller]
pub(crate) fn assert_finds(kind: Kind, history: &History) -> Violation {
    let found = check(history);
    assert!(found.iter().all(|violation| violation.kind == kind), "{}", all(&found));
    found.into_iter().next().unwrap_or_else(|| panic!("{kind} was not found"))
}

/// Asserts as [`assert_finds`], and that the excerpt is these entries.
#[track_caller]
pub(crate) fn assert_excerpt(kind: Kind, history: &History, excerpt: &[usize]) -> Violation {
    let violation = assert_finds(kind, history);
    let expected: Vec<Entry> = excerpt.iter().map(|&at| history.entries[at].clone()).collect();
    assert_eq!(violation.excerpt, expected, "{violation}");
    violation
}

pub(crate) fn all(found: &[Violation]) -> String {
    found.iter().map(|violation| format!("{violation}\n")).collect()
}

/// Returns the history without one of its entries.
pub(crate) fn without(history: &History, nth: usize) -> History {
    let mut history = history.clone();
    history.entries.remove(nth);
    history
}

pub(crate) fn acquire(op: u64, client: u32, daemon: u32) -> Event {
    Event::Acquire { op, client, daemon, lock: 0 }
}

pub(crate) fn queued(op: u64) -> Event {
    Event::Queued { op }
}

pub(crate) fn granted(op: u64, token: u64) -> Event {
    Event::Granted { op, token }
}

pub(crate) fn refused(op: u64) -> Event {
    Event::Refused { op, why: "timed out".to_owned(), faulty: false, canceled: false }
}

pub(crate) fn valid(client: u32, token: u64, until: u64) -> Event {
    Event::Valid { client, lock: 0, token, until: until * MS }
}

/// Release of a token. Its operation number is 1000 plus the token.
pub(crate) fn release(client: u32, token: u64) -> Event {
    Event::Release { op: 1_000 + token, client, lock: 0, token }
}

pub(crate) fn released(token: u64) -> Event {
    Event::Released { op: 1_000 + token }
}

pub(crate) fn lost(client: u32, token: u64) -> Event {
    Event::Lost { client, lock: 0, token }
}

pub(crate) fn loss_notified(client: u32, token: u64) -> Event {
    Event::LossNotified { client, lock: 0, token }
}

pub(crate) fn fenced(client: u32, token: u64, accepted: bool) -> Event {
    Event::Used { client, lock: 0, token, fenced: true, accepted }
}

pub(crate) fn unfenced(client: u32, token: u64) -> Event {
    Event::Used { client, lock: 0, token, fenced: false, accepted: true }
}

pub(crate) fn detached(client: u32) -> Event {
    Event::Detached { client }
}

/// End of a grant together with the stream of its fenced session.
pub(crate) fn freed(client: u32, token: u64) -> Event {
    Event::Freed { client, lock: 0, token }
}

pub(crate) fn died(client: u32) -> Event {
    Event::ClientDied { client }
}

pub(crate) fn daemon_died(daemon: u32) -> Event {
    Event::DaemonDied { daemon }
}

pub(crate) fn holds(daemon: u32, first: u64, until: u64) -> Event {
    Event::Holds { daemon, lock: 0, first, last: first + 1023, until: until * MS }
}

pub(crate) fn hold_ended(daemon: u32) -> Event {
    Event::HoldEnded { daemon, lock: 0 }
}

pub(crate) fn leased(daemon: u32, until: u64) -> Event {
    Event::Leased { daemon, lock: 0, until: until * MS }
}

pub(crate) fn unleased() -> Event {
    Event::Unleased { lock: 0 }
}

pub(crate) fn stored(daemon: u32, token: u64) -> Event {
    Event::Stored { daemon, lock: 0, token }
}

pub(crate) fn deleted() -> Event {
    Event::Deleted { lock: 0 }
}

pub(crate) fn tampered() -> Event {
    Event::Tampered { lock: 0 }
}

pub(crate) fn overruled(until: u64) -> Event {
    Event::Overruled { lock: 0, until: until * MS }
}

pub(crate) fn disturbed(what: &str) -> Event {
    Event::Disturbed { what: what.to_owned() }
}

pub(crate) fn undisturbed(what: &str) -> Event {
    Event::Undisturbed { what: what.to_owned() }
}

pub(crate) fn reserved(daemon: u32, last: u64) -> Event {
    Event::Reserved { daemon, last }
}

pub(crate) fn forgotten(upto: u64, until: Nanos) -> Event {
    Event::Forgotten { upto, until: until * MS }
}

pub(crate) fn clock_broken(client: u32) -> Event {
    Event::ClockBroken { client }
}

pub(crate) fn campaign(op: u64, value: &str) -> Event {
    Event::Campaign { op, value: value.to_owned() }
}

pub(crate) fn proclaim(op: u64, client: u32, token: u64, value: &str) -> Event {
    Event::Proclaim { op, client, lock: 0, token, value: value.to_owned() }
}

pub(crate) fn proclaimed(op: u64) -> Event {
    Event::Proclaimed { op }
}

pub(crate) fn not_proclaimed(op: u64) -> Event {
    Event::NotProclaimed { op }
}

pub(crate) fn read_leader(op: u64, daemon: u32) -> Event {
    Event::ReadLeader { op, daemon, lock: 0 }
}

pub(crate) fn observe(op: u64, daemon: u32) -> Event {
    Event::Observe { op, daemon, lock: 0 }
}

pub(crate) fn observed(op: u64, token: u64, value: &str) -> Event {
    Event::Observed { op, token: Some(token), value: Some(value.to_owned()), ending: false }
}

pub(crate) fn no_leader(op: u64) -> Event {
    Event::Observed { op, token: None, value: None, ending: false }
}
