//! I1, I2, I5, I7.

use super::history_builder::*;
use crate::{Bounds, Kind};

#[test]
fn a_token_has_one_owner() {
    let history = |second: u64| {
        tale(&[
            (0, ask(1, 0, 0)),
            (1, ask(2, 1, 1)),
            (5, granted(1, 7)),
            (6, release(0, 7)),
            (8, granted(2, second)),
        ])
    };
    let violation = shown(Kind::I1, &history(7), &[0, 1, 2, 4]);
    assert_eq!(
        violation.what,
        "token 7 of lock 0 was granted to client 0 at 0.005 s and to client 1 at 0.008 s"
    );
    fine(&history(8));
}

#[test]
fn other_locks_have_tokens_of_their_own() {
    let mut history =
        tale(&[(0, ask(1, 0, 0)), (1, ask(2, 1, 1)), (5, granted(1, 7)), (8, granted(2, 7))]);
    history.entries[1].event = crate::Event::Acquire { op: 2, client: 1, daemon: 1, lock: 4 };
    fine(&history);
}

#[test]
fn what_is_accepted_never_falls() {
    let history = |late| {
        tale(&[
            (0, ask(1, 0, 0)),
            (1, granted(1, 7)),
            (2, fenced(0, 7, true)),
            (3, lost(0, 7)),
            (4, ask(2, 1, 0)),
            (5, granted(2, 9)),
            (6, fenced(1, 9, true)),
            (7, fenced(0, 7, late)),
            (8, fenced(1, 9, true)),
        ])
    };
    let violation = shown(Kind::I1, &history(true), &[6, 7]);
    assert_eq!(
        violation.what,
        "token 7 of client 0 was accepted under lock 0 at 0.007 s, after token 9 of client 1 \
         at 0.006 s"
    );
    fine(&history(false));
    // The recorders may differ by more than what lies between.
    let mut history = history(true);
    history.bounds.skew = MS;
    fine(&history);
}

#[test]
fn nobody_uses_what_it_was_not_granted() {
    let history = |used| tale(&[(0, ask(1, 0, 0)), (1, granted(1, 7)), (2, used)]);
    for fenced in [false, true] {
        for accepted in [false, true] {
            let used = |client, lock, token| {
                history(crate::Event::Used { client, lock, token, fenced, accepted })
            };
            shown(Kind::I1, &used(1, 0, 7), &[2]);
            wrong(Kind::I1, &used(0, 1, 7));
            let violation = wrong(Kind::I1, &used(0, 0, 6));
            assert_eq!(
                violation.what,
                "client 0 acted under lock 0 with token 6 at 0.002 s, which it was never granted"
            );
            fine(&used(0, 0, 7));
        }
    }
    // The resource recorded it a little early.
    let mut early = history(fenced(0, 7, true));
    early.entries.swap(1, 2);
    (early.entries[1].at, early.entries[2].at) = (MS, 2 * MS);
    wrong(Kind::I1, &early);
    early.bounds.skew = MS;
    fine(&early);
}

#[test]
fn later_grants_have_greater_tokens() {
    let history = |second| {
        tale(&[
            (0, ask(1, 0, 0)),
            (1, granted(1, 7)),
            (2, release(0, 7)),
            (3, ask(2, 1, 0)),
            (4, granted(2, second)),
        ])
    };
    shown(Kind::I2, &history(6), &[0, 1, 3, 4]);
    fine(&history(8));
}

#[test]
fn token_of_two_acquires_of_one_client_is_found() {
    let history = |second| {
        tale(&[
            (0, ask(1, 0, 0)),
            (1, granted(1, 7)),
            (2, ask(2, 0, 0)),
            (3, release(0, 7)),
            (4, granted(2, second)),
        ])
    };
    let violation = shown(Kind::I1, &history(7), &[0, 1, 2, 4]);
    assert_eq!(
        violation.what,
        "token 7 of lock 0 was granted to client 0 at 0.001 s and to client 0 at 0.004 s"
    );
    fine(&history(8));
}

#[test]
fn second_grant_of_one_client_at_once_is_found() {
    let mut history = tale(&[
        (0, ask(1, 0, 0)),
        (1, granted(1, 7)),
        (2, ask(2, 0, 0)),
        (3, granted(2, 8)),
        (3, release(0, 7)),
    ]);
    wrong(Kind::I3, &history);
    history.entries.swap(3, 4);
    fine(&history);
}

#[test]
fn a_token_is_stored_before_it_is_granted() {
    let history = |token| {
        tale(&[
            (0, ask(1, 0, 0)),
            (0, ask(2, 1, 0)),
            (1, stored(0, 2048)),
            (2, granted(1, 2048)),
            (3, release(0, 2048)),
            (4, granted(2, token)),
            (5, stored(0, 4096)),
        ])
    };
    shown(Kind::I5, &history(2048 + 1024), &[1, 5]);
    shown(Kind::I5, &history(4096), &[1, 5]);
    fine(&history(2048 + 1023));
    // Recorded a little late.
    let mut late = history(4096);
    late.bounds = Bounds { skew: MS, ..Bounds::default() };
    fine(&late);
}

