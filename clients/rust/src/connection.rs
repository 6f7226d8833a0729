//! Connections to the daemons, shared by all sessions of a client.

use std::{
    error::Error as StdError,
    pin::Pin,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

#[cfg(feature = "simulation")]
use leasehold_runtime::simulation::Route;
#[cfg(feature = "simulation")]
use prost::Message as _;
use tokio::runtime::Handle;
#[cfg(feature = "simulation")]
use tokio_stream::StreamExt as _;
use tokio_stream::{Stream, wrappers::UnboundedReceiverStream};
use tonic::{
    Code, ConnectError, Request, Response, Status, Streaming,
    transport::{Channel, Endpoint},
};

use crate::{
    Endpoints, Error, pb,
    pb::{
        diagnostics_service_client::DiagnosticsServiceClient,
        election_service_client::ElectionServiceClient, lock_service_client::LockServiceClient,
        session_service_client::SessionServiceClient,
    },
    status, trace,
};

/// Interval of HTTP/2 pings, which detect a dead connection.
const HTTP2_PING_INTERVAL: Duration = Duration::from_secs(5);
/// Time without a response to a ping after which the connection is closed.
const HTTP2_PING_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum size of the response of a unary call or a watch, such as a page of
/// locks.
const MAX_RESPONSE_BYTES: usize = 4 << 20;
/// Maximum size of a message of the session stream. A keep-alive response can
/// list every grant.
const MAX_SESSION_MESSAGE_BYTES: usize = 32 << 20;
/// Maximum size of a request. Names and descriptions are validated before and
/// much shorter.
const MAX_REQUEST_BYTES: usize = 64 << 10;

/// Connections of a client, one per endpoint, shared by its sessions and calls.
/// A broken connection is replaced at its next use.
///
/// New sessions and calls go to the daemon that responded last, initially to the
/// first endpoint. If it is unreachable, they go to the next one in the list. The
/// order is fixed so that clients with the same list meet at one daemon, where a
/// handoff costs no storage call.
#[derive(Debug)]
pub(crate) struct Connection {
    daemons: Vec<Daemon>,
    /// Index of the daemon that responded last.
    preferred: AtomicUsize,
    timeout: Duration,
    /// Runtime of the session tasks. Guards may be dropped outside of it.
    runtime: Handle,
    #[cfg(feature = "simulation")]
    route: SimulatedRoute,
}

#[derive(Debug)]
struct Daemon {
    /// Address that the caller configured, for messages.
    address: String,
    endpoint: Endpoint,
    /// True if a daemon has answered at this address.
    has_answered: AtomicBool,
    current: Mutex<Current>,
}

/// Index of a daemon in the list of endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target(usize);

/// Incoming half of a session stream.
#[cfg_attr(feature = "simulation", allow(clippy::large_enum_variant, reason = "one per session"))]
pub(crate) enum Incoming {
    Stream(Streaming<pb::AttachResponse>),
    #[cfg(feature = "simulation")]
    Simulated(leasehold_runtime::simulation::Incoming),
}

impl Stream for Incoming {
    type Item = Result<pb::AttachResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        match &mut *self {
            Self::Stream(stream) => Pin::new(stream).poll_next(cx),
            #[cfg(feature = "simulation")]
            Self::Simulated(stream) => stream.as_mut().poll_next(cx).map(|message| {
                let decode = |bytes: Vec<u8>| pb::AttachResponse::decode(bytes.as_slice());
                let broken = |error: prost::DecodeError| Status::internal(error.to_string());
                message.map(|message| message.and_then(|bytes| decode(bytes).map_err(broken)))
            }),
        }
    }
}

#[derive(Debug)]
struct Current {
    channel: Channel,
    generation: Generation,
}

/// Replaces the network in a simulation.
#[cfg(feature = "simulation")]
struct SimulatedRoute(Option<Route>);

#[cfg(feature = "simulation")]
impl std::fmt::Debug for SimulatedRoute {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SimulatedRoute")
    }
}

/// Number of a connection to an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Generation(u64);

