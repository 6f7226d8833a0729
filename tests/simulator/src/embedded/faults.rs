//! Faults of the data directory.

use super::{
    daemon::Supersede,
    disk::{PendingCrash, Step},
};
use crate::{
    daemon,
    faults::disturb,
    sim_state::{count, sim},
    world::{Nanos, SECOND},
};

/// Fault of the data directory.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the names describe the fields")]
pub enum DiskFault {
    /// The disk is full for `length`.
    Full { length: Nanos },
    /// The daemon is killed when its next write reaches this step, optionally
    /// with a power failure.
    PendingCrash { step: Step, power: bool, down: Nanos },
    /// The directory is moved away or deleted; after `length` the daemon is
    /// restarted, by a shutdown or a kill.
    Remove { stop: bool, length: Nanos, down: Nanos },
    /// The lock file is deleted; after `length` the daemon is killed and
    /// restarted.
    RemoveLock { length: Nanos, down: Nanos },
    /// The directory is moved away, and another daemon is started at its path.
    Supersede(Supersede),
    /// The directory is copied; after `age` the daemon is killed, and restarted
    /// with the copy.
    Restore { age: Nanos, down: Nanos },
}

/// Injects a fault.
pub fn inject(index: usize, fault: &DiskFault) {
    let sim = sim();
    let wait = sim.plan.crash_wait();
    let ttl = sim.plan.ttl.as_nanos() as Nanos;
    let max_stop = (sim.plan.drain + sim.plan.ttl).as_nanos() as Nanos + 5 * SECOND;
    match *fault {
        DiskFault::Full { length } => {
            count("disk: filled up");
            sim.disk.borrow_mut().full += 1;
            disturb(index, length + 2 * SECOND, || {});
            sim.world.after(length, || crate::sim_state::sim().disk.borrow_mut().full -= 1);
        }
        DiskFault::PendingCrash { step, power, down } => {
            count("disk: daemon kill scheduled");
            sim.disk.borrow_mut().pending_crash = Some(PendingCrash { step, power, down });
            // Ends when no crash is pending: the calm phase clears a pending
            // crash.
            let left = sim.plan.calm_from.saturating_sub(sim.world.now());
            disturb(index, left + down + wait, || {});
            // A daemon writes when the first session opens, and when it stops.
            daemon::stop(1000 + index, 0, down);
        }
        DiskFault::Remove { stop, length, down } => {
            count("operator: directory removed");
            let until = sim.world.now() + length + max_stop + ttl;
            sim.disk.borrow_mut().remove(until);
            disturb(index, length + max_stop + down + wait, || {});
            sim.world.after(length, move || {
                if stop {
                    daemon::stop(1000 + index, 0, down);
                } else {
                    daemon::crash(0, Some(down));
                }
            });
        }
        DiskFault::RemoveLock { length, down } => {
            count("operator: lock file deleted");
            sim.disk.borrow_mut().remove_lock();
            disturb(index, length + down + wait, || {});
            sim.world.after(length, move || daemon::crash(0, Some(down)));
        }
        DiskFault::Supersede(how) => super::daemon::supersede(index, 0, how),
        DiskFault::Restore { age, down } => {
            sim.disk.borrow_mut().back_up();
            disturb(index, age + down + wait, || {});
            sim.world.after(age, move || {
                daemon::crash(0, Some(down));
                let sim = crate::sim_state::sim();
                let until = sim.world.now() + 2 * ttl + SECOND;
                if sim.disk.borrow_mut().restore(until) {
                    count("operator: directory restored");
                }
            });
        }
    }
}
