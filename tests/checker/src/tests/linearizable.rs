//! Tests of linearizability. They run this check alone, because [`check()`](crate::check)
//! skips it for a lock that violates I1 to I4.

use proptest::{collection::vec, prelude::*};

use super::history_builder::*;
use crate::{History, Kind, Violation, check::linearizable, index::Index, report::Report};

fn check_alone(history: &History) -> Vec<Violation> {
    let mut report = Report::default();
    let index = Index::new(history, &mut Report::default());
    for lock in 0..index.locks.len() {
        linearizable::check(&index, lock, &mut report);
    }
    report.violations(&history.entries)
}

#[track_caller]
fn assert_mutex(history: &History) {
    let found = check_alone(history);
    assert!(found.is_empty(), "{}", all(&found));
}

#[track_caller]
fn assert_not_mutex(history: &History) {
    assert_eq!(check_alone(history).len(), 1);
}

#[test]
fn late_grant_with_lower_token_is_found() {
    let history = |first, second| {
        unbounded(&[
            (0, acquire(1, 0, 0)),
            (0, acquire(2, 1, 0)),
            (10, granted(1, first)),
            (11, release(0, first)),
            (12, granted(2, second)),
            (20, release(1, second)),
        ])
    };
    let violation = assert_excerpt(Kind::Linearizable, &history(8, 7), &[0, 1, 2, 4, 5]);
    assert_eq!(
        violation.what,
        "lock 0 is not a mutex: token 8 of client 0 was granted at 0.010 s, but token 7 of \
         client 1, which precedes it, lasted until 0.020 s"
    );
    assert_passes(&history(7, 8));
}

#[test]
fn hold_that_expired_before_delivery_may_precede() {
    let history = |until| {
        unbounded(&[
            (0, acquire(1, 0, 0)),
            (0, acquire(2, 1, 0)),
            (10, granted(1, 8)),
            (10, valid(0, 8, 90)),
            (11, release(0, 8)),
            (12, granted(2, 7)),
            (12, valid(1, 7, until)),
        ])
    };
    assert_passes(&history(9));
    assert_finds(Kind::Linearizable, &history(13));
}

#[test]
fn overlapping_holds_are_not_linearizable() {
    let history = |second| {
        unbounded(&[
            (0, acquire(1, 0, 0)),
            (0, acquire(2, 1, 0)),
            (10, granted(1, 7)),
            (10, valid(0, 7, 50)),
            (second, granted(2, 8)),
            (second, valid(1, 8, 90)),
        ])
    };
    assert_not_mutex(&history(49));
    assert_mutex(&history(50));
}

#[test]
fn lower_token_is_not_linearizable() {
    let history = |second| {
        unbounded(&[
            (0, acquire(1, 0, 0)),
            (1, granted(1, 7)),
            (2, release(0, 7)),
            (3, acquire(2, 1, 0)),
            (4, granted(2, second)),
            (5, release(1, second)),
        ])
    };
    assert_not_mutex(&history(6));
    assert_not_mutex(&history(7));
    assert_mutex(&history(8));
}

#[test]
fn release_frees_only_own_grant() {
    let history = |own| {
        unbounded(&[
            (0, acquire(1, 0, 0)),
            (0, granted(1, 7)),
            (0, valid(0, 7, 5)),
            (6, acquire(2, 1, 0)),
            (6, granted(2, 8)),
            (6, valid(1, 8, 90)),
            (7, release(0, 7)),
            (8, if own { release(1, 8) } else { released(7) }),
            (8, acquire(3, 2, 0)),
            (9, granted(3, 9)),
        ])
    };
    assert_not_mutex(&history(false));
    assert_mutex(&history(true));
}

#[test]
fn validity_after_another_hold_is_not_linearizable() {
    let entries = [
        (0, acquire(1, 0, 0)),
        (0, granted(1, 7)),
        (0, valid(0, 7, 5)),
        (6, acquire(2, 1, 0)),
        (6, granted(2, 8)),
        (6, valid(1, 8, 90)),
        (7, release(1, 8)),
        (9, valid(0, 7, 20)),
    ];
    // The validity intervals are disjoint, but no mutex can produce this order.
    assert_not_mutex(&unbounded(&entries));
    assert_passes(&unbounded(&entries[..7]));
}

/// A client that holds the lock waits like any other.
#[test]
fn mutex_is_not_reentrant() {
    let history = |second| {
        unbounded(&[
            (0, acquire(1, 0, 0)),
            (1, granted(1, 7)),
            (2, acquire(2, 0, 0)),
            (3, granted(2, second)),
            (4, release(0, 7)),
        ])
    };
    assert_not_mutex(&history(8));
    assert_not_mutex(&history(7));
    let mut waited = history(8);
    waited.entries.swap(3, 4);
    waited.entries[3].at = waited.entries[4].at;
    assert_mutex(&waited);
}

#[test]
fn clock_fault_excuses_client() {
    let history = |broken| {
        unbounded(&[
            (0, acquire(1, 0, 0)),
            (0, acquire(2, 1, 0)),
            (10, granted(1, 8)),
            (10, valid(0, 8, 11)),
            (12, broken),
            (13, granted(2, 7)),
            (13, valid(1, 7, 90)),
        ])
    };
    assert_passes(&history(clock_broken(1)));
    assert_finds(Kind::Linearizable, &history(clock_broken(2)));
}

/// Times of the acquire, of the grant and of the deadline. The nth grant has the nth token.
type Grant = (u64, u64, u64);

/// Generates grants. Entries have different even times; deadlines have odd times.
fn grants() -> impl Strategy<Value = Vec<Grant>> {
    (1..5usize).prop_flat_map(|count| {
        let moments: Vec<u64> = (0..2 * count as u64).map(|nth| nth * 2).collect();
        let untils = vec(0..=2 * count as u64, count);
        (Just(moments).prop_shuffle(), untils).prop_map(|(moments, untils)| {
            let pairs = moments.chunks(2).map(|pair| (pair[0].min(pair[1]), pair[0].max(pair[1])));
            pairs.zip(untils).map(|((from, to), until)| (from, to, until * 2 + 1)).collect()
        })
    })
}

/// Returns true if instants exist for all grants. Tries all of them.
fn is_possible(grants: &[Grant], after: u64) -> bool {
    let Some((&(invoked, granted, until), later)) = grants.split_first() else { return true };
    // A grant that expired before it was received was never valid.
    let until = if until < granted { 0 } else { until };
    (invoked..=granted).filter(|&at| at >= after).any(|at| is_possible(later, at.max(until)))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]
    #[test]
    fn order_is_found_exactly_if_one_exists(grants in grants()) {
        let mut entries = Vec::new();
        for (nth, &(invoked_at, granted_at, until)) in (0..).zip(&grants) {
            entries.push((invoked_at, acquire(nth, nth as u32, 0)));
            entries.push((granted_at, granted(nth, nth + 1)));
            entries.push((granted_at, valid(nth as u32, nth + 1, until)));
        }
        entries.sort_by_key(|(at, _)| *at);
        let found = check_alone(&unbounded(&entries));
        prop_assert_eq!(found.is_empty(), is_possible(&grants, 0), "{}", all(&found));
    }
}
