//! All ends of a session stream, against a real daemon: the table on
//! `SessionService.Attach`, row by row.

use leasehold_client::{Client, Reason};
use leasehold_protocol::{
    server::{
        session_service_server::SessionService, session_service_server::SessionServiceServer,
    },
    v1 as pb,
    v1::attach_request::Message as ClientMessage,
    v1::attach_response::Message as DaemonMessage,
    v1::session_service_client::SessionServiceClient,
};
use leasehold_test_support::{Daemon, until};
use nix::sys::signal::Signal;
use std::{
    os::unix::fs::symlink,
    pin::Pin,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::{net::TcpListener, sync::mpsc};
use tokio_stream::{
    Stream, StreamExt,
    wrappers::{TcpListenerStream, UnboundedReceiverStream},
};
use tonic::{Code, Request, Response, Status, Streaming, transport::Channel, transport::Server};
use tonic_types::StatusExt;

/// Session stream without a client library.
struct Raw {
    requests: mpsc::UnboundedSender<pb::AttachRequest>,
    responses: Streaming<pb::AttachResponse>,
}

/// Code, reason (empty if there is none) and field of the status that ended a
/// stream.
type End = (Code, String, String);

impl Raw {
    async fn attach(endpoint: &str) -> Result<Self, Status> {
        let channel = Channel::from_shared(endpoint.to_owned())
            .unwrap()
            .connect()
            .await
            .map_err(|error| Status::unavailable(error.to_string()))?;
        let (requests, outbound) = mpsc::unbounded_channel();
        let mut client = SessionServiceClient::new(channel);
        let outbound = UnboundedReceiverStream::new(outbound);
        let responses = client.attach(outbound).await?.into_inner();
        Ok(Self { requests, responses })
    }

    /// Sends the messages on a new stream and returns how it ends.
    async fn ends(endpoint: &str, messages: impl IntoIterator<Item = ClientMessage>) -> End {
        match Self::attach(endpoint).await {
            Ok(mut stream) => {
                messages.into_iter().for_each(|message| stream.send(message));
                stream.end().await
            }
            Err(status) => end(&status),
        }
    }

    async fn open(endpoint: &str, ttl_ms: u32) -> (Self, pb::Opened) {
        let mut stream = Self::attach(endpoint).await.unwrap();
        stream.send(ClientMessage::Open(open(ttl_ms)));
        let DaemonMessage::Opened(opened) = stream.next().await else { panic!("not opened") };
        (stream, opened)
    }

    fn send(&self, message: ClientMessage) {
        _ = self.requests.send(pb::AttachRequest { message: Some(message) });
    }

    async fn next(&mut self) -> DaemonMessage {
        self.responses.message().await.unwrap().unwrap().message.unwrap()
    }

    async fn granted(&mut self, request: u64, name: &str) -> pb::Granted {
        let lock = Some(pb::LockRef { namespace: String::new(), name: name.into() });
        self.send(ClientMessage::Acquire(pb::Acquire { request, lock, ..Default::default() }));
        match self.next().await {
            DaemonMessage::Granted(granted) => granted,
            other => panic!("{other:?}"),
        }
    }

    async fn end(&mut self) -> End {
        loop {
            match self.responses.message().await {
                Ok(Some(_)) => {}
                Ok(None) => return (Code::Ok, String::new(), String::new()),
                Err(status) => return end(&status),
            }
        }
    }
}

fn end(status: &Status) -> End {
    let details = status.get_error_details();
    let reason = details.error_info().map(|info| info.reason.clone()).unwrap_or_default();
    let bad = details.bad_request().and_then(|bad| bad.field_violations.first().cloned());
    (status.code(), reason, bad.map(|bad| bad.field).unwrap_or_default())
}

fn ended_with(code: Code, reason: &str, field: &str) -> End {
    (code, reason.to_owned(), field.to_owned())
}

fn open(ttl_ms: u32) -> pb::Open {
    pb::Open { protocol_version: 1, ttl_ms, ..pb::Open::default() }
}

fn resume(opened: &pb::Opened, keep_alive_number: u64) -> ClientMessage {
    let resume_secret = opened.resume_secret.clone();
    ClientMessage::Resume(pb::Resume {
        protocol_version: 1,
        resume_secret,
        keep_alive_number,
        ..Default::default()
    })
}

/// First column of the table in the protocol file.
fn documented() -> Vec<&'static str> {
    let table = include_str!("../../proto/leasehold/v1/session.proto").lines();
    let rows = table.filter_map(|line| line.trim().strip_prefix("// | "));
    rows.map(|row| row.split(" |").next().unwrap()).skip(1).collect()
}

