//! The gRPC protocol between clients and daemons, generated from the files in
//! `proto/`, which document every message. Values that both ends check, such as
//! names and tokens, are in `leasehold-types`.
#![forbid(unsafe_code)]

#[cfg(feature = "server")]
mod codec;
mod reason;

pub use reason::{reason_from_wire, reason_to_wire};

/// Messages, and client stubs of the services.
#[allow(
    missing_docs,
    unreachable_pub,
    clippy::all,
    reason = "generated; the .proto files are documented"
)]
pub mod v1 {
    include!(concat!(env!("OUT_DIR"), "/client/leasehold.v1.rs"));
}

/// Server traits of the services.
#[cfg(feature = "server")]
#[allow(
    missing_docs,
    unreachable_pub,
    clippy::all,
    reason = "generated; the .proto files are documented"
)]
pub mod server {
    include!(concat!(env!("OUT_DIR"), "/server/leasehold.v1.rs"));
}

/// Description of the protocol for gRPC reflection: an encoded `FileDescriptorSet`.
#[cfg(feature = "server")]
pub const DESCRIPTION: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/leasehold.v1.bin"));
