//! I3, I4.

use proptest::{collection::vec, prelude::*};

use super::history_builder::*;
use crate::{Kind, check};

#[test]
fn two_holders_at_once() {
    let entries = [
        (0, ask(1, 0, 0)),
        (1, granted(1, 7)),
        (1, valid(0, 7, 50)),
        (20, valid(0, 7, 90)),
        (30, ask(2, 1, 1)),
        (60, granted(2, 8)),
        (60, valid(1, 8, 120)),
        (70, lost(0, 7)),
        (80, release(1, 8)),
    ];
    let history = tale(&entries);
    let violation = shown(Kind::I3, &history, &[3, 5, 6]);
    assert_eq!(
        violation.what,
        "lock 0 was held by client 0 with token 7 and by client 1 with token 8 at once, \
         from 0.060 s to 0.070 s"
    );
    // It counted on it until 50 only.
    fine(&without(&history, 3));
    // Without a word on how long, who asked tells which lock it is.
    let silent = tale(&[
        (0, ask(1, 0, 0)),
        (1, granted(1, 7)),
        (2, ask(2, 1, 1)),
        (3, granted(2, 8)),
        (4, release(0, 7)),
    ]);
    shown(Kind::I3, &silent, &[0, 1, 2, 3]);
    let mut skewed = history.clone();
    skewed.bounds.skew = 10 * MS;
    fine(&skewed);
    skewed.bounds.skew = 10 * MS - 1;
    wrong(Kind::I3, &skewed);
}

