//! Plans with one daemon on the embedded store.

use std::time::Duration;

use super::{daemon::Supersede, disk::Step, faults::DiskFault};
use leasehold_simulated_storage::storage::Habits;

use crate::{
    clock::Stop,
    dice::Dice,
    plan::{DRIFT, Fault, Plan},
    world::{Nanos, SECOND},
};

/// Settings of a plan with the embedded store.
#[derive(Clone, Debug)]
pub struct EmbeddedPlan {
    /// Number of tokens that a write reserves.
    pub reservation: u64,
    /// True if the daemon's wall clock is set. Otherwise the directory may be
    /// lost. After both, nothing is left that tokens could be raised by.
    pub clock_is_set: bool,
}

/// Makes the plan of a seed.
#[must_use]
pub fn plan(dice: &mut Dice) -> Plan {
    let trouble = dice.millis(60_000..180_000);
    let lease = Duration::from_secs(15);
    let locks = *dice.pick(&[1, 1, 2, 3]);
    let embedded = EmbeddedPlan {
        reservation: *dice.pick(&[1 << 20, 1 << 20, 1, 2, 5, 50]),
        clock_is_set: dice.permille(400),
    };
    let mut plan = Plan {
        places: 1,
        clients: dice.within(2..6) as usize,
        locks,
        hands: if locks > 1 && dice.permille(400) { 2 } else { 1 },
        hasty: 80,
        cancels: 20,
        rivals: dice.clone().split().split().permille(200),
        lease,
        longest_lease: lease,
        tokens: 1,
        poll: Duration::from_secs(1),
        linger: Duration::ZERO,
        ttl: Duration::from_millis(*dice.pick(&[1000, 3000, 5000, 10_000, 30_000])),
        drain: Duration::from_millis(*dice.pick(&[0, 1000, 10_000])),
        collect_after: Duration::ZERO,
        habits: Habits { emulator: false, grace: 0, drift: 0 },
        bad_clocks: false,
        unaware: false,
        leaping_date: false,
        old_blobs: false,
        fenced: dice.permille(150),
        observed: dice.clone().split().permille(300),
        calm_from: trouble,
        end: trouble + dice.millis(100_000..150_000),
        faults: Vec::new(),
        embedded: Some(embedded.clone()),
    };
    let count = *dice.pick(&[0, 2, 4, 6, 8, 12]);
    for _ in 0..count {
        let at = dice.within(0..trouble);
        let fault = fault(&plan, &embedded, at, dice);
        plan.faults.push((at, fault));
    }
    // Nothing else is wrong by then: so others must be served in time.
    if plan.clients > 2 && dice.permille(400) {
        let at = trouble + dice.millis(60_000..80_000);
        let (silent, down) = (dice.permille(300), dice.millis(10..20_000));
        let client = dice.index(plan.clients);
        plan.faults.push((at, Fault::KillClient { client, silent, down }));
    }
    plan.faults.sort_by_key(|(at, _)| *at);
    plan
}

fn fault(plan: &Plan, embedded: &EmbeddedPlan, at: Nanos, dice: &mut Dice) -> Fault {
    let left = plan.calm_from - at;
    let client = dice.index(plan.clients);
    let lock = dice.within(0..u64::from(plan.locks)) as u32;
    let ttl = plan.ttl.as_nanos() as Nanos;
    let around = *dice.pick(&[SECOND, ttl, 2 * ttl]);
    let length = (around + dice.millis(0..2000)).min(left);
    let longest = *dice.pick(&[50, 1000, 20_000]);
    let down = dice.millis(10..longest).min(left);
    let how = *dice.pick(&[None, None, Some(Stop::Suspended), Some(Stop::Frozen)]);
    let silent = dice.permille(400);
    let stop = dice.permille(500);
    match dice.within(0..24) {
        0 | 1 => Fault::PauseDaemon { place: 0, how: None, length },
        2 => Fault::PauseClient { client, how, length },
        3 => Fault::PauseBoth { client, how: None, length },
        4..=7 => Fault::KillDaemon { place: 0, silent, down },
        8 | 9 => Fault::StopDaemon { place: 0, down },
        10 => Fault::KillClient { client, silent, down },
        11 => {
            let (up, down) = *dice.pick(&[(true, false), (false, true), (true, true)]);
            Fault::CutLink { client, up, down, length }
        }
        12 => Fault::ResetLink { client },
        13 => {
            let drift = dice.within(0..2 * DRIFT) as i64 - DRIFT as i64;
            Fault::Drift { daemon: stop, which: dice.index(8), drift }
        }
        14 | 15 => {
            let by = dice.within(0..40 * SECOND) as i64 - (20 * SECOND) as i64;
            Fault::SetWall { daemon: embedded.clock_is_set, which: dice.index(8), by }
        }
        16 => Fault::Break { place: 0, lock },
        17 => Fault::StepDown { place: 0, lock },
        18 => Fault::Disk(DiskFault::Full { length }),
        19 => {
            let step = *dice.pick(&[Step::Written, Step::Synced, Step::Renamed]);
            Fault::Disk(DiskFault::Trap { step, power: silent, down })
        }
        20 => Fault::Disk(DiskFault::RemoveLock { length, down }),
        _ if embedded.clock_is_set => Fault::KillDaemon { place: 0, silent, down },
        21 => Fault::Disk(DiskFault::Remove { stop, length, down }),
        22 => {
            let (kill_after, down) = (dice.millis(1..2000), down.min(SECOND));
            let how =
                if stop { Supersede::Stop { kill_after, down } } else { Supersede::Run { length } };
            Fault::Disk(DiskFault::Supersede(how))
        }
        _ => Fault::Disk(DiskFault::Restore { age: length, down }),
    }
}
