//! Run of one seed, from start to end.

use std::collections::BTreeMap;

use leasehold_checker::{History, Violation, check};
use leasehold_simulated_storage::storage::Contents;
use tokio::runtime::{Builder, Runtime};

use crate::{
    broken::{self, Broken},
    client, daemon, embedded, faults,
    plan::Plan,
    rng::Rng,
    sdk,
    sim_state::{Place, SimState, blob_path},
    world::{BEGINNING, Nanos, World},
};

/// Result of a seed.
pub struct Run {
    /// Seed of the run.
    pub seed: u64,
    /// Length of the run, in true time.
    pub length: Nanos,
    /// Number of task polls.
    pub polls: u64,
    /// Recorded history.
    pub history: History,
    /// Violations of the history.
    pub violations: Vec<Violation>,
    /// Counters by name.
    pub counts: BTreeMap<&'static str, u64>,
    /// States of locks that occurred, one bit each.
    pub states: u32,
    /// Hash of the trace; equal for equal runs.
    pub hash: u64,
}

/// Runs a seed, with a mutant if there is one.
#[must_use]
pub fn run(seed: u64, mutant: Option<Broken>) -> Run {
    traced(seed, mutant, false)
}

/// Same as [`run`]; prints each step if `trace` is set.
///
/// # Panics
/// If the runtime can't be created.
#[must_use]
#[allow(clippy::expect_used, reason = "a bug in the simulation")]
pub fn traced(seed: u64, mutant: Option<Broken>, trace: bool) -> Run {
    // The client library requires a runtime; no task runs in it.
    let runtime: Runtime = Builder::new_current_thread().build().expect("a runtime");
    let _entered = runtime.enter();
    sdk::install();
    broken::set(mutant);
    let mut rng = Rng::new(seed);
    let plan = if embedded::is_embedded(seed) {
        embedded::plan::plan(&mut rng)
    } else {
        Plan::new(&mut rng)
    };
    let (world, inside) = World::enter(rng.split());
    let sim = SimState::enter(plan.clone(), rng.split(), trace);
    for _ in 0..plan.places {
        sim.places.borrow_mut().push(Place::default());
    }
    if plan.old_blobs {
        for lock in 0..plan.locks {
            old_blob(&sim, lock, &mut rng);
        }
    }
    faults::schedule(&sim);
    for place in 0..plan.places {
        daemon::start(place);
    }
    for _ in 0..plan.clients {
        client::start(rng.index(plan.places));
    }
    world.run_until(plan.end, |machine| sim.inspect_machine(machine));
    let polls = world.polls();
    sim.mix(&world.rng());
    // Drop the tasks before the objects that they refer to.
    world.end();
    let outcome = sim.leave();
    drop(inside);
    broken::set(None);
    let violations = check(&outcome.history);
    Run {
        seed,
        length: plan.end,
        polls,
        history: outcome.history,
        violations,
        counts: outcome.counts,
        states: outcome.states,
        hash: outcome.hash,
    }
}

/// Adds a blob with an old record.
fn old_blob(sim: &SimState, lock: u32, rng: &mut Rng) {
    let age = *rng.pick(&[60, 3_000, 4_000, 100_000]);
    let used = BEGINNING - age;
    sim.storage.borrow_mut().put(&blob_path(lock), old_record(used), used);
}

/// Returns the record that a daemon stored at this time, in seconds since 1970.
pub(crate) fn old_record(used: u64) -> Contents {
    let metadata = [
        ("token".to_owned(), (used << 20).to_string()),
        ("nonce".to_owned(), "1".to_owned()),
        ("daemon".to_owned(), "long%20gone".to_owned()),
    ];
    (metadata.into(), Vec::new())
}
