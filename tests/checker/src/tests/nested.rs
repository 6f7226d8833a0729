//! Tests of I6.

use super::history_builder::*;
use crate::{Event, History, Kind};

#[test]
fn client_deadline_is_not_after_daemon_deadline() {
    let history = |until| {
        unbounded(&[
            (0, acquire(1, 0, 0)),
            (1, holds(0, 1024, 50)),
            (2, granted(1, 1024)),
            (2, valid(0, 1024, 40)),
            (20, holds(0, 1024, 70)),
            (21, holds(0, 1024, 60)),
            (22, hold_ended(0)),
            (23, holds(0, 2048, 90)),
            (24, valid(0, 1024, until)),
        ])
    };
    // The latest deadline of the daemon's hold with this token, not that of the next hold.
    let violation = assert_excerpt(Kind::I6, &history(71), &[4, 8]);
    assert_eq!(
        violation.what,
        "client 0 relied on lock 0, token 1024, until 0.071 s, but its daemon 0 only until \
         0.070 s"
    );
    assert_passes(&history(70));
    let mut skewed = history(71);
    skewed.bounds.skew = MS;
    assert_passes(&skewed);
    let mut broken = history(71);
    broken.entries[6].event = clock_broken(0);
    broken.entries.remove(7);
    assert_passes(&broken);
}

#[test]
fn client_of_freed_grant_may_have_later_deadline() {
    let history = unbounded(&[
        (0, leased(0, 60)),
        (0, acquire(1, 0, 0)),
        (1, holds(0, 1024, 50)),
        (2, granted(1, 1024)),
        (2, valid(0, 1024, 40)),
        (20, freed(0, 1024)),
        (20, hold_ended(0)),
        (21, unleased()),
        (22, valid(0, 1024, 45)),
    ]);
    assert_passes(&history);
    assert_finds(Kind::I6, &without(&history, 5));
}

#[test]
fn daemon_deadline_is_not_after_lease_expiry() {
    let history = |until| {
        unbounded(&[
            (0, leased(0, 60)),
            (1, holds(0, 1024, 50)),
            (20, leased(0, 80)),
            (21, holds(0, 1024, until)),
        ])
    };
    assert_excerpt(Kind::I6, &history(81), &[2, 3]);
    assert_passes(&history(80));
    // Another lease, a shorter one.
    let mut again = history(80);
    again.entries.insert(3, crate::Entry { at: 20 * MS, event: hold_ended(0) });
    again.entries.insert(4, crate::Entry { at: 20 * MS, event: unleased() });
    again.entries.insert(5, crate::Entry { at: 20 * MS, event: leased(0, 70) });
    assert_excerpt(Kind::I6, &again, &[5, 6]);
    again.entries[4].event = leased(1, 90);
    assert_excerpt(Kind::I6, &again, &[5, 6]);
    // The storage has no lease for this daemon.
    let other = unbounded(&[(0, leased(1, 60)), (1, holds(0, 1024, 50))]);
    assert_excerpt(Kind::I6, &other, &[1]);
    // The history has no leases to compare with.
    assert_passes(&unbounded(&[(1, holds(0, 1024, 50))]));
    // A client with a clock fault may share its clock with its daemon.
    let broken = unbounded(&[
        (0, acquire(1, 0, 0)),
        (0, clock_broken(0)),
        (0, leased(0, 60)),
        (1, holds(0, 1024, 70)),
    ]);
    assert_passes(&broken);
    assert_finds(Kind::I6, &without(&broken, 1));
}

/// Deadlines of token 1024: client 0 at 45, its daemon at 50, the storage at 60. Then the
/// events in `more`.
fn and_then(more: &[(u64, Event)]) -> History {
    let mut entries = vec![
        (0, acquire(1, 0, 0)),
        (0, leased(0, 60)),
        (1, stored(0, 1024)),
        (1, holds(0, 1024, 50)),
        (2, granted(1, 1024)),
        (2, valid(0, 1024, 45)),
    ];
    entries.extend_from_slice(more);
    unbounded(&entries)
}

