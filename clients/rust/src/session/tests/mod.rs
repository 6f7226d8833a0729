//! Tests of the session state machine: single cases, and random orders of events.

mod daemon;
mod disconnects;
mod fuzz;
mod grants;
mod harness;
mod proclaims;
mod random_orders;
