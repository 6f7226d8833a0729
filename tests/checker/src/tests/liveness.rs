//! Tests of L1, L2, L4 and L5, with bounds for a lease of 15 s.

use super::history_builder::*;
use crate::{Entry, Event, History, Kind};

fn timed(entries: &[(u64, Event)]) -> History {
    bounded(bounds(), entries)
}

/// Client 0 holds the lock through daemon 0, client 1 waits at daemon 1.
fn held_and_wanted() -> Vec<(u64, Event)> {
    vec![
        (0, acquire(1, 0, 0)),
        (1, granted(1, 7)),
        (1, valid(0, 7, 9_000)),
        (2, acquire(2, 1, 1)),
        (3, queued(2)),
    ]
}

fn and_then(more: &[(u64, Event)]) -> History {
    let mut entries = held_and_wanted();
    entries.extend_from_slice(more);
    timed(&entries)
}

#[test]
fn lock_of_dead_holder_is_granted_in_time() {
    for dead in [died(0), daemon_died(0)] {
        let history = |at| and_then(&[(5_000, dead.clone()), (at, granted(2, 8))]);
        assert_excerpt(Kind::L1, &history(25_001), &[0, 1, 3, 5, 6]);
        assert_passes(&history(25_000));
        // No client is granted the lock; within the bound that is no violation.
        let open = |at| and_then(&[(5_000, dead.clone()), (at, disturbed("the end"))]);
        assert_excerpt(Kind::L1, &open(25_001), &[0, 1, 3, 5]);
        assert_passes(&open(25_000));
    }
}

#[test]
fn lock_of_dead_client_is_granted_before_lease_expiry() {
    let history = |deaths: &[(u64, Event)], at| {
        let mut entries = deaths.to_vec();
        entries.push((at, granted(2, 8)));
        let mut history = and_then(&entries);
        history.bounds.expiry = 8_000 * MS;
        history
    };
    assert_finds(Kind::L1, &history(&[(5_000, died(0))], 13_001));
    assert_passes(&history(&[(5_000, died(0))], 13_000));
    // The lease of the dead daemon has to expire.
    assert_passes(&history(&[(5_000, daemon_died(0))], 25_000));
    assert_finds(Kind::L1, &history(&[(5_000, daemon_died(0))], 25_001));
    assert_passes(&history(&[(5_000, died(0)), (6_000, daemon_died(0))], 26_000));
    assert_finds(Kind::L1, &history(&[(5_000, died(0)), (6_000, daemon_died(0))], 26_001));
    // After the death of the daemon, the death of its client changes nothing.
    assert_passes(&history(&[(5_000, daemon_died(0)), (6_000, died(0))], 25_000));
    assert_finds(Kind::L1, &history(&[(5_000, daemon_died(0)), (6_000, died(0))], 25_001));
}

#[test]
fn grant_of_disconnected_fenced_session_ends_at_once() {
    // The client of the fenced session is alive or dead.
    for before in [&[][..], &[(5_000, died(0))]] {
        let history = |freed_at, at| {
            let mut entries = before.to_vec();
            entries.extend([(freed_at, freed(0, 7)), (at, granted(2, 8))]);
            and_then(&entries)
        };
        assert_passes(&history(6_000, 9_000));
        assert_finds(Kind::L2, &history(6_000, 9_001));
    }
    // After the client's deadline, the end of the stream changes nothing.
    assert_passes(&and_then(&[(5_000, died(0)), (9_500, freed(0, 7)), (25_000, granted(2, 8))]));
    assert_finds(
        Kind::L1,
        &and_then(&[(5_000, died(0)), (9_500, freed(0, 7)), (25_001, granted(2, 8))]),
    );
}

#[test]
fn client_dying_before_holder_stops_may_have_had_lock() {
    // The holder relies on its grant until 9,000; its daemon's lease has to expire.
    let history = |dead: &[(u64, Event)], at| {
        let mut entries = vec![(5_000, daemon_died(0)), (5_500, acquire(3, 2, 2))];
        entries.extend_from_slice(dead);
        entries.push((at, granted(2, 8)));
        and_then(&entries)
    };
    assert_passes(&history(&[], 25_000));
    assert_finds(Kind::L1, &history(&[], 25_001));
    for dead in [daemon_died(2), died(2)] {
        assert_passes(&history(&[(8_000, dead.clone())], 28_000));
        assert_finds(Kind::L1, &history(&[(8_000, dead)], 28_001));
    }
}

