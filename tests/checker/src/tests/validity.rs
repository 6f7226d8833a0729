//! Tests of I3 and I4.

use proptest::{collection::vec, prelude::*};

use super::history_builder::*;
use crate::{Kind, check};

#[test]
fn overlapping_holds_are_found() {
    let entries = [
        (0, acquire(1, 0, 0)),
        (1, granted(1, 7)),
        (1, valid(0, 7, 50)),
        (20, valid(0, 7, 90)),
        (30, acquire(2, 1, 1)),
        (60, granted(2, 8)),
        (60, valid(1, 8, 120)),
        (70, lost(0, 7)),
        (80, release(1, 8)),
    ];
    let history = unbounded(&entries);
    let violation = assert_excerpt(Kind::I3, &history, &[3, 5, 6]);
    assert_eq!(
        violation.what,
        "lock 0 was held by client 0 with token 7 and by client 1 with token 8 at once, \
         from 0.060 s to 0.070 s"
    );
    // Without entry 3, client 0 relied on its grant only until 50.
    assert_passes(&without(&history, 3));
    // Without deadlines, the excerpt contains the acquires, which name the lock.
    let no_deadlines = unbounded(&[
        (0, acquire(1, 0, 0)),
        (1, granted(1, 7)),
        (2, acquire(2, 1, 1)),
        (3, granted(2, 8)),
        (4, release(0, 7)),
    ]);
    assert_excerpt(Kind::I3, &no_deadlines, &[0, 1, 2, 3]);
    let mut skewed = history.clone();
    skewed.bounds.skew = 10 * MS;
    assert_passes(&skewed);
    skewed.bounds.skew = 10 * MS - 1;
    assert_finds(Kind::I3, &skewed);
}

#[test]
fn broken_lease_excuses_holder_until_regular_expiry() {
    let history = |overruled_at, end| {
        let mut entries = vec![
            (0, acquire(1, 0, 0)),
            (1, stored(0, 1024)),
            (1, granted(1, 1024)),
            (1, valid(0, 1024, 90_000)),
            (2_000, acquire(2, 1, 1)),
            (2_001, stored(1, 2048)),
            (2_001, granted(2, 2048)),
            (2_001, valid(1, 2048, 90_000)),
            (end, release(0, 1024)),
            (end + 1, release(1, 2048)),
        ];
        entries.push((overruled_at, overruled(19_000)));
        entries.sort_by_key(|(at, _)| *at);
        bounded(bounds(), &entries)
    };
    assert_passes(&history(1_000, 19_000));
    assert_finds(Kind::I3, &history(1_000, 19_001));
    // It does not excuse an earlier second grant.
    assert_finds(Kind::I3, &history(2_001, 19_000));
}

#[test]
fn only_recorded_lease_can_be_broken_by_operator() {
    let history = |lease, until| {
        unbounded(&[
            (0, lease),
            (0, acquire(1, 0, 0)),
            (1, stored(0, 1024)),
            (1, granted(1, 1024)),
            (1, valid(0, 1024, 40)),
            (10, overruled(until)),
            (10, unleased()),
            (20, leased(1, 90)),
            (20, acquire(2, 1, 1)),
            (21, stored(1, 2048)),
            (21, granted(2, 2048)),
            (21, valid(1, 2048, 80)),
        ])
    };
    assert_passes(&history(leased(0, 60), 60));
    assert_passes(&history(leased(0, 40), 60));
    assert_finds(Kind::I3, &history(leased(0, 39), 60));
    assert_finds(Kind::I3, &history(leased(0, 60), 39));
    assert_finds(Kind::I3, &history(leased(0, 10), 60));
    assert_finds(Kind::I3, &history(unleased(), 60));
}

#[test]
fn hold_ends_by_release_loss_death_or_disconnect() {
    for end in [release(0, 7), lost(0, 7), died(0), freed(0, 7)] {
        let history = unbounded(&[
            (0, acquire(1, 0, 0)),
            (0, acquire(2, 1, 1)),
            (1, granted(1, 7)),
            (1, valid(0, 7, 90)),
            (60, end),
            (60, granted(2, 8)),
            (60, valid(1, 8, 120)),
        ]);
        assert_passes(&history);
        let mut late = history.clone();
        late.entries.swap(4, 5);
        assert_finds(Kind::I3, &late);
    }
}

