//! When to renew a lease, when to warn, and when to give up. Pure.

use std::time::Duration;

use leasehold_rules::valid_until;
use leasehold_time::{Entropy, Moment};

/// The shortest wait before a failed renewal is tried again.
const SHORTEST_RETRY: Duration = Duration::from_millis(250);

/// What must be done about a lease now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Ask the store to renew it.
    Renew,
    /// Tell the holder that it may be lost.
    Warn,
    /// It may be over: the clock has leapt, and by the other clock its deadline
    /// has passed.
    Doubt,
    /// Count it as lost: its deadline has passed.
    Lose,
}

/// The term of a lease that expires: renewed after a third of its duration,
/// with jitter; tried again, ever less often, after a failure; the holder
/// warned when a third is left; lost at the deadline, whatever was said since.
#[derive(Clone, Debug)]
pub(super) struct Term {
    /// When the lease counts as lost (safety rule 3).
    deadline: Moment,
    duration: Duration,
    /// When to renew next; none while an answer is awaited.
    renew_at: Option<Moment>,
    failures: u32,
    warned: bool,
    /// How far the wall clock has run ahead of ours since the deadline was
    /// counted from. Perhaps so much less is left (safety rule 5); but perhaps
    /// somebody only set the wall clock, and the holder goes on until the deadline
    /// that it knows.
    leapt: Duration,
    /// The same since the renewal that is under way was sent.
    leapt_meanwhile: Duration,
    /// Nothing new starts on this lease, and it is not renewed.
    spent: bool,
}

impl Term {
    /// A lease that was just acquired.
    pub(super) fn new(
        deadline: Moment,
        duration: Duration,
        now: Moment,
        entropy: &mut Entropy,
    ) -> Self {
        let renew_at = Some(turn(deadline, duration, now, entropy));
        Self {
            deadline,
            duration,
            renew_at,
            failures: 0,
            warned: false,
            leapt: Duration::ZERO,
            leapt_meanwhile: Duration::ZERO,
            spent: false,
        }
    }

    /// When the lease counts as lost: before that it is not given away.
    #[must_use]
    pub(super) const fn deadline(&self) -> Moment {
        self.deadline
    }

    /// Until when it can be counted on, whichever clock is right: no promise
    /// reaches further.
    #[must_use]
    pub(super) fn certain_until(&self) -> Moment {
        valid_until(self.deadline, self.leapt)
    }

    /// The wall clock has run ahead by this much. A renewal makes up for it.
    pub(super) fn leap(&mut self, by: Duration, now: Moment) {
        self.leapt = self.leapt.saturating_add(by);
        self.leapt_meanwhile = self.leapt_meanwhile.saturating_add(by);
        self.renew_at = self.renew_at.map(|at| at.min(now));
    }

    /// Its duration.
    #[must_use]
    pub(super) const fn duration(&self) -> Duration {
        self.duration
    }

    /// Nothing new starts on this lease from now on.
    pub(super) const fn spend(&mut self) {
        self.spent = true;
    }

    /// Until when a holder that was granted the lock may act.
    #[must_use]
    pub(super) fn holder_acts_until(&self) -> Moment {
        leasehold_rules::holder_acts_until(self.deadline, self.certain_until())
    }

    /// Whether a grant may start on this lease.
    #[must_use]
    pub(super) fn may_grant(&self, now: Moment) -> bool {
        !self.spent && leasehold_rules::may_grant(now, self.certain_until())
    }

    /// Whether it can't be renewed any more.
    fn is_over(&self, now: Moment) -> bool {
        self.spent || now >= self.certain_until()
    }

    /// When to look again.
    #[must_use]
    pub(super) fn due(&self) -> Moment {
        if self.spent {
            return self.deadline;
        }
        let next = if self.warned { self.certain_until() } else { self.warn_at() };
        self.renew_at.map_or(next, |renew_at| renew_at.min(next))
    }

    /// What is due now; to be asked until it is none.
    pub(super) fn step(&mut self, now: Moment) -> Option<Step> {
        if now >= self.deadline {
            return Some(Step::Lose);
        }
        if self.spent {
            return None;
        }
        if now >= self.certain_until() {
            self.spent = true;
            return Some(Step::Doubt);
        }
        if self.renew_at.is_some_and(|renew_at| now >= renew_at) {
            self.renew_at = None;
            self.leapt_meanwhile = Duration::ZERO;
            return Some(Step::Renew);
        }
        if !self.warned && now >= self.warn_at() {
            self.warned = true;
            return Some(Step::Warn);
        }
        None
    }

    /// The lease was renewed; says whether that takes a warning back. An answer
    /// that came too late changes nothing: the loss has been or will be told.
    pub(super) fn renewed(&mut self, deadline: Moment, now: Moment, entropy: &mut Entropy) -> bool {
        self.failures = 0;
        if !self.is_over(now) {
            let certain = self.certain_until().max(valid_until(deadline, self.leapt_meanwhile));
            self.deadline = self.deadline.max(deadline);
            self.leapt = self.deadline.since(certain);
        }
        self.renew_at = Some(turn(self.certain_until(), self.duration, now, entropy));
        if self.is_over(now) {
            return false;
        }
        std::mem::take(&mut self.warned)
    }

