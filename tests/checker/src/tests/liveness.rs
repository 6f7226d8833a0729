//! L1, L2, L4, L5, with a lease of 15 s in mind.

use super::history_builder::*;
use crate::{Entry, Event, History, Kind};

fn timed(entries: &[(u64, Event)]) -> History {
    bounded(bounds(), entries)
}

/// Client 0 holds the lock through daemon 0, client 1 waits at daemon 1.
fn held_and_wanted() -> Vec<(u64, Event)> {
    vec![
        (0, ask(1, 0, 0)),
        (1, granted(1, 7)),
        (1, valid(0, 7, 9_000)),
        (2, ask(2, 1, 1)),
        (3, queued(2)),
    ]
}

fn and_then(more: &[(u64, Event)]) -> History {
    let mut entries = held_and_wanted();
    entries.extend_from_slice(more);
    timed(&entries)
}

#[test]
fn a_dead_holder_s_lock_is_granted_in_time() {
    for dead in [died(0), daemon_died(0)] {
        let history = |at| and_then(&[(5_000, dead.clone()), (at, granted(2, 8))]);
        shown(Kind::L1, &history(25_001), &[0, 1, 3, 5, 6]);
        fine(&history(25_000));
        // Nobody was granted it at all; but within the bound that is no fault.
        let open = |at| and_then(&[(5_000, dead.clone()), (at, disturbed("the end"))]);
        shown(Kind::L1, &open(25_001), &[0, 1, 3, 5]);
        fine(&open(25_000));
    }
}

#[test]
fn a_dead_client_s_lock_does_not_wait_for_the_end_of_the_lease() {
    let history = |deaths: &[(u64, Event)], at| {
        let mut entries = deaths.to_vec();
        entries.push((at, granted(2, 8)));
        let mut history = and_then(&entries);
        history.bounds.expiry = 8_000 * MS;
        history
    };
    wrong(Kind::L1, &history(&[(5_000, died(0))], 13_001));
    fine(&history(&[(5_000, died(0))], 13_000));
    // Its daemon's lease has to run out.
    fine(&history(&[(5_000, daemon_died(0))], 25_000));
    wrong(Kind::L1, &history(&[(5_000, daemon_died(0))], 25_001));
    fine(&history(&[(5_000, died(0)), (6_000, daemon_died(0))], 26_000));
    wrong(Kind::L1, &history(&[(5_000, died(0)), (6_000, daemon_died(0))], 26_001));
    // The death of a daemon's client changes nothing any more.
    fine(&history(&[(5_000, daemon_died(0)), (6_000, died(0))], 25_000));
    wrong(Kind::L1, &history(&[(5_000, daemon_died(0)), (6_000, died(0))], 25_001));
}

#[test]
fn whose_fenced_session_lost_its_stream_is_not_waited_for() {
    // Whether its client knows of it, or is dead.
    for before in [&[][..], &[(5_000, died(0))]] {
        let history = |freed_at, at| {
            let mut entries = before.to_vec();
            entries.extend([(freed_at, freed(0, 7)), (at, granted(2, 8))]);
            and_then(&entries)
        };
        fine(&history(6_000, 9_000));
        wrong(Kind::L2, &history(6_000, 9_001));
    }
    // After what it was promised is over, that it was freed says nothing more.
    fine(&and_then(&[(5_000, died(0)), (9_500, freed(0, 7)), (25_000, granted(2, 8))]));
    wrong(Kind::L1, &and_then(&[(5_000, died(0)), (9_500, freed(0, 7)), (25_001, granted(2, 8))]));
}

#[test]
fn who_dies_before_the_holder_stops_may_have_had_the_lock() {
    // The holder counts on it until 9,000; its daemon's lease has to run out.
    let history = |dead: &[(u64, Event)], at| {
        let mut entries = vec![(5_000, daemon_died(0)), (5_500, ask(3, 2, 2))];
        entries.extend_from_slice(dead);
        entries.push((at, granted(2, 8)));
        and_then(&entries)
    };
    fine(&history(&[], 25_000));
    wrong(Kind::L1, &history(&[], 25_001));
    for dead in [daemon_died(2), died(2)] {
        fine(&history(&[(8_000, dead.clone())], 28_000));
        wrong(Kind::L1, &history(&[(8_000, dead)], 28_001));
    }
}