#[test]
fn late_entries_of_freed_grant_are_no_violation() {
    let history = unbounded(&[
        (0, acquire(1, 0, 0)),
        (0, acquire(2, 1, 0)),
        (1, granted(1, 7)),
        (1, valid(0, 7, 50)),
        (20, freed(0, 7)),
        (21, granted(2, 8)),
        (21, valid(1, 8, 120)),
        // Sent before the stream ended.
        (22, valid(0, 7, 70)),
        (70, loss_notified(0, 7)),
        (70, lost(0, 7)),
    ]);
    assert_passes(&history);
    // Without the end of a fenced session's stream, the overlap is a violation.
    assert_finds(Kind::I3, &without(&history, 4));
    // The grants of other clients must still be exclusive.
    let mut third = history.clone();
    third.entries.insert(7, crate::Entry { at: 21 * MS, event: acquire(3, 2, 0) });
    third.entries.insert(8, crate::Entry { at: 21 * MS, event: granted(3, 9) });
    assert_finds(Kind::I3, &third);
}

#[test]
fn grant_freed_before_delivery_is_never_valid() {
    let history = unbounded(&[
        (0, acquire(1, 0, 0)),
        (0, acquire(2, 1, 0)),
        (1, freed(0, 7)),
        (2, granted(2, 8)),
        (2, valid(1, 8, 120)),
        (3, granted(1, 7)),
        (3, valid(0, 7, 50)),
        (4, lost(0, 7)),
    ]);
    assert_passes(&history);
    assert_finds(Kind::I3, &without(&history, 2));
    // The end of another grant of the same client does not excuse it.
    let mut other = history.clone();
    other.entries[2].event = freed(0, 6);
    assert_finds(Kind::I3, &other);
}

#[test]
fn shortened_deadline_ends_hold_earlier() {
    let history = unbounded(&[
        (0, acquire(1, 0, 0)),
        (0, acquire(2, 1, 1)),
        (1, granted(1, 7)),
        (1, valid(0, 7, 90)),
        (5, valid(0, 7, 40)),
        (40, granted(2, 8)),
        (40, valid(1, 8, 120)),
    ]);
    assert_passes(&history);
    assert_finds(Kind::I3, &without(&history, 4));
    // The client receives the earlier deadline after it has passed: it acted until then.
    let mut late = history.clone();
    late.entries[4].at = 50 * MS;
    late.entries[4..].sort_by_key(|entry| entry.at);
    assert_finds(Kind::I3, &late);
}

#[test]
fn grant_to_dead_client_ends_at_once() {
    let mut history = unbounded(&[
        (0, acquire(1, 0, 0)),
        (0, acquire(2, 1, 1)),
        (5, died(0)),
        (6, granted(1, 7)),
        (40, granted(2, 8)),
    ]);
    assert_finds(Kind::Malformed, &history);
    history.bounds.skew = MS;
    assert_passes(&history);
}

#[test]
fn overlap_with_earlier_long_hold_is_found() {
    // The hold of token 7 ended before; token 9 overlaps with token 8 only.
    let history = unbounded(&[
        (0, acquire(1, 0, 0)),
        (0, acquire(2, 1, 1)),
        (0, acquire(3, 2, 1)),
        (1, granted(1, 7)),
        (1, valid(0, 7, 20)),
        (30, granted(2, 8)),
        (30, valid(1, 8, 60)),
        (40, granted(3, 9)),
        (40, valid(2, 9, 50)),
    ]);
    let violation = assert_finds(Kind::I3, &history);
    assert!(violation.what.contains("token 8 and by client 2 with token 9"), "{violation}");
}

#[test]
fn grant_received_after_deadline_is_not_a_hold() {
    let entries = |until| {
        [
            (0, acquire(1, 0, 0)),
            (0, acquire(2, 1, 1)),
            (50, granted(2, 8)),
            (50, valid(1, 8, 90)),
            (60, granted(1, 7)),
            (60, valid(0, 7, until)),
            (60, lost(0, 7)),
        ]
    };
    assert_passes(&unbounded(&entries(40)));
    let mut valid_later = entries(70).to_vec();
    valid_later[6].0 = 65;
    assert_finds(Kind::I3, &unbounded(&valid_later));
}

#[test]
fn clock_fault_excuses_overlap() {
    let history = unbounded(&[
        (0, acquire(1, 0, 0)),
        (0, acquire(2, 1, 1)),
        (1, granted(1, 7)),
        (1, valid(0, 7, 90)),
        (30, clock_broken(0)),
        (40, granted(2, 8)),
        (40, valid(1, 8, 120)),
    ]);
    assert_passes(&history);
    assert_finds(Kind::I3, &without(&history, 4));
    let mut late = history.clone();
    late.entries[4].at = 45 * MS;
    late.entries.swap(4, 5);
    late.entries.swap(5, 6);
    assert_finds(Kind::I3, &late);
}

