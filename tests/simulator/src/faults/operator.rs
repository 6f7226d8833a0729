//! Operator actions, through a daemon and in the storage account.

use leasehold::driver::Driver;
use leasehold_checker::Event;
use leasehold_runtime as task;
use leasehold_store::Breaker;
use leasehold_types::LockName;

use super::disturb;
use leasehold_simulated_storage::storage::{Call, Contents, Operation};

use crate::{
    daemon,
    sim_state::{blob_path, count, lock_name, record, sim},
    world::{Nanos, SECOND},
};

/// Runs an operator's request at a daemon.
pub(super) fn operate<F: Future<Output = ()> + Send + 'static>(
    place: usize,
    act: impl FnOnce(Driver, LockName, Breaker) -> F,
    lock: u32,
) {
    let sim = sim();
    let Some(running) = sim.running(place) else { return };
    let Ok(name) = LockName::parse("", &lock_name(lock)) else { return };
    let breaker = Breaker { by: "operator".into(), reason: "a simulation".into() };
    let task = act(running.driver, name, breaker);
    sim.world.as_machine(running.machine, || task::spawn(task));
}

/// Deletes a blob with an invalid or regressed record.
pub(super) fn repair(lock: u32) {
    let sim = sim();
    // The blob may have been created in the current second.
    if is_epoch_ahead(lock) {
        return sim.world.after(SECOND, move || repair(lock));
    }
    delete(lock);
}

/// Returns whether the highest token is ahead of the service's clock: within
/// the second after the blob's creation, and after that clock was ahead and was
/// accepted. Tokens are not guaranteed to increase if the blob is deleted then,
/// so the fault is skipped.
pub(super) fn is_epoch_ahead(lock: u32) -> bool {
    let sim = sim();
    let (epoch, date) = (sim.epoch(lock), sim.date());
    epoch == date + 1 || (sim.plan.date_jumps && epoch > date)
}

pub(super) fn delete(lock: u32) {
    let sim = sim();
    record_override(lock);
    sim.storage.borrow_mut().remove(&blob_path(lock));
    record(Event::Deleted { lock });
    sim.record_lease(lock);
}

/// Kills all daemons and starts them again after `down`.
pub(super) fn restart_all(down: Option<Nanos>) {
    if let Some(down) = down {
        (0..sim().plan.places).for_each(|place| daemon::crash(place, Some(down)));
    }
}

/// Replaces a blob, if the container exists. Returns the new ETag.
pub(super) fn replace_blob(lock: u32, contents: Contents, modified: u64) -> Option<String> {
    let sim = sim();
    if sim.storage.borrow().is_container_deleted() {
        return None;
    }
    record_override(lock);
    let etag = sim.storage.borrow_mut().put(&blob_path(lock), contents, modified);
    record(Event::Tampered { lock });
    sim.record_lease(lock);
    Some(etag)
}

pub(super) fn contents(lock: u32) -> Option<Contents> {
    let sim = sim();
    let storage = sim.storage.borrow();
    storage.blob(&blob_path(lock)).map(|blob| (blob.metadata.clone(), blob.content.clone()))
}

pub(super) fn etag_of(lock: u32) -> Option<String> {
    let sim = sim();
    let storage = sim.storage.borrow();
    storage.blob(&blob_path(lock)).map(|blob| blob.etag.clone())
}

pub(super) fn operator_call(lock: u32, operation: Operation) {
    let call =
        Call { path: blob_path(lock), operation, if_match: None, if_absent: false, lease: None };
    sim().apply(None, &call);
}

/// Breaks a lease in the storage account with a break period of 0.
pub fn break_lease(index: usize, lock: u32) {
    count("operator: lease broken at once");
    record_override(lock);
    operator_call(lock, Operation::Break { within: Some(0) });
    disturb(index, sim().plan.max_lease.as_nanos() as Nanos, || {});
}

/// Records that an operator overrides a lease. Until its regular expiry, two
/// clients may hold the lock, and only their tokens differ.
pub(super) fn record_override(lock: u32) {
    let sim = sim();
    let now = sim.world.now();
    let until = sim.storage.borrow().blob(&blob_path(lock)).and_then(|b| b.leased_until(now));
    if let Some(until) = until {
        record(Event::Overruled { lock, until });
    }
}
