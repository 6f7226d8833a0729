//! The session's signs of life, and when each was sent.

use std::{collections::VecDeque, time::Duration};

use crate::clock::{Anchor, Moment};

/// Answers to pings further back than this are of no use: at three pings per
/// ttl, their validity is over.
const REMEMBERED: usize = 32;

/// When a ping was sent, on both clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    at: Moment,
    anchor: Anchor,
}

impl Sent {
    /// To be taken before the ping is on its way.
    pub(crate) fn now() -> Self {
        let anchor = Anchor::now();
        Self { at: anchor.moment(), anchor }
    }

    pub(crate) const fn at(&self) -> Moment {
        self.at
    }

    /// How far the wall clock has run ahead since.
    pub(crate) fn leap(&self) -> Duration {
        self.anchor.leap()
    }

    /// At any time, for tests that make their own.
    #[cfg(test)]
    pub(crate) fn then(at: Moment) -> Self {
        Self { at, anchor: Anchor::now() }
    }
}

/// How long something is valid, counted from when a ping was sent. Counting
/// from its answer, or from the sending of any other ping, would reach past
/// what the daemon promised.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Validity {
    pub(crate) ping: u64,
    pub(crate) sent: Sent,
    pub(crate) length: Duration,
}

impl Validity {
    pub(crate) fn deadline(&self) -> Moment {
        self.sent.at() + self.length
    }
}

#[derive(Default)]
pub(crate) struct Pings {
    next: u64,
    sent: VecDeque<(u64, Sent)>,
    answered: Option<u64>,
}

impl Pings {
    /// Notes that a ping is about to be sent, and numbers it.
    pub(crate) fn send(&mut self, now: Sent) -> u64 {
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

    /// What the daemon promised with this ping; nothing if the ping is not
    /// known.
    pub(crate) fn validity(&self, ping: u64, valid_for_ms: u64) -> Option<Validity> {
        let (_, sent) = self.sent.iter().rev().find(|(number, _)| *number == ping)?;
        Some(Validity { ping, sent: *sent, length: Duration::from_millis(valid_for_ms) })
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
        let now = Sent::now();
        assert_eq!(pings.send(now), 0);
        assert_eq!(pings.send(Sent::now()), 1);
        let validity = pings.validity(0, 1500).expect("it was sent");
        assert_eq!(validity.deadline(), now.at() + Duration::from_millis(1500));
        assert!(pings.validity(2, 1500).is_none());
    }

    #[test]
    fn an_answer_to_an_older_ping_does_not_count_for_the_last() {
        let mut pings = Pings::default();
        assert!(pings.last_is_answered());
        pings.send(Sent::now());
        pings.send(Sent::now());
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
            pings.send(Sent::now());
        }
        assert_eq!(pings.sent.len(), REMEMBERED);
        assert!(pings.validity(0, 1).is_none());
    }
}