impl Connection {
    /// Connects to the first daemon that responds, so that an unreachable daemon is
    /// reported early.
    pub(crate) async fn open(endpoints: &Endpoints, timeout: Duration) -> Result<Self, Error> {
        let runtime = Handle::try_current().map_err(|error| {
            Error::invalid("runtime", format!("the client requires a tokio runtime: {error}"))
        })?;
        let addresses = endpoints.as_slice();
        let attempt = attempt_timeout(timeout, addresses.len());
        let parsed: Vec<Endpoint> = (addresses.iter())
            .map(|address| Ok(with_keep_alives(parse(address)?, attempt)))
            .collect::<Result<_, Error>>()?;
        if parsed.is_empty() {
            return Err(Error::invalid("endpoint", "at least one endpoint is required"));
        }
        #[cfg(feature = "simulation")]
        if let route @ Some(_) = leasehold_runtime::simulation::route() {
            let daemons = addresses.iter().cloned().zip(parsed);
            return Ok(Self::simulated(daemons, timeout, runtime, SimulatedRoute(route)));
        }
        let mut failures = Vec::new();
        for (index, endpoint) in parsed.iter().enumerate() {
            match endpoint.connect().await {
                Ok(channel) => {
                    let daemons = (addresses.iter().zip(&parsed).enumerate())
                        .map(|(other, (address, endpoint))| {
                            let connected = other == index;
                            let channel =
                                if connected { channel.clone() } else { endpoint.connect_lazy() };
                            Daemon::new(address.clone(), endpoint.clone(), channel)
                        })
                        .collect();
                    return Ok(Self {
                        daemons,
                        preferred: AtomicUsize::new(index),
                        timeout,
                        runtime,
                        #[cfg(feature = "simulation")]
                        route: SimulatedRoute(None),
                    });
                }
                Err(error) => {
                    failures.push(format!("{}: {}", addresses[index], status::root_cause(&error)));
                }
            }
        }
        Err(Error::unavailable(format!("can't connect to the daemon at {}", failures.join("; "))))
    }

    /// Creates connections through a simulated network. They connect lazily.
    #[cfg(feature = "simulation")]
    fn simulated(
        daemons: impl Iterator<Item = (String, Endpoint)>,
        timeout: Duration,
        runtime: Handle,
        route: SimulatedRoute,
    ) -> Self {
        let daemons = daemons
            .map(|(address, endpoint)| {
                let channel = match &route.0 {
                    Some(Route::Dial(dial)) => dial.channel(&endpoint),
                    _ => endpoint.connect_lazy(),
                };
                Daemon::new(address, endpoint, channel)
            })
            .collect();
        Self { daemons, preferred: AtomicUsize::new(0), timeout, runtime, route }
    }

    /// Timeout of a connection attempt and of calls that do not wait for a lock.
    pub(crate) const fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Timeout of one of several attempts: together they take no longer than
    /// [`timeout`](Self::timeout), so that an unreachable daemon leaves time for
    /// the others.
    pub(crate) fn attempt_timeout(&self) -> Duration {
        attempt_timeout(self.timeout, self.daemons.len())
    }

    pub(crate) const fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Number of endpoints.
    pub(crate) fn endpoints(&self) -> usize {
        self.daemons.len()
    }

    /// Returns the daemon that new sessions and calls go to.
    pub(crate) fn preferred(&self) -> Target {
        Target(self.preferred.load(Ordering::Relaxed))
    }

    /// Records that a daemon has responded.
    pub(crate) fn prefer(&self, target: Target) {
        self.daemons[target.0].has_answered.store(true, Ordering::Relaxed);
        self.preferred.store(target.0, Ordering::Relaxed);
    }

