//! Random faults. `LEASEHOLD_TURMOIL_SEEDS` sets the number of seeds, and
//! `LEASEHOLD_TURMOIL_FROM` the first.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use leasehold_checker::Event;
use leasehold_turmoil::walk::walk;

fn number(variable: &str, default: u64) -> u64 {
    let value = std::env::var(variable).ok();
    value.map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{variable}={text}")))
}

#[derive(Default)]
struct Sum {
    length: Duration,
    entries: usize,
    granted: usize,
    lost: usize,
    faults: BTreeMap<&'static str, u32>,
    violations: Vec<String>,
}

#[test]
fn random_walks_have_no_violations() {
    let (from, seeds) = (number("LEASEHOLD_TURMOIL_FROM", 0), number("LEASEHOLD_TURMOIL_SEEDS", 6));
    let (next, sum) = (AtomicU64::new(from), Mutex::new(Sum::default()));
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= from + seeds {
                        return;
                    }
                    let walk = walk(seed);
                    let entries = &walk.history.entries;
                    let count = |is: fn(&Event) -> bool| {
                        entries.iter().filter(|entry| is(&entry.event)).count()
                    };
                    let mut sum = sum.lock().unwrap();
                    sum.length += walk.length;
                    sum.entries += entries.len();
                    let granted = count(|event| matches!(event, Event::Granted { .. }));
                    sum.granted += granted;
                    if granted == 0 {
                        sum.violations.push(format!("seed {seed}: no grants"));
                    }
                    sum.lost += count(|event| matches!(event, Event::Lost { .. }));
                    for (fault, times) in walk.faults {
                        *sum.faults.entry(fault).or_default() += times;
                    }
                    for violation in walk.violations {
                        sum.violations.push(format!("seed {seed}: {violation}"));
                    }
                }
            });
        }
    });
    let sum = sum.into_inner().unwrap();
    let Sum { length, entries, granted, lost, faults, violations } = sum;
    println!("{seeds} seeds, {length:?}, {entries} entries, {granted} grants, {lost} lost");
    for (fault, times) in faults {
        println!("{times:6} {fault}");
    }
    assert!(violations.is_empty(), "{}", violations.join("\n"));
}

#[test]
fn same_seed_gives_same_history() {
    for seed in 0..2 {
        let (first, second) = (walk(seed), walk(seed));
        let pairs = first.history.entries.iter().zip(&second.history.entries);
        for (number, (one, other)) in pairs.enumerate() {
            assert_eq!(one, other, "seed {seed}, entry {number}");
        }
        assert_eq!(first.history, second.history);
    }
}
