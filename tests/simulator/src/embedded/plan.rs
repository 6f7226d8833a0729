//! Plans with one daemon on the embedded store.

use std::time::Duration;

use super::{daemon::Supersede, disk::Step, faults::DiskFault};
use leasehold_simulated_storage::storage::Behavior;

use crate::{
    clock::Stop,
    plan::{DRIFT, Fault, Plan},
    rng::Rng,
    world::{Nanos, SECOND},
};

/// Settings of a plan with the embedded store.
#[derive(Clone, Debug)]
pub struct EmbeddedPlan {
    /// Number of tokens that a write reserves.
    pub reservation: u64,
    /// True if the daemon's wall clock is stepped. Otherwise the directory may
    /// be lost. After both faults, no source is left from which tokens could be
    /// raised.
    pub clock_is_set: bool,
}

/// Creates the plan of a seed.
#[must_use]
pub fn plan(rng: &mut Rng) -> Plan {
    let calm_from = rng.millis(60_000..180_000);
    let lease = Duration::from_secs(15);
    let locks = *rng.pick(&[1, 1, 2, 3]);
    let embedded = EmbeddedPlan {
        reservation: *rng.pick(&[1 << 20, 1 << 20, 1, 2, 5, 50]),
        clock_is_set: rng.permille(400),
    };
    let mut plan = Plan {
        places: 1,
        clients: rng.within(2..6) as usize,
        locks,
        client_tasks: if locks > 1 && rng.permille(400) { 2 } else { 1 },
        short_waits: 80,
        cancels: 20,
        rivals: rng.clone().split().split().permille(200),
        lease,
        max_lease: lease,
        tokens: 1,
        poll: Duration::from_secs(1),
        linger: Duration::ZERO,
        ttl: Duration::from_millis(*rng.pick(&[1000, 3000, 5000, 10_000, 30_000])),
        drain: Duration::from_millis(*rng.pick(&[0, 1000, 10_000])),
        gc_after: Duration::ZERO,
        behavior: Behavior { emulator: false, grace: 0, drift: 0 },
        bad_clocks: false,
        unaware: false,
        date_jumps: false,
        old_blobs: false,
        fenced: rng.permille(150),
        observed: rng.clone().split().permille(300),
        calm_from,
        end: calm_from + rng.millis(100_000..150_000),
        faults: Vec::new(),
        embedded: Some(embedded.clone()),
    };
    let count = *rng.pick(&[0, 2, 4, 6, 8, 12]);
    for _ in 0..count {
        let at = rng.within(0..calm_from);
        let fault = fault(&plan, &embedded, at, rng);
        plan.faults.push((at, fault));
    }
    // No other fault is active by then, so the other clients must be served in
    // time.
    if plan.clients > 2 && rng.permille(400) {
        let at = calm_from + rng.millis(60_000..80_000);
        let (silent, down) = (rng.permille(300), rng.millis(10..20_000));
        let client = rng.index(plan.clients);
        plan.faults.push((at, Fault::KillClient { client, silent, down }));
    }
    plan.faults.sort_by_key(|(at, _)| *at);
    plan
}

fn fault(plan: &Plan, embedded: &EmbeddedPlan, at: Nanos, rng: &mut Rng) -> Fault {
    let left = plan.calm_from - at;
    let client = rng.index(plan.clients);
    let lock = rng.within(0..u64::from(plan.locks)) as u32;
    let ttl = plan.ttl.as_nanos() as Nanos;
    let around = *rng.pick(&[SECOND, ttl, 2 * ttl]);
    let length = (around + rng.millis(0..2000)).min(left);
    let max_down = *rng.pick(&[50, 1000, 20_000]);
    let down = rng.millis(10..max_down).min(left);
    let how = *rng.pick(&[None, None, Some(Stop::Suspended), Some(Stop::VmPaused)]);
    let silent = rng.permille(400);
    let stop = rng.permille(500);
    match rng.within(0..24) {
        0 | 1 => Fault::PauseDaemon { place: 0, how: None, length },
        2 => Fault::PauseClient { client, how, length },
        3 => Fault::PauseBoth { client, how: None, length },
        4..=7 => Fault::KillDaemon { place: 0, silent, down },
        8 | 9 => Fault::StopDaemon { place: 0, down },
        10 => Fault::KillClient { client, silent, down },
        11 => {
            let (up, down) = *rng.pick(&[(true, false), (false, true), (true, true)]);
            Fault::CutLink { client, up, down, length }
        }
        12 => Fault::ResetLink { client },
        13 => {
            let drift = rng.within(0..2 * DRIFT) as i64 - DRIFT as i64;
            Fault::Drift { daemon: stop, which: rng.index(8), drift }
        }
        14 | 15 => {
            let by = rng.within(0..40 * SECOND) as i64 - (20 * SECOND) as i64;
            Fault::SetWall { daemon: embedded.clock_is_set, which: rng.index(8), by }
        }
        16 => Fault::Break { place: 0, lock },
        17 => Fault::StepDown { place: 0, lock },
        18 => Fault::Disk(DiskFault::Full { length }),
        19 => {
            let step = *rng.pick(&[Step::Written, Step::Synced, Step::Renamed]);
            Fault::Disk(DiskFault::PendingCrash { step, power: silent, down })
        }
        20 => Fault::Disk(DiskFault::RemoveLock { length, down }),
        _ if embedded.clock_is_set => Fault::KillDaemon { place: 0, silent, down },
        21 => Fault::Disk(DiskFault::Remove { stop, length, down }),
        22 => {
            let (kill_after, down) = (rng.millis(1..2000), down.min(SECOND));
            let how =
                if stop { Supersede::Stop { kill_after, down } } else { Supersede::Run { length } };
            Fault::Disk(DiskFault::Supersede(how))
        }
        _ => Fault::Disk(DiskFault::Restore { age: length, down }),
    }
}