    /// Records that a daemon is unreachable: the next one becomes the preferred
    /// one, unless another task has changed it already.
    pub(crate) fn mark_unreachable(&self, target: Target) {
        let next = self.after(target);
        let (from, to) = (target.0, next.0);
        let _ = self.preferred.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed);
    }

    fn after(&self, target: Target) -> Target {
        Target((target.0 + 1) % self.daemons.len())
    }

    /// Opens the stream of a session.
    pub(crate) async fn attach(
        &self,
        target: Target,
        messages: UnboundedReceiverStream<pb::AttachRequest>,
    ) -> Result<Incoming, Status> {
        #[cfg(feature = "simulation")]
        if let Some(Route::Link(link)) = &self.route.0 {
            let messages = messages.map(|message| Ok(message.encode_to_vec()));
            let incoming = link.attach(Box::pin(messages)).await?;
            return Ok(Incoming::Simulated(incoming));
        }
        let mut sessions = SessionServiceClient::new(self.channel(target))
            .max_decoding_message_size(MAX_SESSION_MESSAGE_BYTES)
            .max_encoding_message_size(MAX_REQUEST_BYTES);
        let attached = sessions.attach(messages).await;
        let attached = attached.map_err(|status| self.with_address(target, status))?;
        Ok(Incoming::Stream(attached.into_inner()))
    }

    /// Replaces the message of a failed connection by one with the address.
    fn with_address(&self, target: Target, status: Status) -> Status {
        let code = status.code();
        let Some(source) = status
            .source()
            .filter(|_| matches!(code, Code::Unavailable | Code::Unknown | Code::Internal))
        else {
            return status;
        };
        let Daemon { address, has_answered, .. } = &self.daemons[target.0];
        let cause = status::root_cause(source);
        let message = if is_unsent(&status) {
            format!("can't connect to the daemon at {address}: {cause}")
        } else if has_answered.load(Ordering::Relaxed) {
            format!("lost the connection to the daemon at {address}: {cause}")
        } else {
            format!(
                "no gRPC response from the server at {address}: {cause}; check that the address \
                 is one of listen, not of http_listen"
            )
        };
        Status::new(code, message)
    }

    /// Calls the preferred daemon with the timeout of the client. If the connection
    /// fails, calls the next daemon. A request that may have been sent is not
    /// repeated.
    pub(crate) async fn call<Q, A, F>(
        &self,
        request: Q,
        call: impl Fn(Channel, Request<Q>) -> F,
    ) -> Result<A, Error>
    where
        Q: Clone,
        F: Future<Output = Result<Response<A>, Status>>,
    {
        let response = self.on_any(|channel| {
            let mut request = Request::new(request.clone());
            request.set_timeout(self.timeout);
            trace::add_current_to(&mut request);
            call(channel, request)
        });
        response.await.map(Response::into_inner).map_err(|status| status::error(&status))
    }

    /// Like [`call`](Self::call), without a timeout.
    pub(crate) async fn on_any<T, F>(&self, call: impl Fn(Channel) -> F) -> Result<T, Status>
    where
        F: Future<Output = Result<T, Status>>,
    {
        let mut target = self.preferred();
        let mut attempts = 1;
        loop {
            let outcome = call(self.channel(target)).await;
            match outcome {
                Err(status) if is_unsent(&status) => {
                    self.mark_unreachable(target);
                    if attempts == self.daemons.len() {
                        return Err(self.with_address(target, status));
                    }
                    attempts += 1;
                    target = self.after(target);
                }
                Err(status) => return Err(self.with_address(target, status)),
                Ok(response) => {
                    self.prefer(target);
                    return Ok(response);
                }
            }
        }
    }

    pub(crate) fn generation(&self, target: Target) -> Generation {
        self.daemons[target.0].current().generation
    }

    /// Replaces a connection on which the daemon no longer responds, because the
    /// operating system may detect the failure much later. If several sessions
    /// request this for the same connection, it is replaced once.
    pub(crate) fn replace(&self, target: Target, failed: Generation) {
        let daemon = &self.daemons[target.0];
        let mut current = daemon.current();
        if current.generation == failed {
            current.channel = self.new_channel(&daemon.endpoint);
            current.generation = Generation(failed.0 + 1);
        }
    }

    fn new_channel(&self, endpoint: &Endpoint) -> Channel {
        #[cfg(feature = "simulation")]
        if let Some(Route::Dial(dial)) = &self.route.0 {
            return dial.channel(endpoint);
        }
        endpoint.connect_lazy()
    }

    fn channel(&self, target: Target) -> Channel {
        self.daemons[target.0].current().channel.clone()
    }
}

impl Daemon {
    fn new(address: String, endpoint: Endpoint, channel: Channel) -> Self {
        let current = Mutex::new(Current { channel, generation: Generation(0) });
        Self { address, endpoint, has_answered: AtomicBool::new(false), current }
    }