#[test]
fn from_when_a_takeover_counts() {
    let late = |more: &[(u64, Event)]| {
        let mut entries = vec![(5_000, died(0))];
        entries.extend_from_slice(more);
        entries.push((29_000, granted(2, 8)));
        and_then(&entries)
    };
    wrong(Kind::L1, &late(&[]));
    // It became calm only later.
    let calm = |at| late(&[(6_000, disturbed("a cut")), (at, undisturbed("a cut"))]);
    fine(&calm(9_000));
    shown(Kind::L1, &calm(8_999), &[0, 1, 3, 5, 7, 8]);
    // Two cuts of the same name.
    let twice = [
        (6_000, disturbed("a cut")),
        (6_000, disturbed("a cut")),
        (7_000, undisturbed("a cut")),
        (9_000, undisturbed("a cut")),
    ];
    fine(&late(&twice));
    // Another who waited died: perhaps it had the lock and did not hear of it.
    fine(&late(&[(6_000, ask(3, 2, 2)), (9_000, died(2))]));
    fine(&late(&[(6_000, ask(3, 2, 2)), (9_000, daemon_died(2))]));
    wrong(Kind::L1, &late(&[(6_000, ask(3, 2, 2)), (8_999, daemon_died(2))]));
    wrong(Kind::L1, &late(&[(6_000, ask(3, 2, 2)), (9_000, refused(3))]));
    // Somebody else was granted it.
    let other = [(6_000, ask(3, 2, 2)), (20_000, granted(3, 8)), (28_000, release(2, 8))];
    let mut other = late(&other);
    other.entries.pop();
    other.entries.push(crate::Entry { at: 29_000 * MS, event: granted(2, 9) });
    fine(&other);
}

#[test]
fn only_the_living_wait() {
    let waited = |more: &[(u64, Event)]| {
        let mut entries = vec![(5_000, died(0))];
        entries.extend_from_slice(more);
        entries.push((90_000, disturbed("the end")));
        and_then(&entries)
    };
    wrong(Kind::L1, &waited(&[]));
    for gone in [died(1), daemon_died(1), refused(2)] {
        fine(&waited(&[(20_000, gone)]));
    }
}

#[test]
fn a_released_lock_is_granted_in_time_elsewhere() {
    let history = |at| and_then(&[(5_000, release(0, 7)), (at, granted(2, 8))]);
    shown(Kind::L2, &history(8_001), &[0, 1, 3, 5, 6]);
    fine(&history(8_000));
}

#[test]
fn a_released_lock_is_granted_in_time_here() {
    let history = |release_at, at| {
        timed(&[
            (0, ask(1, 0, 0)),
            (1, granted(1, 7)),
            (2, ask(2, 1, 0)),
            (5, queued(2)),
            (release_at, release(0, 7)),
            (at, granted(2, 8)),
        ])
    };
    shown(Kind::L2, &history(5_000, 5_101), &[0, 1, 2, 4, 5]);
    fine(&history(5_000, 5_100));
    // It was told so only after the release.
    let late = |at| {
        let mut history = history(5_000, at);
        history.entries[3].at = 5_050 * MS;
        history.entries.swap(3, 4);
        history
    };
    fine(&late(5_150));
    wrong(Kind::L2, &late(5_151));
    // It was never told that it waits: as if it were elsewhere.
    fine(&without(&history(5_000, 5_101), 3));
    wrong(Kind::L2, &without(&history(5_000, 8_001), 3));
}

