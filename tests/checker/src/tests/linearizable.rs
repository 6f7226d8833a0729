//! The mutex. Where I1 to I4 find something too, only they are told: so it is
//! asked alone here.

use proptest::{collection::vec, prelude::*};

use super::history_builder::*;
use crate::{History, Kind, Violation, check::linearizable, index::Index, report::Report};

fn alone(history: &History) -> Vec<Violation> {
    let mut report = Report::default();
    let index = Index::new(history, &mut Report::default());
    for lock in 0..index.locks.len() {
        linearizable::check(&index, lock, &mut report);
    }
    report.violations(&history.entries)
}

#[track_caller]
fn a_mutex(history: &History) {
    let found = alone(history);
    assert!(found.is_empty(), "{}", all(&found));
}

#[track_caller]
fn no_mutex(history: &History) {
    assert_eq!(alone(history).len(), 1);
}

#[test]
fn only_it_sees_a_late_grant_with_a_lower_token() {
    let history = |first, second| {
        tale(&[
            (0, ask(1, 0, 0)),
            (0, ask(2, 1, 0)),
            (10, granted(1, first)),
            (11, release(0, first)),
            (12, granted(2, second)),
            (20, release(1, second)),
        ])
    };
    let violation = shown(Kind::Linearizable, &history(8, 7), &[0, 1, 2, 4, 5]);
    assert_eq!(
        violation.what,
        "lock 0 is no mutex: token 8 of client 0 was granted at 0.010 s, but token 7 of client 1, \
         which comes before it, lasted until 0.020 s"
    );
    fine(&history(7, 8));
}

#[test]
fn what_was_over_before_it_was_heard_of_may_have_come_first() {
    let history = |until| {
        tale(&[
            (0, ask(1, 0, 0)),
            (0, ask(2, 1, 0)),
            (10, granted(1, 8)),
            (10, valid(0, 8, 90)),
            (11, release(0, 8)),
            (12, granted(2, 7)),
            (12, valid(1, 7, until)),
        ])
    };
    fine(&history(9));
    wrong(Kind::Linearizable, &history(13));
}

#[test]
fn two_holders() {
    let history = |second| {
        tale(&[
            (0, ask(1, 0, 0)),
            (0, ask(2, 1, 0)),
            (10, granted(1, 7)),
            (10, valid(0, 7, 50)),
            (second, granted(2, 8)),
            (second, valid(1, 8, 90)),
        ])
    };
    no_mutex(&history(49));
    a_mutex(&history(50));
}

#[test]
fn a_token_that_goes_back() {
    let history = |second| {
        tale(&[
            (0, ask(1, 0, 0)),
            (1, granted(1, 7)),
            (2, release(0, 7)),
            (3, ask(2, 1, 0)),
            (4, granted(2, second)),
            (5, release(1, second)),
        ])
    };
    no_mutex(&history(6));
    no_mutex(&history(7));
    a_mutex(&history(8));
}

#[test]
fn a_release_that_frees_what_another_holds() {
    let history = |own| {
        tale(&[
            (0, ask(1, 0, 0)),
            (0, granted(1, 7)),
            (0, valid(0, 7, 5)),
            (6, ask(2, 1, 0)),
            (6, granted(2, 8)),
            (6, valid(1, 8, 90)),
            (7, release(0, 7)),
            (8, if own { release(1, 8) } else { released(7) }),
            (8, ask(3, 2, 0)),
            (9, granted(3, 9)),
        ])
    };
    no_mutex(&history(false));
    a_mutex(&history(true));
}

#[test]
fn valid_again_although_another_held_it_meanwhile() {
    let entries = [
        (0, ask(1, 0, 0)),
        (0, granted(1, 7)),
        (0, valid(0, 7, 5)),
        (6, ask(2, 1, 0)),
        (6, granted(2, 8)),
        (6, valid(1, 8, 90)),
        (7, release(1, 8)),
        (9, valid(0, 7, 20)),
    ];
    // The validity of the two is disjoint, but one mutex can't do that.
    no_mutex(&tale(&entries));
    fine(&tale(&entries[..7]));
}

/// A client that holds the lock waits like any other.
#[test]
fn mutex_is_not_reentrant() {
    let history = |second| {
        tale(&[
            (0, ask(1, 0, 0)),
            (1, granted(1, 7)),
            (2, ask(2, 0, 0)),
            (3, granted(2, second)),
            (4, release(0, 7)),
        ])
    };
    no_mutex(&history(8));
    no_mutex(&history(7));
    let mut waited = history(8);
    waited.entries.swap(3, 4);
    waited.entries[3].at = waited.entries[4].at;
    a_mutex(&waited);
}

#[test]
fn a_wrong_clock_excuses() {
    let history = |broken| {
        tale(&[
            (0, ask(1, 0, 0)),
            (0, ask(2, 1, 0)),
            (10, granted(1, 8)),
            (10, valid(0, 8, 11)),
            (12, broken),
            (13, granted(2, 7)),
            (13, valid(1, 7, 90)),
        ])
    };
    fine(&history(clock_broken(1)));
    wrong(Kind::Linearizable, &history(clock_broken(2)));
}

/// When it asks, when it is granted, until when it counts on it. The nth has
/// the nth token.
type Grant = (u64, u64, u64);

/// Entries have even times, all different; deadlines have odd ones.
fn grants() -> impl Strategy<Value = Vec<Grant>> {
    (1..5usize).prop_flat_map(|count| {
        let moments: Vec<u64> = (0..2 * count as u64).map(|nth| nth * 2).collect();
        let untils = vec(0..=2 * count as u64, count);
        (Just(moments).prop_shuffle(), untils).prop_map(|(moments, untils)| {
            let pairs = moments.chunks(2).map(|pair| (pair[0].min(pair[1]), pair[0].max(pair[1])));
            pairs.zip(untils).map(|((asks, hears), until)| (asks, hears, until * 2 + 1)).collect()
        })
    })
}

/// Whether there are moments for all grants, by trying all.
fn possible(grants: &[Grant], after: u64) -> bool {
    let Some((&(asks, hears, until), rest)) = grants.split_first() else { return true };
    // What was over before it was heard of was never valid.
    let until = if until < hears { 0 } else { until };
    (asks..=hears).filter(|&at| at >= after).any(|at| possible(rest, at.max(until)))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]
    #[test]
    fn it_finds_an_order_exactly_if_there_is_one(grants in grants()) {
        let mut entries = Vec::new();
        for (nth, &(asks, hears, until)) in (0..).zip(&grants) {
            entries.push((asks, ask(nth, nth as u32, 0)));
            entries.push((hears, granted(nth, nth + 1)));
            entries.push((hears, valid(nth as u32, nth + 1, until)));
        }
        entries.sort_by_key(|(at, _)| *at);
        let found = alone(&tale(&entries));
        prop_assert_eq!(found.is_empty(), possible(&grants, 0), "{}", all(&found));
    }
}
