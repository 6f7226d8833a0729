//! Client's end of the session stream: calls of the client library, against a
//! server in the same process that grants every acquire.
//!
//! The reference exchanges the same messages on a bare stream, so that HTTP/2,
//! sockets and the server do not count.

use std::{
    pin::Pin,
    process::exit,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::sync::mpsc;
use tokio_stream::{Stream, wrappers::UnboundedReceiverStream};
use tonic::{
    Request, Response, Status, Streaming,
    transport::{Channel, Server, server::TcpIncoming},
};

use crate::{
    Mode, REPETITIONS, finish,
    product::{
        Client,
        protocol::{
            Acquire, AttachRequest, AttachResponse, ClientMessage, Granted, KeepAlive, KeptAlive,
            LockRef, Open, Opened, Release, Released, ServerMessage, SessionService,
            SessionServiceClient, SessionServiceServer,
        },
    },
};

/// Interval of keep-alives while they are measured. The client closes a stream
/// if the last keep-alive was not answered within it.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_millis(50);

/// Number of keep-alives: few, because each takes the full interval.
pub(crate) const KEEP_ALIVES: u32 = 200;

/// Server that grants every acquire and counts keep-alives.
#[derive(Clone)]
struct Granter {
    keep_alive_interval: Duration,
    keep_alives: Arc<AtomicU32>,
}

impl Granter {
    fn answer(&self, message: ClientMessage) -> Option<ServerMessage> {
        Some(match message {
            ClientMessage::Open(_) => ServerMessage::Opened(Opened {
                protocol_version: 1,
                session_id: "0123456789abcdef".to_owned(),
                resume_secret: vec![7; 16].into(),
                ttl_ms: 60_000,
                keep_alive_interval_ms: self.keep_alive_interval.as_millis() as u32,
                valid_for_ms: 59_880,
                ..Default::default()
            }),
            ClientMessage::Acquire(Acquire { request, .. }) => ServerMessage::Granted(Granted {
                request,
                token: (1 << 40) + request,
                handle: u128::from(request).to_le_bytes().to_vec().into(),
                keep_alive_number: 0,
                valid_for_ms: 59_880,
            }),
            ClientMessage::Release(Release { request, .. }) => {
                ServerMessage::Released(Released { request })
            }
            ClientMessage::KeepAlive(KeepAlive { keep_alive_number }) => {
                if self.keep_alives.fetch_add(1, Relaxed) == KEEP_ALIVES {
                    finish()
                }
                ServerMessage::KeptAlive(KeptAlive {
                    keep_alive_number,
                    valid_for_ms: 59_880,
                    limits: Vec::new(),
                })
            }
            ClientMessage::Resume(_) => {
                eprintln!("the machine is too busy: the client closed a stream");
                exit(1)
            }
            _ => return None,
        })
    }
}

#[tonic::async_trait]
impl SessionService for Granter {
    type AttachStream = Answers;

    async fn attach(
        &self,
        request: Request<Streaming<AttachRequest>>,
    ) -> Result<Response<Answers>, Status> {
        Ok(Response::new(Answers { requests: request.into_inner(), server: self.clone() }))
    }
}

struct Answers {
    requests: Streaming<AttachRequest>,
    server: Granter,
}

impl Stream for Answers {
    type Item = Result<AttachResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some(request) = ready!(Pin::new(&mut self.requests).poll_next(cx)) else {
            return Poll::Ready(None);
        };
        let message = request?.message.and_then(|message| self.server.answer(message));
        Poll::Ready(Some(Ok(AttachResponse { message })))
    }
}

/// Session stream without the client library.
struct BareStream {
    requests: mpsc::UnboundedSender<AttachRequest>,
    responses: Streaming<AttachResponse>,
}