#[test]
fn table_has_rows_that_these_tests_cover() {
    let expected = [
        "OK",
        "OK",
        "ABORTED, EXPIRED",
        "NOT_FOUND, UNKNOWN_SESSION",
        "ABORTED, RESUMED_ELSEWHERE",
        "FAILED_PRECONDITION, PROTOCOL",
        "FAILED_PRECONDITION, PROTOCOL",
        "FAILED_PRECONDITION, PROTOCOL_VERSION",
        "INVALID_ARGUMENT, INVALID",
        "INVALID_ARGUMENT, INVALID",
        "RESOURCE_EXHAUSTED, LIMIT",
        "UNAVAILABLE, SHUTTING_DOWN",
        "UNAVAILABLE, STORE_UNAVAILABLE or RECOVERING",
        "UNIMPLEMENTED, PERMISSION_DENIED, UNAUTHENTICATED, no reason",
        "any other, no reason",
    ];
    assert_eq!(documented(), expected);
}

#[tokio::test]
async fn closed_and_half_closed_streams_end_with_ok() {
    let daemon = Daemon::start();
    let (mut stream, opened) = Raw::open(&daemon.endpoint, 60_000).await;
    let granted = stream.granted(1, "a").await;
    // Half-closed: the answer to the last message still arrives, then the end.
    stream.send(ClientMessage::KeepAlive(pb::KeepAlive { keep_alive_number: 1 }));
    let Raw { requests, mut responses } = stream;
    drop(requests);
    let answer = responses.message().await.unwrap().unwrap().message.unwrap();
    assert!(
        matches!(answer, DaemonMessage::KeptAlive(pb::KeptAlive { keep_alive_number: 1, .. })),
        "{answer:?}"
    );
    assert_eq!(responses.message().await.unwrap(), None);
    // The session and its grant stay.
    let mut stream = Raw::attach(&daemon.endpoint).await.unwrap();
    stream.send(resume(&opened, 2));
    assert!(matches!(stream.next().await, DaemonMessage::Opened(opened) if opened.resumed));
    let DaemonMessage::Granted(listed) = stream.next().await else { panic!("not listed") };
    assert_eq!((listed.token, &listed.handle), (granted.token, &granted.handle));
    // Closed: the session and its grant are gone.
    stream.send(ClientMessage::Close(pb::Close {}));
    assert_eq!(stream.end().await, ended_with(Code::Ok, "", ""));
    let gone = Raw::ends(&daemon.endpoint, [resume(&opened, 3)]).await;
    assert_eq!(gone, ended_with(Code::NotFound, "UNKNOWN_SESSION", ""));
    let (mut next, _) = Raw::open(&daemon.endpoint, 0).await;
    assert!(next.granted(1, "a").await.token > granted.token);
}

#[tokio::test]
async fn half_closed_fenced_session_ends_with_stream() {
    let daemon = Daemon::start();
    let mut stream = Raw::attach(&daemon.endpoint).await.unwrap();
    stream.send(ClientMessage::Open(pb::Open { fenced: true, ..open(60_000) }));
    let DaemonMessage::Opened(opened) = stream.next().await else { panic!("not opened") };
    drop(stream.requests);
    assert_eq!(stream.responses.message().await.unwrap(), None);
    let gone = Raw::ends(&daemon.endpoint, [resume(&opened, 1)]).await;
    assert_eq!(gone, ended_with(Code::NotFound, "UNKNOWN_SESSION", ""));
}

#[tokio::test]
async fn ended_sessions_are_reported_by_reason() {
    let daemon = Daemon::start();
    let (mut silent, opened) = Raw::open(&daemon.endpoint, 1000).await;
    assert_eq!(silent.end().await, ended_with(Code::Aborted, "EXPIRED", ""));
    let gone = Raw::ends(&daemon.endpoint, [resume(&opened, 1)]).await;
    assert_eq!(gone, ended_with(Code::NotFound, "UNKNOWN_SESSION", ""));
}

