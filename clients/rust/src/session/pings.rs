//! The session's signs of life, and when each was sent.

use std::{collections::VecDeque, time::Duration};

use leasehold_time::{ClockPair, Moment};

/// Answers to pings further back than this are of no use: at three pings per
/// ttl, their validity is over.
const REMEMBERED: usize = 32;

/// How long something is valid, counted from when a ping was sent. Counting
/// from its answer, or from the sending of any other ping, would reach past
/// what the daemon promised.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Validity {
    pub(crate) ping: u64,
    pub(crate) sent: ClockPair,
    pub(crate) length: Duration,
}

impl Validity {
    /// Instant at which the validity ends, by the clock that shows more time.
    pub(crate) fn ends_at(&self, now: &ClockPair) -> Moment {
        leasehold_rules::holder_deadline(&self.sent, self.length, now)
    }

    /// Returns whether the validity has ended, by either clock.
    pub(crate) fn is_over(&self, now: &ClockPair) -> bool {
        leasehold_rules::is_past_deadline(&self.sent, self.length, now)
    }
}

#[derive(Default)]
pub(crate) struct Pings {
    next: u64,
    sent: VecDeque<(u64, ClockPair)>,
    answered: Option<u64>,
}

impl Pings {
    /// Notes that a ping is about to be sent, and numbers it.
    pub(crate) fn send(&mut self, now: ClockPair) -> u64 {
        let ping = self.next;
        self.next += 1;
        self.sent.push_back((ping, now));
        if self.sent.len() > REMEMBERED {
            self.sent.pop_front();
        }
        ping
    }

    pub(crate) fn answer(&mut self, ping: u64) {
        self.answered = self.answered.max(Some(ping));
    }

    /// Returns the validity in an answer to this ping that arrived at `now`.
    /// `None` if the ping is unknown.
    pub(crate) fn validity(
        &self,
        ping: u64,
        valid_for_ms: u64,
        now: ClockPair,
    ) -> Option<Validity> {
        let (_, sent) = self.sent.iter().rev().find(|(number, _)| *number == ping)?;
        let sent = leasehold_rules::validity_start(*sent, now);
        Some(Validity { ping, sent, length: Duration::from_millis(valid_for_ms) })
    }

    pub(crate) fn last_sent(&self) -> Option<Moment> {
        self.sent.back().map(|(_, sent)| sent.at())
    }

    pub(crate) fn last_is_answered(&self) -> bool {
        self.sent.back().map(|(ping, _)| *ping) <= self.answered
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_validity_counts_from_its_own_ping() {
        let mut pings = Pings::default();
        let now = ClockPair::now();
        assert_eq!(pings.send(now), 0);
        assert_eq!(pings.send(ClockPair::now()), 1);
        let validity = pings.validity(0, 1500, ClockPair::now()).expect("it was sent");
        assert_eq!(validity.ends_at(&now), now.at() + Duration::from_millis(1500));
        assert!(pings.validity(2, 1500, now).is_none());
    }

    #[test]
    fn a_validity_is_used_up_by_the_clock_that_shows_more() {
        let seconds = Duration::from_secs;
        let sent = ClockPair::then(Moment::from_boot(seconds(1000)));
        let validity = Validity { ping: 0, sent, length: seconds(10) };
        for (passed, leap, over) in [
            (0, 0, false),
            (9, 0, false),
            (10, 0, true),
            (0, 9, false),
            (0, 10, true),
            (4, 5, false),
            (4, 6, true),
        ] {
            let now = ClockPair::then(sent.at() + seconds(passed)).leapt(seconds(leap));
            assert_eq!(validity.is_over(&now), over, "{passed} s, and {leap} s by the wall");
        }
        // A wall clock that was set back takes nothing away.
        let ahead = Validity { sent: sent.leapt(seconds(60)), ..validity };
        assert!(!ahead.is_over(&ClockPair::then(sent.at() + seconds(9))));
        assert!(ahead.is_over(&ClockPair::then(sent.at() + seconds(10))));
    }

    #[test]
    fn an_answer_to_an_older_ping_does_not_count_for_the_last() {
        let mut pings = Pings::default();
        assert!(pings.last_is_answered());
        pings.send(ClockPair::now());
        pings.send(ClockPair::now());
        pings.answer(0);
        assert!(!pings.last_is_answered());
        pings.answer(1);
        pings.answer(0);
        assert!(pings.last_is_answered());
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut pings = Pings::default();
        for _ in 0..10 * REMEMBERED {
            pings.send(ClockPair::now());
        }
        assert_eq!(pings.sent.len(), REMEMBERED);
        assert!(pings.validity(0, 1, ClockPair::now()).is_none());
    }
}