#[test]
fn a_token_is_a_daemon_s_before_it_is_granted() {
    let history = |token| {
        tale(&[
            (0, ask(1, 0, 0)),
            (1, holds(0, 2048, 900)),
            (2, holds(0, 4096, 900)),
            (3, granted(1, token)),
        ])
    };
    wrong(Kind::I5, &history(2047));
    wrong(Kind::I5, &history(3072));
    fine(&history(3071));
    fine(&history(4096));
    wrong(Kind::I5, &history(5120));
}

#[test]
fn a_lock_without_records_is_no_exception() {
    let history = |lock| {
        let mut history = tale(&[(0, stored(0, 1024)), (1, ask(1, 0, 0)), (2, granted(1, 1024))]);
        history.entries[0].event = crate::Event::Stored { daemon: 0, lock, token: 1024 };
        history
    };
    wrong(Kind::I5, &history(4));
    fine(&history(0));
    let history = |lock| {
        let mut history = tale(&[(0, leased(0, 60)), (1, holds(0, 1024, 50))]);
        history.entries[0].event = crate::Event::Leased { daemon: 0, lock, until: 60 * MS };
        history
    };
    wrong(Kind::I6, &history(4));
    fine(&history(0));
}

#[test]
fn a_daemon_stores_its_tokens_itself() {
    let history = |daemon, first, last| {
        tale(&[
            (0, leased(0, 60)),
            (1, stored(0, 1024)),
            (2, holds(0, 1024, 50)),
            (3, leased(0, 63)),
            (3, holds(0, 1024, 53)),
            (4, daemon_died(0)),
            (63, leased(1, 123)),
            (64, stored(daemon, first)),
            (65, holds(1, last, 110)),
        ])
    };
    fine(&history(1, 2048, 2048));
    // It goes on with what its predecessor stored.
    shown(Kind::I5, &history(0, 2048, 2048), &[6, 8]);
    wrong(Kind::I5, &history(1, 2048, 1024));
    wrong(Kind::I5, &history(1, 2048, 2049));
    // Or with what it stored itself under another lease.
    let again = |second| {
        tale(&[
            (0, leased(0, 60)),
            (1, stored(0, 1024)),
            (10, unleased()),
            (20, leased(0, 80)),
            (21, second),
            (22, holds(0, 1024, 70)),
        ])
    };
    shown(Kind::I5, &again(leased(0, 81)), &[3, 5]);
    fine(&again(stored(0, 1024)));
}

#[test]
fn the_stored_token_rises() {
    let history = |daemon, token| {
        tale(&[
            (0, stored(0, 0)),
            (1, stored(0, 1024)),
            (2, stored(1, 2048)),
            (3, stored(daemon, token)),
        ])
    };
    shown(Kind::I7, &history(0, 1024), &[2, 3]);
    shown(Kind::I7, &history(0, 2048), &[2, 3]);
    shown(Kind::I7, &history(0, 0), &[2, 3]);
    fine(&history(1, 2048));
    fine(&history(0, 3072));
}

#[test]
fn a_deleted_blob_begins_above_the_old_one() {
    let history = |token| {
        tale(&[
            (1, stored(0, 1024)),
            (2, stored(1, 2048)),
            (3, deleted()),
            (4, stored(0, 0)),
            (5, stored(0, token)),
        ])
    };
    shown(Kind::I7, &history(1024), &[1, 4]);
    fine(&history(3072));
    // What an operator wrote is free, but brings no old token back.
    let restored = |token| {
        let mut restored = history(token);
        restored.entries[2].event = tampered();
        restored
    };
    shown(Kind::I7, &restored(1024), &[1, 4]);
    shown(Kind::I7, &restored(2048), &[1, 4]);
    fine(&restored(3072));
}

#[test]
fn token_is_granted_only_after_its_reservation() {
    let history = |first: u64, second: u64| {
        tale(&[
            (0, reserved(0, first)),
            (1, ask(1, 0, 0)),
            (2, granted(1, 7)),
            (3, reserved(0, second)),
        ])
    };
    let violation = shown(Kind::I5, &history(6, 7), &[1, 2]);
    assert_eq!(
        violation.what,
        "token 7 of lock 0 was granted to client 0 by daemon 0 at 0.002 s, but no data directory \
         had reserved it before"
    );
    fine(&history(7, 9));
    // A clean shutdown records the highest token that was issued.
    fine(&history(100, 7));
}

#[test]
fn forgotten_holds_may_overlap_with_later_ones() {
    let history = |upto: u64, until: u64| {
        tale(&[
            (0, ask(1, 0, 0)),
            (1, granted(1, 7)),
            (2, valid(0, 7, 50)),
            (10, forgotten(upto, until)),
            (11, ask(2, 1, 1)),
            (12, granted(2, 9)),
            (13, valid(1, 9, 40)),
            (20, release(1, 9)),
        ])
    };
    fine(&history(8, 60));
    shown(Kind::I3, &history(6, 60), &[2, 5, 6]);
    shown(Kind::I3, &history(8, 11), &[2, 5, 6]);
}

#[test]
fn forgotten_token_is_not_granted_to_later_acquire() {
    let history = tale(&[
        (0, forgotten(8, 60)),
        (1, ask(1, 0, 0)),
        (2, granted(1, 9)),
        (3, release(0, 9)),
        (4, ask(2, 1, 1)),
        (5, granted(2, 7)),
    ]);
    shown(Kind::I2, &history, &[1, 2, 4, 5]);
}
