//! Tests of E1 to E4.

use super::history_builder::*;
use crate::{Bounds, Entry, Event, History, Kind};

/// Client 0 leads at daemon 0 with token 7, then client 1 at daemon 1 with token 2000. An
/// observer reads at daemon 1 in between, and at daemon 0 at the end.
fn two_leaders(first: Event, second: Event) -> History {
    unbounded(&[
        (0, acquire(1, 0, 0)),
        (0, campaign(1, "a")),
        (1, granted(1, 7)),
        (2, read_leader(50, 1)),
        (3, first),
        (10, release(0, 7)),
        (20, acquire(2, 1, 1)),
        (20, campaign(2, "b")),
        (21, granted(2, 2000)),
        (22, proclaim(90, 1, 2000, "c")),
        (23, proclaimed(90)),
        (24, read_leader(51, 0)),
        (25, second),
    ])
}

fn with(mut history: History, at: usize, event: Event) -> History {
    history.entries[at].event = event;
    history
}

fn inserted(mut history: History, nth: usize, event: Event) -> History {
    let at = history.entries[nth].at;
    history.entries.insert(nth, Entry { at, event });
    history
}

#[test]
fn value_of_another_leader_is_found() {
    assert_passes(&two_leaders(observed(50, 7, "a"), observed(51, 2000, "c")));
    let violation =
        assert_excerpt(Kind::E1, &two_leaders(observed(50, 7, "x"), no_leader(51)), &[2, 3, 4]);
    assert_eq!(
        violation.what,
        "at 0.003 s, daemon 1 reported for lock 0 token 7 with \"x\", which its holder neither \
         campaigned with nor proclaimed before"
    );
    assert_finds(Kind::E1, &two_leaders(observed(50, 7, "b"), no_leader(51)));
    assert_finds(Kind::E1, &two_leaders(no_leader(50), observed(51, 2000, "a")));
}

#[test]
fn value_before_proclaim_is_found() {
    let early = |value| {
        inserted(two_leaders(observed(50, 7, "a"), no_leader(51)), 3, proclaim(91, 0, 7, value))
    };
    assert_passes(&with(early("d"), 5, observed(50, 7, "d")));
    let late = two_leaders(observed(50, 7, "d"), no_leader(51));
    assert_finds(Kind::E1, &inserted(late, 5, proclaim(91, 0, 7, "d")));
}

#[test]
fn value_of_repeated_campaign_may_be_reported_before() {
    // The first campaign is recorded as refused while its daemon stops, and granted later.
    let recorded_again = |client| {
        unbounded(&[
            (0, acquire(1, client, 0)),
            (0, campaign(1, "a")),
            (2, read_leader(50, 1)),
            (3, observed(50, 7, "a")),
            (4, refused(1)),
            (5, acquire(2, 0, 0)),
            (5, campaign(2, "a")),
            (5, granted(2, 7)),
        ])
    };
    assert_passes(&recorded_again(0));
    assert_finds(Kind::E1, &recorded_again(1));
}

#[test]
fn leader_without_value_is_found() {
    let without_value = Event::Observed { op: 50, token: Some(7), value: None, ending: false };
    assert_finds(Kind::E1, &two_leaders(without_value.clone(), no_leader(51)));
    // A plain lock has none.
    let mut plain = two_leaders(without_value, no_leader(51));
    plain.entries.remove(1);
    assert_passes(&plain);
    let value = Some("a".to_owned());
    let without_token = Event::Observed { op: 50, token: None, value, ending: false };
    assert_finds(Kind::E1, &two_leaders(without_token, no_leader(51)));
}

/// A candidate was granted a token but died before it received the grant.
#[test]
fn undelivered_token_has_value_of_matching_campaign() {
    let undelivered = |value: &str, token| {
        unbounded(&[
            (0, acquire(1, 0, 0)),
            (0, campaign(1, "a")),
            (1, acquire(2, 1, 1)),
            (1, campaign(2, "b")),
            (2, granted(2, 7)),
            (3, died(0)),
            (4, read_leader(50, 1)),
            (5, observed(50, token, value)),
        ])
    };
    assert_passes(&undelivered("a", 9));
    assert_passes(&undelivered("b", 7));
    assert_passes(&undelivered("b", 6));
    assert_finds(Kind::E1, &undelivered("b", 9));
    assert_finds(Kind::E1, &undelivered("a", 7));
    assert_finds(Kind::E1, &undelivered("z", 9));
}

