//! Renewal of a lease: when to renew it, to warn its holder, and to count it as lost.
//! Sans-IO.

use std::time::Duration;

use leasehold_rules::valid_until;
use leasehold_time::{Entropy, Moment};

/// Minimum delay before a failed renewal is retried.
const MIN_RETRY_DELAY: Duration = Duration::from_millis(250);

/// Maximum number of renewals that are kept for operators.
const MAX_SAMPLES: usize = 4;

/// A renewal, as operators see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RenewalSample {
    /// Time of the answer.
    pub at: Moment,
    /// Duration of the call.
    pub took: Duration,
    /// Validity that was left when the answer arrived.
    pub left: Duration,
    /// True if the lease was renewed.
    pub is_renewed: bool,
}

/// Next step for a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Renew the lease.
    Renew,
    /// Warn the holder that the lease may be lost.
    Warn,
    /// End the grant: after a clock jump, the lease may have expired by the wall clock.
    ClockJumped,
    /// Count the lease as lost: its deadline has passed.
    Lose,
}

/// Renewal state of a lease that expires:
///
/// - It is renewed after a third of its duration, with jitter.
/// - A failed renewal is retried with backoff.
/// - The holder is warned when a third of the duration is left.
/// - The lease is lost at the deadline, regardless of later answers.
#[derive(Clone, Debug)]
pub(super) struct RenewalState {
    /// Time at which the lease counts as lost (safety rule 3).
    deadline: Moment,
    duration: Duration,
    /// Time of the next renewal. None while a renewal is pending.
    renew_at: Option<Moment>,
    /// Time at which the last renewal was sent.
    sent_at: Moment,
    failures: u32,
    warned: bool,
    /// Sum of the clock jumps since the deadline was set. The validity of the lease is
    /// shorter by that much (safety rule 5). The holder may act until the deadline that
    /// it knows, because a jump may only mean that the wall clock was set.
    jumps: Duration,
    /// Sum of the clock jumps since the pending renewal was sent.
    pending_jumps: Duration,
    /// True if the lease is neither used for a new grant nor renewed.
    retired: bool,
    /// Last renewals, oldest first, if the journal is kept.
    samples: Vec<RenewalSample>,
}

impl RenewalState {
    /// Creates the state of a newly acquired lease.
    pub(super) fn new(
        deadline: Moment,
        duration: Duration,
        now: Moment,
        entropy: &mut Entropy,
    ) -> Self {
        let renew_at = Some(next_renewal(deadline, duration, now, entropy));
        Self {
            deadline,
            duration,
            renew_at,
            sent_at: now,
            failures: 0,
            warned: false,
            jumps: Duration::ZERO,
            pending_jumps: Duration::ZERO,
            retired: false,
            samples: Vec::new(),
        }
    }

    /// Returns the time at which the lease counts as lost. It is not released before.
    #[must_use]
    pub(super) const fn deadline(&self) -> Moment {
        self.deadline
    }

    /// Returns the time until which the lease is valid on both clocks. No grant is valid
    /// beyond it.
    #[must_use]
    pub(super) fn valid_until(&self) -> Moment {
        valid_until(self.deadline, self.jumps)
    }

    /// Subtracts a clock jump from the validity, and brings the next renewal forward. A
    /// renewal that is sent later restores the validity.
    pub(super) fn add_jump(&mut self, by: Duration, now: Moment) {
        self.jumps = self.jumps.saturating_add(by);
        self.pending_jumps = self.pending_jumps.saturating_add(by);
        self.renew_at = self.renew_at.map(|at| at.min(now));
    }

    /// Returns the time since the last renewal was sent.
    #[must_use]
    pub(super) fn took(&self, now: Moment) -> Duration {
        now.since(self.sent_at)
    }

    /// Keeps a renewal for operators.
    pub(super) fn add_sample(&mut self, sample: RenewalSample) {
        if self.samples.len() == MAX_SAMPLES {
            self.samples.remove(0);
        }
        self.samples.push(sample);
    }

    /// Returns the last renewals, oldest first.
    #[must_use]
    pub(super) fn samples(&self) -> &[RenewalSample] {
        &self.samples
    }

    /// Returns the number of consecutive renewals that failed.
    #[must_use]
    pub(super) const fn failures(&self) -> u32 {
        self.failures
    }

