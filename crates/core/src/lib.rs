//! The core of a Leasehold daemon: sessions, locks and queues. Sans-IO: each
//! part takes an event and a time, and appends the actions that follow from it.
//! `src/driver` in the daemon supplies the time and runs the actions.
//!
//! - [`session`]: liveness of clients, and the grants and waiting acquires of each.
//! - [`lock`]: leases, grants and wait queues.
//! - [`journal`]: facts about locks, for metrics, history and traces.
//! - [`watch`]: subscriptions, and the polls of watched locks that a peer may hold.
//! - [`schedule`]: timer queue, ordered by deadline.
//! - [`error`]: failed requests.
#![forbid(unsafe_code)]

pub mod error;
pub mod journal;
pub mod lock;
pub mod schedule;
pub mod session;
pub mod watch;
