//! Values that Leasehold's client, daemon and stores share, valid by
//! construction: [names](name), [tokens](token), [reasons](reason),
//! [descriptions of holders](holder), [secrets](mod@secret) and
//! [positions in traces](trace_parent). Also the [percent-encoding](percent_encode) of
//! names.
//!
//! No clock, no I/O and no other crate of the project.
#![forbid(unsafe_code)]

mod escape;
pub mod holder;
pub mod name;
pub mod reason;
pub mod secret;
pub mod token;
pub mod trace_parent;

pub use escape::percent_encode;
pub use holder::Holder;
pub use name::{LockName, Namespace};
pub use reason::Reason;
pub use token::{ParseTokenError, Token, TokenRange};
pub use trace_parent::TraceParent;
