//! Some seeds in each test run; many more with the command.

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    thread,
};

use leasehold_simulator::{broken::Broken, run::run};

/// A seed for each mutant that shows it, as found by `leasehold-sim --mutant all`.
const KEPT: &str = include_str!("../../seeds.txt");

/// Runs something for each of these numbers, on all processors.
fn each(numbers: std::ops::Range<u64>, act: impl Fn(u64) + Sync) {
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
fn nothing_that_was_promised_is_broken() {
    each(0..100, |seed| {
        let run = run(seed, None);
        let found = run.violations.first().map(ToString::to_string);
        assert_eq!(found, None, "seed {seed}");
        assert!(run.history.entries.len() > 10, "seed {seed}: hardly anything happened");
    });
}

/// Seeds that showed errors, of the product (23376) or of checker and simulation (4234,
/// 20121, 47229, 87518), until those were fixed.
#[test]
fn seeds_that_found_errors_are_clean() {
    for seed in [4234, 20121, 23376, 47229, 87518] {
        assert_eq!(run(seed, None).violations, [], "seed {seed}");
    }
}

#[test]
fn the_same_seed_gives_the_same_course_of_events() {
    let traces: BTreeSet<u64> = (500..510)
        .map(|seed| {
            let (one, other) = (run(seed, None), run(seed, None));
            assert_eq!(one.hash, other.hash, "seed {seed}");
            assert_eq!(one.history, other.history, "seed {seed}");
            one.hash
        })
        .collect();
    assert_eq!(traces.len(), 10, "another seed, another course");
}

/// Each safety rule is broken in turn, under a seed that is known to show it.
/// When the simulation has changed, other seeds may: `leasehold-sim --mutant all`
/// looks for them.
#[test]
fn a_broken_safety_rule_is_found_out() {
    let kept: Vec<(Broken, u64, &str)> = (KEPT.lines().filter(|line| !line.starts_with('#')))
        .map(|line| {
            let [key, seed, kind] = *line.split(' ').collect::<Vec<_>>() else {
                panic!("{line:?}: a mutant, a seed and a kind")
            };
            (Broken::of_key(key).expect("a mutant of this name"), seed.parse().unwrap(), kind)
        })
        .collect();
    for mutant in Broken::all() {
        assert!(kept.iter().any(|(known, ..)| *known == mutant), "no seed for {mutant:?}");
    }
    let rules: BTreeSet<u8> =
        Broken::all().iter().filter_map(|mutant| mutant.rule().parse().ok()).collect();
    assert_eq!(rules, (1..=14).collect(), "each rule can be broken");
    each(0..kept.len() as u64, |number| {
        let (mutant, seed, kind) = kept[number as usize];
        let broken = run(seed, Some(mutant));
        let kinds = broken.violations.iter().map(|violation| violation.kind.to_string());
        assert!(kinds.into_iter().any(|found| found == kind), "seed {seed} hides {mutant:?}");
        let whole = run(seed, None);
        assert_eq!(whole.violations, [], "seed {seed} is not the mutant's fault");
    });
}