#[tokio::test]
async fn client_errors_are_reported_by_reason_and_field() {
    let daemon = Daemon::start();
    let endpoint = &daemon.endpoint;
    let protocol = ended_with(Code::FailedPrecondition, "PROTOCOL", "");
    let keep_alive = ClientMessage::KeepAlive(pb::KeepAlive { keep_alive_number: 1 });
    assert_eq!(Raw::ends(endpoint, [keep_alive]).await, protocol);
    let twice = [ClientMessage::Open(open(0)), ClientMessage::Open(open(0))];
    assert_eq!(Raw::ends(endpoint, twice).await, protocol);
    let newer = pb::Open { protocol_version: 9, min_protocol_version: 5, ..open(0) };
    let version = ended_with(Code::FailedPrecondition, "PROTOCOL_VERSION", "");
    assert_eq!(Raw::ends(endpoint, [ClientMessage::Open(newer)]).await, version);
    let invalid = |field| ended_with(Code::InvalidArgument, "INVALID", field);
    assert_eq!(Raw::ends(endpoint, [ClientMessage::Open(open(999))]).await, invalid("ttl_ms"));
    let short = pb::Resume { protocol_version: 1, keep_alive_number: 1, ..Default::default() };
    assert_eq!(Raw::ends(endpoint, [ClientMessage::Resume(short)]).await, invalid("resume_secret"));

    let (mut stream, opened) = Raw::open(endpoint, 60_000).await;
    stream.granted(1, "a").await;
    let value = Some(vec![0; 64 * 1024].into());
    stream.send(ClientMessage::Acquire(pb::Acquire { request: 2, value, ..Default::default() }));
    assert_eq!(stream.end().await, invalid("message"));
    let number = |field| ended_with(Code::FailedPrecondition, "PROTOCOL", field);
    assert_eq!(Raw::ends(endpoint, [resume(&opened, 0)]).await, number("keep_alive_number"));
    let keep_alive = ClientMessage::KeepAlive(pb::KeepAlive { keep_alive_number: 0 });
    assert_eq!(
        Raw::ends(endpoint, [ClientMessage::Open(open(0)), keep_alive]).await,
        number("keep_alive_number")
    );
    let release = || ClientMessage::Release(pb::Release { request: 1, handle: vec![7; 16].into() });
    let reused = [ClientMessage::Open(open(0)), release(), release()];
    assert_eq!(Raw::ends(endpoint, reused).await, number("request"));
    // None of them ended the session.
    let mut stream = Raw::attach(endpoint).await.unwrap();
    stream.send(resume(&opened, 1));
    assert!(matches!(stream.next().await, DaemonMessage::Opened(opened) if opened.resumed));
    assert!(matches!(stream.next().await, DaemonMessage::Granted(_)));
}

#[tokio::test]
async fn max_sessions_and_silent_stream_are_reported_as_limit() {
    let daemon = Daemon::start_with(&["--max-sessions", "1"]);
    let limit = ended_with(Code::ResourceExhausted, "LIMIT", "");
    let (_held, _) = Raw::open(&daemon.endpoint, 60_000).await;
    assert_eq!(Raw::ends(&daemon.endpoint, [ClientMessage::Open(open(0))]).await, limit);
    assert_eq!(Raw::ends(&daemon.endpoint, []).await, limit);
}

#[tokio::test]
async fn draining_daemon_opens_no_session_and_ends_streams() {
    let mut daemon = Daemon::start_with(&["--drain-timeout", "2s"]);
    let stopped = ended_with(Code::Unavailable, "SHUTTING_DOWN", "");
    let (mut holder, _) = Raw::open(&daemon.endpoint, 1000).await;
    holder.granted(1, "a").await;
    let mut late = Raw::attach(&daemon.endpoint).await.unwrap();
    daemon.process.signal(Signal::SIGTERM);
    let DaemonMessage::AtRisk(risk) = holder.next().await else { panic!("no warning") };
    assert_eq!(risk.reason(), pb::Reason::ShuttingDown);
    late.send(ClientMessage::Open(open(0)));
    assert_eq!(late.end().await, stopped);
    let mut keep_alive_number = 0;
    let ended = loop {
        keep_alive_number += 1;
        holder.send(ClientMessage::KeepAlive(pb::KeepAlive { keep_alive_number }));
        match holder.responses.message().await {
            Ok(Some(pb::AttachResponse { message: Some(DaemonMessage::Lost(lost)) })) => {
                let handle = lost.handle;
                holder.send(ClientMessage::Release(pb::Release { request: 2, handle }));
            }
            Ok(Some(_)) => leasehold_runtime::sleep(Duration::from_millis(100)).await,
            Ok(None) => panic!("no status"),
            Err(status) => break end(&status),
        }
    };
    assert_eq!(ended, stopped);
    assert!(daemon.process.end().success());
}

#[tokio::test]
async fn store_that_takes_no_writes_is_reported_as_unavailable() {
    let daemon = Daemon::start();
    let (_first, _) = Raw::open(&daemon.endpoint, 1000).await;
    symlink("/dev/full", daemon.dir.path().join("data/state.new")).unwrap();
    let refused = Raw::ends(&daemon.endpoint, [ClientMessage::Open(open(60_000))]).await;
    assert_eq!(refused, ended_with(Code::Unavailable, "STORE_UNAVAILABLE", ""));
}

#[tokio::test]
async fn foreign_server_and_killed_daemon_send_no_reason() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let (_, health) = tonic_health::server::health_reporter();
    let server = Server::builder().add_service(health);
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    let foreign = Raw::ends(&endpoint, [ClientMessage::Open(open(0))]).await;
    assert_eq!(foreign, ended_with(Code::Unimplemented, "", ""));

    let daemon = Daemon::start();
    let (mut stream, _) = Raw::open(&daemon.endpoint, 0).await;
    daemon.process.signal(Signal::SIGKILL);
    let (code, reason, _) = stream.end().await;
    assert!(code != Code::Ok && reason.is_empty(), "{code:?} {reason}");
}

