//! The safety rules of Leasehold, one small pure function each. `docs/safety.md`
//! states every rule, its reason and the mutant that shows that the tests would
//! notice its absence.
//!
//! Among them: lease IDs, tokens ([`next_token`]), deadlines of leases
//! ([`lease_deadline`]) and of holders ([`holder_deadline`]), clock jumps
//! ([`clock_jump`], [`JumpDetector`]), the start of a grant ([`may_grant`]), unknown
//! outcomes, the end of a session with its stream, and garbage collection
//! ([`may_collect`]).
//!
//! With the feature `simulation`, `broken` takes the place of `rules`: the same
//! functions, each of which a test can break. Without the feature, neither that
//! module nor the list of mutants is compiled.
#![forbid(unsafe_code)]

#[cfg(feature = "simulation")]
mod broken;
mod jumps;
#[cfg(feature = "simulation")]
pub mod mutant;
#[cfg_attr(feature = "simulation", allow(unreachable_pub, reason = "`broken` takes its place"))]
mod rules;

#[cfg(feature = "simulation")]
pub use broken::*;
pub use jumps::JumpDetector;
#[cfg(not(feature = "simulation"))]
pub use rules::*;