#[test]
fn what_was_lost_and_let_go_is_granted_in_time() {
    let history = |more: &[(u64, Event)], at| {
        let mut entries = vec![(5_000, lost(0, 7))];
        entries.extend_from_slice(more);
        entries.push((at, granted(2, 8)));
        and_then(&entries)
    };
    let let_go = (7_000, release(0, 7));
    shown(Kind::L2, &history(std::slice::from_ref(&let_go), 10_001), &[0, 1, 3, 6, 7]);
    fine(&history(std::slice::from_ref(&let_go), 10_000));
    // Not before it has let go.
    fine(&history(&[], 30_000));
    // Its deadline may have passed before it knew.
    let mut ran_out = history(std::slice::from_ref(&let_go), 10_001);
    ran_out.entries[2].event = valid(0, 7, 4_000);
    wrong(Kind::L2, &ran_out);
    // Others died, who may have had it by then: before it let go, or after.
    for death in [daemon_died(0), daemon_died(2), died(2)] {
        let other = (5_500, ask(3, 2, 2));
        fine(&history(&[other.clone(), (6_000, death.clone()), let_go.clone()], 16_000));
        fine(&history(&[other, let_go.clone(), (9_900, death)], 16_000));
    }
    // What was wrong before does not matter any more, once it lets go.
    let wrong_before = [(5_000, disturbed("a cut")), (6_000, undisturbed("a cut"))];
    let calm = [wrong_before[0].clone(), wrong_before[1].clone(), let_go.clone()];
    wrong(Kind::L2, &history(&calm, 10_001));
    let late = [wrong_before[0].clone(), let_go, (7_500, undisturbed("a cut"))];
    fine(&history(&late, 37_500));
    wrong(Kind::L2, &history(&late, 37_501));
}

#[test]
fn whoever_came_later_and_took_the_lease_was_quicker() {
    let history = |lease: Option<u64>, at| {
        let mut entries = vec![
            (4, leased(0, 15_000)),
            (5_000, release(0, 7)),
            (5_010, unleased()),
            (7_000, ask(3, 2, 0)),
            (7_050, refused(3)),
            (at, granted(2, 8)),
        ];
        if let Some(from) = lease {
            entries.push((from, leased(0, 22_000)));
            entries.push((7_200, unleased()));
        }
        entries.sort_by_key(|(at, _)| *at);
        and_then(&entries)
    };
    fine(&history(None, 8_000));
    wrong(Kind::L2, &history(None, 8_001));
    for lease in [7_010, 7_060] {
        fine(&history(Some(lease), 10_050));
        wrong(Kind::L2, &history(Some(lease), 10_051));
    }
    // A lease that was there before it came says nothing.
    wrong(Kind::L2, &history(Some(6_999), 8_001));
}

#[test]
fn whoever_died_shortly_before_a_release_may_have_been_granted_it() {
    let history = |died_at: u64, at: u64| {
        let mut entries = vec![
            (0, ask(1, 0, 0)),
            (1, granted(1, 7)),
            (2, ask(3, 2, 0)),
            (3, queued(3)),
            (4, ask(2, 1, 0)),
            (5, queued(2)),
            (died_at, died(2)),
            (25_000, release(0, 7)),
            (at, granted(2, 8)),
        ];
        entries.sort_by_key(|(at, _)| *at);
        timed(&entries)
    };
    // Its session was over by then.
    wrong(Kind::L2, &history(5_000, 25_101));
    fine(&history(5_001, 25_101));
    fine(&history(5_001, 55_000));
    wrong(Kind::L5, &history(5_001, 55_001));
    // Its daemon knew by then that it is to be passed over.
    let known = |detached_at: u64| {
        let mut history = history(5_001, 25_101);
        history.entries.push(Entry { at: detached_at * MS, event: detached(2) });
        history.entries.sort_by_key(|entry| entry.at);
        history
    };
    wrong(Kind::L2, &known(25_000));
    fine(&known(25_001));
    fine(&known(5_000));
}