fn stream(states: &[(u64, Event)]) -> History {
    let mut entries = vec![
        (0, acquire(1, 0, 0)),
        (0, campaign(1, "a")),
        (1, granted(1, 7)),
        (1, observe(50, 1)),
        (2, proclaim(90, 0, 7, "b")),
        (4, not_proclaimed(90)),
        (5, release(0, 7)),
        (6, acquire(2, 1, 0)),
        (6, campaign(2, "c")),
        (7, granted(2, 8)),
    ];
    entries.extend(states.iter().cloned());
    unbounded(&entries)
}

#[test]
fn stream_that_goes_back_is_found() {
    let forth =
        [(10, observed(50, 7, "a")), (11, observed(50, 7, "b")), (12, observed(50, 8, "c"))];
    assert_passes(&stream(&forth));
    let gap = [(10, observed(50, 7, "b")), (11, no_leader(50)), (12, observed(50, 7, "b"))];
    assert_passes(&stream(&gap));
    let older_value = [(10, observed(50, 7, "b")), (11, observed(50, 7, "a"))];
    let violation = assert_excerpt(Kind::E2, &stream(&older_value), &[3, 10, 11]);
    assert_eq!(
        violation.what,
        "at 0.011 s, daemon 1 reported for lock 0 token 7 with \"a\", after a newer state with token \
         7 at 0.010 s"
    );
    let former = [(10, observed(50, 8, "c")), (11, no_leader(50)), (12, observed(50, 7, "b"))];
    assert_finds(Kind::E2, &stream(&former));
    // Each daemon polls for itself.
    let other = [(10, observed(50, 8, "c")), (11, observe(51, 2)), (12, observed(51, 7, "b"))];
    assert_passes(&stream(&other));
}

#[test]
fn restored_blob_excuses_older_state() {
    let former = [(10, observed(50, 8, "c")), (11, tampered()), (12, observed(50, 7, "b"))];
    assert_passes(&stream(&former));
    let late = [
        (10, tampered()),
        (11, stored(0, 1024)),
        (100_000, observed(50, 8, "c")),
        (100_001, observed(50, 7, "b")),
    ];
    let before = stream(&late);
    let mut long_ago = before.clone();
    // Tokens 7 and 8 are stored as well, so that only E2 is violated.
    long_ago.entries.insert(0, Entry { at: 0, event: stored(0, 1) });
    assert_finds(Kind::E2, &long_ago);
}

fn read_after_proclaim(acknowledged: bool, read: Event) -> History {
    unbounded(&[
        (0, acquire(1, 0, 0)),
        (0, campaign(1, "a")),
        (1, granted(1, 7)),
        (2, proclaim(90, 0, 7, "b")),
        (3, if acknowledged { proclaimed(90) } else { not_proclaimed(90) }),
        (4, read_leader(50, 1)),
        (5, read),
    ])
}

#[test]
fn read_after_acknowledged_proclaim_returns_it() {
    assert_passes(&read_after_proclaim(true, observed(50, 7, "b")));
    assert_passes(&read_after_proclaim(true, no_leader(50)));
    assert_passes(&read_after_proclaim(false, observed(50, 7, "a")));
    let violation =
        assert_excerpt(Kind::E3, &read_after_proclaim(true, observed(50, 7, "a")), &[3, 4, 5, 6]);
    assert_eq!(
        violation.what,
        "at 0.005 s, daemon 1 reported for lock 0 token 7 with \"a\", although \"b\" had been \
         acknowledged at 0.003 s"
    );
    // Sent before the acknowledgment.
    let mut early = read_after_proclaim(true, observed(50, 7, "a"));
    early.entries.swap(4, 5);
    early.entries[4].at = early.entries[5].at;
    early.entries[5].at = early.entries[6].at;
    assert_passes(&early);
}

