//! Tests of violation messages, history files and statistics.

use super::history_builder::*;
use crate::{Kind, ReadError, Stats, check, read, write};

fn two_holders() -> crate::History {
    unbounded(&[
        (0, acquire(1, 0, 0)),
        (0, acquire(2, 1, 1)),
        (1, granted(1, 7)),
        (1, valid(0, 7, 90)),
        (60, granted(2, 8)),
        (60, valid(1, 8, 1_500)),
    ])
}

#[test]
fn violation_has_sentence_and_excerpt() {
    assert_eq!(
        assert_finds(Kind::I3, &two_holders()).to_string(),
        "I3 at 0.060 s: lock 0 was held by client 0 with token 7 and by client 1 with token 8 at \
         once, from 0.060 s to 0.090 s
         0.001 s  client 0 relies on lock 0, token 7, until 0.090 s
         0.060 s  op 2 is granted token 8
         0.060 s  client 1 relies on lock 0, token 8, until 1.500 s"
    );
}

#[test]
fn report_has_first_of_each_kind_and_at_most_20() {
    let mut entries = vec![(0, acquire(1, 0, 0)), (0, granted(1, 7)), (1, lost(0, 7))];
    entries.extend((0..50).map(|nth| (nth + 2, unfenced(0, 7))));
    entries.push((90, queued(99)));
    let found = check(&unbounded(&entries));
    assert_eq!(found.len(), 20);
    assert_eq!((found[0].kind, found[0].at), (Kind::I4, 2 * MS));
    assert_eq!((found[1].kind, found[1].at), (Kind::Malformed, 90 * MS));
    let rest: Vec<_> = found[2..].iter().map(|violation| violation.at / MS).collect();
    assert_eq!(rest, (3..21).collect::<Vec<_>>());
}

#[test]
fn history_file_round_trips() {
    let mut history = bounded(
        bounds(),
        &[
            (0, acquire(1, 0, 0)),
            (1, queued(1)),
            (2, refused(1)),
            (3, holds(0, u64::MAX - 1023, 4)),
            (4, disturbed("a \"quoted\" name\n")),
            (5, tampered()),
        ],
    );
    history.entries[5].at = u64::MAX;
    let mut file = Vec::new();
    write(&history, &mut file).unwrap();
    assert_eq!(file.iter().filter(|byte| **byte == b'\n').count(), 7);
    assert_eq!(read(file.as_slice()).unwrap(), history);
}

#[test]
fn event_names_match_file_format() {
    for event in [
        acquire(1, 0, 0),
        refused(1),
        released(7),
        loss_notified(0, 7),
        clock_broken(0),
        not_proclaimed(1),
        read_leader(1, 0),
        hold_ended(0),
        daemon_died(0),
        undisturbed("a cut"),
    ] {
        assert_eq!(serde_json::to_value(&event).unwrap()["event"], event.name());
    }
}

#[test]
fn invalid_files_are_rejected() {
    assert!(matches!(read(&b"\n"[..]), Err(ReadError::Empty)));
    let error = read(&b"{}\n\n{\"at\":1,\"event\":\"rain\"}\n"[..]).unwrap_err().to_string();
    assert!(error.starts_with("line 3 is not an entry: unknown variant `rain`"), "{error}");
}

#[test]
fn statistics_of_history() {
    let history = bounded(
        bounds(),
        &[
            (0, acquire(1, 0, 0)),
            (5, granted(1, 7)),
            (6, acquire(2, 1, 0)),
            (7, queued(2)),
            (100, release(0, 7)),
            (120, granted(2, 8)),
            (130, acquire(3, 2, 1)),
            (200, died(1)),
            (900, granted(3, 1024)),
            (950, acquire(4, 3, 0)),
            (1_000, release(2, 1024)),
            (1_400, granted(4, 2048)),
            (1_500, disturbed("a cut")),
            (1_600, lost(3, 2048)),
            (2_000, undisturbed("a cut")),
            (2_500, refused(9)),
        ],
    );
    let mut stats = Stats::of(&history);
    assert_eq!(stats.entries["granted"], 4);
    assert_eq!((stats.clients, stats.daemons, stats.locks), (4, 2, 1));
    assert_eq!((stats.acquires, stats.grants, stats.holds, stats.refused), (4, 4, 4, 0));
    assert_eq!((stats.released, stats.lost, stats.died, stats.moves), (2, 1, 1, 2));
    assert_eq!((stats.length, stats.calm), (2_500 * MS, 2_000 * MS));
    assert_eq!(stats.max_wait, 770 * MS);
    assert_eq!(stats.max_takeover, 700 * MS);
    assert_eq!(stats.max_local_handoff, 20 * MS);
    assert_eq!(stats.max_remote_handoff, 400 * MS);
    stats += Stats::of(&history);
    assert_eq!((stats.histories, stats.grants, stats.max_wait), (2, 8, 770 * MS));
    let page = stats.to_string();
    assert!(page.lines().any(|line| line.starts_with("longest calm takeover")), "{page}");
}
