//! gRPC: decodes requests, calls the driver, encodes responses. Makes no decisions.
//!
//! `session` serves session streams, `lock`, `election` and `diagnostics` the unary
//! calls and watches. `decode` and `encode` convert between messages and values; `status`
//! is the only place that builds a gRPC status.

mod decode;
mod diagnostics;
mod election;
mod encode;
#[cfg(test)]
mod fuzz;
mod lock;
mod session;
mod status;
mod trace;

use std::time::Duration;

#[cfg(feature = "simulation")]
use futures_core::Stream;
#[cfg(feature = "simulation")]
use tonic::Status;
use tonic::{
    service::{Routes, RoutesBuilder},
    transport::Server,
};

use leasehold_protocol::v1 as pb;

use crate::driver::Driver;

/// Versions of the protocol that this daemon supports.
pub const PROTOCOL_VERSIONS: std::ops::RangeInclusive<u32> = 1..=1;

/// Maximum size of a client's message, in bytes.
const MAX_REQUEST_BYTES: usize = 64 * 1024;

/// Maximum size of a response, in bytes: a page of locks with large descriptions,
/// or the limits of many grants.
const MAX_RESPONSE_BYTES: usize = 16 * 1024 * 1024;

/// Maximum number of concurrent streams and calls of one connection.
const MAX_STREAMS: u32 = 10_000;

/// Interval of HTTP/2 pings on an idle connection, and timeout of each response.
const KEEP_ALIVE: Duration = Duration::from_secs(20);

/// Returns the services.
pub fn routes(driver: &Driver, reflection: bool) -> (Routes, tonic_health::server::HealthReporter) {
    let sessions = leasehold_protocol::server::session_service_server::SessionServiceServer::new(
        session::Service::new(driver.clone()),
    )
    .max_decoding_message_size(MAX_REQUEST_BYTES)
    .max_encoding_message_size(MAX_RESPONSE_BYTES);
    let locks = leasehold_protocol::server::lock_service_server::LockServiceServer::new(
        lock::Service::new(driver.clone()),
    )
    .max_decoding_message_size(MAX_REQUEST_BYTES)
    .max_encoding_message_size(MAX_RESPONSE_BYTES);
    let elections =
        leasehold_protocol::server::election_service_server::ElectionServiceServer::new(
            election::Service::new(driver.clone()),
        )
        .max_decoding_message_size(MAX_REQUEST_BYTES)
        .max_encoding_message_size(MAX_RESPONSE_BYTES);
    let diagnostics =
        leasehold_protocol::server::diagnostics_service_server::DiagnosticsServiceServer::new(
            diagnostics::Service::new(driver.clone()),
        )
        .max_decoding_message_size(MAX_REQUEST_BYTES)
        .max_encoding_message_size(MAX_RESPONSE_BYTES);
    let (reporter, health) = tonic_health::server::health_reporter();
    let mut routes = RoutesBuilder::default();
    routes.add_service(sessions).add_service(locks).add_service(elections);
    routes.add_service(diagnostics).add_service(health);
    if reflection {
        let builder = || {
            tonic_reflection::server::Builder::configure()
                .register_encoded_file_descriptor_set(leasehold_protocol::DESCRIPTION)
                .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        };
        // Most tools use v1alpha.
        match (builder().build_v1(), builder().build_v1alpha()) {
            (Ok(v1), Ok(v1alpha)) => _ = routes.add_service(v1).add_service(v1alpha),
            (Err(error), _) | (_, Err(error)) => tracing::error!(%error, "reflection is off"),
        }
    }
    let routes = match driver.tracing() {
        Some(tracing) => trace::traced(routes.routes(), tracing.clone()),
        None => routes.routes(),
    };
    (routes, reporter)
}

/// Creates a session's stream without a connection, for simulations.
#[cfg(feature = "simulation")]
pub fn attach<In>(
    driver: &Driver,
    inbound: In,
) -> Result<impl Stream<Item = Result<pb::AttachResponse, Status>>, Status>
where
    In: Stream<Item = Result<pb::AttachRequest, Status>> + Unpin,
{
    session::Attached::begin(driver, inbound)
}

/// Creates a server with its limits.
#[must_use]
pub fn server() -> Server {
    Server::builder()
        .max_concurrent_streams(MAX_STREAMS)
        .initial_stream_window_size(MAX_REQUEST_BYTES as u32)
        .initial_connection_window_size(16 * MAX_REQUEST_BYTES as u32)
        .max_frame_size(16 * 1024)
        .http2_max_header_list_size(16 * 1024)
        .http2_max_pending_accept_reset_streams(Some(64))
        .http2_keepalive_interval(Some(KEEP_ALIVE))
        .http2_keepalive_timeout(Some(KEEP_ALIVE))
}
