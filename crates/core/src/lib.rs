//! The core of a Leasehold daemon: sessions, locks and queues. Sans-IO: each
//! part takes an event and a time, and appends the actions that follow from it.
//! `src/driver` in the daemon gives it the time and carries out its actions.
//!
//! - [`session`]: liveness of clients; what each holds and waits for.
//! - [`lock`]: leases, grants and wait queues.
//! - [`watch`]: subscriptions, and when to poll a lock that a peer holds.
//! - [`schedule`]: deadlines, in the order in which they fall due.
//! - [`error`]: requests that failed.
#![forbid(unsafe_code)]

pub mod error;
pub mod lock;
pub mod schedule;
pub mod session;
pub mod watch;
