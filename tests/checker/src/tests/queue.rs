//! Tests of L3.

use super::history_builder::*;
use crate::{Bounds, Kind};

fn history(first: u64, second: u64) -> crate::History {
    let handoff = Bounds { local_handoff: 100 * MS, ..Bounds::default() };
    bounded(
        handoff,
        &[
            (0, acquire(1, 0, 0)),
            (1, granted(1, 7)),
            (2, acquire(2, 1, 0)),
            (3, queued(2)),
            (4, acquire(3, 2, 0)),
            (5, queued(3)),
            (10, release(0, 7)),
            (12, granted(first, 8)),
            (20, release(first as u32 - 1, 8)),
            (30, granted(second, 9)),
        ],
    )
}

#[test]
fn acquire_queued_first_is_granted_first() {
    let violation = assert_excerpt(Kind::L3, &history(3, 2), &[2, 3, 4, 7, 9]);
    assert_eq!(
        violation.what,
        "client 1 waited at daemon 0 for lock 0 since 0.003 s, but client 2, whose acquire there \
         began at 0.004 s, was granted token 8 before it at 0.012 s"
    );
    assert_passes(&history(2, 3));
    // The acquires overlap, so no order is required.
    let mut together = history(3, 2);
    together.entries.swap(3, 4);
    together.entries[3].at = 3 * MS;
    assert_passes(&together);
    // There is no order between daemons.
    let mut apart = history(3, 2);
    apart.entries[4].event = acquire(3, 2, 1);
    assert_passes(&apart);
}

#[test]
fn queue_order_is_not_checked_during_fault() {
    let mut disturbance = history(3, 2);
    disturbance.entries[5].event = disturbed("a cut");
    assert_passes(&disturbance);
    // Grants in a calm span are checked, even if a response comes later.
    let mut later = history(3, 2);
    later.entries.insert(8, crate::Entry { at: 13 * MS, event: disturbed("a cut") });
    assert_finds(Kind::L3, &later);
}

#[test]
fn refusal_in_flight_is_not_passed_over() {
    let mut refusal = history(3, 2);
    refusal.entries[9].event = refused(2);
    assert_passes(&refusal);
    refusal.entries[9].at = 112 * MS;
    assert_passes(&refusal);
    refusal.entries[9].at = 113 * MS;
    assert_excerpt(Kind::L3, &refusal, &[2, 3, 4, 7, 9]);
}

#[test]
fn lower_token_was_granted_first() {
    let received_late = |until| {
        let mut history = history(3, 2);
        history.entries[7].event = granted(3, 9);
        history.entries[8].event = release(2, 9);
        history.entries[9].event = granted(2, 8);
        history.entries.push(crate::Entry { at: 30 * MS, event: valid(1, 8, until) });
        history
    };
    assert_passes(&received_late(11));
    assert_finds(Kind::Linearizable, &received_late(40));
}

#[test]
fn any_later_acquire_with_lower_token_is_found() {
    // Client 3 was invoked last, but always has a higher token than the waiter. Client 2 has
    // a lower one only in the first history.
    let history = |first: u64, own: u64| {
        bounded(
            Bounds { local_handoff: 100 * MS, ..Bounds::default() },
            &[
                (0, acquire(1, 0, 0)),
                (1, granted(1, 7)),
                (2, acquire(2, 1, 0)),
                (3, queued(2)),
                (4, acquire(3, 2, 0)),
                (5, acquire(4, 3, 0)),
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
    assert_excerpt(Kind::L3, &history(8, 9), &[2, 3, 4, 7, 11]);
    assert_passes(&history(9, 8));
}

#[test]
fn second_acquire_of_holder_waits_in_queue() {
    let history = |first: u64, second: u64| {
        unbounded(&[
            (0, acquire(1, 0, 0)),
            (1, granted(1, 7)),
            (2, acquire(2, 1, 0)),
            (3, queued(2)),
            (4, acquire(3, 0, 0)),
            (6, release(0, 7)),
            (7, granted(first, 8)),
            (8, release(if first == 2 { 1 } else { 0 }, 8)),
            (9, granted(second, 9)),
        ])
    };
    assert_passes(&history(2, 3));
    assert_finds(Kind::L3, &history(3, 2));
}
