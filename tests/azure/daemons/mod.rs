//! Two or three daemon processes on one storage account: exclusion and handoff
//! while daemons are killed, paused, partitioned and shut down.
//!
//! All clients run on this machine, so that their views can be compared by
//! time.

mod cluster;
mod contention;
mod crash;
mod history;
mod operator;
mod partition;
mod pause;
mod process;
mod stop;
mod waiter;
