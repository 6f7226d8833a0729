//! L3.

use super::history_builder::*;
use crate::{Bounds, Kind};

fn history(first: u64, second: u64) -> crate::History {
    let handover = Bounds { local_handover: 100 * MS, ..Bounds::default() };
    bounded(
        handover,
        &[
            (0, ask(1, 0, 0)),
            (1, granted(1, 7)),
            (2, ask(2, 1, 0)),
            (3, queued(2)),
            (4, ask(3, 2, 0)),
            (5, queued(3)),
            (10, release(0, 7)),
            (12, granted(first, 8)),
            (20, release(first as u32 - 1, 8)),
            (30, granted(second, 9)),
        ],
    )
}

#[test]
fn who_was_queued_first_is_served_first() {
    let violation = shown(Kind::L3, &history(3, 2), &[2, 3, 4, 7, 9]);
    assert_eq!(
        violation.what,
        "client 1 waited at daemon 0 for lock 0 since 0.003 s, but client 2, which asked there at \
         0.004 s, was granted token 8 before it at 0.012 s"
    );
    fine(&history(2, 3));
    // Asked together: no order is owed.
    let mut together = history(3, 2);
    together.entries.swap(3, 4);
    together.entries[3].at = 3 * MS;
    fine(&together);
    // At different daemons there is no order.
    let mut apart = history(3, 2);
    apart.entries[4].event = ask(3, 2, 1);
    fine(&apart);
}

#[test]
fn not_while_something_is_disturbed() {
    let mut disturbance = history(3, 2);
    disturbance.entries[5].event = disturbed("a cut");
    fine(&disturbance);
    // But what happened in calm counts, even if the answer came later.
    let mut later = history(3, 2);
    later.entries.insert(8, crate::Entry { at: 13 * MS, event: disturbed("a cut") });
    wrong(Kind::L3, &later);
}

#[test]
fn a_refusal_may_have_been_on_its_way() {
    let mut gave_up = history(3, 2);
    gave_up.entries[9].event = refused(2);
    fine(&gave_up);
    gave_up.entries[9].at = 112 * MS;
    fine(&gave_up);
    gave_up.entries[9].at = 113 * MS;
    shown(Kind::L3, &gave_up, &[2, 3, 4, 7, 9]);
}

#[test]
fn who_has_the_lower_token_was_served_first() {
    let heard_late = |until| {
        let mut history = history(3, 2);
        history.entries[7].event = granted(3, 9);
        history.entries[8].event = release(2, 9);
        history.entries[9].event = granted(2, 8);
        history.entries.push(crate::Entry { at: 30 * MS, event: valid(1, 8, until) });
        history
    };
    fine(&heard_late(11));
    wrong(Kind::Linearizable, &heard_late(40));
}

#[test]
fn each_who_passed_it_over_counts() {
    // Client 3 asked last and has a greater token than who waited; client 2 has not.
    let history = |first: u64, own: u64| {
        bounded(
            Bounds { local_handover: 100 * MS, ..Bounds::default() },
            &[
                (0, ask(1, 0, 0)),
                (1, granted(1, 7)),
                (2, ask(2, 1, 0)),
                (3, queued(2)),
                (4, ask(3, 2, 0)),
                (5, ask(4, 3, 0)),
                (10, release(0, 7)),
                (11, granted(3, first)),
                (11, valid(2, first, 12)),
                (20, granted(4, 10)),
                (20, valid(3, 10, 25)),
                (30, granted(2, own)),
                (30, valid(1, own, 9)),
            ],
        )
    };
    shown(Kind::L3, &history(8, 9), &[2, 3, 4, 7, 11]);
    fine(&history(9, 8));
}

#[test]
fn second_acquire_of_holder_waits_its_turn() {
    let history = |first: u64, second: u64| {
        tale(&[
            (0, ask(1, 0, 0)),
            (1, granted(1, 7)),
            (2, ask(2, 1, 0)),
            (3, queued(2)),
            (4, ask(3, 0, 0)),
            (6, release(0, 7)),
            (7, granted(first, 8)),
            (8, release(if first == 2 { 1 } else { 0 }, 8)),
            (9, granted(second, 9)),
        ])
    };
    fine(&history(2, 3));
    wrong(Kind::L3, &history(3, 2));
}
