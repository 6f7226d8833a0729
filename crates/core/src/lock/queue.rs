//! Who waits for a lock: strictly first come, first served. Pure.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use leasehold_store::Value;
use leasehold_time::Moment;
use leasehold_types::Holder;

use super::grant::SessionKey;

/// How long a waiter waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitLimit {
    /// Not at all: it takes the lock if that is possible now.
    None,
    /// Until then.
    Until(Moment),
    /// As long as its session lives.
    Forever,
}

/// A place in the queue. Rises with every waiter that joins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// A queued acquire.
#[derive(Clone, Debug)]
pub(super) struct Waiter {
    /// Its place.
    pub(super) ticket: Ticket,
    /// The session that waits.
    pub(super) session: SessionKey,
    /// Description of the session's client.
    pub(super) holder: Arc<Holder>,
    /// The session's number for the request.
    pub(super) request: u64,
    /// How long it waits.
    pub(super) wait_limit: WaitLimit,
    /// The longest hold that it asks for.
    pub(super) max_hold_time: Option<Duration>,
    /// The duration of the lease, if it must be acquired for this one.
    pub(super) lease_duration: Duration,
    /// What it shows once it holds the lock, if it campaigns.
    pub(super) value: Option<Value>,
    /// Whether its session has a stream now. One that has none keeps its place
    /// but is passed over: it may be dead.
    pub(super) present: bool,
    /// The position that its client was last sent; 0 before the first time.
    pub(super) last_sent_position: u32,
    /// End of its wait, as the schedule knows it.
    pub(super) armed: Option<Moment>,
}

/// The waiters of one lock, in the order of their tickets.
#[derive(Clone, Debug, Default)]
pub(super) struct Queue {
    waiters: VecDeque<Waiter>,
    /// Number of waiters with [`WaitLimit::None`].
    without_wait: usize,
}

impl Queue {
    /// Adds a waiter at the end. Its ticket must be greater than all others.
    pub(super) fn push(&mut self, waiter: Waiter) {
        debug_assert!(self.waiters.back().is_none_or(|last| last.ticket < waiter.ticket));
        self.without_wait += usize::from(waiter.wait_limit == WaitLimit::None);
        self.waiters.push_back(waiter);
    }

    /// Makes an empty queue as good as new, without the room that a crowd took.
    pub(super) fn shrink(&mut self) {
        self.waiters.shrink_to(8);
    }

    /// How many wait.
    #[must_use]
    pub(super) fn len(&self) -> usize {
        self.waiters.len()
    }

    /// Whether nobody waits.
    #[must_use]
    pub(super) fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    /// The first whose session has a stream.
    #[must_use]
    pub(super) fn first_present(&self) -> Option<&Waiter> {
        self.waiters.iter().find(|waiter| waiter.present)
    }

    /// The waiter with this ticket, to be changed.
    pub(super) fn get_mut(&mut self, ticket: Ticket) -> Option<&mut Waiter> {
        let at = self.find(ticket)?;
        self.waiters.get_mut(at)
    }

    /// How many are served before this one, plus one.
    #[must_use]
    pub(super) fn position(&self, ticket: Ticket) -> Option<u32> {
        self.find(ticket).map(|at| at as u32 + 1)
    }

    /// Takes a waiter out.
    pub(super) fn remove(&mut self, ticket: Ticket) -> Option<Waiter> {
        let at = self.find(ticket)?;
        self.remove_at(at)
    }

    /// Takes the first out.
    pub(super) fn pop(&mut self) -> Option<Waiter> {
        self.remove_at(0)
    }

    /// Takes out the first whose session has a stream.
    pub(super) fn pop_present(&mut self) -> Option<Waiter> {
        let at = self.waiters.iter().position(|waiter| waiter.present)?;
        self.remove_at(at)
    }

    /// Takes out the first with [`WaitLimit::None`].
    pub(super) fn remove_without_wait(&mut self) -> Option<Waiter> {
        if self.without_wait == 0 {
            return None;
        }
        let at = self.waiters.iter().position(|waiter| waiter.wait_limit == WaitLimit::None)?;
        self.remove_at(at)
    }

    /// The waiters that joined last and have not been sent their position.
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

    fn waiter(ticket: u64, present: bool) -> Waiter {
        Waiter {
            ticket: Ticket(ticket),
            session: SessionKey(ticket as u32),
            holder: Arc::default(),
            request: 1,
            wait_limit: WaitLimit::Forever,
            max_hold_time: None,
            lease_duration: Duration::from_secs(30),
            value: None,
            present,
            last_sent_position: 0,
            armed: None,
        }
    }

    #[test]
    fn first_come_first_served_past_the_absent() {
        let mut queue = Queue::default();
        for (ticket, present) in [(1, false), (4, true), (9, true)] {
            queue.push(waiter(ticket, present));
        }
        assert_eq!(queue.first_present().unwrap().ticket, Ticket(4));
        queue.get_mut(Ticket(1)).unwrap().present = true;
        assert_eq!(queue.first_present().unwrap().ticket, Ticket(1));
        assert_eq!(queue.position(Ticket(9)), Some(3));
        assert_eq!(queue.remove(Ticket(4)).unwrap().session, SessionKey(4));
        assert_eq!(queue.position(Ticket(9)), Some(2));
        assert!(queue.remove(Ticket(4)).is_none());
        assert_eq!(queue.len(), 2);
    }
}
