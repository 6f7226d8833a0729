//! E1 to E4.

use super::history_builder::*;
use crate::{Bounds, Entry, Event, History, Kind};

/// Client 0 leads at daemon 0 with token 7, then client 1 at daemon 1 with token 2000.
/// An observer reads at a daemon in between, and after that.
fn two_leaders(first: Event, second: Event) -> History {
    tale(&[
        (0, ask(1, 0, 0)),
        (0, campaign(1, "a")),
        (1, granted(1, 7)),
        (2, read_leader(50, 1)),
        (3, first),
        (10, release(0, 7)),
        (20, ask(2, 1, 1)),
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
    fine(&two_leaders(observed(50, 7, "a"), observed(51, 2000, "c")));
    let violation = shown(Kind::E1, &two_leaders(observed(50, 7, "x"), nobody(51)), &[2, 3, 4]);
    assert_eq!(
        violation.what,
        "at 0.003 s, daemon 1 showed for lock 0 token 7 with \"x\", which its holder neither \
         campaigned with nor proclaimed before"
    );
    wrong(Kind::E1, &two_leaders(observed(50, 7, "b"), nobody(51)));
    wrong(Kind::E1, &two_leaders(nobody(50), observed(51, 2000, "a")));
}

#[test]
fn value_before_its_proclaim_is_found() {
    let early = |value| {
        inserted(two_leaders(observed(50, 7, "a"), nobody(51)), 3, proclaim(91, 0, 7, value))
    };
    fine(&with(early("d"), 5, observed(50, 7, "d")));
    let late = two_leaders(observed(50, 7, "d"), nobody(51));
    wrong(Kind::E1, &inserted(late, 5, proclaim(91, 0, 7, "d")));
}

#[test]
fn value_of_campaign_that_is_recorded_again_may_be_shown_before() {
    // The first campaign counts as refused while its daemon stops, and is granted then.
    let recorded_again = |client| {
        tale(&[
            (0, ask(1, client, 0)),
            (0, campaign(1, "a")),
            (2, read_leader(50, 1)),
            (3, observed(50, 7, "a")),
            (4, refused(1)),
            (5, ask(2, 0, 0)),
            (5, campaign(2, "a")),
            (5, granted(2, 7)),
        ])
    };
    fine(&recorded_again(0));
    wrong(Kind::E1, &recorded_again(1));
}

#[test]
fn leader_without_its_value_is_found() {
    let without_value = Event::Observed { op: 50, token: Some(7), value: None, ending: false };
    wrong(Kind::E1, &two_leaders(without_value.clone(), nobody(51)));
    // A plain lock has none.
    let mut plain = two_leaders(without_value, nobody(51));
    plain.entries.remove(1);
    fine(&plain);
    let value = Some("a".to_owned());
    let without_token = Event::Observed { op: 50, token: None, value, ending: false };
    wrong(Kind::E1, &two_leaders(without_token, nobody(51)));
}

/// The candidate was granted a token but died before it was told.
#[test]
fn untold_token_has_value_of_campaign_without_lower_token() {
    let untold = |value: &str, token| {
        tale(&[
            (0, ask(1, 0, 0)),
            (0, campaign(1, "a")),
            (1, ask(2, 1, 1)),
            (1, campaign(2, "b")),
            (2, granted(2, 7)),
            (3, died(0)),
            (4, read_leader(50, 1)),
            (5, observed(50, token, value)),
        ])
    };
    fine(&untold("a", 9));
    fine(&untold("b", 7));
    fine(&untold("b", 6));
    wrong(Kind::E1, &untold("b", 9));
    wrong(Kind::E1, &untold("a", 7));
    wrong(Kind::E1, &untold("z", 9));
}

fn stream(states: &[(u64, Event)]) -> History {
    let mut entries = vec![
        (0, ask(1, 0, 0)),
        (0, campaign(1, "a")),
        (1, granted(1, 7)),
        (1, observe(50, 1)),
        (2, proclaim(90, 0, 7, "b")),
        (4, not_proclaimed(90)),
        (5, release(0, 7)),
        (6, ask(2, 1, 0)),
        (6, campaign(2, "c")),
        (7, granted(2, 8)),
    ];
    entries.extend(states.iter().cloned());
    tale(&entries)
}

#[test]
fn stream_that_goes_back_is_found() {
    let forth =
        [(10, observed(50, 7, "a")), (11, observed(50, 7, "b")), (12, observed(50, 8, "c"))];
    fine(&stream(&forth));
    let gap = [(10, observed(50, 7, "b")), (11, nobody(50)), (12, observed(50, 7, "b"))];
    fine(&stream(&gap));
    let older_value = [(10, observed(50, 7, "b")), (11, observed(50, 7, "a"))];
    let violation = shown(Kind::E2, &stream(&older_value), &[3, 10, 11]);
    assert_eq!(
        violation.what,
        "at 0.011 s, daemon 1 showed for lock 0 token 7 with \"a\", after a newer state with token \
         7 at 0.010 s"
    );
    let former = [(10, observed(50, 8, "c")), (11, nobody(50)), (12, observed(50, 7, "b"))];
    wrong(Kind::E2, &stream(&former));
    // Each daemon polls for itself.
    let other = [(10, observed(50, 8, "c")), (11, observe(51, 2)), (12, observed(51, 7, "b"))];
    fine(&stream(&other));
}

#[test]
fn restored_blob_excuses_an_older_state() {
    let former = [(10, observed(50, 8, "c")), (11, tampered()), (12, observed(50, 7, "b"))];
    fine(&stream(&former));
    let late = [
        (10, tampered()),
        (11, stored(0, 1024)),
        (100_000, observed(50, 8, "c")),
        (100_001, observed(50, 7, "b")),
    ];
    let before = stream(&late);
    let mut long_ago = before.clone();
    // Tokens 7 and 8 are stored as well, so that only E2 has something to say.
    long_ago.entries.insert(0, Entry { at: 0, event: stored(0, 1) });
    wrong(Kind::E2, &long_ago);
}

fn read_after_proclaim(acknowledged: bool, read: Event) -> History {
    tale(&[
        (0, ask(1, 0, 0)),
        (0, campaign(1, "a")),
        (1, granted(1, 7)),
        (2, proclaim(90, 0, 7, "b")),
        (3, if acknowledged { proclaimed(90) } else { not_proclaimed(90) }),
        (4, read_leader(50, 1)),
        (5, read),
    ])
}

#[test]
fn read_after_acknowledged_proclaim_shows_it() {
    fine(&read_after_proclaim(true, observed(50, 7, "b")));
    fine(&read_after_proclaim(true, nobody(50)));
    fine(&read_after_proclaim(false, observed(50, 7, "a")));
    let violation =
        shown(Kind::E3, &read_after_proclaim(true, observed(50, 7, "a")), &[3, 4, 5, 6]);
    assert_eq!(
        violation.what,
        "at 0.005 s, daemon 1 showed for lock 0 token 7 with \"a\", although \"b\" had been \
         acknowledged at 0.003 s"
    );
    // Sent before the acknowledgment.
    let mut early = read_after_proclaim(true, observed(50, 7, "a"));
    early.entries.swap(4, 5);
    early.entries[4].at = early.entries[5].at;
    early.entries[5].at = early.entries[6].at;
    fine(&early);
}

#[test]
fn stream_shows_acknowledged_proclaim_in_time() {
    let bounds = Bounds { visibility: 5_000 * MS, ..Bounds::default() };
    let history = |at: u64, state: Event, end: Event| {
        bounded(
            bounds.clone(),
            &[
                (0, ask(1, 0, 0)),
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
    fine(&late(5_020));
    let violation = shown(Kind::E3, &late(5_021), &[3, 4, 5, 6]);
    assert_eq!(
        violation.what,
        "\"b\" of lock 0, token 7, was acknowledged at 0.020 s, but a stream at daemon 1 did not \
         show it within 5.000 s"
    );
    wrong(Kind::E3, &history(100, nobody(50), release(0, 7)));
    // The grant, the stream or the calm ended before.
    fine(&history(5_000, release(0, 7), nobody(50)));
    fine(&history(5_000, Event::ObserveEnded { op: 50 }, release(0, 7)));
    fine(&history(5_000, daemon_died(1), release(0, 7)));
    fine(&history(100, disturbed("a cut"), undisturbed("a cut")));
}

#[test]
fn read_of_former_leader_is_found() {
    let stale = two_leaders(nobody(50), observed(51, 7, "a"));
    let violation = shown(Kind::E4, &stale, &[10, 11, 12]);
    assert_eq!(
        violation.what,
        "at 0.025 s, daemon 0 showed for lock 0 token 7 with \"a\", after the storage had token \
         2000 at 0.023 s"
    );
    // Its daemon says that it has lost the lead.
    let value = Some("a".to_owned());
    let ending = Event::Observed { op: 51, token: Some(7), value, ending: true };
    fine(&two_leaders(nobody(50), ending));
    // Not acknowledged: the storage may not have it yet.
    let unpublished = with(stale.clone(), 10, not_proclaimed(90));
    fine(&unpublished);
    // A read or a stream at another daemon than the leader's own showed it.
    let seen = inserted(unpublished.clone(), 11, observed(52, 2000, "b"));
    wrong(Kind::E4, &inserted(seen, 11, read_leader(52, 0)));
    let seen = inserted(unpublished.clone(), 11, observed(52, 2000, "b"));
    fine(&inserted(seen, 11, read_leader(52, 1)));
    // Another daemon stored a newer hold. Its own daemon may still publish for it.
    let stored_by = |daemon| {
        let first = inserted(unpublished.clone(), 0, stored(0, 1));
        inserted(first, 9, stored(daemon, 2000))
    };
    wrong(Kind::E4, &stored_by(1));
    // An operator's doing.
    fine(&inserted(stored_by(1), 7, overruled(60)));
    wrong(Kind::E4, &inserted(stored_by(1), 7, overruled(24)));
    fine(&inserted(stale, 11, tampered()));
}

#[test]
fn proclaim_of_former_leader_is_found() {
    let stale = two_leaders(nobody(50), observed(51, 7, "d"));
    let late = inserted(stale, 9, proclaim(91, 0, 7, "d"));
    wrong(Kind::E4, &inserted(late, 10, not_proclaimed(91)));
    let unheard = two_leaders(nobody(50), observed(51, 2000, "c"));
    fine(&inserted(unheard, 9, proclaim(91, 0, 7, "d")));
}

#[test]
fn entries_that_contradict_themselves_are_malformed() {
    for event in [
        campaign(77, "a"),
        proclaim(77, 5, 7, "a"),
        proclaimed(77),
        not_proclaimed(77),
        nobody(77),
        Event::ObserveEnded { op: 77 },
        read_leader(1, 0),
        campaign(1, "late"),
    ] {
        let history = two_leaders(nobody(50), nobody(51));
        wrong(Kind::Malformed, &inserted(history, 3, event));
    }
}
