//! Summary of many seeds.

use std::{collections::BTreeMap, fmt};

use leasehold_checker::{Event, Kind};
use leasehold_simulator::{
    run::Run,
    sim_state::{STATES, state_name},
};

#[derive(Default)]
pub(crate) struct Summary {
    seeds: u64,
    nanos: u128,
    polls: u64,
    entries: u64,
    grants: u64,
    states: u32,
    counts: BTreeMap<&'static str, u64>,
    violations: BTreeMap<Kind, (u64, u64)>,
    broken: u64,
}

impl Summary {
    pub(crate) fn add(&mut self, run: &Run) {
        self.seeds += 1;
        self.nanos += u128::from(run.length);
        self.polls += run.polls;
        self.entries += run.history.entries.len() as u64;
        let granted =
            |entry: &&leasehold_checker::Entry| matches!(entry.event, Event::Granted { .. });
        self.grants += run.history.entries.iter().filter(granted).count() as u64;
        self.states |= run.states;
        for (what, count) in &run.counts {
            *self.counts.entry(what).or_default() += count;
        }
        self.broken += u64::from(!run.violations.is_empty());
        for violation in &run.violations {
            let (count, _) = self.violations.entry(violation.kind).or_insert((0, run.seed));
            *count += 1;
        }
    }

    /// Returns the number of seeds with a violation.
    pub(crate) const fn violations(&self) -> u64 {
        self.broken
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hours = self.nanos as f64 / 3.6e12;
        writeln!(f, "seeds            {}", self.seeds)?;
        writeln!(f, "simulated hours  {hours:.1}")?;
        writeln!(f, "task polls       {}", self.polls)?;
        writeln!(f, "entries checked  {}", self.entries)?;
        writeln!(f, "grants           {}", self.grants)?;
        for (what, count) in &self.counts {
            writeln!(f, "  {count:>10}  {what}")?;
        }
        writeln!(f, "states reached   {}", self.states.count_ones())?;
        for bit in (0..STATES).filter(|bit| self.states & 1 << bit != 0) {
            writeln!(f, "              {}", state_name(bit))?;
        }
        for (kind, (count, seed)) in &self.violations {
            writeln!(f, "  {count:>10}  violations of {kind:?}, first seen with seed {seed}")?;
        }
        write!(f, "seeds with a violation: {}", self.broken)
    }
}
