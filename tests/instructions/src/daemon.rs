//! Daemon's end of the session stream: from the bytes of a request to the bytes
//! of its response, through decoder, driver, core and encoder, without
//! connections and HTTP/2.

use std::{convert::Infallible, sync::Arc};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http_body_util::{BodyExt, StreamBody};
use prost::Message as _;
use tokio::sync::mpsc;
use tokio_stream::{StreamExt, wrappers::UnboundedReceiverStream};
use tower_service::Service;

use crate::{
    KEEP_ALIVES, Mode, REPETITIONS, finish,
    product::{
        Driver, Entropy, Telemetry,
        protocol::{
            Acquire, AttachRequest, AttachResponse, ClientMessage, KeepAlive, LockRef, Open,
            Release, ServerMessage,
        },
        rpc,
    },
    store::{MemoryStore, settings},
};

/// Size of the header of a gRPC message: a flag and the length.
const HEADER_BYTES: usize = 5;

/// Session stream.
struct Stream {
    requests: mpsc::UnboundedSender<Bytes>,
    responses: tonic::body::Body,
    /// Received bytes: responses that are ready at the same time arrive
    /// together.
    received: Bytes,
}

impl Stream {
    /// Opens a session with a new daemon.
    async fn open() -> Self {
        let (sessions, locks) = settings();
        let store = Arc::new(MemoryStore::default());
        let driver = Driver::new(sessions, locks, store, Entropy::seeded(1), Telemetry::default());
        let (mut routes, _) = rpc::routes(&driver, false);
        let (requests, received) = mpsc::unbounded_channel();
        let frames = UnboundedReceiverStream::new(received)
            .map(|bytes: Bytes| Ok::<_, Infallible>(http_body::Frame::data(bytes)));
        let request = http::Request::post("http://daemon/leasehold.v1.SessionService/Attach")
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(StreamBody::new(frames))
            .expect("valid");
        let Ok(response) = routes.call(request).await;
        let mut stream = Self { requests, responses: response.into_body(), received: Bytes::new() };
        let open = Open { protocol_version: 1, ttl_ms: 60_000, ..Default::default() };
        stream.exchange(frame(ClientMessage::Open(open))).await;
        stream
    }

    async fn exchange(&mut self, request: Bytes) -> Bytes {
        self.requests.send(request).expect("the stream is open");
        self.next().await
    }

    async fn next(&mut self) -> Bytes {
        if self.received.is_empty() {
            let frame = self.responses.frame().await.expect("a frame").expect("no error");
            self.received = frame.into_data().expect("messages");
        }
        let length = self.received.slice(1..HEADER_BYTES).get_u32() as usize;
        self.received.split_to(HEADER_BYTES + length)
    }

    /// Acquires the locks with these names and returns the handles of the
    /// grants.
    async fn acquire_all(&mut self, requests: Vec<Bytes>) -> Vec<Bytes> {
        let mut handles = Vec::with_capacity(requests.len());
        for request in requests {
            let response = self.exchange(request).await;
            handles.extend(handle(&response));
        }
        handles
    }
}

/// Encodes a gRPC message.
fn frame(message: ClientMessage) -> Bytes {
    let request = AttachRequest { message: Some(message) };
    let mut frame = BytesMut::new();
    frame.put_u8(0);
    frame.put_u32(request.encoded_len() as u32);
    request.encode(&mut frame).expect("there is room");
    frame.freeze()
}

/// Returns the handle in a grant.
fn handle(response: &Bytes) -> Option<Bytes> {
    match AttachResponse::decode(response.slice(HEADER_BYTES..)).expect("valid").message {
        Some(ServerMessage::Granted(granted)) => Some(granted.handle),
        _ => None,
    }
}

/// Returns requests for different locks, or for one.
fn acquires(count: u32, is_one: bool) -> Vec<Bytes> {
    let acquire = |number| {
        let name = format!("orders-{}", if is_one { 0 } else { number });
        let lock = Some(LockRef { namespace: String::new(), name });
        frame(ClientMessage::Acquire(Acquire {
            request: number.into(),
            lock,
            ..Default::default()
        }))
    };
    (1..=count).map(acquire).collect()
}

fn release_frame(number: u32, handle: Bytes) -> Bytes {
    frame(ClientMessage::Release(Release { request: u64::from(2 * REPETITIONS + number), handle }))
}

fn block_on(operation: impl Future<Output = ()>) -> ! {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(operation);
    finish()
}

/// Acquires free locks.
pub(crate) fn acquire(mode: Mode) {
    block_on(async {
        let mut stream = Stream::open().await;
        let requests = acquires(REPETITIONS, false);
        if mode == Mode::Whole {
            for request in requests {
                stream.exchange(request).await;
            }
            finish()
        }
    })
}

/// Releases locks without waiters.
pub(crate) fn release(mode: Mode) {
    block_on(async {
        let mut stream = Stream::open().await;
        let handles = stream.acquire_all(acquires(REPETITIONS, false)).await;
        assert_eq!(handles.len(), REPETITIONS as usize);
        let releases: Vec<_> =
            (1..).zip(handles).map(|(number, handle)| release_frame(number, handle)).collect();
        if mode == Mode::Whole {
            for release in releases {
                stream.exchange(release).await;
            }
            finish()
        }
    })
}

/// Sends keep-alives in a session that holds 1000 locks.
pub(crate) fn keep_alive(mode: Mode) {
    block_on(async {
        let mut stream = Stream::open().await;
        stream.acquire_all(acquires(REPETITIONS, false)).await;
        let keep_alives: Vec<_> = (1..=u64::from(KEEP_ALIVES))
            .map(|keep_alive_number| {
                frame(ClientMessage::KeepAlive(KeepAlive { keep_alive_number }))
            })
            .collect();
        if mode == Mode::Whole {
            for keep_alive_number in keep_alives {
                stream.exchange(keep_alive_number).await;
            }
            finish()
        }
    })
}

/// Releases a lock to the next waiter in the same session.
pub(crate) fn handoff(mode: Mode) {
    block_on(async {
        let mut stream = Stream::open().await;
        let mut handles = stream.acquire_all(acquires(REPETITIONS + 1, true)).await;
        if mode == Mode::Whole {
            for number in 1..=REPETITIONS {
                let release = release_frame(number, handles.remove(0));
                let responses = [stream.exchange(release).await, stream.next().await];
                handles.extend(responses.iter().filter_map(handle));
            }
            finish()
        }
    })
}
