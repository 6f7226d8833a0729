//! Session stream with minimal code between the benchmark and the server.

use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{
    Streaming,
    transport::{Channel, Endpoint},
};

use leasehold_protocol::v1::{
    self as pb, attach_request::Message as ToDaemon, attach_response::Message as ToClient,
    session_service_client::SessionServiceClient,
};
use prost::bytes::Bytes;

use crate::cli::exit::{FAILED, Failure, UNAVAILABLE, root_cause};

/// Connects to the server.
pub(super) async fn connect(endpoint: &str) -> Result<Channel, Failure> {
    let failed = |error: tonic::transport::Error| {
        let message = format!("can't connect to the server at {endpoint}: {}", root_cause(&error));
        Failure::new(UNAVAILABLE, "unavailable", message)
    };
    let target = Endpoint::from_shared(endpoint.to_owned()).map_err(failed)?;
    target.tcp_nodelay(true).connect().await.map_err(failed)
}

/// Session on one stream.
pub(super) struct Stream {
    outbound: mpsc::UnboundedSender<pb::AttachRequest>,
    inbound: Streaming<pb::AttachResponse>,
    requests: u64,
    keep_alives: u64,
}

impl Stream {
    /// Opens a session with this TTL.
    pub(super) async fn open(channel: &Channel, ttl_ms: u32) -> Result<Self, Failure> {
        let (outbound, requests) = mpsc::unbounded_channel();
        let mut client = SessionServiceClient::new(channel.clone());
        let attached =
            client.attach(UnboundedReceiverStream::new(requests)).await.map_err(broken)?;
        let mut stream =
            Self { outbound, inbound: attached.into_inner(), requests: 0, keep_alives: 0 };
        let open = pb::Open { protocol_version: 1, ttl_ms, ..pb::Open::default() };
        stream.send(ToDaemon::Open(open));
        match stream.next().await? {
            ToClient::Opened(_) => Ok(stream),
            other => Err(unexpected(&other)),
        }
    }

    /// Acquires a lock. Returns the handle and the token.
    pub(super) async fn acquire(&mut self, name: &str) -> Result<(Bytes, u64), Failure> {
        self.send_acquire(name);
        loop {
            match self.next().await? {
                ToClient::Granted(granted) => return Ok((granted.handle, granted.token)),
                ToClient::Queued(_) => {}
                other => return Err(unexpected(&other)),
            }
        }
    }

    /// Sends an acquire. Returns the number of the request.
    pub(super) fn send_acquire(&mut self, name: &str) -> u64 {
        self.requests += 1;
        let lock = Some(pb::LockRef { namespace: String::new(), name: name.to_owned() });
        let request = self.requests;
        self.send(ToDaemon::Acquire(pb::Acquire { request, lock, ..pb::Acquire::default() }));
        request
    }

    /// Waits until the last request is queued.
    pub(super) async fn queued(&mut self) -> Result<(), Failure> {
        match self.next().await? {
            ToClient::Queued(_) => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    /// Waits until a request is granted. Returns the handle.
    pub(super) async fn granted(&mut self, request: u64) -> Result<Bytes, Failure> {
        match self.next().await? {
            ToClient::Granted(granted) if granted.request == request => Ok(granted.handle),
            other => Err(unexpected(&other)),
        }
    }

    /// Releases a lock.
    pub(super) async fn release(&mut self, handle: Bytes) -> Result<(), Failure> {
        self.requests += 1;
        self.send(ToDaemon::Release(pb::Release { request: self.requests, handle }));
        match self.next().await? {
            ToClient::Released(_) => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    /// Sends a keep-alive and waits for the response.
    pub(super) async fn keep_alive(&mut self) -> Result<(), Failure> {
        self.keep_alives += 1;
        self.send(ToDaemon::KeepAlive(pb::KeepAlive { keep_alive_number: self.keep_alives }));
        match self.next().await? {
            ToClient::KeptAlive(_) => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    /// Sends a message.
    pub(super) fn send(&self, message: ToDaemon) {
        // The next read detects the end of the stream.
        _ = self.outbound.send(pb::AttachRequest { message: Some(message) });
    }

    /// Returns the next message.
    pub(super) async fn next(&mut self) -> Result<ToClient, Failure> {
        let message = self.inbound.message().await.map_err(broken)?;
        message
            .and_then(|message| message.message)
            .ok_or_else(|| Failure::new(FAILED, "bench", "the server ended the stream"))
    }
}

pub(super) fn broken(status: tonic::Status) -> Failure {
    Failure::new(FAILED, "bench", format!("the stream broke: {}", status.message()))
}

pub(super) fn unexpected(message: &ToClient) -> Failure {
    Failure::new(FAILED, "bench", format!("unexpected message from the server: {message:?}"))
}