    /// Returns the time of the next renewal; none while one is pending.
    #[must_use]
    pub(super) const fn renew_at(&self) -> Option<Moment> {
        self.renew_at
    }

    /// Returns whether the holder was warned, and the warning still applies.
    #[must_use]
    pub(super) const fn is_at_risk(&self) -> bool {
        self.warned
    }

    /// Returns the duration of the lease.
    #[must_use]
    pub(super) const fn duration(&self) -> Duration {
        self.duration
    }

    /// Stops grants on this lease and its renewal.
    pub(super) const fn retire(&mut self) {
        self.retired = true;
    }

    /// Returns the time until which the holder of a grant on this lease may act.
    #[must_use]
    pub(super) fn holder_acts_until(&self) -> Moment {
        leasehold_rules::holder_acts_until(self.deadline, self.valid_until())
    }

    /// Returns whether a grant may start on this lease.
    #[must_use]
    pub(super) fn may_grant(&self, now: Moment) -> bool {
        leasehold_rules::may_grant(now, self.valid_until(), self.retired)
    }

    /// Returns whether a renewal has no effect any more.
    fn is_over(&self, now: Moment) -> bool {
        self.retired || now >= self.valid_until()
    }

    /// Returns the time of the next step.
    #[must_use]
    pub(super) fn due(&self) -> Moment {
        if self.retired {
            return self.deadline;
        }
        let next = if self.warned { self.valid_until() } else { self.warn_at() };
        self.renew_at.map_or(next, |renew_at| renew_at.min(next))
    }

    /// Returns a step that is due. The caller repeats the call until it returns `None`.
    pub(super) fn step(&mut self, now: Moment) -> Option<Step> {
        if now >= self.deadline {
            return Some(Step::Lose);
        }
        if self.retired {
            return None;
        }
        if now >= self.valid_until() {
            self.retired = true;
            return Some(Step::ClockJumped);
        }
        if self.renew_at.is_some_and(|renew_at| now >= renew_at) {
            self.renew_at = None;
            self.sent_at = now;
            self.pending_jumps = Duration::ZERO;
            return Some(Step::Renew);
        }
        if !self.warned && now >= self.warn_at() {
            self.warned = true;
            return Some(Step::Warn);
        }
        None
    }

    /// Handles a successful renewal. Returns whether it ends a warning. An answer after
    /// the end of the validity has no effect: the holder is notified of the loss.
    pub(super) fn renewed(&mut self, deadline: Moment, now: Moment, entropy: &mut Entropy) -> bool {
        self.failures = 0;
        if !self.is_over(now) {
            let valid = self.valid_until().max(valid_until(deadline, self.pending_jumps));
            self.deadline = self.deadline.max(deadline);
            self.jumps = self.deadline.since(valid);
        }
        self.renew_at = Some(next_renewal(self.valid_until(), self.duration, now, entropy));
        if self.is_over(now) {
            return false;
        }
        std::mem::take(&mut self.warned)
    }

    /// Handles a renewal with an unknown outcome: it keeps the old deadline (safety rule
    /// 7), and is retried.
    pub(super) fn record_unknown(&mut self, now: Moment, entropy: &mut Entropy) {
        let wait = MIN_RETRY_DELAY * (1 << self.failures.min(4));
        self.failures += 1;
        self.renew_at = Some(now + entropy.jitter(wait.min(self.duration / 8)));
    }

    fn warn_at(&self) -> Moment {
        self.valid_until() - self.duration / 3
    }
}