#[test]
fn whoever_released_and_died_unheard_is_noticed_by_its_session() {
    let history = |calm: u64, at| {
        timed(&[
            (0, ask(1, 0, 0)),
            (1, granted(1, 7)),
            (2, ask(2, 1, 0)),
            (3, queued(2)),
            (4, disturbed("an outage")),
            (calm, undisturbed("an outage")),
            (5_000, release(0, 7)),
            (5_050, died(0)),
            (at, granted(2, 8)),
        ])
    };
    fine(&history(4_000, 25_050));
    wrong(Kind::L1, &history(4_000, 25_051));
    // The outage may have cost its lease: then that has to run out.
    let mut within = history(4_000, 25_051);
    within.entries[5].at = 5_020 * MS;
    within.entries.swap(5, 6);
    fine(&within);
}

#[test]
fn whoever_gives_up_elsewhere_may_leave_the_lease_there() {
    let history = |place, at| {
        timed(&[
            (0, ask(1, 0, 0)),
            (1, granted(1, 7)),
            (2, ask(3, 2, place)),
            (5_000, release(0, 7)),
            (5_010, ask(2, 1, 0)),
            (5_011, queued(2)),
            (5_050, refused(3)),
            (at, granted(2, 8)),
        ])
    };
    fine(&history(0, 5_150));
    wrong(Kind::L2, &history(0, 5_151));
    fine(&history(1, 8_050));
    wrong(Kind::L2, &history(1, 8_051));
    // Unless the storage had no lease for it.
    let leases = |place, at| {
        let mut history = history(1, at);
        history.entries.insert(4, crate::Entry { at: 5_000 * MS, event: leased(place, 15_000) });
        history
    };
    fine(&leases(1, 8_050));
    wrong(Kind::L2, &leases(1, 8_051));
    fine(&leases(0, 5_150));
    wrong(Kind::L2, &leases(0, 5_151));
    // Of one who came later, that must be known; and the time does not count anew.
    let came_later = |mut history: History| {
        let asks = history.entries.remove(2);
        let at = history.entries.iter().position(|entry| entry.event == ask(2, 1, 0)).unwrap();
        history.entries.insert(at, crate::Entry { at: 5_010 * MS, ..asks });
        history
    };
    fine(&came_later(leases(1, 8_010)));
    wrong(Kind::L2, &came_later(leases(1, 8_011)));
    fine(&came_later(leases(0, 5_111)));
    wrong(Kind::L2, &came_later(leases(0, 5_112)));
    fine(&came_later(history(1, 5_111)));
    wrong(Kind::L2, &came_later(history(1, 5_112)));
}

#[test]
fn canceled_acquire_may_have_been_granted_by_the_daemon_with_the_lease() {
    // A waiter elsewhere; an acquire comes later to the daemon that keeps the lease.
    let history = |canceled, place, at| {
        let why = "withdrawn".to_owned();
        timed(&[
            (0, ask(1, 0, 0)),
            (1, granted(1, 7)),
            (2, ask(2, 1, 1)),
            (3, leased(0, 15_000)),
            (5_000, release(0, 7)),
            (6_000, ask(3, 2, place)),
            (6_010, Event::Refused { op: 3, why, faulty: false, canceled }),
            (at, granted(2, 8)),
        ])
    };
    fine(&history(true, 0, 9_010));
    wrong(Kind::L2, &history(true, 0, 9_011));
    // One that was refused was not granted; nor was one at another daemon.
    fine(&history(false, 0, 8_000));
    wrong(Kind::L2, &history(false, 0, 8_001));
    fine(&history(true, 2, 8_000));
    wrong(Kind::L2, &history(true, 2, 8_001));
}