#[test]
fn takeover_time_restarts_at_faults_and_deaths() {
    let late = |more: &[(u64, Event)]| {
        let mut entries = vec![(5_000, died(0))];
        entries.extend_from_slice(more);
        entries.push((29_000, granted(2, 8)));
        and_then(&entries)
    };
    assert_finds(Kind::L1, &late(&[]));
    // The calm span began later.
    let calm = |at| late(&[(6_000, disturbed("a cut")), (at, undisturbed("a cut"))]);
    assert_passes(&calm(9_000));
    assert_excerpt(Kind::L1, &calm(8_999), &[0, 1, 3, 5, 7, 8]);
    // Two faults of the same name.
    let twice = [
        (6_000, disturbed("a cut")),
        (6_000, disturbed("a cut")),
        (7_000, undisturbed("a cut")),
        (9_000, undisturbed("a cut")),
    ];
    assert_passes(&late(&twice));
    // Another waiter died. It may have had the lock without receiving the grant.
    assert_passes(&late(&[(6_000, acquire(3, 2, 2)), (9_000, died(2))]));
    assert_passes(&late(&[(6_000, acquire(3, 2, 2)), (9_000, daemon_died(2))]));
    assert_finds(Kind::L1, &late(&[(6_000, acquire(3, 2, 2)), (8_999, daemon_died(2))]));
    assert_finds(Kind::L1, &late(&[(6_000, acquire(3, 2, 2)), (9_000, refused(3))]));
    // Another client was granted the lock.
    let other = [(6_000, acquire(3, 2, 2)), (20_000, granted(3, 8)), (28_000, release(2, 8))];
    let mut other = late(&other);
    other.entries.pop();
    other.entries.push(crate::Entry { at: 29_000 * MS, event: granted(2, 9) });
    assert_passes(&other);
}

#[test]
fn dead_or_refused_waiters_do_not_wait() {
    let waited = |more: &[(u64, Event)]| {
        let mut entries = vec![(5_000, died(0))];
        entries.extend_from_slice(more);
        entries.push((90_000, disturbed("the end")));
        and_then(&entries)
    };
    assert_finds(Kind::L1, &waited(&[]));
    for gone in [died(1), daemon_died(1), refused(2)] {
        assert_passes(&waited(&[(20_000, gone)]));
    }
}

#[test]
fn released_lock_is_granted_in_time_at_other_daemon() {
    let history = |at| and_then(&[(5_000, release(0, 7)), (at, granted(2, 8))]);
    assert_excerpt(Kind::L2, &history(8_001), &[0, 1, 3, 5, 6]);
    assert_passes(&history(8_000));
}

#[test]
fn released_lock_is_granted_in_time_at_same_daemon() {
    let history = |release_at, at| {
        timed(&[
            (0, acquire(1, 0, 0)),
            (1, granted(1, 7)),
            (2, acquire(2, 1, 0)),
            (5, queued(2)),
            (release_at, release(0, 7)),
            (at, granted(2, 8)),
        ])
    };
    assert_excerpt(Kind::L2, &history(5_000, 5_101), &[0, 1, 2, 4, 5]);
    assert_passes(&history(5_000, 5_100));
    // The client was notified of its place in the queue only after the release.
    let late = |at| {
        let mut history = history(5_000, at);
        history.entries[3].at = 5_050 * MS;
        history.entries.swap(3, 4);
        history
    };
    assert_passes(&late(5_150));
    assert_finds(Kind::L2, &late(5_151));
    // Without that notification, the limit of a remote handoff applies.
    assert_passes(&without(&history(5_000, 5_101), 3));
    assert_finds(Kind::L2, &without(&history(5_000, 8_001), 3));
}

