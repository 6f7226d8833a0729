//! A session's decisions: case by case, and over random orders of events.

mod daemon;
mod disconnects;
mod fuzz;
mod grants;
mod harness;
mod proclaims;
mod random_orders;