#[test]
fn when_a_release_may_take_longer() {
    let late = |more: &[(u64, Event)], at| {
        let mut entries = vec![(5_000, release(0, 7))];
        entries.extend_from_slice(more);
        entries.push((at, granted(2, 8)));
        and_then(&entries)
    };
    wrong(Kind::L2, &late(&[], 24_000));
    // Its client or its daemon died before the storage heard of it.
    fine(&late(&[(5_001, died(0))], 24_000));
    wrong(Kind::L1, &late(&[(5_001, died(0))], 25_002));
    wrong(Kind::L2, &late(&[(5_001, released(7)), (5_002, died(0))], 24_000));
    fine(&late(&[(5_001, released(7)), (5_002, daemon_died(0))], 24_000));
    // Another was about to get it and gave up; not one that came only then.
    let gave_up = |asked, at| {
        let mut history = late(&[(6_000, refused(3))], at);
        let at = history.entries.partition_point(|entry| entry.at < asked * MS);
        history.entries.insert(at, crate::Entry { at: asked * MS, event: ask(3, 2, 2) });
        history
    };
    fine(&gave_up(4_999, 9_000));
    shown(Kind::L2, &gave_up(4_999, 9_001), &[0, 1, 3, 6, 7, 8]);
    fine(&gave_up(5_001, 8_000));
    wrong(Kind::L2, &gave_up(5_001, 8_001));
    let mut told = gave_up(5_001, 8_001);
    told.entries.insert(7, crate::Entry { at: 5_002 * MS, event: queued(3) });
    wrong(Kind::L2, &told);
    // It was released while nobody could hear it.
    let cut = [(4_000, disturbed("a cut")), (6_000, undisturbed("a cut"))];
    let mut heard = late(&[], 36_000).entries;
    heard.insert(5, crate::Entry { at: 4_000 * MS, event: cut[0].1.clone() });
    heard.insert(7, crate::Entry { at: 6_000 * MS, event: cut[1].1.clone() });
    let mut history = History { bounds: bounds(), entries: heard };
    fine(&history);
    let mut given_up = history.clone();
    given_up.entries.insert(8, crate::Entry { at: 7_000 * MS, event: ask(3, 2, 2) });
    given_up.entries.insert(9, crate::Entry { at: 8_000 * MS, event: refused(3) });
    fine(&given_up);
    history.entries[8].at += MS;
    wrong(Kind::L2, &history);
}

#[test]
fn whoever_waits_is_answered() {
    let history = |at| {
        timed(&[
            (1_000, disturbed("no storage")),
            (2_000, ask(1, 0, 0)),
            (50_000, undisturbed("no storage")),
            (at, granted(1, 7)),
        ])
    };
    shown(Kind::L5, &history(80_001), &[1, 2, 3]);
    fine(&history(80_000));
    let mut refuses = history(80_001);
    refuses.entries[3].at -= MS;
    refuses.entries[3].event = refused(1);
    fine(&refuses);
    // Those who come and go do not hide it.
    let mut others = history(80_001);
    others.entries.insert(3, crate::Entry { at: 60_000 * MS, event: ask(2, 1, 0) });
    others.entries.insert(4, crate::Entry { at: 61_000 * MS, event: refused(2) });
    wrong(Kind::L5, &others);
}

#[test]
fn the_time_that_others_hold_it_does_not_count() {
    let history = |until| {
        timed(&[
            (0, ask(1, 0, 0)),
            (0, ask(2, 1, 1)),
            (1, granted(1, 7)),
            (1, valid(0, 7, until)),
            (69_000, disturbed("the end")),
        ])
    };
    fine(&history(40_000));
    wrong(Kind::L5, &history(38_000));
}

#[test]
fn no_lease_that_nobody_wants() {
    let history = |at| {
        timed(&[
            (0, ask(1, 0, 0)),
            (0, leased(0, 15_000)),
            (1, granted(1, 7)),
            (2_000, release(0, 7)),
            (10_000, leased(0, 25_000)),
            (at, unleased()),
        ])
    };
    shown(Kind::L4, &history(20_001), &[3, 4, 5]);
    fine(&history(20_000));
    // Somebody waits there.
    let mut wanted = history(20_001);
    wanted.entries.insert(4, crate::Entry { at: 9_000 * MS, event: ask(2, 1, 0) });
    wanted.entries.insert(6, crate::Entry { at: 11_000 * MS, event: refused(2) });
    fine(&wanted);
    // A lease that was not renewed ends by itself.
    let mut short = without(&history(60_000), 4);
    fine(&short);
    short.entries[1].event = leased(0, 21_000);
    wrong(Kind::L4, &short);
    // Not while something is disturbed.
    let mut disturbance = history(20_001);
    disturbance.entries.insert(4, crate::Entry { at: 9_000 * MS, event: disturbed("a cut") });
    fine(&disturbance);
}

