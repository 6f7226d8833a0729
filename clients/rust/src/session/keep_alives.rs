//! Keep-alives of a session and their send times.

use std::{collections::VecDeque, time::Duration};

use leasehold_time::{ClockPair, Moment};

/// Number of keep-alives whose send time is kept. With three keep-alives per TTL,
/// the validity of older ones has ended.
const MAX_TRACKED: usize = 32;

/// Validity, counted from the sending of a keep-alive. Counted from the response,
/// or from another keep-alive, it would exceed the validity at the daemon.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Validity {
    pub(crate) keep_alive_number: u64,
    pub(crate) sent: ClockPair,
    pub(crate) length: Duration,
}

impl Validity {
    /// Instant at which the validity ends, by the clock that has advanced
    /// more.
    pub(crate) fn ends_at(&self, now: &ClockPair) -> Moment {
        leasehold_rules::holder_deadline(&self.sent, self.length, now)
    }

    /// Returns whether the validity has ended, by either clock.
    pub(crate) fn is_over(&self, now: &ClockPair) -> bool {
        leasehold_rules::is_past_deadline(&self.sent, self.length, now)
    }
}

#[derive(Default)]
pub(crate) struct KeepAlives {
    next: u64,
    sent: VecDeque<(u64, ClockPair)>,
    answered: Option<u64>,
}

impl KeepAlives {
    /// Records that a keep-alive is about to be sent, and returns its number.
    pub(crate) fn send(&mut self, now: ClockPair) -> u64 {
        let keep_alive_number = self.next;
        self.next += 1;
        self.sent.push_back((keep_alive_number, now));
        if self.sent.len() > MAX_TRACKED {
            self.sent.pop_front();
        }
        keep_alive_number
    }

    pub(crate) fn answer(&mut self, keep_alive_number: u64) {
        self.answered = self.answered.max(Some(keep_alive_number));
    }

    /// Returns the validity of a response to this keep-alive that arrived at `now`;
    /// `None` if the keep-alive is unknown.
    pub(crate) fn validity(
        &self,
        keep_alive_number: u64,
        valid_for_ms: u64,
        now: ClockPair,
    ) -> Option<Validity> {
        let (_, sent) = self.sent.iter().rev().find(|(number, _)| *number == keep_alive_number)?;
        let sent = leasehold_rules::validity_start(*sent, now);
        Some(Validity { keep_alive_number, sent, length: Duration::from_millis(valid_for_ms) })
    }

    pub(crate) fn last_sent(&self) -> Option<Moment> {
        self.sent.back().map(|(_, sent)| sent.at())
    }

    pub(crate) fn last_is_answered(&self) -> bool {
        self.sent.back().map(|(keep_alive_number, _)| *keep_alive_number) <= self.answered
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn validity_counts_from_its_keep_alive() {
        let mut keep_alives = KeepAlives::default();
        let now = ClockPair::now();
        assert_eq!(keep_alives.send(now), 0);
        assert_eq!(keep_alives.send(ClockPair::now()), 1);
        let validity = keep_alives.validity(0, 1500, ClockPair::now()).expect("it was sent");
        assert_eq!(validity.ends_at(&now), now.at() + Duration::from_millis(1500));
        assert!(keep_alives.validity(2, 1500, now).is_none());
    }

    #[test]
    fn validity_ends_by_clock_that_advanced_more() {
        let seconds = Duration::from_secs;
        let sent = ClockPair::in_sync_at(Moment::from_boot(seconds(1000)));
        let validity = Validity { keep_alive_number: 0, sent, length: seconds(10) };
        for (passed, jump, over) in [
            (0, 0, false),
            (9, 0, false),
            (10, 0, true),
            (0, 9, false),
            (0, 10, true),
            (4, 5, false),
            (4, 6, true),
        ] {
            let now =
                ClockPair::in_sync_at(sent.at() + seconds(passed)).with_wall_ahead(seconds(jump));
            assert_eq!(validity.is_over(&now), over, "{passed} s, and a clock jump of {jump} s");
        }
        // A wall clock that was set back does not change the validity.
        let ahead = Validity { sent: sent.with_wall_ahead(seconds(60)), ..validity };
        assert!(!ahead.is_over(&ClockPair::in_sync_at(sent.at() + seconds(9))));
        assert!(ahead.is_over(&ClockPair::in_sync_at(sent.at() + seconds(10))));
    }

    #[test]
    fn response_to_older_keep_alive_does_not_answer_latest() {
        let mut keep_alives = KeepAlives::default();
        assert!(keep_alives.last_is_answered());
        keep_alives.send(ClockPair::now());
        keep_alives.send(ClockPair::now());
        keep_alives.answer(0);
        assert!(!keep_alives.last_is_answered());
        keep_alives.answer(1);
        keep_alives.answer(0);
        assert!(keep_alives.last_is_answered());
    }

    #[test]
    fn tracked_keep_alives_are_bounded() {
        let mut keep_alives = KeepAlives::default();
        for _ in 0..10 * MAX_TRACKED {
            keep_alives.send(ClockPair::now());
        }
        assert_eq!(keep_alives.sent.len(), MAX_TRACKED);
        assert!(keep_alives.validity(0, 1, ClockPair::now()).is_none());
    }
}