#[test]
fn lock_released_after_loss_is_granted_in_time() {
    let history = |more: &[(u64, Event)], at| {
        let mut entries = vec![(5_000, lost(0, 7))];
        entries.extend_from_slice(more);
        entries.push((at, granted(2, 8)));
        and_then(&entries)
    };
    let late_release = (7_000, release(0, 7));
    assert_excerpt(
        Kind::L2,
        &history(std::slice::from_ref(&late_release), 10_001),
        &[0, 1, 3, 6, 7],
    );
    assert_passes(&history(std::slice::from_ref(&late_release), 10_000));
    // L2 does not apply before the release.
    assert_passes(&history(&[], 30_000));
    // Its deadline may have passed before the loss was recorded.
    let mut expired = history(std::slice::from_ref(&late_release), 10_001);
    expired.entries[2].event = valid(0, 7, 4_000);
    assert_finds(Kind::L2, &expired);
    // Another client or daemon died, before or after the release, and may have had the lock.
    for death in [daemon_died(0), daemon_died(2), died(2)] {
        let other = (5_500, acquire(3, 2, 2));
        assert_passes(&history(
            &[other.clone(), (6_000, death.clone()), late_release.clone()],
            16_000,
        ));
        assert_passes(&history(&[other, late_release.clone(), (9_900, death)], 16_000));
    }
    // A fault that ended before the release does not matter.
    let fault = [(5_000, disturbed("a cut")), (6_000, undisturbed("a cut"))];
    let calm = [fault[0].clone(), fault[1].clone(), late_release.clone()];
    assert_finds(Kind::L2, &history(&calm, 10_001));
    let late = [fault[0].clone(), late_release, (7_500, undisturbed("a cut"))];
    assert_passes(&history(&late, 37_500));
    assert_finds(Kind::L2, &history(&late, 37_501));
}

