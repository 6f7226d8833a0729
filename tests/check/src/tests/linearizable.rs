//! The mutex. Where I1 to I4 find something too, only they are told: so it is
//! asked alone here.

use super::tale::*;
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
    wrong(Kind::Linearizable, &tale(&entries));
    fine(&tale(&entries[..7]));
}

#[test]
fn shared_grants_are_one_hold() {
    let history = |last| {
        tale(&[
            (0, ask(1, 0, 0)),
            (1, granted(1, 7)),
            (2, ask(2, 0, 0)),
            (3, granted(2, 7)),
            (4, release(0, 7)),
            (5, ask(3, 1, 0)),
            (6, granted(3, last)),
        ])
    };
    a_mutex(&history(8));
    no_mutex(&history(7));
}
