//! The connections to the daemons that all sessions of a client share.

use std::{
    error::Error as StdError,
    pin::Pin,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
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
    ConnectError, Request, Response, Status, Streaming,
    transport::{Channel, Endpoint},
};

use crate::{
    Endpoints, Error, pb,
    pb::{
        election_service_client::ElectionServiceClient, lock_service_client::LockServiceClient,
        session_service_client::SessionServiceClient,
    },
    status,
};

/// A peer that does not answer an HTTP/2 keep-alive within these is gone.
const HTTP2_PING_EVERY: Duration = Duration::from_secs(5);
const HTTP2_PING_TIMEOUT: Duration = Duration::from_secs(5);

/// A page of locks, or a change.
const LARGEST_LOOK: usize = 4 << 20;
/// A keep-alive's answer lists every grant that has a limit of its own.
const LARGEST_FROM_SESSION: usize = 32 << 20;
/// Names and descriptions are short, and checked before they get here.
const LARGEST_SENT: usize = 64 << 10;

/// Connections of a client, one for each endpoint, shared by its sessions and
/// calls. A broken connection is replaced at its next use.
///
/// New sessions and calls go to the daemon that answered last, at first to the
/// first endpoint. If that one can't be reached, they go to the next in the
/// list. A fixed order brings the clients of one list together at one daemon,
/// where a handoff costs no storage call.
#[derive(Debug)]
pub(crate) struct Connection {
    daemons: Vec<Daemon>,
    /// Index of the daemon that answered last.
    preferred: AtomicUsize,
    timeout: Duration,
    /// Guards may be dropped outside of it.
    runtime: Handle,
    #[cfg(feature = "simulation")]
    route: SimulatedRoute,
}

#[derive(Debug)]
struct Daemon {
    endpoint: Endpoint,
    current: Mutex<Current>,
}

/// A daemon among those that the client may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target(usize);

/// What a daemon says on a stream.
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

/// Tells one connection from the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Generation(u64);

impl Connection {
    /// Connects to the first daemon that answers, so that a missing daemon is
    /// found out early.
    pub(crate) async fn open(endpoints: &Endpoints, timeout: Duration) -> Result<Self, Error> {
        let runtime = Handle::try_current().map_err(|error| {
            Error::invalid("runtime", format!("the client needs a tokio runtime: {error}"))
        })?;
        let addresses = endpoints.as_slice();
        let attempt = attempt_timeout(timeout, addresses.len());
        let parsed: Vec<Endpoint> = (addresses.iter())
            .map(|address| Ok(watched(parse(address)?, attempt)))
            .collect::<Result<_, Error>>()?;
        if parsed.is_empty() {
            return Err(Error::invalid("endpoint", "at least one endpoint is required"));
        }
        #[cfg(feature = "simulation")]
        if let route @ Some(_) = leasehold_runtime::simulation::route() {
            return Ok(Self::simulated(parsed, timeout, runtime, SimulatedRoute(route)));
        }
        let mut failures = Vec::new();
        for (index, endpoint) in parsed.iter().enumerate() {
            match endpoint.connect().await {
                Ok(channel) => {
                    let daemons = (parsed.iter().enumerate())
                        .map(|(other, endpoint)| {
                            let same = other == index;
                            let channel =
                                if same { channel.clone() } else { endpoint.connect_lazy() };
                            Daemon::new(endpoint.clone(), channel)
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

    /// Connections through a simulated network; made when they are needed.
    #[cfg(feature = "simulation")]
    fn simulated(
        endpoints: Vec<Endpoint>,
        timeout: Duration,
        runtime: Handle,
        route: SimulatedRoute,
    ) -> Self {
        let daemons = (endpoints.into_iter())
            .map(|endpoint| {
                let channel = match &route.0 {
                    Some(Route::Dial(dial)) => dial.channel(&endpoint),
                    _ => endpoint.connect_lazy(),
                };
                Daemon::new(endpoint, channel)
            })
            .collect();
        Self { daemons, preferred: AtomicUsize::new(0), timeout, runtime, route }
    }

    /// How long to wait for a connection, or for an answer that needs no wait.
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

    /// Records that a daemon has answered.
    pub(crate) fn prefer(&self, target: Target) {
        self.preferred.store(target.0, Ordering::Relaxed);
    }

    /// Records that a daemon could not be used: the next one is tried, unless
    /// another task has moved on already.
    pub(crate) fn pass_over(&self, target: Target) {
        let next = self.after(target);
        let (from, to) = (target.0, next.0);
        let _ = self.preferred.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed);
    }

    fn after(&self, target: Target) -> Target {
        Target((target.0 + 1) % self.daemons.len())
    }

    /// Begins a session's stream.
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
            .max_decoding_message_size(LARGEST_FROM_SESSION)
            .max_encoding_message_size(LARGEST_SENT);
        Ok(Incoming::Stream(sessions.attach(messages).await?.into_inner()))
    }

    /// Calls a daemon, with the client's timeout. If no connection can be made,
    /// calls the next one. A request that may have arrived is not repeated.
    pub(crate) async fn call<Q, A, F>(
        &self,
        request: Q,
        call: impl Fn(Channel, Request<Q>) -> F,
    ) -> Result<A, Error>
    where
        Q: Clone,
        F: Future<Output = Result<Response<A>, Status>>,
    {
        let answer = self.on_any(|channel| {
            let mut request = Request::new(request.clone());
            request.set_timeout(self.timeout);
            call(channel, request)
        });
        answer.await.map(Response::into_inner).map_err(|status| status::error(&status))
    }

    /// The same, for a call that sets its own time limit.
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
                    self.pass_over(target);
                    if attempts == self.daemons.len() {
                        return Err(status);
                    }
                    attempts += 1;
                    target = self.after(target);
                }
                Err(status) => return Err(status),
                Ok(answer) => {
                    self.prefer(target);
                    return Ok(answer);
                }
            }
        }
    }