/// Returns the time of the next renewal: after a third of the duration, or earlier if
/// half of the duration would not be left then.
fn next_renewal(
    deadline: Moment,
    duration: Duration,
    now: Moment,
    entropy: &mut Entropy,
) -> Moment {
    (now + entropy.jitter(duration / 3)).min(deadline - duration / 2).max(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DURATION: Duration = Duration::from_secs(30);

    fn at(seconds: u64) -> Moment {
        Moment::from_boot(Duration::from_secs(seconds))
    }

    fn lease() -> (RenewalState, Entropy) {
        let mut entropy = Entropy::seeded(1);
        (RenewalState::new(at(128), DURATION, at(100), &mut entropy), entropy)
    }

    #[test]
    fn renewal_is_due_once_within_first_third() {
        let (mut lease, _) = lease();
        assert!(lease.due() > at(107) && lease.due() <= at(110));
        assert_eq!(lease.step(at(110)), Some(Step::Renew));
        assert_eq!(lease.step(at(110)), None);
    }

    #[test]
    fn renewal_is_due_earlier_after_slow_answer() {
        let mut entropy = Entropy::seeded(1);
        let mut late = RenewalState::new(at(128), DURATION, at(112), &mut entropy);
        assert_eq!(late.due(), at(113));
        assert_eq!(late.step(at(113)), Some(Step::Renew));
        late.renewed(at(141), at(127), &mut entropy);
        assert_eq!(late.step(at(127)), Some(Step::Renew), "at once");
    }

    #[test]
    fn failing_renewals_warn_then_lose_lease_at_deadline() {
        let (mut lease, mut entropy) = lease();
        let (mut now, mut steps) = (at(100), Vec::new());
        while now <= at(130) {
            now = lease.due();
            let step = lease.step(now).unwrap();
            match step {
                Step::Renew => lease.record_unknown(now, &mut entropy),
                Step::Warn => assert_eq!(now, at(118)),
                Step::ClockJumped => panic!("no clock jump"),
                Step::Lose => {
                    assert_eq!(now, at(128));
                    steps.push(step);
                    break;
                }
            }
            steps.push(step);
        }
        assert!(steps.iter().filter(|step| **step == Step::Renew).count() > 5);
        assert_eq!(steps.iter().filter(|step| **step == Step::Warn).count(), 1);
        assert_eq!(steps.last(), Some(&Step::Lose));
    }

    #[test]
    fn clock_jump_shortens_validity_but_not_deadline() {
        let (mut lease, mut entropy) = lease();
        lease.add_jump(Duration::from_secs(10), at(100));
        assert_eq!((lease.valid_until(), lease.deadline()), (at(118), at(128)));
        assert!(lease.is_over(at(118)) && !lease.is_over(at(117)));
        // A renewal that was sent after the jump restores the validity.
        assert_eq!(lease.step(at(100)), Some(Step::Renew), "at once");
        lease.renewed(at(138), at(111), &mut entropy);
        assert_eq!((lease.valid_until(), lease.deadline()), (at(138), at(138)));
        // A renewal that was sent before the jump does not restore all of it.
        assert_eq!(lease.step(at(121)), Some(Step::Renew));
        lease.add_jump(Duration::from_secs(5), at(121));
        lease.renewed(at(149), at(122), &mut entropy);
        assert_eq!((lease.valid_until(), lease.deadline()), (at(144), at(149)));
        // Without a renewal, the holder is warned, and then the lease is lost.
        while let Some(step) = lease.step(at(143)) {
            assert!(step == Step::Renew || step == Step::Warn);
        }
        assert_eq!(lease.due(), at(144));
        assert_eq!(lease.step(at(144)), Some(Step::ClockJumped));
        assert_eq!((lease.step(at(144)), lease.due()), (None, at(149)));
        assert!(!lease.renewed(at(170), at(145), &mut entropy), "too late");
        assert_eq!(lease.step(at(149)), Some(Step::Lose));
    }

    #[test]
    fn renewal_after_deadline_does_not_restore_lease() {
        let (mut lease, mut entropy) = lease();
        assert!(!lease.renewed(at(160), at(128), &mut entropy));
        assert_eq!(lease.step(at(128)), Some(Step::Lose));
    }

    #[test]
    fn renewal_extends_deadline_and_ends_warning() {
        let (mut lease, mut entropy) = lease();
        assert_eq!(lease.step(at(120)), Some(Step::Renew));
        assert_eq!(lease.step(at(120)), Some(Step::Warn));
        assert!(lease.renewed(at(148), at(121), &mut entropy));
        assert!(!lease.renewed(at(148), at(121), &mut entropy), "the warning has ended already");
        assert_eq!(lease.deadline(), at(148));
        assert_eq!(lease.step(at(128)), None);
        assert_eq!(lease.step(at(138)), Some(Step::Renew));
        assert_eq!(lease.step(at(138)), Some(Step::Warn));
    }
}