#[test]
fn stream_reports_acknowledged_proclaim_in_time() {
    let bounds = Bounds { visibility: 5_000 * MS, ..Bounds::default() };
    let history = |at: u64, state: Event, end: Event| {
        bounded(
            bounds.clone(),
            &[
                (0, acquire(1, 0, 0)),
                (0, campaign(1, "a")),
                (1, granted(1, 7)),
                (2, observe(50, 1)),
                (3, observed(50, 7, "a")),
                (10, proclaim(90, 0, 7, "b")),
                (20, proclaimed(90)),
                (at, state),
                (9_000, end),
            ],
        )
    };
    let late = |at| history(at, observed(50, 7, "b"), release(0, 7));
    assert_passes(&late(5_020));
    let violation = assert_excerpt(Kind::E3, &late(5_021), &[3, 4, 5, 6]);
    assert_eq!(
        violation.what,
        "\"b\" of lock 0, token 7, was acknowledged at 0.020 s, but a stream at daemon 1 did not \
         report it within 5.000 s"
    );
    assert_finds(Kind::E3, &history(100, no_leader(50), release(0, 7)));
    // The grant, the stream or the calm span ended before.
    assert_passes(&history(5_000, release(0, 7), no_leader(50)));
    assert_passes(&history(5_000, Event::ObserveEnded { op: 50 }, release(0, 7)));
    assert_passes(&history(5_000, daemon_died(1), release(0, 7)));
    assert_passes(&history(100, disturbed("a cut"), undisturbed("a cut")));
}

#[test]
fn read_of_former_leader_is_found() {
    let stale = two_leaders(no_leader(50), observed(51, 7, "a"));
    let violation = assert_excerpt(Kind::E4, &stale, &[10, 11, 12]);
    assert_eq!(
        violation.what,
        "at 0.025 s, daemon 0 reported for lock 0 token 7 with \"a\", after the storage had token \
         2000 at 0.023 s"
    );
    // The daemon marks the leader's grant as lost.
    let value = Some("a".to_owned());
    let ending = Event::Observed { op: 51, token: Some(7), value, ending: true };
    assert_passes(&two_leaders(no_leader(50), ending));
    // Not acknowledged: the storage may not have it yet.
    let unpublished = with(stale.clone(), 10, not_proclaimed(90));
    assert_passes(&unpublished);
    // A read at another daemon than the leader's own returned the new leader.
    let seen = inserted(unpublished.clone(), 11, observed(52, 2000, "b"));
    assert_finds(Kind::E4, &inserted(seen, 11, read_leader(52, 0)));
    let seen = inserted(unpublished.clone(), 11, observed(52, 2000, "b"));
    assert_passes(&inserted(seen, 11, read_leader(52, 1)));
    // Another daemon stored a newer hold. Its own daemon may still publish for it.
    let stored_by = |daemon| {
        let first = inserted(unpublished.clone(), 0, stored(0, 1));
        inserted(first, 9, stored(daemon, 2000))
    };
    assert_finds(Kind::E4, &stored_by(1));
    // An operator broke the lease or restored the blob.
    assert_passes(&inserted(stored_by(1), 7, overruled(60)));
    assert_finds(Kind::E4, &inserted(stored_by(1), 7, overruled(24)));
    assert_passes(&inserted(stale, 11, tampered()));
}

#[test]
fn proclaim_of_former_leader_is_found() {
    let stale = two_leaders(no_leader(50), observed(51, 7, "d"));
    let late = inserted(stale, 9, proclaim(91, 0, 7, "d"));
    assert_finds(Kind::E4, &inserted(late, 10, not_proclaimed(91)));
    let unread = two_leaders(no_leader(50), observed(51, 2000, "c"));
    assert_passes(&inserted(unread, 9, proclaim(91, 0, 7, "d")));
}

#[test]
fn contradictory_election_entries_are_malformed() {
    for event in [
        campaign(77, "a"),
        proclaim(77, 5, 7, "a"),
        proclaimed(77),
        not_proclaimed(77),
        no_leader(77),
        Event::ObserveEnded { op: 77 },
        read_leader(1, 0),
        campaign(1, "late"),
    ] {
        let history = two_leaders(no_leader(50), no_leader(51));
        assert_finds(Kind::Malformed, &inserted(history, 3, event));
    }
}
