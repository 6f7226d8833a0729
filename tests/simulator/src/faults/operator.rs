//! What operators do, through a daemon and to the storage itself.

use leasehold::driver::Driver;
use leasehold_checker::Event;
use leasehold_runtime as task;
use leasehold_store::Breaker;
use leasehold_types::LockName;

use super::disturb;
use leasehold_simulated_storage::storage::{Act, Call, Kept};

use crate::{
    daemon,
    sim_state::{blob_path, count, lock_name, record, sim},
    world::{Nanos, SECOND},
};

/// What an operator does through a daemon.
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

/// An operator deletes a blob that can't be trusted.
pub(super) fn repair(lock: u32) {
    let sim = sim();
    // Others may have created it this very second.
    if is_ahead(lock) {
        return sim.world.after(SECOND, move || repair(lock));
    }
    delete(lock);
}

/// Within the second of its creation a blob's tokens are ahead of the service's clock;
/// and so they are after that has been ahead itself, and was believed. What is not
/// guaranteed then is not tried.
pub(super) fn is_ahead(lock: u32) -> bool {
    let sim = sim();
    let (epoch, date) = (sim.epoch(lock), sim.date());
    epoch == date + 1 || (sim.plan.leaping_date && epoch > date)
}

pub(super) fn delete(lock: u32) {
    let sim = sim();
    overrule(lock);
    sim.storage.borrow_mut().remove(&blob_path(lock));
    record(Event::Deleted { lock });
    sim.note_lease(lock);
}

/// All daemons are killed, and started again after this long.
pub(super) fn start_anew(down: Option<Nanos>) {
    if let Some(down) = down {
        (0..sim().plan.places).for_each(|place| daemon::crash(place, Some(down)));
    }
}

/// An operator replaces what is kept with a blob, if there is a container. Gives its
/// version.
pub(super) fn tamper(lock: u32, kept: Kept, modified: u64) -> Option<String> {
    let sim = sim();
    if sim.storage.borrow().is_gone() {
        return None;
    }
    overrule(lock);
    let etag = sim.storage.borrow_mut().put(&blob_path(lock), kept, modified);
    record(Event::Tampered { lock });
    sim.note_lease(lock);
    Some(etag)
}

pub(super) fn kept_with(lock: u32) -> Option<Kept> {
    let sim = sim();
    let storage = sim.storage.borrow();
    storage.blob(&blob_path(lock)).map(|blob| (blob.metadata.clone(), blob.content.clone()))
}

pub(super) fn etag_of(lock: u32) -> Option<String> {
    let sim = sim();
    let storage = sim.storage.borrow();
    storage.blob(&blob_path(lock)).map(|blob| blob.etag.clone())
}

pub(super) fn operator_call(lock: u32, act: Act) {
    let call = Call { path: blob_path(lock), act, if_match: None, if_absent: false, lease: None };
    sim().apply(None, &call);
}

/// Breaks a lease in the storage itself, at once.
pub fn break_lease(index: usize, lock: u32) {
    count("operator: lease broken at once");
    overrule(lock);
    operator_call(lock, Act::Break { within: Some(0) });
    disturb(index, sim().plan.longest_lease.as_nanos() as Nanos, || {});
}

/// What an operator does to a leased blob behind the daemons' backs makes two
/// holders for a while: tokens tell them apart.
pub(super) fn overrule(lock: u32) {
    let sim = sim();
    let now = sim.world.now();
    let until = sim.storage.borrow().blob(&blob_path(lock)).and_then(|b| b.leased_until(now));
    if let Some(until) = until {
        record(Event::Overruled { lock, until });
    }
}
