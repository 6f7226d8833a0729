//! A session's decisions: case by case, and over random orders of events.

mod breaks;
mod daemon;
mod fuzz;
mod grants;
mod orders;
mod proclaims;
mod subject;