    /// No clear answer: the old deadline stands (safety rule 7).
    pub(super) fn unclear(&mut self, now: Moment, entropy: &mut Entropy) {
        let wait = SHORTEST_RETRY * (1 << self.failures.min(4));
        self.failures += 1;
        self.renew_at = Some(now + entropy.jitter(wait.min(self.duration / 8)));
    }

    fn warn_at(&self) -> Moment {
        self.certain_until() - self.duration / 3
    }
}

/// When to renew next: after a third of the duration, or earlier if the answer
/// took so long that there would be little time left.
fn turn(deadline: Moment, duration: Duration, now: Moment, entropy: &mut Entropy) -> Moment {
    (now + entropy.jitter(duration / 3)).min(deadline - duration / 2).max(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DURATION: Duration = Duration::from_secs(30);

    fn at(seconds: u64) -> Moment {
        Moment::from_boot(Duration::from_secs(seconds))
    }

    fn term() -> (Term, Entropy) {
        let mut entropy = Entropy::seeded(1);
        (Term::new(at(128), DURATION, at(100), &mut entropy), entropy)
    }

    #[test]
    fn a_renewal_is_asked_for_once_within_the_first_third() {
        let (mut term, _) = term();
        assert!(term.due() > at(107) && term.due() <= at(110));
        assert_eq!(term.step(at(110)), Some(Step::Renew));
        assert_eq!(term.step(at(110)), None);
    }

    #[test]
    fn after_an_answer_that_took_long_the_renewal_comes_earlier() {
        let mut entropy = Entropy::seeded(1);
        let mut late = Term::new(at(128), DURATION, at(112), &mut entropy);
        assert_eq!(late.due(), at(113));
        assert_eq!(late.step(at(113)), Some(Step::Renew));
        late.renewed(at(141), at(127), &mut entropy);
        assert_eq!(late.step(at(127)), Some(Step::Renew), "at once");
    }

    #[test]
    fn failures_are_retried_then_warned_of_then_lost_at_the_old_deadline() {
        let (mut term, mut entropy) = term();
        let (mut now, mut steps) = (at(100), Vec::new());
        while now <= at(130) {
            now = term.due();
            let step = term.step(now).unwrap();
            match step {
                Step::Renew => term.unclear(now, &mut entropy),
                Step::Warn => assert_eq!(now, at(118)),
                Step::Doubt => panic!("no clock has leapt"),
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
    fn after_a_leap_less_is_left_but_nothing_is_given_away_earlier() {
        let (mut term, mut entropy) = term();
        term.leap(Duration::from_secs(10), at(100));
        assert_eq!((term.certain_until(), term.deadline()), (at(118), at(128)));
        assert!(term.is_over(at(118)) && !term.is_over(at(117)));
        // A renewal that was sent after the leap makes up for it.
        assert_eq!(term.step(at(100)), Some(Step::Renew), "at once");
        term.renewed(at(138), at(111), &mut entropy);
        assert_eq!((term.certain_until(), term.deadline()), (at(138), at(138)));
        // One that was under way does not, or not for all of it.
        assert_eq!(term.step(at(121)), Some(Step::Renew));
        term.leap(Duration::from_secs(5), at(121));
        term.renewed(at(149), at(122), &mut entropy);
        assert_eq!((term.certain_until(), term.deadline()), (at(144), at(149)));
        // If none comes, its holder hears of it, and then it is over.
        while let Some(step) = term.step(at(143)) {
            assert!(step == Step::Renew || step == Step::Warn);
        }
        assert_eq!(term.due(), at(144));
        assert_eq!(term.step(at(144)), Some(Step::Doubt));
        assert_eq!((term.step(at(144)), term.due()), (None, at(149)));
        assert!(!term.renewed(at(170), at(145), &mut entropy), "too late");
        assert_eq!(term.step(at(149)), Some(Step::Lose));
    }

    #[test]
    fn a_late_success_saves_nothing() {
        let (mut term, mut entropy) = term();
        assert!(!term.renewed(at(160), at(128), &mut entropy));
        assert_eq!(term.step(at(128)), Some(Step::Lose));
    }

    #[test]
    fn a_success_moves_the_deadline_and_takes_the_warning_back() {
        let (mut term, mut entropy) = term();
        assert_eq!(term.step(at(120)), Some(Step::Renew));
        assert_eq!(term.step(at(120)), Some(Step::Warn));
        assert!(term.renewed(at(148), at(121), &mut entropy));
        assert!(!term.renewed(at(148), at(121), &mut entropy), "it was taken back already");
        assert_eq!(term.deadline(), at(148));
        assert_eq!(term.step(at(128)), None);
        assert_eq!(term.step(at(138)), Some(Step::Renew));
        assert_eq!(term.step(at(138)), Some(Step::Warn));
    }
}
