//! How it is told, kept in files, and counted.

use super::history_builder::*;
use crate::{Kind, ReadError, Stats, check, read, write};

fn two_holders() -> crate::History {
    tale(&[
        (0, ask(1, 0, 0)),
        (0, ask(2, 1, 1)),
        (1, granted(1, 7)),
        (1, valid(0, 7, 90)),
        (60, granted(2, 8)),
        (60, valid(1, 8, 1_500)),
    ])
}

#[test]
fn a_violation_is_a_sentence_and_an_excerpt() {
    assert_eq!(
        wrong(Kind::I3, &two_holders()).to_string(),
        "I3 at 0.060 s: lock 0 was held by client 0 with token 7 and by client 1 with token 8 at \
         once, from 0.060 s to 0.090 s
         0.001 s  client 0 counts on lock 0, token 7, until 0.090 s
         0.060 s  op 2 is granted token 8
         0.060 s  client 1 counts on lock 0, token 8, until 1.500 s"
    );
}

#[test]
fn the_first_of_each_kind_comes_first_and_twenty_are_enough() {
    let mut entries = vec![(0, ask(1, 0, 0)), (0, granted(1, 7)), (1, lost(0, 7))];
    entries.extend((0..50).map(|nth| (nth + 2, unfenced(0, 7))));
    entries.push((90, queued(99)));
    let found = check(&tale(&entries));
    assert_eq!(found.len(), 20);
    assert_eq!((found[0].kind, found[0].at), (Kind::I4, 2 * MS));
    assert_eq!((found[1].kind, found[1].at), (Kind::Malformed, 90 * MS));
    let rest: Vec<_> = found[2..].iter().map(|violation| violation.at / MS).collect();
    assert_eq!(rest, (3..21).collect::<Vec<_>>());
}

#[test]
fn a_file_holds_a_history() {
    let mut history = bounded(
        bounds(),
        &[
            (0, ask(1, 0, 0)),
            (1, queued(1)),
            (2, refused(1)),
            (3, holds(0, u64::MAX - 1023, 4)),
            (4, disturbed("ein \"Riss\"\n")),
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
fn a_file_that_is_none() {
    assert!(matches!(read(&b"\n"[..]), Err(ReadError::Empty)));
    let error = read(&b"{}\n\n{\"at\":1,\"event\":\"rain\"}\n"[..]).unwrap_err().to_string();
    assert!(error.starts_with("line 3 is not an entry: unknown variant `rain`"), "{error}");
}

#[test]
fn figures() {
    let history = bounded(
        bounds(),
        &[
            (0, ask(1, 0, 0)),
            (5, granted(1, 7)),
            (6, ask(2, 1, 0)),
            (7, queued(2)),
            (100, release(0, 7)),
            (120, granted(2, 8)),
            (130, ask(3, 2, 1)),
            (200, died(1)),
            (900, granted(3, 1024)),
            (950, ask(4, 3, 0)),
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
    assert_eq!(stats.longest_wait, 770 * MS);
    assert_eq!(stats.longest_takeover, 700 * MS);
    assert_eq!(stats.longest_local_handover, 20 * MS);
    assert_eq!(stats.longest_remote_handover, 400 * MS);
    stats += Stats::of(&history);
    assert_eq!((stats.histories, stats.grants, stats.longest_wait), (2, 8, 770 * MS));
    let page = stats.to_string();
    assert!(page.lines().any(|line| line.starts_with("longest calm takeover")), "{page}");
}
