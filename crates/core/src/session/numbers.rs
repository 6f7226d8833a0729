//! Request numbers of a session. Sans-IO.
//!
//! Within a stream, numbers strictly increase: the client matches answers by
//! number, so that a reused one would be ambiguous. On a new stream the client
//! may repeat requests whose answers it has not received, with the same numbers.
//! The repeated numbers come first, because new ones are higher.

use crate::lock::LockId;
use leasehold_time::HashMap;

/// Numbers that a session has used.
#[derive(Debug, Default)]
pub(super) struct RequestNumbers {
    /// Highest number on any stream.
    highest: u64,
    /// Highest number on the current stream.
    last: u64,
    /// Locks by the number of the acquire that holds them. Built for the first
    /// repeated acquire of a stream, dropped with the first new number.
    grants: Option<Box<HashMap<u64, LockId>>>,
}

/// Outcome of [`RequestNumbers::next`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Number {
    /// Never used before in this session.
    New,
    /// Possibly used on an earlier stream.
    Repeated,
    /// Used on this stream, or lower than one that was.
    NotHigher {
        /// Highest number on this stream.
        than: u64,
    },
}

impl RequestNumbers {
    /// A new stream begins.
    pub(super) fn resume(&mut self) {
        self.last = 0;
        self.grants = None;
    }

    /// Checks the number of the next request on the stream.
    pub(super) fn next(&mut self, number: u64) -> Number {
        if number <= self.last {
            return Number::NotHigher { than: self.last };
        }
        self.last = number;
        if number <= self.highest {
            return Number::Repeated;
        }
        self.highest = number;
        self.grants = None;
        Number::New
    }

    /// Lock that the acquire with this number holds. `grants` lists all active
    /// grants of the session.
    pub(super) fn grant(
        &mut self,
        number: u64,
        grants: impl FnOnce() -> HashMap<u64, LockId>,
    ) -> Option<LockId> {
        self.grants.get_or_insert_with(|| Box::new(grants())).get(&number).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_increase_within_a_stream_and_repeat_after_resume() {
        let mut numbers = RequestNumbers::default();
        assert_eq!(numbers.next(1), Number::New);
        assert_eq!(numbers.next(5), Number::New);
        assert_eq!(numbers.next(5), Number::NotHigher { than: 5 });
        assert_eq!(numbers.next(3), Number::NotHigher { than: 5 });
        numbers.resume();
        assert_eq!(numbers.next(3), Number::Repeated);
        assert_eq!(numbers.next(3), Number::NotHigher { than: 3 });
        assert_eq!(numbers.next(5), Number::Repeated);
        assert_eq!(numbers.next(6), Number::New);
        assert_eq!(numbers.next(4), Number::NotHigher { than: 6 });
    }

    #[test]
    fn grants_are_listed_once_per_stream() {
        let mut numbers = RequestNumbers::default();
        let list = || HashMap::from_iter([(2, LockId(7))]);
        assert_eq!(numbers.next(9), Number::New);
        numbers.resume();
        assert_eq!(numbers.grant(2, list), Some(LockId(7)));
        assert_eq!(numbers.grant(3, HashMap::default), None);
        assert_eq!(numbers.grant(2, HashMap::default), Some(LockId(7)));
        numbers.resume();
        assert_eq!(numbers.grant(2, HashMap::default), None);
    }
}