#[test]
fn later_acquire_may_take_lease_before_polling_daemon() {
    let history = |lease: Option<u64>, at| {
        let mut entries = vec![
            (4, leased(0, 15_000)),
            (5_000, release(0, 7)),
            (5_010, unleased()),
            (7_000, acquire(3, 2, 0)),
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
    assert_passes(&history(None, 8_000));
    assert_finds(Kind::L2, &history(None, 8_001));
    for lease in [7_010, 7_060] {
        assert_passes(&history(Some(lease), 10_050));
        assert_finds(Kind::L2, &history(Some(lease), 10_051));
    }
    // A lease from before the later acquire does not restart the time.
    assert_finds(Kind::L2, &history(Some(6_999), 8_001));
}

#[test]
fn waiter_that_died_before_release_may_have_been_granted() {
    let history = |died_at: u64, at: u64| {
        let mut entries = vec![
            (0, acquire(1, 0, 0)),
            (1, granted(1, 7)),
            (2, acquire(3, 2, 0)),
            (3, queued(3)),
            (4, acquire(2, 1, 0)),
            (5, queued(2)),
            (died_at, died(2)),
            (25_000, release(0, 7)),
            (at, granted(2, 8)),
        ];
        entries.sort_by_key(|(at, _)| *at);
        timed(&entries)
    };
    // Its session had expired by then.
    assert_finds(Kind::L2, &history(5_000, 25_101));
    assert_passes(&history(5_001, 25_101));
    assert_passes(&history(5_001, 55_000));
    assert_finds(Kind::L5, &history(5_001, 55_001));
    // Its daemon knew by then that it must skip the waiter.
    let known = |detached_at: u64| {
        let mut history = history(5_001, 25_101);
        history.entries.push(Entry { at: detached_at * MS, event: detached(2) });
        history.entries.sort_by_key(|entry| entry.at);
        history
    };
    assert_finds(Kind::L2, &known(25_000));
    assert_passes(&known(25_001));
    assert_passes(&known(5_000));
}

#[test]
fn undelivered_release_of_dead_client_waits_for_session() {
    let history = |calm: u64, at| {
        timed(&[
            (0, acquire(1, 0, 0)),
            (1, granted(1, 7)),
            (2, acquire(2, 1, 0)),
            (3, queued(2)),
            (4, disturbed("an outage")),
            (calm, undisturbed("an outage")),
            (5_000, release(0, 7)),
            (5_050, died(0)),
            (at, granted(2, 8)),
        ])
    };
    assert_passes(&history(4_000, 25_050));
    assert_finds(Kind::L1, &history(4_000, 25_051));
    // The daemon may have lost its lease in the outage. The lease then has to expire.
    let mut during = history(4_000, 25_051);
    during.entries[5].at = 5_020 * MS;
    during.entries.swap(5, 6);
    assert_passes(&during);
}

#[test]
fn refused_acquire_at_other_daemon_may_leave_lease_there() {
    let history = |place, at| {
        timed(&[
            (0, acquire(1, 0, 0)),
            (1, granted(1, 7)),
            (2, acquire(3, 2, place)),
            (5_000, release(0, 7)),
            (5_010, acquire(2, 1, 0)),
            (5_011, queued(2)),
            (5_050, refused(3)),
            (at, granted(2, 8)),
        ])
    };
    assert_passes(&history(0, 5_150));
    assert_finds(Kind::L2, &history(0, 5_151));
    assert_passes(&history(1, 8_050));
    assert_finds(Kind::L2, &history(1, 8_051));
    // Recorded leases prove whether its daemon had the lease.
    let leases = |place, at| {
        let mut history = history(1, at);
        history.entries.insert(4, crate::Entry { at: 5_000 * MS, event: leased(place, 15_000) });
        history
    };
    assert_passes(&leases(1, 8_050));
    assert_finds(Kind::L2, &leases(1, 8_051));
    assert_passes(&leases(0, 5_150));
    assert_finds(Kind::L2, &leases(0, 5_151));
    // For a later acquire, the lease must be recorded, and the time does not restart.
    let came_later = |mut history: History| {
        let moved = history.entries.remove(2);
        let at = history.entries.iter().position(|entry| entry.event == acquire(2, 1, 0)).unwrap();
        history.entries.insert(at, crate::Entry { at: 5_010 * MS, ..moved });
        history
    };
    assert_passes(&came_later(leases(1, 8_010)));
    assert_finds(Kind::L2, &came_later(leases(1, 8_011)));
    assert_passes(&came_later(leases(0, 5_111)));
    assert_finds(Kind::L2, &came_later(leases(0, 5_112)));
    assert_passes(&came_later(history(1, 5_111)));
    assert_finds(Kind::L2, &came_later(history(1, 5_112)));
}

#[test]
fn canceled_acquire_may_have_been_granted_by_lease_owner() {
    // A waiter at another daemon; a later acquire at the daemon that keeps the lease.
    let history = |canceled, place, at| {
        let why = "canceled".to_owned();
        timed(&[
            (0, acquire(1, 0, 0)),
            (1, granted(1, 7)),
            (2, acquire(2, 1, 1)),
            (3, leased(0, 15_000)),
            (5_000, release(0, 7)),
            (6_000, acquire(3, 2, place)),
            (6_010, Event::Refused { op: 3, why, faulty: false, canceled }),
            (at, granted(2, 8)),
        ])
    };
    assert_passes(&history(true, 0, 9_010));
    assert_finds(Kind::L2, &history(true, 0, 9_011));
    // A refused acquire was not granted, and neither was one at another daemon.
    assert_passes(&history(false, 0, 8_000));
    assert_finds(Kind::L2, &history(false, 0, 8_001));
    assert_passes(&history(true, 2, 8_000));
    assert_finds(Kind::L2, &history(true, 2, 8_001));
}

#[test]
fn handoff_time_is_extended_by_deaths_and_faults() {
    let late = |more: &[(u64, Event)], at| {
        let mut entries = vec![(5_000, release(0, 7))];
        entries.extend_from_slice(more);
        entries.push((at, granted(2, 8)));
        and_then(&entries)
    };
    assert_finds(Kind::L2, &late(&[], 24_000));
    // The client or the daemon died before the lease was released.
    assert_passes(&late(&[(5_001, died(0))], 24_000));
    assert_finds(Kind::L1, &late(&[(5_001, died(0))], 25_002));
    assert_finds(Kind::L2, &late(&[(5_001, released(7)), (5_002, died(0))], 24_000));
    assert_passes(&late(&[(5_001, released(7)), (5_002, daemon_died(0))], 24_000));
    // The next waiter may have been granted the lock before it was refused; a later acquire
    // does not restart the time.
    let refused_waiter = |invoked, at| {
        let mut history = late(&[(6_000, refused(3))], at);
        let at = history.entries.partition_point(|entry| entry.at < invoked * MS);
        history.entries.insert(at, crate::Entry { at: invoked * MS, event: acquire(3, 2, 2) });
        history
    };
    assert_passes(&refused_waiter(4_999, 9_000));
    assert_excerpt(Kind::L2, &refused_waiter(4_999, 9_001), &[0, 1, 3, 6, 7, 8]);
    assert_passes(&refused_waiter(5_001, 8_000));
    assert_finds(Kind::L2, &refused_waiter(5_001, 8_001));
    let mut queued_later = refused_waiter(5_001, 8_001);
    queued_later.entries.insert(7, crate::Entry { at: 5_002 * MS, event: queued(3) });
    assert_finds(Kind::L2, &queued_later);
    // The release happened during a fault.
    let cut = [(4_000, disturbed("a cut")), (6_000, undisturbed("a cut"))];
    let mut entries = late(&[], 36_000).entries;
    entries.insert(5, crate::Entry { at: 4_000 * MS, event: cut[0].1.clone() });
    entries.insert(7, crate::Entry { at: 6_000 * MS, event: cut[1].1.clone() });
    let mut history = History { bounds: bounds(), entries };
    assert_passes(&history);
    let mut with_refusal = history.clone();
    with_refusal.entries.insert(8, crate::Entry { at: 7_000 * MS, event: acquire(3, 2, 2) });
    with_refusal.entries.insert(9, crate::Entry { at: 8_000 * MS, event: refused(3) });
    assert_passes(&with_refusal);
    history.entries[8].at += MS;
    assert_finds(Kind::L2, &history);
}

#[test]
fn waiter_is_answered_after_outage() {
    let history = |at| {
        timed(&[
            (1_000, disturbed("no storage")),
            (2_000, acquire(1, 0, 0)),
            (50_000, undisturbed("no storage")),
            (at, granted(1, 7)),
        ])
    };
    assert_excerpt(Kind::L5, &history(80_001), &[1, 2, 3]);
    assert_passes(&history(80_000));
    let mut refuses = history(80_001);
    refuses.entries[3].at -= MS;
    refuses.entries[3].event = refused(1);
    assert_passes(&refuses);
    // Other acquires that come and go do not hide the violation.
    let mut others = history(80_001);
    others.entries.insert(3, crate::Entry { at: 60_000 * MS, event: acquire(2, 1, 0) });
    others.entries.insert(4, crate::Entry { at: 61_000 * MS, event: refused(2) });
    assert_finds(Kind::L5, &others);
}

#[test]
fn recovery_time_excludes_holds_of_other_clients() {
    let history = |until| {
        timed(&[
            (0, acquire(1, 0, 0)),
            (0, acquire(2, 1, 1)),
            (1, granted(1, 7)),
            (1, valid(0, 7, until)),
            (69_000, disturbed("the end")),
        ])
    };
    assert_passes(&history(40_000));
    assert_finds(Kind::L5, &history(38_000));
}

#[test]
fn lease_without_holder_or_waiter_ends_in_time() {
    let history = |at| {
        timed(&[
            (0, acquire(1, 0, 0)),
            (0, leased(0, 15_000)),
            (1, granted(1, 7)),
            (2_000, release(0, 7)),
            (10_000, leased(0, 25_000)),
            (at, unleased()),
        ])
    };
    assert_excerpt(Kind::L4, &history(20_001), &[3, 4, 5]);
    assert_passes(&history(20_000));
    // A client waits at the daemon.
    let mut wanted = history(20_001);
    wanted.entries.insert(4, crate::Entry { at: 9_000 * MS, event: acquire(2, 1, 0) });
    wanted.entries.insert(6, crate::Entry { at: 11_000 * MS, event: refused(2) });
    assert_passes(&wanted);
    // A lease without a renewal expires.
    let mut short = without(&history(60_000), 4);
    assert_passes(&short);
    short.entries[1].event = leased(0, 21_000);
    assert_finds(Kind::L4, &short);
    // L4 does not apply during a fault.
    let mut disturbance = history(20_001);
    disturbance.entries.insert(4, crate::Entry { at: 9_000 * MS, event: disturbed("a cut") });
    assert_passes(&disturbance);
}

#[test]
fn lease_acquired_without_waiter_is_released_at_once() {
    let history = |more: &[(u64, Event)], at| {
        let mut entries = vec![(0, acquire(1, 0, 0)), (50, refused(1)), (60, leased(0, 15_060))];
        entries.extend_from_slice(more);
        entries.push((at, unleased()));
        timed(&entries)
    };
    let violation = assert_excerpt(Kind::L4, &history(&[], 2_061), &[1, 2, 3]);
    assert_eq!(
        violation.what,
        "lock 0 was leased for daemon 0, which acquired the lease without a holder or a waiter, \
         from 0.060 s to 2.061 s: longer than 2.000 s"
    );
    assert_passes(&history(&[], 2_060));
    // Another acquire follows in time.
    assert_passes(&history(&[(2_000, acquire(2, 1, 0))], 5_000));
    // The lease came in time; the daemon may have granted it without delivering the grant.
    let mut early = history(&[], 10_000);
    early.entries.swap(1, 2);
    (early.entries[1].at, early.entries[2].at) = (50 * MS, 60 * MS);
    assert_passes(&early);
    // The daemon may not have known that the waiter had died.
    let mut dead = history(&[], 10_000);
    dead.entries[1].event = died(0);
    assert_passes(&dead);
    // The daemon may not have received a cancellation during a fault.
    let mut cut = history(&[], 10_000);
    let entry = |at, event| crate::Entry { at, event };
    cut.entries.insert(1, entry(10 * MS, disturbed("a cut")));
    cut.entries.insert(3, entry(55 * MS, undisturbed("a cut")));
    assert_passes(&cut);
    // The daemon itself died.
    assert_passes(&history(&[(1_000, daemon_died(0))], 15_060));
    let mut unbounded = history(&[], 10_000);
    unbounded.bounds.unwanted = 0;
    assert_passes(&unbounded);
}

#[test]
fn lease_of_dead_daemon_ends_in_time() {
    let history = |until| {
        timed(&[
            (0, acquire(1, 0, 0)),
            (0, leased(0, until)),
            (1, granted(1, 7)),
            (2_000, daemon_died(0)),
            (60_000, lost(0, 7)),
        ])
    };
    let violation = assert_excerpt(Kind::L4, &history(20_001), &[1, 3]);
    assert_eq!(
        violation.what,
        "lock 0 was leased for daemon 0, which was dead, from 2.000 s to 20.001 s: longer than \
         18.000 s"
    );
    assert_passes(&history(20_000));
}

#[test]
fn acquire_at_dead_daemon_does_not_extend_lease() {
    // For 8 s the lease has no holder and no waiter, then for 15 s its daemon is dead.
    assert_passes(&timed(&[
        (0, acquire(1, 0, 0)),
        (0, leased(0, 25_000)),
        (1, granted(1, 7)),
        (2_000, release(0, 7)),
        (10_000, daemon_died(0)),
        (40_000, acquire(2, 1, 0)),
    ]));
}

#[test]
fn recovery_includes_takeover() {
    let mut history = and_then(&[(5_000, died(0)), (24_000, granted(2, 8))]);
    history.bounds.recovery = 10_000 * MS;
    assert_passes(&history);
}

#[test]
fn zero_bound_disables_check() {
    let entries = [(5_000, died(0)), (900_000, granted(2, 8))];
    let mut history = and_then(&entries);
    assert_finds(Kind::L1, &history);
    history.bounds.expiry = 0;
    assert_finds(Kind::L5, &history);
    history.bounds.recovery = 0;
    assert_passes(&history);
}
