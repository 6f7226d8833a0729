//! A few seeds in each test run; `leasehold-sim` runs many more.

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    thread,
};

use leasehold_simulator::{broken::Broken, run::run};

/// Seeds that detect each mutant, found by `leasehold-sim --mutant all`.
const MUTANT_SEEDS: &str = include_str!("../../seeds.txt");

/// Runs `act` for each number, on all processors.
fn for_each(numbers: std::ops::Range<u64>, act: impl Fn(u64) + Sync) {
    let next = AtomicU64::new(numbers.start);
    let threads = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Relaxed);
                    if number >= numbers.end {
                        return;
                    }
                    act(number);
                }
            });
        }
    });
}

#[test]
fn seeds_have_no_violations() {
    for_each(0..100, |seed| {
        let run = run(seed, None);
        let found = run.violations.first().map(ToString::to_string);
        assert_eq!(found, None, "seed {seed}");
        assert!(run.history.entries.len() > 10, "seed {seed}: too few events");
    });
}

/// Regression seeds: they found errors of the product (23376) or of checker and
/// simulation (4234, 20121, 47229, 87518).
#[test]
fn seeds_that_found_errors_are_clean() {
    for seed in [4234, 20121, 23376, 47229, 87518] {
        assert_eq!(run(seed, None).violations, [], "seed {seed}");
    }
}

#[test]
fn same_seed_gives_same_trace() {
    let traces: BTreeSet<u64> = (500..510)
        .map(|seed| {
            let (first, second) = (run(seed, None), run(seed, None));
            assert_eq!(first.hash, second.hash, "seed {seed}");
            assert_eq!(first.history, second.history, "seed {seed}");
            first.hash
        })
        .collect();
    assert_eq!(traces.len(), 10, "different seeds have different traces");
}

/// Runs each mutant with a seed that is known to detect it. After a change of
/// the simulation, other seeds may detect it: find them with `leasehold-sim
/// --mutant all`.
#[test]
fn every_mutant_is_detected() {
    let mutant_seeds: Vec<(Broken, u64, &str)> = (MUTANT_SEEDS
        .lines()
        .filter(|line| !line.starts_with('#')))
    .map(|line| {
        let [key, seed, kind] = *line.split(' ').collect::<Vec<_>>() else {
            panic!("{line:?}: expected a mutant, a seed and a kind")
        };
        (Broken::from_key(key).expect("a mutant with this key"), seed.parse().unwrap(), kind)
    })
    .collect();
    for mutant in Broken::all() {
        assert!(mutant_seeds.iter().any(|(known, ..)| *known == mutant), "no seed for {mutant:?}");
    }
    let rules: BTreeSet<u8> =
        Broken::all().iter().filter_map(|mutant| mutant.rule().parse().ok()).collect();
    assert_eq!(rules, (1..=14).collect(), "a mutant for each rule");
    for_each(0..mutant_seeds.len() as u64, |number| {
        let (mutant, seed, kind) = mutant_seeds[number as usize];
        let broken = run(seed, Some(mutant));
        let kinds = broken.violations.iter().map(|violation| violation.kind.to_string());
        assert!(
            kinds.into_iter().any(|found| found == kind),
            "seed {seed} does not detect {mutant:?}"
        );
        let unmodified = run(seed, None);
        assert_eq!(unmodified.violations, [], "seed {seed} without the mutant");
    });
}
