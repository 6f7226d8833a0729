//! Faults of the demo, and their order.

use leasehold_time::Entropy;
use serde::Serialize;

/// Fault that the demo injects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Fault {
    /// The leader is killed.
    KillLeader,
    /// The holder is killed.
    KillHolder,
    /// The holder is paused past its deadline, then continued.
    Pause,
    /// An operator breaks the lock.
    Break,
}

/// Order of the faults: each three have a kill, a pause and a break.
#[derive(Debug)]
pub(super) struct Plan {
    entropy: Entropy,
    remaining: Vec<Fault>,
}

impl Plan {
    /// Creates a plan. The same seed gives the same order.
    pub(super) fn new(entropy: &mut Entropy) -> Self {
        Self { entropy: Entropy::seeded_by(entropy), remaining: Vec::new() }
    }

    /// Returns the next fault.
    pub(super) fn next(&mut self) -> Fault {
        if self.remaining.is_empty() {
            let kill = if self.below(2) == 0 { Fault::KillLeader } else { Fault::KillHolder };
            self.remaining = vec![kill, Fault::Pause, Fault::Break];
        }
        let chosen = self.below(self.remaining.len());
        self.remaining.swap_remove(chosen)
    }

    /// Returns a random number below `end`.
    fn below(&mut self, end: usize) -> usize {
        (self.entropy.bits() % end.max(1) as u128) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(seed: u64, count: usize) -> Vec<Fault> {
        let mut plan = Plan::new(&mut Entropy::seeded(seed));
        (0..count).map(|_| plan.next()).collect()
    }

    #[test]
    fn each_three_faults_have_each_kind() {
        for seed in 0..50 {
            for three in faults(seed, 30).chunks(3) {
                assert!(three.contains(&Fault::Pause) && three.contains(&Fault::Break));
            }
        }
    }

    #[test]
    fn order_depends_on_seed_only() {
        assert_eq!(faults(7, 30), faults(7, 30));
        assert!((0..50).any(|seed| faults(seed, 30) != faults(7, 30)));
    }
}
