//! One seed, from its beginning to its end.

use std::collections::BTreeMap;

use leasehold_checker::{History, Violation, check};
use leasehold_simulated_storage::storage::Kept;
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

/// What came of a seed.
pub struct Run {
    /// The seed.
    pub seed: u64,
    /// How long it lasted, in true time.
    pub length: Nanos,
    /// How often a task was run.
    pub polls: u64,
    /// What happened.
    pub history: History,
    /// What was found wrong.
    pub violations: Vec<Violation>,
    /// How often what was counted.
    pub counts: BTreeMap<&'static str, u64>,
    /// Which states locks were in, one bit each.
    pub states: u32,
    /// The same for the same course of events.
    pub hash: u64,
}

/// Runs a seed, with a safety rule broken if there is a mutant.
#[must_use]
pub fn run(seed: u64, mutant: Option<Broken>) -> Run {
    traced(seed, mutant, false)
}

/// The same, and prints each step if that is wanted.
///
/// # Panics
/// If there is no runtime to be had.
#[must_use]
#[allow(clippy::expect_used, reason = "a mistake in the simulation itself")]
pub fn traced(seed: u64, mutant: Option<Broken>, trace: bool) -> Run {
    // Nothing runs in it: but the library asks for one.
    let runtime: Runtime = Builder::new_current_thread().build().expect("a runtime");
    let _entered = runtime.enter();
    sdk::capture();
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
    world.run_until(plan.end, |machine| sim.look_at(machine));
    let polls = world.polls();
    sim.mix(&world.rng());
    // Tasks end before what they refer to.
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

/// A blob that was used long ago.
fn old_blob(sim: &SimState, lock: u32, rng: &mut Rng) {
    let age = *rng.pick(&[60, 3_000, 4_000, 100_000]);
    let used = BEGINNING - age;
    sim.storage.borrow_mut().put(&blob_path(lock), old_record(used), used);
}

/// What a daemon stored at this time, in seconds since 1970.
pub(crate) fn old_record(used: u64) -> Kept {
    let metadata = [
        ("token".to_owned(), (used << 20).to_string()),
        ("nonce".to_owned(), "1".to_owned()),
        ("daemon".to_owned(), "long%20gone".to_owned()),
    ];
    (metadata.into(), Vec::new())
}
