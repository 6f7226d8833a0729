//! What a recorder must not write.

use super::history_builder::*;
use crate::{Event, Kind};

fn start() -> Vec<(u64, Event)> {
    vec![(0, ask(1, 0, 0)), (5, granted(1, 7)), (6, valid(0, 7, 50))]
}

#[test]
fn entries_in_order() {
    let history = tale(&[(0, ask(1, 0, 0)), (5, granted(1, 7)), (4, valid(0, 7, 50))]);
    shown(Kind::Malformed, &history, &[1, 2]);
    fine(&tale(&start()));
}

#[test]
fn what_contradicts_itself() {
    for (last, why) in [
        (granted(9, 8), "no acquire has this number: op 9 is granted token 8"),
        (queued(9), "no acquire has this number: op 9 waits in the queue"),
        (granted(1, 8), "this acquire was answered before: op 1 is granted token 8"),
        (queued(1), "this acquire was answered before: op 1 waits in the queue"),
        (ask(1, 1, 0), "the number of this operation was used before: op 1: client 1 asks"),
        (valid(0, 8, 50), "this client was never granted this token of this lock: client 0 counts"),
        (valid(1, 7, 50), "this client was never granted this token of this lock: client 1 counts"),
        (release(1, 7), "this client was never granted this token of this lock: op 1007"),
        (lost(1, 7), "this client was never granted this token of this lock: client 1 knows"),
        (released(7), "no release has this number: op 1007"),
        (undisturbed("rain"), "nothing of this name had begun: is over: rain"),
    ] {
        let mut entries = start();
        entries.push((9, last));
        let violation = wrong(Kind::Malformed, &tale(&entries));
        assert!(violation.what.starts_with(why), "{violation}");
    }
}

#[test]
fn the_dead_do_nothing() {
    for last in [ask(2, 0, 0), valid(0, 7, 90), lost(0, 7), release(0, 7), died(0)] {
        let mut entries = start();
        entries.push((9, died(0)));
        fine(&tale(&entries));
        entries.push((10, last));
        shown(Kind::Malformed, &tale(&entries), &[3, 4]);
    }
    // What was under way may arrive, and others may record it.
    for last in [fenced(0, 7, true), refused(2)] {
        fine(&tale(&[
            (0, ask(1, 0, 0)),
            (1, granted(1, 7)),
            (2, ask(2, 0, 0)),
            (9, died(0)),
            (10, last),
        ]));
    }
    wrong(Kind::Malformed, &tale(&[(1, daemon_died(0)), (2, holds(0, 1024, 90))]));
    fine(&tale(&[(1, daemon_died(0)), (2, holds(1, 1024, 90))]));
    wrong(Kind::Malformed, &tale(&[(1, daemon_died(0)), (2, daemon_died(0))]));
}
