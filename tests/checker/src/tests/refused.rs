//! L5: refusals.

use super::history_builder::*;
use crate::{Event, Kind};

#[test]
fn a_service_that_can_t_serve_has_not_recovered() {
    let faulty = |op| Event::Refused { op, why: "no".to_owned(), faulty: true, canceled: false };
    let history = |last: u64, refusal: fn(u64) -> Event| {
        let mut entries = vec![
            (1_000, disturbed("no storage")),
            (2_000, tampered()),
            (3_000, deleted()),
            (50_000, undisturbed("no storage")),
        ];
        for (op, at) in (0..).zip((50_000..last).step_by(1_000)) {
            entries.extend([(at, ask(op, 0, 0)), (at + 1, refusal(op))]);
        }
        entries.push((last + 10_000, disturbed("the end")));
        bounded(bounds(), &entries)
    };
    let violation = shown(Kind::L5, &history(81_000, faulty), &[3, 64, 65]);
    assert_eq!(
        violation.what,
        "daemon 0 could not serve client 0, which asked for lock 0, at 80.001 s, although nothing \
         had been wrong since 50.000 s: for longer than 30.000 s"
    );
    fine(&history(80_000, faulty));
    fine(&history(81_000, refused));
    // A blob that an operator changed is frozen until it is deleted or granted on.
    let mut frozen = history(81_000, faulty);
    frozen.entries[2].event = disturbed("a cut");
    frozen.entries[3].event = undisturbed("a cut");
    frozen.entries.insert(4, crate::Entry { at: 50_000 * MS, event: undisturbed("no storage") });
    fine(&frozen);
    for mended in [deleted(), granted(900, 7)] {
        let history = |at| {
            bounded(
                bounds(),
                &[
                    (1_000, tampered()),
                    (69_000, ask(900, 0, 0)),
                    (70_000, mended.clone()),
                    (70_000, died(0)),
                    (at, ask(901, 1, 0)),
                    (at, faulty(901)),
                    (120_000, disturbed("the end")),
                ],
            )
        };
        fine(&history(100_000));
        shown(Kind::L5, &history(100_001), &[2, 4, 5]);
    }
    // A dead daemon serves nobody.
    let mut dead = history(81_000, faulty);
    dead.entries.insert(4, crate::Entry { at: 50_000 * MS, event: daemon_died(0) });
    fine(&dead);
    // A daemon that stood still ends a wait later than its client, who does not wait
    // for that; whoever asked afterwards is answered in time.
    let waited = |asked: u64| {
        let mut entries = vec![
            (0, ask(1, 1, 1)),
            (1, granted(1, 7)),
            (1, valid(1, 7, 90_000)),
            (1_000, disturbed("a freeze")),
            (2_000, undisturbed("a freeze")),
            (asked, ask(2, 0, 0)),
            (40_000, faulty(2)),
            (41_000, disturbed("the end")),
        ];
        entries.sort_by_key(|(at, _)| *at);
        bounded(bounds(), &entries)
    };
    fine(&waited(500));
    shown(Kind::L5, &waited(2_500), &[4, 5, 6]);
}
