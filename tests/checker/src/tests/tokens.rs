//! Tests of I1, I2, I5 and I7.

use super::history_builder::*;
use crate::{Bounds, Kind};

#[test]
fn token_has_one_owner() {
    let history = |second: u64| {
        unbounded(&[
            (0, acquire(1, 0, 0)),
            (1, acquire(2, 1, 1)),
            (5, granted(1, 7)),
            (6, release(0, 7)),
            (8, granted(2, second)),
        ])
    };
    let violation = assert_excerpt(Kind::I1, &history(7), &[0, 1, 2, 4]);
    assert_eq!(
        violation.what,
        "token 7 of lock 0 was granted to client 0 at 0.005 s and to client 1 at 0.008 s"
    );
    assert_passes(&history(8));
}

#[test]
fn locks_have_separate_tokens() {
    let mut history = unbounded(&[
        (0, acquire(1, 0, 0)),
        (1, acquire(2, 1, 1)),
        (5, granted(1, 7)),
        (8, granted(2, 7)),
    ]);
    history.entries[1].event = crate::Event::Acquire { op: 2, client: 1, daemon: 1, lock: 4 };
    assert_passes(&history);
}

#[test]
fn accepted_tokens_never_decrease() {
    let history = |late| {
        unbounded(&[
            (0, acquire(1, 0, 0)),
            (1, granted(1, 7)),
            (2, fenced(0, 7, true)),
            (3, lost(0, 7)),
            (4, acquire(2, 1, 0)),
            (5, granted(2, 9)),
            (6, fenced(1, 9, true)),
            (7, fenced(0, 7, late)),
            (8, fenced(1, 9, true)),
        ])
    };
    let violation = assert_excerpt(Kind::I1, &history(true), &[6, 7]);
    assert_eq!(
        violation.what,
        "token 7 of client 0 was accepted under lock 0 at 0.007 s, after token 9 of client 1 \
         at 0.006 s"
    );
    assert_passes(&history(false));
    // The clocks of the recorders may differ by more than the distance of the entries.
    let mut history = history(true);
    history.bounds.skew = MS;
    assert_passes(&history);
}

#[test]
fn use_of_ungranted_token_is_found() {
    let history = |used| unbounded(&[(0, acquire(1, 0, 0)), (1, granted(1, 7)), (2, used)]);
    for fenced in [false, true] {
        for accepted in [false, true] {
            let used = |client, lock, token| {
                history(crate::Event::Used { client, lock, token, fenced, accepted })
            };
            assert_excerpt(Kind::I1, &used(1, 0, 7), &[2]);
            assert_finds(Kind::I1, &used(0, 1, 7));
            let violation = assert_finds(Kind::I1, &used(0, 0, 6));
            assert_eq!(
                violation.what,
                "client 0 acted under lock 0 at 0.002 s with token 6, which it was never granted"
            );
            assert_passes(&used(0, 0, 7));
        }
    }
    // The resource recorded the use before the client recorded the grant.
    let mut early = history(fenced(0, 7, true));
    early.entries.swap(1, 2);
    (early.entries[1].at, early.entries[2].at) = (MS, 2 * MS);
    assert_finds(Kind::I1, &early);
    early.bounds.skew = MS;
    assert_passes(&early);
}

#[test]
fn later_grants_have_higher_tokens() {
    let history = |second| {
        unbounded(&[
            (0, acquire(1, 0, 0)),
            (1, granted(1, 7)),
            (2, release(0, 7)),
            (3, acquire(2, 1, 0)),
            (4, granted(2, second)),
        ])
    };
    assert_excerpt(Kind::I2, &history(6), &[0, 1, 3, 4]);
    assert_passes(&history(8));
}

#[test]
fn token_of_two_acquires_of_one_client_is_found() {
    let history = |second| {
        unbounded(&[
            (0, acquire(1, 0, 0)),
            (1, granted(1, 7)),
            (2, acquire(2, 0, 0)),
            (3, release(0, 7)),
            (4, granted(2, second)),
        ])
    };
    let violation = assert_excerpt(Kind::I1, &history(7), &[0, 1, 2, 4]);
    assert_eq!(
        violation.what,
        "token 7 of lock 0 was granted to client 0 at 0.001 s and to client 0 at 0.004 s"
    );
    assert_passes(&history(8));
}

#[test]
fn second_grant_of_one_client_at_once_is_found() {
    let mut history = unbounded(&[
        (0, acquire(1, 0, 0)),
        (1, granted(1, 7)),
        (2, acquire(2, 0, 0)),
        (3, granted(2, 8)),
        (3, release(0, 7)),
    ]);
    assert_finds(Kind::I3, &history);
    history.entries.swap(3, 4);
    assert_passes(&history);
}

#[test]
fn token_is_stored_before_grant() {
    let history = |token| {
        unbounded(&[
            (0, acquire(1, 0, 0)),
            (0, acquire(2, 1, 0)),
            (1, stored(0, 2048)),
            (2, granted(1, 2048)),
            (3, release(0, 2048)),
            (4, granted(2, token)),
            (5, stored(0, 4096)),
        ])
    };
    assert_excerpt(Kind::I5, &history(2048 + 1024), &[1, 5]);
    assert_excerpt(Kind::I5, &history(4096), &[1, 5]);
    assert_passes(&history(2048 + 1023));
    // The record may be late by the skew.
    let mut late = history(4096);
    late.bounds = Bounds { skew: MS, ..Bounds::default() };
    assert_passes(&late);
}