    fn current(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) fn locks(channel: Channel) -> LockServiceClient<Channel> {
    LockServiceClient::new(channel)
        .max_decoding_message_size(MAX_RESPONSE_BYTES)
        .max_encoding_message_size(MAX_REQUEST_BYTES)
}

pub(crate) fn diagnostics(channel: Channel) -> DiagnosticsServiceClient<Channel> {
    DiagnosticsServiceClient::new(channel)
        .max_decoding_message_size(MAX_RESPONSE_BYTES)
        .max_encoding_message_size(MAX_REQUEST_BYTES)
}

pub(crate) fn elections(channel: Channel) -> ElectionServiceClient<Channel> {
    ElectionServiceClient::new(channel)
        .max_decoding_message_size(MAX_RESPONSE_BYTES)
        .max_encoding_message_size(MAX_REQUEST_BYTES)
}

fn attempt_timeout(timeout: Duration, endpoints: usize) -> Duration {
    timeout / u32::try_from(endpoints.max(1)).unwrap_or(u32::MAX)
}

/// Returns whether a call failed because the connection could not be established.
fn is_unsent(status: &Status) -> bool {
    let mut cause = status.source();
    while let Some(error) = cause {
        if error.is::<ConnectError>() {
            return true;
        }
        cause = error.source();
    }
    false
}

/// Configures HTTP/2 pings, which detect a dead connection.
fn with_keep_alives(endpoint: Endpoint, timeout: Duration) -> Endpoint {
    endpoint
        .connect_timeout(timeout)
        .http2_keep_alive_interval(HTTP2_PING_INTERVAL)
        .keep_alive_timeout(HTTP2_PING_TIMEOUT)
        .keep_alive_while_idle(true)
        .tcp_nodelay(true)
}

fn parse(endpoint: &str) -> Result<Endpoint, Error> {
    let refuse = |problem: &str| {
        let message = format!("invalid endpoint {endpoint:?}: {problem}");
        Err(Error::invalid("endpoint", message))
    };
    if endpoint.starts_with("https://") {
        return refuse("TLS is not supported; use http:// on a trusted network, or unix:");
    }
    let path = endpoint.strip_prefix("unix://").or_else(|| endpoint.strip_prefix("unix:"));
    match path {
        Some("") => return refuse("the path of the socket is missing; use unix:/PATH"),
        Some(path) if !path.starts_with('/') => {
            return refuse("the path of the socket must be absolute; use unix:/PATH");
        }
        Some(_) if cfg!(not(unix)) => {
            return refuse("Unix sockets are not supported on this system; use http://HOST:PORT");
        }
        None if !endpoint.starts_with("http://") => {
            return refuse("use http://HOST:PORT or unix:/PATH");
        }
        _ => {}
    }
    let parsed = Endpoint::from_shared(endpoint.to_owned())
        .or_else(|error| refuse(&status::root_cause(&error)))?;
    // Without a port, the connection would go to port 80.
    if path.is_none() && parsed.uri().port().is_none() {
        return refuse("the port is missing; use http://HOST:PORT");
    }
    Ok(parsed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_http_addresses_or_unix_paths() {
        for endpoint in [
            "http://127.0.0.1:7420",
            "http://[::1]:7420",
            "http://leasehold:7420",
            "unix:/run/l.sock",
        ] {
            assert!(parse(endpoint).is_ok(), "{endpoint}");
        }
        for endpoint in [
            "",
            "localhost:7420",
            "https://a:1",
            "ftp://a",
            "unix:",
            "unix://",
            "unix:relative",
            "unix://relative",
            "http://",
            "http://a b",
            "http://127.0.0.1",
            "http://127.0.0.1/",
            "http://[::1]",
        ] {
            let Err(Error::Invalid { field, .. }) = parse(endpoint) else {
                panic!("{endpoint} was accepted")
            };
            assert_eq!(field, "endpoint");
        }
    }
}

#[cfg(test)]
mod fuzz {
    use leasehold_fuzz::Fuzz;

    use super::*;

    const WORDS: &[&str] =
        &["http://", "https://", "unix:", "unix://", "[::1]", ":7420", "@", "/", "?", "#", "%00"];

    #[test]
    fn any_endpoint_is_accepted_or_refused_with_message() {
        Fuzz::new("endpoint").words(WORDS).max_bytes(400).run(|input| {
            let text = String::from_utf8_lossy(input);
            match parse(&text) {
                Ok(endpoint) => {
                    assert!(text.starts_with("http://") || text.starts_with("unix:"), "{text:?}");
                    format!("{:?} {}", endpoint.uri().scheme_str(), endpoint.uri().port().is_some())
                }
                Err(Error::Invalid { field, message }) => {
                    assert_eq!(field, "endpoint");
                    assert!(!message.chars().any(char::is_control), "{message:?}");
                    message
                }
                Err(error) => panic!("{error}"),
            }
        });
    }
}
