//! Wait queue of a lock, first in, first out. Sans-IO.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use leasehold_store::Value;
use leasehold_time::Moment;
use leasehold_types::Holder;

use super::grant::SessionKey;
use crate::journal::TraceKey;

/// Limit of the time that an acquire waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitLimit {
    /// Does not wait: it is refused if the lock is not available now.
    None,
    /// Waits until this time.
    Until(Moment),
    /// Waits until its session ends.
    Forever,
}

/// Number of a waiter. Increases with every waiter that joins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// A queued acquire.
#[derive(Clone, Debug)]
pub(super) struct Waiter {
    pub(super) ticket: Ticket,
    /// Session of the acquire.
    pub(super) session: SessionKey,
    /// Description of the session's client.
    pub(super) holder: Arc<Holder>,
    /// Session's number for the request.
    pub(super) request: u64,
    pub(super) wait_limit: WaitLimit,
    /// Maximum hold time, if requested.
    pub(super) max_hold_time: Option<Duration>,
    /// Duration of the lease, if it must be acquired for this waiter.
    pub(super) lease_duration: Duration,
    /// Value to publish, if this is a campaign.
    pub(super) value: Option<Value>,
    /// True if its session has a stream. A waiter without a stream keeps its place but is
    /// passed over, because its client may be dead.
    pub(super) connected: bool,
    /// Position that was last sent to its client; 0 if none was sent.
    pub(super) last_sent_position: u32,
    /// Timer for the end of its wait, as set in the schedule.
    pub(super) armed: Option<Moment>,
    /// Start of the wait.
    pub(super) since: Moment,
    /// Trace of the acquire, if it has one.
    pub(super) trace: Option<TraceKey>,
}

/// The waiters of one lock, in the order of their tickets.
#[derive(Clone, Debug, Default)]
pub(super) struct Queue {
    waiters: VecDeque<Waiter>,
    /// Number of waiters with [`WaitLimit::None`].
    without_wait: usize,
}

impl Queue {
    /// Appends a waiter. Its ticket must be higher than all others.
    pub(super) fn push(&mut self, waiter: Waiter) {
        debug_assert!(self.waiters.back().is_none_or(|last| last.ticket < waiter.ticket));
        self.without_wait += usize::from(waiter.wait_limit == WaitLimit::None);
        self.waiters.push_back(waiter);
    }

    /// Frees the extra capacity of an empty queue before it is reused.
    pub(super) fn shrink(&mut self) {
        self.waiters.shrink_to(8);
    }

    /// Returns the number of waiters.
    #[must_use]
    pub(super) fn len(&self) -> usize {
        self.waiters.len()
    }

    /// Returns whether there is no waiter.
    #[must_use]
    pub(super) fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    /// Returns the waiters, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Waiter> {
        self.waiters.iter()
    }

    /// Returns the first waiter with a stream.
    #[must_use]
    pub(super) fn first_connected(&self) -> Option<&Waiter> {
        self.waiters.iter().find(|waiter| waiter.connected)
    }

    /// Returns the waiter with this ticket.
    pub(super) fn get_mut(&mut self, ticket: Ticket) -> Option<&mut Waiter> {
        let at = self.find(ticket)?;
        self.waiters.get_mut(at)
    }

    /// Returns the number of waiters before this one, plus one.
    #[must_use]
    pub(super) fn position(&self, ticket: Ticket) -> Option<u32> {
        self.find(ticket).map(|at| at as u32 + 1)
    }

    /// Removes the waiter with this ticket.
    pub(super) fn remove(&mut self, ticket: Ticket) -> Option<Waiter> {
        let at = self.find(ticket)?;
        self.remove_at(at)
    }

    /// Removes the first waiter.
    pub(super) fn pop(&mut self) -> Option<Waiter> {
        self.remove_at(0)
    }

    /// Removes the first waiter with a stream.
    pub(super) fn pop_connected(&mut self) -> Option<Waiter> {
        let at = self.waiters.iter().position(|waiter| waiter.connected)?;
        self.remove_at(at)
    }

    /// Removes the first waiter with [`WaitLimit::None`].
    pub(super) fn remove_without_wait(&mut self) -> Option<Waiter> {
        if self.without_wait == 0 {
            return None;
        }
        let at = self.waiters.iter().position(|waiter| waiter.wait_limit == WaitLimit::None)?;
        self.remove_at(at)
    }

    /// Returns the positions of the new waiters, which have not been sent theirs.
    pub(super) fn unnotified(&mut self) -> impl Iterator<Item = (u32, &mut Waiter)> {
        let notified = |waiter: &Waiter| waiter.last_sent_position != 0;
        let first = self.waiters.iter().rposition(notified).map_or(0, |at| at + 1);
        self.waiters.iter_mut().enumerate().skip(first).map(|(at, waiter)| (at as u32 + 1, waiter))
    }

    fn remove_at(&mut self, at: usize) -> Option<Waiter> {
        let waiter = self.waiters.remove(at)?;
        self.without_wait -= usize::from(waiter.wait_limit == WaitLimit::None);
        Some(waiter)
    }

    fn find(&self, ticket: Ticket) -> Option<usize> {
        self.waiters.binary_search_by_key(&ticket, |waiter| waiter.ticket).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiter(ticket: u64, connected: bool) -> Waiter {
        Waiter {
            ticket: Ticket(ticket),
            session: SessionKey(ticket as u32),
            holder: Arc::default(),
            request: 1,
            wait_limit: WaitLimit::Forever,
            max_hold_time: None,
            lease_duration: Duration::from_secs(30),
            value: None,
            connected,
            last_sent_position: 0,
            armed: None,
            since: Moment::from_boot(Duration::ZERO),
            trace: None,
        }
    }

    #[test]
    fn waiters_without_stream_are_passed_over() {
        let mut queue = Queue::default();
        for (ticket, connected) in [(1, false), (4, true), (9, true)] {
            queue.push(waiter(ticket, connected));
        }
        assert_eq!(queue.first_connected().unwrap().ticket, Ticket(4));
        queue.get_mut(Ticket(1)).unwrap().connected = true;
        assert_eq!(queue.first_connected().unwrap().ticket, Ticket(1));
        assert_eq!(queue.position(Ticket(9)), Some(3));
        assert_eq!(queue.remove(Ticket(4)).unwrap().session, SessionKey(4));
        assert_eq!(queue.position(Ticket(9)), Some(2));
        assert!(queue.remove(Ticket(4)).is_none());
        assert_eq!(queue.len(), 2);
    }
}
