//! Tests of L5 for refusals.

use super::history_builder::*;
use crate::{Event, Kind};

#[test]
fn refusal_long_after_outage_is_found() {
    let faulty = |op| Event::Refused { op, why: "no".to_owned(), faulty: true, canceled: false };
    let history = |last: u64, refusal: fn(u64) -> Event| {
        let mut entries = vec![
            (1_000, disturbed("no storage")),
            (2_000, tampered()),
            (3_000, deleted()),
            (50_000, undisturbed("no storage")),
        ];
        for (op, at) in (0..).zip((50_000..last).step_by(1_000)) {
            entries.extend([(at, acquire(op, 0, 0)), (at + 1, refusal(op))]);
        }
        entries.push((last + 10_000, disturbed("the end")));
        bounded(bounds(), &entries)
    };
    let violation = assert_excerpt(Kind::L5, &history(81_000, faulty), &[3, 64, 65]);
    assert_eq!(
        violation.what,
        "daemon 0 could not serve the acquire of client 0 for lock 0 at 80.001 s, although no \
         fault had been active since 50.000 s: for longer than 30.000 s"
    );
    assert_passes(&history(80_000, faulty));
    assert_passes(&history(81_000, refused));
    // A lock whose blob an operator changed is frozen until a deletion or a grant.
    let mut frozen = history(81_000, faulty);
    frozen.entries[2].event = disturbed("a cut");
    frozen.entries[3].event = undisturbed("a cut");
    frozen.entries.insert(4, crate::Entry { at: 50_000 * MS, event: undisturbed("no storage") });
    assert_passes(&frozen);
    for repaired in [deleted(), granted(900, 7)] {
        let history = |at| {
            bounded(
                bounds(),
                &[
                    (1_000, tampered()),
                    (69_000, acquire(900, 0, 0)),
                    (70_000, repaired.clone()),
                    (70_000, died(0)),
                    (at, acquire(901, 1, 0)),
                    (at, faulty(901)),
                    (120_000, disturbed("the end")),
                ],
            )
        };
        assert_passes(&history(100_000));
        assert_excerpt(Kind::L5, &history(100_001), &[2, 4, 5]);
    }
    // A dead daemon serves no client.
    let mut dead = history(81_000, faulty);
    dead.entries.insert(4, crate::Entry { at: 50_000 * MS, event: daemon_died(0) });
    assert_passes(&dead);
    // After a pause, the timeout of an earlier acquire ends later in the daemon than at the
    // client. A later acquire is answered in time.
    let waited = |invoked: u64| {
        let mut entries = vec![
            (0, acquire(1, 1, 1)),
            (1, granted(1, 7)),
            (1, valid(1, 7, 90_000)),
            (1_000, disturbed("a pause")),
            (2_000, undisturbed("a pause")),
            (invoked, acquire(2, 0, 0)),
            (40_000, faulty(2)),
            (41_000, disturbed("the end")),
        ];
        entries.sort_by_key(|(at, _)| *at);
        bounded(bounds(), &entries)
    };
    assert_passes(&waited(500));
    assert_excerpt(Kind::L5, &waited(2_500), &[4, 5, 6]);
}
