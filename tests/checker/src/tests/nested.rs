//! I6.

use super::history_builder::*;
use crate::{Event, History, Kind};

#[test]
fn a_client_counts_no_longer_than_its_daemon() {
    let history = |until| {
        tale(&[
            (0, ask(1, 0, 0)),
            (1, holds(0, 1024, 50)),
            (2, granted(1, 1024)),
            (2, valid(0, 1024, 40)),
            (20, holds(0, 1024, 70)),
            (21, holds(0, 1024, 60)),
            (22, let_go(0)),
            (23, holds(0, 2048, 90)),
            (24, valid(0, 1024, until)),
        ])
    };
    // The greatest that its daemon had for this hold, not for the next.
    let violation = shown(Kind::I6, &history(71), &[4, 8]);
    assert_eq!(
        violation.what,
        "client 0 counted on lock 0, token 1024, until 0.071 s, but its daemon 0 only until \
         0.070 s"
    );
    fine(&history(70));
    let mut skewed = history(71);
    skewed.bounds.skew = MS;
    fine(&skewed);
    let mut broken = history(71);
    broken.entries[6].event = clock_broken(0);
    broken.entries.remove(7);
    fine(&broken);
}

#[test]
fn whose_fenced_session_lost_its_stream_counts_for_longer() {
    let history = tale(&[
        (0, leased(0, 60)),
        (0, ask(1, 0, 0)),
        (1, holds(0, 1024, 50)),
        (2, granted(1, 1024)),
        (2, valid(0, 1024, 40)),
        (20, freed(0, 1024)),
        (20, let_go(0)),
        (21, unleased()),
        (22, valid(0, 1024, 45)),
    ]);
    fine(&history);
    wrong(Kind::I6, &without(&history, 5));
}

#[test]
fn a_daemon_counts_no_longer_than_the_storage() {
    let history = |until| {
        tale(&[
            (0, leased(0, 60)),
            (1, holds(0, 1024, 50)),
            (20, leased(0, 80)),
            (21, holds(0, 1024, until)),
        ])
    };
    shown(Kind::I6, &history(81), &[2, 3]);
    fine(&history(80));
    // Another lease, a shorter one.
    let mut again = history(80);
    again.entries.insert(3, crate::Entry { at: 20 * MS, event: let_go(0) });
    again.entries.insert(4, crate::Entry { at: 20 * MS, event: unleased() });
    again.entries.insert(5, crate::Entry { at: 20 * MS, event: leased(0, 70) });
    shown(Kind::I6, &again, &[5, 6]);
    again.entries[4].event = leased(1, 90);
    shown(Kind::I6, &again, &[5, 6]);
    // None at all for this daemon.
    let other = tale(&[(0, leased(1, 60)), (1, holds(0, 1024, 50))]);
    shown(Kind::I6, &other, &[1]);
    // No storage to compare with.
    fine(&tale(&[(1, holds(0, 1024, 50))]));
    // A client's wrong clock may be its daemon's.
    let broken = tale(&[
        (0, ask(1, 0, 0)),
        (0, clock_broken(0)),
        (0, leased(0, 60)),
        (1, holds(0, 1024, 70)),
    ]);
    fine(&broken);
    wrong(Kind::I6, &without(&broken, 1));
}

/// Client 0 counts on token 1024 until 45, its daemon until 50, the storage
/// until 60; and then something else.
fn and_then(more: &[(u64, Event)]) -> History {
    let mut entries = vec![
        (0, ask(1, 0, 0)),
        (0, leased(0, 60)),
        (1, stored(0, 1024)),
        (1, holds(0, 1024, 50)),
        (2, granted(1, 1024)),
        (2, valid(0, 1024, 45)),
    ];
    entries.extend_from_slice(more);
    tale(&entries)
}

