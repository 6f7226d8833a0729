//! A session stream, by hand: as little between the benchmark and the server
//! as there can be.

use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{
    Streaming,
    transport::{Channel, Endpoint},
};

use leasehold_protocol::v1::{
    self as pb, attach_request::Message as Ask, attach_response::Message as Tell,
    session_service_client::SessionServiceClient,
};
use prost::bytes::Bytes;

use crate::cli::exit::{FAILED, Failure, UNAVAILABLE};

/// Connects, or says that nobody is there.
pub(super) async fn connect(endpoint: &str) -> Result<Channel, Failure> {
    let failed = |error: &dyn std::fmt::Display| {
        let message = format!("can't reach the server at {endpoint}: {error}");
        Failure::new(UNAVAILABLE, "unavailable", message)
    };
    let target = Endpoint::from_shared(endpoint.to_owned()).map_err(|error| failed(&error))?;
    target.tcp_nodelay(true).connect().await.map_err(|error| failed(&error))
}

/// One session.
pub(super) struct Stream {
    ask: mpsc::UnboundedSender<pb::AttachRequest>,
    tell: Streaming<pb::AttachResponse>,
    requests: u64,
    keep_alives: u64,
}

impl Stream {
    /// Opens a session with this ttl.
    pub(super) async fn open(channel: &Channel, ttl_ms: u32) -> Result<Self, Failure> {
        let (ask, asked) = mpsc::unbounded_channel();
        let mut client = SessionServiceClient::new(channel.clone());
        let attached = client.attach(UnboundedReceiverStream::new(asked)).await.map_err(broken)?;
        let mut stream = Self { ask, tell: attached.into_inner(), requests: 0, keep_alives: 0 };
        let open = pb::Open { protocol_version: 1, ttl_ms, ..pb::Open::default() };
        stream.send(Ask::Open(open));
        match stream.next().await? {
            Tell::Opened(_) => Ok(stream),
            other => Err(unexpected(&other)),
        }
    }

    /// Locks; gives the handle and the token.
    pub(super) async fn acquire(&mut self, name: &str) -> Result<(Bytes, u64), Failure> {
        self.ask(name);
        loop {
            match self.next().await? {
                Tell::Granted(granted) => return Ok((granted.handle, granted.token)),
                Tell::Queued(_) => {}
                other => return Err(unexpected(&other)),
            }
        }
    }

    /// Asks for a lock, and gives the request's number.
    pub(super) fn ask(&mut self, name: &str) -> u64 {
        self.requests += 1;
        let lock = Some(pb::LockRef { namespace: String::new(), name: name.to_owned() });
        let request = self.requests;
        self.send(Ask::Acquire(pb::Acquire { request, lock, ..pb::Acquire::default() }));
        request
    }

    /// Waits until the last request has its place in the queue.
    pub(super) async fn queued(&mut self) -> Result<(), Failure> {
        match self.next().await? {
            Tell::Queued(_) => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    /// Waits until a request is granted; gives the handle.
    pub(super) async fn granted(&mut self, request: u64) -> Result<Bytes, Failure> {
        match self.next().await? {
            Tell::Granted(granted) if granted.request == request => Ok(granted.handle),
            other => Err(unexpected(&other)),
        }
    }

    /// Unlocks.
    pub(super) async fn release(&mut self, handle: Bytes) -> Result<(), Failure> {
        self.requests += 1;
        self.send(Ask::Release(pb::Release { request: self.requests, handle }));
        match self.next().await? {
            Tell::Released(_) => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    /// Keeps the session alive.
    pub(super) async fn keep_alive(&mut self) -> Result<(), Failure> {
        self.keep_alives += 1;
        self.send(Ask::KeepAlive(pb::KeepAlive { keep_alive_number: self.keep_alives }));
        match self.next().await? {
            Tell::KeptAlive(_) => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    /// Sends a message.
    pub(super) fn send(&self, message: Ask) {
        // A stream that is gone is noticed where the answer is awaited.
        _ = self.ask.send(pb::AttachRequest { message: Some(message) });
    }

    /// The next message.
    pub(super) async fn next(&mut self) -> Result<Tell, Failure> {
        let message = self.tell.message().await.map_err(broken)?;
        message
            .and_then(|message| message.message)
            .ok_or_else(|| Failure::new(FAILED, "bench", "the server ended the stream"))
    }
}

pub(super) fn broken(status: tonic::Status) -> Failure {
    Failure::new(FAILED, "bench", format!("the stream broke: {}", status.message()))
}

pub(super) fn unexpected(message: &Tell) -> Failure {
    Failure::new(FAILED, "bench", format!("the server said something unexpected: {message:?}"))
}