impl BareStream {
    async fn open(address: String) -> Self {
        let channel = Channel::from_shared(address).expect("valid");
        let channel = channel.tcp_nodelay(true).connect().await.expect("the server listens");
        let (requests, received) = mpsc::unbounded_channel();
        let open = Open { protocol_version: 1, ttl_ms: 60_000, ..Default::default() };
        requests.send(AttachRequest { message: Some(ClientMessage::Open(open)) }).expect("open");
        let attached =
            SessionServiceClient::new(channel).attach(UnboundedReceiverStream::new(received)).await;
        let mut stream = Self { requests, responses: attached.expect("attached").into_inner() };
        stream.next().await;
        stream
    }

    async fn exchange(&mut self, message: ClientMessage) {
        self.requests.send(AttachRequest { message: Some(message) }).expect("open");
        self.next().await;
    }

    async fn next(&mut self) {
        let response = self.responses.message().await.expect("no error");
        assert!(response.is_some_and(|response| response.message.is_some()));
    }

    async fn acquire(&mut self, request: u64, name: String) {
        let lock = Some(LockRef { namespace: "default".to_owned(), name });
        self.exchange(ClientMessage::Acquire(Acquire { request, lock, ..Default::default() }))
            .await;
    }
}

/// Starts a server and passes its address to the operation.
fn with_server<F: Future<Output = ()>>(
    keep_alive_interval: Duration,
    operation: impl FnOnce(String) -> F,
) -> ! {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let server = Granter { keep_alive_interval, keep_alives: Arc::default() };
        let address = "127.0.0.1:0".parse().expect("valid");
        let incoming = TcpIncoming::bind(address).expect("a free port").with_nodelay(Some(true));
        let address = format!("http://{}", incoming.local_addr().expect("bound"));
        let service = SessionServiceServer::new(server);
        tokio::spawn(Server::builder().add_service(service).serve_with_incoming(incoming));
        operation(address).await;
        finish()
    })
}

fn names() -> Vec<String> {
    (0..REPETITIONS).map(|number| format!("orders-{number}")).collect()
}

/// Acquires free locks, until the guard is returned.
pub(crate) fn acquire(mode: Mode) {
    with_server(Duration::from_secs(20), async |address| {
        let (client, mut bare) = (connect(&address).await, BareStream::open(address).await);
        let mut guards = Vec::with_capacity(REPETITIONS as usize);
        for (request, name) in (1..).zip(names()) {
            match mode {
                Mode::Reference => bare.acquire(request, name).await,
                Mode::Whole => guards.push(client.lock(name).acquire().await.expect("granted")),
            }
        }
        finish()
    })
}

/// Releases guards, until the release is confirmed.
pub(crate) fn release(mode: Mode) {
    with_server(Duration::from_secs(20), async |address| {
        let (client, mut bare) = (connect(&address).await, BareStream::open(address).await);
        let mut guards = Vec::with_capacity(REPETITIONS as usize);
        for name in names() {
            guards.push(client.lock(name).acquire().await.expect("granted"));
        }
        for (request, guard) in (1..).zip(guards) {
            match mode {
                Mode::Reference => {
                    let handle = u128::from(request).to_le_bytes().to_vec().into();
                    bare.exchange(ClientMessage::Release(Release { request, handle })).await;
                    std::mem::forget(guard);
                }
                Mode::Whole => guard.release().await.expect("confirmed"),
            }
        }
        finish()
    })
}

/// Sends keep-alives in a session that holds one lock. The server ends the
/// process after the last one.
pub(crate) fn keep_alive(mode: Mode) {
    // In the reference, the client sends none.
    let interval = match mode {
        Mode::Reference => Duration::from_secs(20),
        Mode::Whole => KEEP_ALIVE_INTERVAL,
    };
    with_server(interval, async |address| {
        let (client, mut bare) = (connect(&address).await, BareStream::open(address).await);
        let _guard = client.lock("orders").acquire().await.expect("granted");
        if mode == Mode::Reference {
            for keep_alive_number in 1.. {
                bare.exchange(ClientMessage::KeepAlive(KeepAlive { keep_alive_number })).await;
            }
        }
        std::future::pending().await
    })
}

async fn connect(address: &str) -> Client {
    Client::connect(address).await.expect("the server listens")
}