#[test]
fn a_lease_is_not_given_back_while_a_client_counts_on_it() {
    let given_back = |at| [(10, let_go(0)), (at, unleased())];
    let violation = shown(Kind::I6, &and_then(&given_back(10)), &[1, 5, 7]);
    assert_eq!(
        violation.what,
        "the storage's lease of lock 0 for daemon 0 was over at 0.010 s, but client 0 counted on \
         token 1024 until 0.045 s"
    );
    fine(&and_then(&given_back(45)));
    wrong(Kind::I6, &and_then(&[(10, let_go(0)), (10, leased(1, 90))]));
    // Nobody counts on it any more.
    for end in [release(0, 1024), lost(0, 1024), died(0), clock_broken(0)] {
        let mut entries = vec![(10, end)];
        entries.extend(given_back(10));
        fine(&and_then(&entries));
        entries.rotate_left(1);
        wrong(Kind::I6, &and_then(&entries));
    }
    // It was told less meanwhile.
    fine(&and_then(&[(5, valid(0, 1024, 10)), (10, let_go(0)), (10, unleased())]));
}

#[test]
fn nobody_counts_on_what_was_given_back() {
    // What it was told before counts no more, even if it is heard only now.
    let history = |until| {
        and_then(&[
            (5, valid(0, 1024, 20)),
            (10, clock_broken(0)),
            (10, let_go(0)),
            (10, unleased()),
            (11, ask(2, 1, 0)),
            (12, granted(2, 1025)),
            (12, valid(1, 1025, until)),
        ])
    };
    shown(Kind::I6, &history(13), &[9, 12]);
    fine(&history(10));
    // Nor does a daemon.
    let history = |end| tale(&[(0, leased(0, 60)), (1, holds(0, 1024, 50)), (10, end)]);
    let violation = shown(Kind::I6, &history(unleased()), &[0, 1, 2]);
    assert_eq!(
        violation.what,
        "the storage's lease of lock 0 for daemon 0 was over at 0.010 s, but that one counted on \
         it until 0.050 s"
    );
    fine(&history(let_go(0)));
    let again = |end| {
        tale(&[
            (0, leased(0, 60)),
            (1, holds(0, 1024, 50)),
            (10, let_go(0)),
            (10, end),
            (20, holds(0, 1024, 55)),
        ])
    };
    shown(Kind::I6, &again(unleased()), &[3, 4]);
    fine(&again(overruled(60)));
}

#[test]
fn a_lease_that_is_shortened_is_over_earlier() {
    let history = |until| and_then(&[(10, leased(0, until))]);
    wrong(Kind::I6, &history(44));
    wrong(Kind::I6, &history(49));
    fine(&history(50));
    shown(Kind::I6, &and_then(&[(10, let_go(0)), (10, leased(0, 44))]), &[1, 5, 7]);
    fine(&and_then(&[(10, let_go(0)), (10, leased(0, 45))]));
}

#[test]
fn what_an_operator_takes_away_is_nobody_s_fault() {
    for how in [deleted(), tampered()] {
        let taken =
            |until| and_then(&[(10, overruled(until)), (10, how.clone()), (10, unleased())]);
        fine(&taken(60));
        wrong(Kind::I6, &taken(9));
        wrong(Kind::I6, &without(&taken(60), 6));
        // But it is not renewed.
        let mut renewed = taken(60);
        renewed.entries.push(crate::Entry { at: 20 * MS, event: holds(0, 1024, 61) });
        wrong(Kind::I6, &renewed);
        // And the next lease is another.
        let next = [
            (11, let_go(0)),
            (20, leased(0, 80)),
            (20, stored(0, 2048)),
            (20, holds(0, 2048, 70)),
            (30, let_go(0)),
            (30, unleased()),
            (31, holds(0, 2048, 70)),
        ];
        let mut entries = vec![(10, overruled(60)), (10, how.clone()), (10, unleased())];
        entries.extend(next);
        wrong(Kind::I6, &and_then(&entries));
        entries.pop();
        fine(&and_then(&entries));
    }
}