#[test]
fn token_is_held_by_daemon_before_grant() {
    let history = |token| {
        unbounded(&[
            (0, acquire(1, 0, 0)),
            (1, holds(0, 2048, 900)),
            (2, holds(0, 4096, 900)),
            (3, granted(1, token)),
        ])
    };
    assert_finds(Kind::I5, &history(2047));
    assert_finds(Kind::I5, &history(3072));
    assert_passes(&history(3071));
    assert_passes(&history(4096));
    assert_finds(Kind::I5, &history(5120));
}

#[test]
fn lock_without_records_is_checked_too() {
    let history = |lock| {
        let mut history =
            unbounded(&[(0, stored(0, 1024)), (1, acquire(1, 0, 0)), (2, granted(1, 1024))]);
        history.entries[0].event = crate::Event::Stored { daemon: 0, lock, token: 1024 };
        history
    };
    assert_finds(Kind::I5, &history(4));
    assert_passes(&history(0));
    let history = |lock| {
        let mut history = unbounded(&[(0, leased(0, 60)), (1, holds(0, 1024, 50))]);
        history.entries[0].event = crate::Event::Leased { daemon: 0, lock, until: 60 * MS };
        history
    };
    assert_finds(Kind::I6, &history(4));
    assert_passes(&history(0));
}

#[test]
fn daemon_stores_own_tokens() {
    let history = |daemon, first, last| {
        unbounded(&[
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
    assert_passes(&history(1, 2048, 2048));
    // The daemon uses the tokens that its predecessor stored.
    assert_excerpt(Kind::I5, &history(0, 2048, 2048), &[6, 8]);
    assert_finds(Kind::I5, &history(1, 2048, 1024));
    assert_finds(Kind::I5, &history(1, 2048, 2049));
    // The daemon uses the tokens that it stored under an earlier lease.
    let again = |second| {
        unbounded(&[
            (0, leased(0, 60)),
            (1, stored(0, 1024)),
            (10, unleased()),
            (20, leased(0, 80)),
            (21, second),
            (22, holds(0, 1024, 70)),
        ])
    };
    assert_excerpt(Kind::I5, &again(leased(0, 81)), &[3, 5]);
    assert_passes(&again(stored(0, 1024)));
}

#[test]
fn stored_tokens_increase() {
    let history = |daemon, token| {
        unbounded(&[
            (0, stored(0, 0)),
            (1, stored(0, 1024)),
            (2, stored(1, 2048)),
            (3, stored(daemon, token)),
        ])
    };
    assert_excerpt(Kind::I7, &history(0, 1024), &[2, 3]);
    assert_excerpt(Kind::I7, &history(0, 2048), &[2, 3]);
    assert_excerpt(Kind::I7, &history(0, 0), &[2, 3]);
    assert_passes(&history(1, 2048));
    assert_passes(&history(0, 3072));
}

#[test]
fn deleted_blob_continues_with_higher_tokens() {
    let history = |token| {
        unbounded(&[
            (1, stored(0, 1024)),
            (2, stored(1, 2048)),
            (3, deleted()),
            (4, stored(0, 0)),
            (5, stored(0, token)),
        ])
    };
    assert_excerpt(Kind::I7, &history(1024), &[1, 4]);
    assert_passes(&history(3072));
    // An operator may write any token, but old tokens must not be stored again.
    let restored = |token| {
        let mut restored = history(token);
        restored.entries[2].event = tampered();
        restored
    };
    assert_excerpt(Kind::I7, &restored(1024), &[1, 4]);
    assert_excerpt(Kind::I7, &restored(2048), &[1, 4]);
    assert_passes(&restored(3072));
}

#[test]
fn token_is_granted_only_after_reservation() {
    let history = |first: u64, second: u64| {
        unbounded(&[
            (0, reserved(0, first)),
            (1, acquire(1, 0, 0)),
            (2, granted(1, 7)),
            (3, reserved(0, second)),
        ])
    };
    let violation = assert_excerpt(Kind::I5, &history(6, 7), &[1, 2]);
    assert_eq!(
        violation.what,
        "token 7 of lock 0 was granted to client 0 by daemon 0 at 0.002 s, but no data directory \
         had reserved it before"
    );
    assert_passes(&history(7, 9));
    // A clean shutdown records the highest token that was issued.
    assert_passes(&history(100, 7));
}

#[test]
fn forgotten_holds_may_overlap_with_later_ones() {
    let history = |upto: u64, until: u64| {
        unbounded(&[
            (0, acquire(1, 0, 0)),
            (1, granted(1, 7)),
            (2, valid(0, 7, 50)),
            (10, forgotten(upto, until)),
            (11, acquire(2, 1, 1)),
            (12, granted(2, 9)),
            (13, valid(1, 9, 40)),
            (20, release(1, 9)),
        ])
    };
    assert_passes(&history(8, 60));
    assert_excerpt(Kind::I3, &history(6, 60), &[2, 5, 6]);
    assert_excerpt(Kind::I3, &history(8, 11), &[2, 5, 6]);
}

#[test]
fn forgotten_token_is_not_granted_to_later_acquire() {
    let history = unbounded(&[
        (0, forgotten(8, 60)),
        (1, acquire(1, 0, 0)),
        (2, granted(1, 9)),
        (3, release(0, 9)),
        (4, acquire(2, 1, 1)),
        (5, granted(2, 7)),
    ]);
    assert_excerpt(Kind::I2, &history, &[1, 2, 4, 5]);
}