    pub(crate) fn generation(&self, target: Target) -> Generation {
        self.daemons[target.0].current().generation
    }

    /// Replaces a connection on which the daemon has fallen silent, because it
    /// may take long until the system notices. If many sessions find that out
    /// together, one new connection serves them all.
    pub(crate) fn renew(&self, target: Target, silent: Generation) {
        let daemon = &self.daemons[target.0];
        let mut current = daemon.current();
        if current.generation == silent {
            current.channel = self.new_channel(&daemon.endpoint);
            current.generation = Generation(silent.0 + 1);
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
    fn new(endpoint: Endpoint, channel: Channel) -> Self {
        let current = Current { channel, generation: Generation(0) };
        Self { endpoint, current: Mutex::new(current) }
    }

    fn current(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) fn locks(channel: Channel) -> LockServiceClient<Channel> {
    LockServiceClient::new(channel)
        .max_decoding_message_size(LARGEST_LOOK)
        .max_encoding_message_size(LARGEST_SENT)
}

pub(crate) fn elections(channel: Channel) -> ElectionServiceClient<Channel> {
    ElectionServiceClient::new(channel)
        .max_decoding_message_size(LARGEST_LOOK)
        .max_encoding_message_size(LARGEST_SENT)
}

fn attempt_timeout(timeout: Duration, endpoints: usize) -> Duration {
    timeout / u32::try_from(endpoints.max(1)).unwrap_or(u32::MAX)
}

/// Whether a call failed because no connection could be made.
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

/// With connections that notice when the daemon is gone.
fn watched(endpoint: Endpoint, timeout: Duration) -> Endpoint {
    endpoint
        .connect_timeout(timeout)
        .http2_keep_alive_interval(HTTP2_PING_EVERY)
        .keep_alive_timeout(HTTP2_PING_TIMEOUT)
        .keep_alive_while_idle(true)
        .tcp_nodelay(true)
}

fn parse(endpoint: &str) -> Result<Endpoint, Error> {
    let refuse = |why: String| Err(Error::invalid("endpoint", why));
    if endpoint.starts_with("https://") {
        return refuse(format!(
            "{endpoint:?}: this client has no TLS; use http:// on a trusted network, or unix:"
        ));
    }
    let path = endpoint.strip_prefix("unix://").or_else(|| endpoint.strip_prefix("unix:"));
    match path {
        Some("") => {
            return refuse("unix: needs the path of a socket, as in unix:/run/leasehold".into());
        }
        Some(_) if cfg!(not(unix)) => {
            return refuse(format!(
                "{endpoint:?}: Unix sockets are not supported on this system; use \
                 http://HOST:PORT"
            ));
        }
        None if !endpoint.starts_with("http://") => {
            return refuse(format!("{endpoint:?} is neither http://HOST:PORT nor unix:/PATH"));
        }
        _ => {}
    }
    Endpoint::from_shared(endpoint.to_owned())
        .or_else(|error| refuse(format!("{endpoint:?}: {}", status::root_cause(&error))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_that_make_sense() {
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
            "http://",
            "http://a b",
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
    fn endpoints_are_taken_or_refused_in_words() {
        Fuzz::new("endpoint").words(WORDS).longest(400).run(|input| {
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
