//! The daemon's end of the session stream: the bytes of a request in, the bytes
//! of its response out, through decoder, driver, core and encoder. Connections
//! and HTTP/2 are left out.

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
        Driver, Entropy,
        protocol::{
            Acquire, Ask, AttachRequest, AttachResponse, KeepAlive, LockRef, Open, Release, Tell,
        },
        rpc,
    },
    store::{MemoryStore, settings},
};

/// Bytes before a gRPC message: a flag, and its length.
const HEADER: usize = 5;

/// A session stream.
struct Stream {
    requests: mpsc::UnboundedSender<Bytes>,
    responses: tonic::body::Body,
    /// Bytes that were received: responses that are ready together come together.
    received: Bytes,
}

impl Stream {
    /// A session of a new daemon.
    async fn open() -> Self {
        let (sessions, locks) = settings();
        let store = Arc::new(MemoryStore::default());
        let driver = Driver::new(sessions, locks, store, Entropy::seeded(1));
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
        stream.exchange(frame(Ask::Open(open))).await;
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
        let length = self.received.slice(1..HEADER).get_u32() as usize;
        self.received.split_to(HEADER + length)
    }

    /// Acquires locks of these names, and returns the handles of the grants.
    async fn acquire_all(&mut self, requests: Vec<Bytes>) -> Vec<Bytes> {
        let mut handles = Vec::with_capacity(requests.len());
        for request in requests {
            let response = self.exchange(request).await;
            handles.extend(handle(&response));
        }
        handles
    }
}

/// A gRPC message.
fn frame(message: Ask) -> Bytes {
    let request = AttachRequest { message: Some(message) };
    let mut frame = BytesMut::new();
    frame.put_u8(0);
    frame.put_u32(request.encoded_len() as u32);
    request.encode(&mut frame).expect("there is room");
    frame.freeze()
}

/// The handle in a grant.
fn handle(response: &Bytes) -> Option<Bytes> {
    match AttachResponse::decode(response.slice(HEADER..)).expect("valid").message {
        Some(Tell::Granted(granted)) => Some(granted.handle),
        _ => None,
    }
}

/// Requests for different locks, or for one.
fn acquires(count: u32, is_one: bool) -> Vec<Bytes> {
    let acquire = |number| {
        let name = format!("orders-{}", if is_one { 0 } else { number });
        let lock = Some(LockRef { namespace: String::new(), name });
        frame(Ask::Acquire(Acquire { request: number.into(), lock, ..Default::default() }))
    };
    (1..=count).map(acquire).collect()
}

fn release_frame(number: u32, handle: Bytes) -> Bytes {
    frame(Ask::Release(Release { request: u64::from(2 * REPETITIONS + number), handle }))
}

fn block_on(operation: impl Future<Output = ()>) -> ! {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(operation);
    finish()
}

/// An acquire of a free lock, with its grant.
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

/// A release of a lock for which no session waits.
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

/// A keep-alive of a session that holds 1000 locks.
pub(crate) fn keep_alive(mode: Mode) {
    block_on(async {
        let mut stream = Stream::open().await;
        stream.acquire_all(acquires(REPETITIONS, false)).await;
        let keep_alives: Vec<_> = (1..=u64::from(KEEP_ALIVES))
            .map(|keep_alive_number| frame(Ask::KeepAlive(KeepAlive { keep_alive_number })))
            .collect();
        if mode == Mode::Whole {
            for keep_alive_number in keep_alives {
                stream.exchange(keep_alive_number).await;
            }
            finish()
        }
    })
}

/// A release that hands the lock to the next waiter of the same session.
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
