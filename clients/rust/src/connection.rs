//! The connection to the daemon that all sessions of a client share.

#[cfg(feature = "simulation")]
use std::sync::Arc;
use std::{
    pin::Pin,
    sync::{Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

#[cfg(feature = "simulation")]
use leasehold_time::simulation::Route;
#[cfg(feature = "simulation")]
use prost::Message as _;
use tokio::runtime::Handle;
#[cfg(feature = "simulation")]
use tokio_stream::StreamExt as _;
use tokio_stream::{Stream, wrappers::UnboundedReceiverStream};
use tonic::{
    Status, Streaming,
    transport::{Channel, Endpoint},
};

use crate::{
    Error, pb,
    pb::{
        election_service_client::ElectionServiceClient, lock_service_client::LockServiceClient,
        session_service_client::SessionServiceClient,
    },
    status,
};

/// A peer that does not answer an HTTP/2 ping within these is gone.
const HTTP2_PING_EVERY: Duration = Duration::from_secs(5);
const HTTP2_PING_TIMEOUT: Duration = Duration::from_secs(5);

/// A page of locks, or a change.
const LARGEST_LOOK: usize = 4 << 20;
/// A keep-alive's answer lists every grant that has a limit of its own.
const LARGEST_FROM_SESSION: usize = 32 << 20;
/// Names and descriptions are short, and checked before they get here.
const LARGEST_SENT: usize = 64 << 10;

/// Shared by a client's sessions and calls. Comes back by itself when it
/// breaks.
#[derive(Debug)]
pub(crate) struct Connection {
    endpoint: Endpoint,
    timeout: Duration,
    current: Mutex<Current>,
    /// Guards may be dropped outside of it.
    runtime: Handle,
    #[cfg(feature = "simulation")]
    link: Option<Link>,
    #[cfg(feature = "simulation")]
    dial: Option<Dial>,
}

/// What a daemon says on a stream.
#[cfg_attr(feature = "simulation", allow(clippy::large_enum_variant, reason = "one per session"))]
pub(crate) enum Incoming {
    Stream(Streaming<pb::AttachResponse>),
    #[cfg(feature = "simulation")]
    Simulated(leasehold_time::simulation::Incoming),
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

/// A way to a daemon that is made up.
#[cfg(feature = "simulation")]
struct Link(Arc<dyn leasehold_time::simulation::Link>);

#[cfg(feature = "simulation")]
impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Link")
    }
}

/// How connections are made in a network that is made up.
#[cfg(feature = "simulation")]
struct Dial(Arc<dyn leasehold_time::simulation::Dial>);

#[cfg(feature = "simulation")]
impl std::fmt::Debug for Dial {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Dial")
    }
}

/// Tells one connection from the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Generation(u64);

impl Connection {
    /// Connects now, so that a daemon that is not there is found out early.
    pub(crate) async fn open(endpoint: &str, timeout: Duration) -> Result<Self, Error> {
        let runtime = Handle::try_current().map_err(|error| {
            Error::invalid("runtime", format!("the client needs a tokio runtime: {error}"))
        })?;
        #[cfg(feature = "simulation")]
        match leasehold_time::simulation::route() {
            Some(Route::Link(link)) => return Self::simulated(link, timeout),
            Some(Route::Dial(dial)) => return Self::dialled(endpoint, timeout, dial),
            None => {}
        }
        let shown = endpoint;
        let endpoint = watched(parse(endpoint)?, timeout);
        let channel = endpoint.connect().await.map_err(|error| {
            Error::unavailable(format!("no daemon at {shown}: {}", status::causes(&error)))
        })?;
        let current = Current { channel, generation: Generation(0) };
        Ok(Self {
            endpoint,
            timeout,
            current: Mutex::new(current),
            runtime,
            #[cfg(feature = "simulation")]
            link: None,
            #[cfg(feature = "simulation")]
            dial: None,
        })
    }

    /// A connection through a network that is made up; made when it is needed.
    #[cfg(feature = "simulation")]
    fn dialled(
        endpoint: &str,
        timeout: Duration,
        dial: Arc<dyn leasehold_time::simulation::Dial>,
    ) -> Result<Self, Error> {
        let endpoint = watched(parse(endpoint)?, timeout);
        let current = Current { channel: dial.channel(&endpoint), generation: Generation(0) };
        let (current, dial) = (Mutex::new(current), Some(Dial(dial)));
        Ok(Self { endpoint, timeout, current, runtime: Handle::current(), link: None, dial })
    }

    /// A connection whose sessions go another way.
    #[cfg(feature = "simulation")]
    fn simulated(
        link: Arc<dyn leasehold_time::simulation::Link>,
        timeout: Duration,
    ) -> Result<Self, Error> {
        let endpoint = parse("http://127.0.0.1:1")?;
        let current = Current { channel: endpoint.connect_lazy(), generation: Generation(0) };
        let (current, link) = (Mutex::new(current), Some(Link(link)));
        Ok(Self { endpoint, timeout, current, runtime: Handle::current(), link, dial: None })
    }

    /// How long to wait for a connection, or for an answer that needs no wait.
    pub(crate) const fn timeout(&self) -> Duration {
        self.timeout
    }

    pub(crate) const fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Begins a session's stream.
    pub(crate) async fn attach(
        &self,
        messages: UnboundedReceiverStream<pb::AttachRequest>,
    ) -> Result<Incoming, Status> {
        #[cfg(feature = "simulation")]
        if let Some(Link(link)) = &self.link {
            let messages = messages.map(|message| Ok(message.encode_to_vec()));
            let incoming = link.attach(Box::pin(messages)).await?;
            return Ok(Incoming::Simulated(incoming));
        }
        let mut sessions = SessionServiceClient::new(self.current().channel.clone())
            .max_decoding_message_size(LARGEST_FROM_SESSION)
            .max_encoding_message_size(LARGEST_SENT);
        Ok(Incoming::Stream(sessions.attach(messages).await?.into_inner()))
    }

    pub(crate) fn locks(&self) -> LockServiceClient<Channel> {
        LockServiceClient::new(self.current().channel.clone())
            .max_decoding_message_size(LARGEST_LOOK)
            .max_encoding_message_size(LARGEST_SENT)
    }

    pub(crate) fn elections(&self) -> ElectionServiceClient<Channel> {
        ElectionServiceClient::new(self.current().channel.clone())
            .max_decoding_message_size(LARGEST_LOOK)
            .max_encoding_message_size(LARGEST_SENT)
    }

    pub(crate) fn generation(&self) -> Generation {
        self.current().generation
    }

    /// Turns to a new connection: on this one the daemon has fallen silent, and
    /// it may take long until the system notices. If many sessions find that
    /// out together, one new connection serves them all.
    pub(crate) fn renew(&self, silent: Generation) {
        let mut current = self.current();
        if current.generation == silent {
            current.channel = self.channel();
            current.generation = Generation(silent.0 + 1);
        }
    }

    fn channel(&self) -> Channel {
        #[cfg(feature = "simulation")]
        if let Some(Dial(dial)) = &self.dial {
            return dial.channel(&self.endpoint);
        }
        self.endpoint.connect_lazy()
    }

    fn current(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
        .or_else(|error| refuse(format!("{endpoint:?}: {}", status::causes(&error))))
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