#[test]
fn lease_does_not_end_before_client_deadline() {
    let released_at = |at| [(10, hold_ended(0)), (at, unleased())];
    let violation = assert_excerpt(Kind::I6, &and_then(&released_at(10)), &[1, 5, 7]);
    assert_eq!(
        violation.what,
        "the storage's lease of lock 0 for daemon 0 ended at 0.010 s, but client 0 relied on \
         token 1024 until 0.045 s"
    );
    assert_passes(&and_then(&released_at(45)));
    assert_finds(Kind::I6, &and_then(&[(10, hold_ended(0)), (10, leased(1, 90))]));
    // The client stopped, or has a clock fault.
    for end in [release(0, 1024), lost(0, 1024), died(0), clock_broken(0)] {
        let mut entries = vec![(10, end)];
        entries.extend(released_at(10));
        assert_passes(&and_then(&entries));
        entries.rotate_left(1);
        assert_finds(Kind::I6, &and_then(&entries));
    }
    // The client received an earlier deadline in between.
    assert_passes(&and_then(&[(5, valid(0, 1024, 10)), (10, hold_ended(0)), (10, unleased())]));
}

#[test]
fn released_lease_has_no_later_deadlines() {
    // A deadline from before the release is invalid, even if the client receives it now.
    let history = |until| {
        and_then(&[
            (5, valid(0, 1024, 20)),
            (10, clock_broken(0)),
            (10, hold_ended(0)),
            (10, unleased()),
            (11, acquire(2, 1, 0)),
            (12, granted(2, 1025)),
            (12, valid(1, 1025, until)),
        ])
    };
    assert_excerpt(Kind::I6, &history(13), &[9, 12]);
    assert_passes(&history(10));
    // The same applies to the daemon.
    let history = |end| unbounded(&[(0, leased(0, 60)), (1, holds(0, 1024, 50)), (10, end)]);
    let violation = assert_excerpt(Kind::I6, &history(unleased()), &[0, 1, 2]);
    assert_eq!(
        violation.what,
        "the storage's lease of lock 0 for daemon 0 ended at 0.010 s, but the daemon relied on \
         it until 0.050 s"
    );
    assert_passes(&history(hold_ended(0)));
    let again = |end| {
        unbounded(&[
            (0, leased(0, 60)),
            (1, holds(0, 1024, 50)),
            (10, hold_ended(0)),
            (10, end),
            (20, holds(0, 1024, 55)),
        ])
    };
    assert_excerpt(Kind::I6, &again(unleased()), &[3, 4]);
    assert_passes(&again(overruled(60)));
}

#[test]
fn shortened_lease_ends_earlier() {
    let history = |until| and_then(&[(10, leased(0, until))]);
    assert_finds(Kind::I6, &history(44));
    assert_finds(Kind::I6, &history(49));
    assert_passes(&history(50));
    assert_excerpt(Kind::I6, &and_then(&[(10, hold_ended(0)), (10, leased(0, 44))]), &[1, 5, 7]);
    assert_passes(&and_then(&[(10, hold_ended(0)), (10, leased(0, 45))]));
}

#[test]
fn lease_broken_by_operator_is_excused() {
    for how in [deleted(), tampered()] {
        let taken =
            |until| and_then(&[(10, overruled(until)), (10, how.clone()), (10, unleased())]);
        assert_passes(&taken(60));
        assert_finds(Kind::I6, &taken(9));
        assert_finds(Kind::I6, &without(&taken(60), 6));
        // A renewal of the broken lease is not excused.
        let mut renewed = taken(60);
        renewed.entries.push(crate::Entry { at: 20 * MS, event: holds(0, 1024, 61) });
        assert_finds(Kind::I6, &renewed);
        // The next lease is not excused.
        let next = [
            (11, hold_ended(0)),
            (20, leased(0, 80)),
            (20, stored(0, 2048)),
            (20, holds(0, 2048, 70)),
            (30, hold_ended(0)),
            (30, unleased()),
            (31, holds(0, 2048, 70)),
        ];
        let mut entries = vec![(10, overruled(60)), (10, how.clone()), (10, unleased())];
        entries.extend(next);
        assert_finds(Kind::I6, &and_then(&entries));
        entries.pop();
        assert_passes(&and_then(&entries));
    }
}
