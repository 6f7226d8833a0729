//! Tests of malformed histories, which a recorder must not write.

use super::history_builder::*;
use crate::{Event, Kind};

fn start() -> Vec<(u64, Event)> {
    vec![(0, acquire(1, 0, 0)), (5, granted(1, 7)), (6, valid(0, 7, 50))]
}

#[test]
fn entries_out_of_order_are_malformed() {
    let history = unbounded(&[(0, acquire(1, 0, 0)), (5, granted(1, 7)), (4, valid(0, 7, 50))]);
    assert_excerpt(Kind::Malformed, &history, &[1, 2]);
    assert_passes(&unbounded(&start()));
}

#[test]
fn contradictory_entries_are_malformed() {
    for (last, why) in [
        (granted(9, 8), "no acquire has this number: op 9 is granted token 8"),
        (queued(9), "no acquire has this number: op 9 waits in the queue"),
        (granted(1, 8), "this acquire was answered before: op 1 is granted token 8"),
        (queued(1), "this acquire was answered before: op 1 waits in the queue"),
        (acquire(1, 1, 0), "duplicate operation number: op 1: client 1 requests"),
        (valid(0, 8, 50), "this client was never granted this token of this lock: client 0 relies"),
        (valid(1, 7, 50), "this client was never granted this token of this lock: client 1 relies"),
        (release(1, 7), "this client was never granted this token of this lock: op 1007"),
        (lost(1, 7), "this client was never granted this token of this lock: client 1 lost"),
        (released(7), "no release has this number: op 1007"),
        (undisturbed("rain"), "no fault of this name is active: fault ends: rain"),
    ] {
        let mut entries = start();
        entries.push((9, last));
        let violation = assert_finds(Kind::Malformed, &unbounded(&entries));
        assert!(violation.what.starts_with(why), "{violation}");
    }
}

#[test]
fn entries_of_dead_clients_and_daemons_are_malformed() {
    for last in [acquire(2, 0, 0), valid(0, 7, 90), lost(0, 7), release(0, 7), died(0)] {
        let mut entries = start();
        entries.push((9, died(0)));
        assert_passes(&unbounded(&entries));
        entries.push((10, last));
        assert_excerpt(Kind::Malformed, &unbounded(&entries), &[3, 4]);
    }
    // Requests in flight may still take effect, and other processes may record that.
    for last in [fenced(0, 7, true), refused(2)] {
        assert_passes(&unbounded(&[
            (0, acquire(1, 0, 0)),
            (1, granted(1, 7)),
            (2, acquire(2, 0, 0)),
            (9, died(0)),
            (10, last),
        ]));
    }
    assert_finds(Kind::Malformed, &unbounded(&[(1, daemon_died(0)), (2, holds(0, 1024, 90))]));
    assert_passes(&unbounded(&[(1, daemon_died(0)), (2, holds(1, 1024, 90))]));
    assert_finds(Kind::Malformed, &unbounded(&[(1, daemon_died(0)), (2, daemon_died(0))]));
}