#[test]
fn lost_grant_is_never_valid_again() {
    let history = |last| {
        unbounded(&[
            (0, acquire(1, 0, 0)),
            (1, granted(1, 7)),
            (1, valid(0, 7, 50)),
            (20, lost(0, 7)),
            (30, last),
        ])
    };
    let violation = assert_excerpt(Kind::I4, &history(valid(0, 7, 90)), &[3, 4]);
    assert_eq!(
        violation.what,
        "token 7 of lock 0 was lost at 0.020 s, but client 0 relied on it again at 0.030 s"
    );
    assert_excerpt(Kind::I4, &history(unfenced(0, 7)), &[3, 4]);
    // The fence handles stale writes.
    assert_passes(&history(fenced(0, 7, true)));
    assert_passes(&history(fenced(0, 7, false)));
    assert_passes(&history(release(0, 7)));
    let mut early = history(valid(0, 7, 90));
    early.entries.swap(3, 4);
    early.entries[3].at = 20 * MS;
    assert_passes(&early);
}

#[test]
fn expired_grant_is_never_valid_again() {
    let history = |last: &[(u64, crate::Event)]| {
        let mut entries = vec![
            (0, acquire(1, 0, 0)),
            (1, granted(1, 7)),
            (1, valid(0, 7, 90)),
            (5, valid(0, 7, 50)),
            (40, acquire(2, 0, 0)),
        ];
        entries.extend_from_slice(last);
        unbounded(&entries)
    };
    let violation = assert_excerpt(Kind::I4, &history(&[(50, valid(0, 7, 51))]), &[3, 5]);
    assert_eq!(
        violation.what,
        "token 7 of lock 0 expired at 0.050 s, but client 0 relied on it again at 0.050 s"
    );
    assert_passes(&history(&[(49, valid(0, 7, 51))]));
    // An earlier deadline that arrives late is no violation.
    assert_passes(&history(&[(50, valid(0, 7, 50))]));
    assert_passes(&history(&[(60, valid(0, 7, 30))]));
    // On a faulty clock, the deadline had not passed.
    assert_passes(&history(&[(45, clock_broken(0)), (60, valid(0, 7, 70))]));
    // If several processes record, the extension may have been recorded late.
    let mut skewed = history(&[(60, valid(0, 7, 70))]);
    skewed.bounds.skew = 1;
    assert_passes(&skewed);
}

#[test]
fn waiter_for_loss_is_notified_by_deadline() {
    let history = |at| {
        unbounded(&[
            (0, acquire(1, 0, 0)),
            (1, granted(1, 7)),
            (1, valid(0, 7, 90)),
            (5, valid(0, 7, 50)),
            (at, loss_notified(0, 7)),
            (at, lost(0, 7)),
        ])
    };
    let violation = assert_excerpt(Kind::I4, &history(51), &[3, 4]);
    assert_eq!(
        violation.what,
        "token 7 of lock 0 expired at 0.050 s, but client 0, which waited for the loss, was \
         notified at 0.051 s"
    );
    assert_passes(&history(50));
    assert_passes(&history(20));
    let mut skewed = history(60);
    skewed.bounds.skew = 1;
    assert_passes(&skewed);
    assert_finds(Kind::Malformed, &unbounded(&[(0, loss_notified(0, 7))]));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]
    /// The sweep finds an overlap exactly if some pair overlaps.
    #[test]
    fn overlap_is_found_exactly_if_one_exists(spans in vec((0..60u64, 0..12u64), 0..8)) {
        let mut entries = Vec::new();
        for (nth, &(from, length)) in (0..).zip(&spans) {
            entries.push((0, acquire(nth, nth as u32, 0)));
            entries.push((from, granted(nth, nth + 1)));
            entries.push((from, valid(nth as u32, nth + 1, from + length)));
        }
        entries.sort_by_key(|(at, _)| *at);
        let overlap = |(a, b): ((u64, u64), (u64, u64))| a.0.max(b.0) < (a.0 + a.1).min(b.0 + b.1);
        let pairs = spans.iter().enumerate().flat_map(|(nth, &a)| {
            spans[nth + 1..].iter().map(move |&b| (a, b))
        });
        let found = check(&unbounded(&entries)).iter().any(|violation| violation.kind == Kind::I3);
        prop_assert_eq!(found, pairs.into_iter().any(overlap));
    }
}
