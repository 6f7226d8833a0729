//! The safety rules of Leasehold, one small pure function each. `docs/safety.md`
//! lists every rule with its reason, and the mutant that proves that the tests
//! detect its absence.
//!
//! The rules cover:
//!
//! - lease IDs, and calls with unknown outcomes
//! - tokens: [`next_token`] (Azure), [`first_token`] (embedded)
//! - deadlines of leases ([`lease_deadline`]) and of holders ([`holder_deadline`])
//! - clock jumps: [`clock_jump`], [`JumpDetector`]
//! - the start of a grant: [`may_grant`], [`recovered_at`]
//! - the end of a session with its stream
//! - garbage collection: [`may_collect`]
//!
//! With the feature `simulation`, the module `broken` replaces `rules`: it has the
//! same functions, each of which a test can break. That module and the list of
//! mutants are compiled only with the feature.
#![forbid(unsafe_code)]

#[cfg(feature = "simulation")]
mod broken;
mod jumps;
#[cfg(feature = "simulation")]
pub mod mutant;
#[cfg_attr(feature = "simulation", allow(unreachable_pub, reason = "`broken` replaces it"))]
mod rules;

#[cfg(feature = "simulation")]
pub use broken::*;
pub use jumps::JumpDetector;
#[cfg(not(feature = "simulation"))]
pub use rules::*;