/// Forwards session streams to a daemon. Keeps resume secrets and counts the
/// first messages of its clients.
#[derive(Clone, Default)]
struct Forwarder {
    daemon: String,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Default)]
struct Seen {
    secret: Vec<u8>,
    opens: usize,
    resumes: usize,
}

#[tonic::async_trait]
impl SessionService for Forwarder {
    type AttachStream = Pin<Box<dyn Stream<Item = Result<pb::AttachResponse, Status>> + Send>>;

    async fn attach(
        &self,
        request: Request<Streaming<pb::AttachRequest>>,
    ) -> Result<Response<Self::AttachStream>, Status> {
        let channel = Channel::from_shared(self.daemon.clone()).unwrap().connect().await.unwrap();
        let seen = Arc::clone(&self.seen);
        let inbound = request.into_inner().map_while(Result::ok).map(move |request| {
            let mut seen = seen.lock().unwrap();
            match &request.message {
                Some(ClientMessage::Open(_)) => seen.opens += 1,
                Some(ClientMessage::Resume(_)) => seen.resumes += 1,
                _ => {}
            }
            request
        });
        let outbound = SessionServiceClient::new(channel).attach(inbound).await?.into_inner();
        let seen = Arc::clone(&self.seen);
        let outbound = outbound.map(move |response| {
            if let Ok(pb::AttachResponse { message: Some(DaemonMessage::Opened(opened)) }) =
                &response
                && !opened.resumed
            {
                seen.lock().unwrap().secret = opened.resume_secret.to_vec();
            }
            response
        });
        Ok(Response::new(Box::pin(outbound)))
    }
}

/// Two clients have the same resume secret. The superseded client does not resume, so each
/// session is resumed once.
#[tokio::test]
async fn superseded_client_opens_new_session_and_never_resumes() {
    let daemon = Daemon::start();
    let forwarder = Forwarder { daemon: daemon.endpoint.clone(), ..Default::default() };
    let seen = Arc::clone(&forwarder.seen);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let server = Server::builder().add_service(SessionServiceServer::new(forwarder));
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));

    let client = Client::connect(&endpoint).await.unwrap();
    let guard = client.lock("a").acquire().await.unwrap();
    let secret = seen.lock().unwrap().secret.clone();
    let stolen = pb::Opened { resume_secret: secret.into(), ..Default::default() };
    let mut thief = Raw::attach(&daemon.endpoint).await.unwrap();
    thief.send(resume(&stolen, 1000));
    assert!(matches!(thief.next().await, DaemonMessage::Opened(opened) if opened.resumed));
    let DaemonMessage::Granted(granted) = thief.next().await else { panic!("not listed") };
    assert_eq!(granted.token, guard.token().get());
    assert_eq!(thief.next().await, DaemonMessage::Restored(pb::Restored {}));

    let loss = guard.lost().await;
    assert_eq!(loss.reason, Reason::ResumedElsewhere);
    assert!(!guard.is_valid() && guard.deadline().has_passed());
    drop(guard);
    // The next acquire opens a new session. The lock is still held.
    let other = until(async || client.lock("b").acquire().await.ok()).await;
    assert!(client.lock("a").no_wait().acquire().await.is_err());
    {
        let seen = seen.lock().unwrap();
        assert_eq!((seen.opens, seen.resumes), (2, 0));
    }
    // The stream that resumed last still carries the session.
    thief.send(ClientMessage::KeepAlive(pb::KeepAlive { keep_alive_number: 1001 }));
    let kept = thief.next().await;
    assert!(
        matches!(kept, DaemonMessage::KeptAlive(pb::KeptAlive { keep_alive_number: 1001, .. })),
        "{kept:?}"
    );
    // A late resume with a lower number does not end that stream.
    let late = Raw::ends(&daemon.endpoint, [resume(&stolen, 1001)]).await;
    assert_eq!(late, ended_with(Code::FailedPrecondition, "PROTOCOL", "keep_alive_number"));
    thief.send(ClientMessage::KeepAlive(pb::KeepAlive { keep_alive_number: 1002 }));
    assert!(matches!(thief.next().await, DaemonMessage::KeptAlive(_)));
    // A higher number ends the stream with a reason.
    let last = Raw::attach(&daemon.endpoint).await.unwrap();
    last.send(resume(&stolen, 1003));
    assert_eq!(thief.end().await, ended_with(Code::Aborted, "RESUMED_ELSEWHERE", ""));
    other.release().await.unwrap();
}