#[test]
fn whom_an_operator_overruled_may_hold_on_until_its_lease_would_be_over() {
    let history = |overruled_at, end| {
        let mut entries = vec![
            (0, ask(1, 0, 0)),
            (1, stored(0, 1024)),
            (1, granted(1, 1024)),
            (1, valid(0, 1024, 90_000)),
            (2_000, ask(2, 1, 1)),
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
    fine(&history(1_000, 19_000));
    wrong(Kind::I3, &history(1_000, 19_001));
    // It is no excuse for a grant from before.
    wrong(Kind::I3, &history(2_001, 19_000));
}

#[test]
fn only_a_lease_that_is_there_can_be_taken_away() {
    let history = |lease, until| {
        tale(&[
            (0, lease),
            (0, ask(1, 0, 0)),
            (1, stored(0, 1024)),
            (1, granted(1, 1024)),
            (1, valid(0, 1024, 40)),
            (10, overruled(until)),
            (10, unleased()),
            (20, leased(1, 90)),
            (20, ask(2, 1, 1)),
            (21, stored(1, 2048)),
            (21, granted(2, 2048)),
            (21, valid(1, 2048, 80)),
        ])
    };
    fine(&history(leased(0, 60), 60));
    fine(&history(leased(0, 40), 60));
    wrong(Kind::I3, &history(leased(0, 39), 60));
    wrong(Kind::I3, &history(leased(0, 60), 39));
    wrong(Kind::I3, &history(leased(0, 10), 60));
    wrong(Kind::I3, &history(unleased(), 60));
}

#[test]
fn what_ends_a_hold() {
    for end in [release(0, 7), lost(0, 7), died(0), freed(0, 7)] {
        let history = tale(&[
            (0, ask(1, 0, 0)),
            (0, ask(2, 1, 1)),
            (1, granted(1, 7)),
            (1, valid(0, 7, 90)),
            (60, end),
            (60, granted(2, 8)),
            (60, valid(1, 8, 120)),
        ]);
        fine(&history);
        let mut late = history.clone();
        late.entries.swap(4, 5);
        wrong(Kind::I3, &late);
    }
}

#[test]
fn what_a_fenced_session_still_says_of_what_was_freed_is_no_fault() {
    let history = tale(&[
        (0, ask(1, 0, 0)),
        (0, ask(2, 1, 0)),
        (1, granted(1, 7)),
        (1, valid(0, 7, 50)),
        (20, freed(0, 7)),
        (21, granted(2, 8)),
        (21, valid(1, 8, 120)),
        // This was on its way before the stream broke.
        (22, valid(0, 7, 70)),
        (70, told(0, 7)),
        (70, lost(0, 7)),
    ]);
    fine(&history);
    // Of somebody whose session is not fenced, each of these is one.
    wrong(Kind::I3, &without(&history, 4));
    // What others have is still theirs alone.
    let mut third = history.clone();
    third.entries.insert(7, crate::Entry { at: 21 * MS, event: ask(3, 2, 0) });
    third.entries.insert(8, crate::Entry { at: 21 * MS, event: granted(3, 9) });
    wrong(Kind::I3, &third);
}

#[test]
fn what_was_freed_before_it_was_heard_of_was_never_held() {
    let history = tale(&[
        (0, ask(1, 0, 0)),
        (0, ask(2, 1, 0)),
        (1, freed(0, 7)),
        (2, granted(2, 8)),
        (2, valid(1, 8, 120)),
        (3, granted(1, 7)),
        (3, valid(0, 7, 50)),
        (4, lost(0, 7)),
    ]);
    fine(&history);
    wrong(Kind::I3, &without(&history, 2));
    // Another token of the same client is another matter.
    let mut other = history.clone();
    other.entries[2].event = freed(0, 6);
    wrong(Kind::I3, &other);
}

#[test]
fn a_deadline_that_was_shortened_counts() {
    let history = tale(&[
        (0, ask(1, 0, 0)),
        (0, ask(2, 1, 1)),
        (1, granted(1, 7)),
        (1, valid(0, 7, 90)),
        (5, valid(0, 7, 40)),
        (40, granted(2, 8)),
        (40, valid(1, 8, 120)),
    ]);
    fine(&history);
    wrong(Kind::I3, &without(&history, 4));
    // It hears of that only when it is over: until then it acted.
    let mut late = history.clone();
    late.entries[4].at = 50 * MS;
    late.entries[4..].sort_by_key(|entry| entry.at);
    wrong(Kind::I3, &late);
}

#[test]
fn what_was_granted_to_the_dead_is_over() {
    let mut history = tale(&[
        (0, ask(1, 0, 0)),
        (0, ask(2, 1, 1)),
        (5, died(0)),
        (6, granted(1, 7)),
        (40, granted(2, 8)),
    ]);
    wrong(Kind::Malformed, &history);
    history.bounds.skew = MS;
    fine(&history);
}

#[test]
fn a_third_holder_is_found_behind_a_long_one() {
    // Tokens 7 and 9 of client 0 are valid together as well, but not found there.
    let history = tale(&[
        (0, ask(1, 0, 0)),
        (0, ask(2, 1, 1)),
        (0, ask(3, 2, 1)),
        (1, granted(1, 7)),
        (1, valid(0, 7, 20)),
        (30, granted(2, 8)),
        (30, valid(1, 8, 60)),
        (40, granted(3, 9)),
        (40, valid(2, 9, 50)),
    ]);
    let violation = wrong(Kind::I3, &history);
    assert!(violation.what.contains("token 8 and by client 2 with token 9"), "{violation}");
}

#[test]
fn a_grant_that_came_too_late_is_no_hold() {
    let entries = |until| {
        [
            (0, ask(1, 0, 0)),
            (0, ask(2, 1, 1)),
            (50, granted(2, 8)),
            (50, valid(1, 8, 90)),
            (60, granted(1, 7)),
            (60, valid(0, 7, until)),
            (60, lost(0, 7)),
        ]
    };
    fine(&tale(&entries(40)));
    let mut believed = entries(70).to_vec();
    believed[6].0 = 65;
    wrong(Kind::I3, &tale(&believed));
}

#[test]
fn a_wrong_clock_excuses() {
    let history = tale(&[
        (0, ask(1, 0, 0)),
        (0, ask(2, 1, 1)),
        (1, granted(1, 7)),
        (1, valid(0, 7, 90)),
        (30, clock_broken(0)),
        (40, granted(2, 8)),
        (40, valid(1, 8, 120)),
    ]);
    fine(&history);
    wrong(Kind::I3, &without(&history, 4));
    let mut late = history.clone();
    late.entries[4].at = 45 * MS;
    late.entries.swap(4, 5);
    late.entries.swap(5, 6);
    wrong(Kind::I3, &late);
}

#[test]
fn never_again_after_the_end() {
    let history = |last| {
        tale(&[
            (0, ask(1, 0, 0)),
            (1, granted(1, 7)),
            (1, valid(0, 7, 50)),
            (20, lost(0, 7)),
            (30, last),
        ])
    };
    let violation = shown(Kind::I4, &history(valid(0, 7, 90)), &[3, 4]);
    assert_eq!(
        violation.what,
        "token 7 of lock 0 was lost at 0.020 s, but client 0 counted on it again at 0.030 s"
    );
    shown(Kind::I4, &history(unfenced(0, 7)), &[3, 4]);
    // A stale writer is what fences are for.
    fine(&history(fenced(0, 7, true)));
    fine(&history(fenced(0, 7, false)));
    fine(&history(release(0, 7)));
    let mut early = history(valid(0, 7, 90));
    early.entries.swap(3, 4);
    early.entries[3].at = 20 * MS;
    fine(&early);
}

#[test]
fn never_again_after_the_deadline() {
    let history = |last: &[(u64, crate::Event)]| {
        let mut entries = vec![
            (0, ask(1, 0, 0)),
            (1, granted(1, 7)),
            (1, valid(0, 7, 90)),
            (5, valid(0, 7, 50)),
            (40, ask(2, 0, 0)),
        ];
        entries.extend_from_slice(last);
        tale(&entries)
    };
    let violation = shown(Kind::I4, &history(&[(50, valid(0, 7, 51))]), &[3, 5]);
    assert_eq!(
        violation.what,
        "token 7 of lock 0 ran out at 0.050 s, but client 0 counted on it again at 0.050 s"
    );
    fine(&history(&[(49, valid(0, 7, 51))]));
    // It hears that it ended even earlier.
    fine(&history(&[(50, valid(0, 7, 50))]));
    fine(&history(&[(60, valid(0, 7, 30))]));
    // On a wrong clock it had not passed.
    fine(&history(&[(45, clock_broken(0)), (60, valid(0, 7, 70))]));
    // Where several processes record, it may have been seen late.
    let mut skewed = history(&[(60, valid(0, 7, 70))]);
    skewed.bounds.skew = 1;
    fine(&skewed);
}

#[test]
fn whoever_waits_for_a_loss_is_told_by_the_deadline() {
    let history = |at| {
        tale(&[
            (0, ask(1, 0, 0)),
            (1, granted(1, 7)),
            (1, valid(0, 7, 90)),
            (5, valid(0, 7, 50)),
            (at, told(0, 7)),
            (at, lost(0, 7)),
        ])
    };
    let violation = shown(Kind::I4, &history(51), &[3, 4]);
    assert_eq!(
        violation.what,
        "token 7 of lock 0 ran out at 0.050 s, but client 0, who waited for that, was told at \
         0.051 s"
    );
    fine(&history(50));
    fine(&history(20));
    let mut skewed = history(60);
    skewed.bounds.skew = 1;
    fine(&skewed);
    wrong(Kind::Malformed, &tale(&[(0, told(0, 7))]));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]
    /// The sweep finds an overlap exactly if some pair overlaps.
    #[test]
    fn overlaps(spans in vec((0..60u64, 0..12u64), 0..8)) {
        let mut entries = Vec::new();
        for (nth, &(from, length)) in (0..).zip(&spans) {
            entries.push((0, ask(nth, nth as u32, 0)));
            entries.push((from, granted(nth, nth + 1)));
            entries.push((from, valid(nth as u32, nth + 1, from + length)));
        }
        entries.sort_by_key(|(at, _)| *at);
        let overlap = |(a, b): ((u64, u64), (u64, u64))| a.0.max(b.0) < (a.0 + a.1).min(b.0 + b.1);
        let pairs = spans.iter().enumerate().flat_map(|(nth, &a)| {
            spans[nth + 1..].iter().map(move |&b| (a, b))
        });
        let found = check(&tale(&entries)).iter().any(|violation| violation.kind == Kind::I3);
        prop_assert_eq!(found, pairs.into_iter().any(overlap));
    }
}