#[test]
fn a_lease_that_came_too_late_is_given_back_at_once() {
    let history = |more: &[(u64, Event)], at| {
        let mut entries = vec![(0, ask(1, 0, 0)), (50, refused(1)), (60, leased(0, 15_060))];
        entries.extend_from_slice(more);
        entries.push((at, unleased()));
        timed(&entries)
    };
    let violation = shown(Kind::L4, &history(&[], 2_061), &[1, 2, 3]);
    assert_eq!(
        violation.what,
        "lock 0 was leased for daemon 0, where nobody had wanted it any more when it was taken, \
         from 0.060 s to 2.061 s: longer than 2.000 s"
    );
    fine(&history(&[], 2_060));
    // Somebody asks meanwhile.
    fine(&history(&[(2_000, ask(2, 1, 0))], 5_000));
    // It came in time, and may have been held without anybody's having heard of it.
    let mut early = history(&[], 10_000);
    early.entries.swap(1, 2);
    (early.entries[1].at, early.entries[2].at) = (50 * MS, 60 * MS);
    fine(&early);
    // As far as its daemon knew, one who died waited still.
    let mut dead = history(&[], 10_000);
    dead.entries[1].event = died(0);
    fine(&dead);
    // So did one who gave up when something was wrong.
    let mut cut = history(&[], 10_000);
    let entry = |at, event| crate::Entry { at, event };
    cut.entries.insert(1, entry(10 * MS, disturbed("a cut")));
    cut.entries.insert(3, entry(55 * MS, undisturbed("a cut")));
    fine(&cut);
    // The daemon itself died.
    fine(&history(&[(1_000, daemon_died(0))], 15_060));
    let mut unbounded = history(&[], 10_000);
    unbounded.bounds.vain = 0;
    fine(&unbounded);
}

#[test]
fn a_dead_daemon_s_lease_ends() {
    let history = |until| {
        timed(&[
            (0, ask(1, 0, 0)),
            (0, leased(0, until)),
            (1, granted(1, 7)),
            (2_000, daemon_died(0)),
            (60_000, lost(0, 7)),
        ])
    };
    let violation = shown(Kind::L4, &history(20_001), &[1, 3]);
    assert_eq!(
        violation.what,
        "lock 0 was leased for daemon 0, which was dead, from 2.000 s to 20.001 s: longer than \
         18.000 s"
    );
    fine(&history(20_000));
}

#[test]
fn who_asks_a_dead_daemon_does_not_want_its_lease() {
    // Nobody wants it for 8 s, then for 15 s it is a dead daemon's.
    fine(&timed(&[
        (0, ask(1, 0, 0)),
        (0, leased(0, 25_000)),
        (1, granted(1, 7)),
        (2_000, release(0, 7)),
        (10_000, daemon_died(0)),
        (40_000, ask(2, 1, 0)),
    ]));
}

#[test]
fn recovery_includes_a_takeover() {
    let mut history = and_then(&[(5_000, died(0)), (24_000, granted(2, 8))]);
    history.bounds.recovery = 10_000 * MS;
    fine(&history);
}

#[test]
fn a_bound_of_zero_is_not_checked() {
    let entries = [(5_000, died(0)), (900_000, granted(2, 8))];
    let mut history = and_then(&entries);
    wrong(Kind::L1, &history);
    history.bounds.expiry = 0;
    wrong(Kind::L5, &history);
    history.bounds.recovery = 0;
    fine(&history);
}
