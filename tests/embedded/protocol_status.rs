//! Every way in which a session stream ends, against a real daemon: the table
//! on `SessionService.Attach`, row by row.

use leasehold_client::{Client, Reason};
use leasehold_protocol::{
    server::{
        session_service_server::SessionService, session_service_server::SessionServiceServer,
    },
    v1 as pb,
    v1::attach_request::Message as Ask,
    v1::attach_response::Message as Tell,
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
    ask: mpsc::UnboundedSender<pb::AttachRequest>,
    tell: Streaming<pb::AttachResponse>,
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
        let (ask, asked) = mpsc::unbounded_channel();
        let mut client = SessionServiceClient::new(channel);
        let tell = client.attach(UnboundedReceiverStream::new(asked)).await?.into_inner();
        Ok(Self { ask, tell })
    }

    /// Sends the messages on a new stream and returns how it ends.
    async fn ends(endpoint: &str, messages: impl IntoIterator<Item = Ask>) -> End {
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
        stream.send(Ask::Open(open(ttl_ms)));
        let Tell::Opened(opened) = stream.next().await else { panic!("not opened") };
        (stream, opened)
    }

    fn send(&self, message: Ask) {
        _ = self.ask.send(pb::AttachRequest { message: Some(message) });
    }

    async fn next(&mut self) -> Tell {
        self.tell.message().await.unwrap().unwrap().message.unwrap()
    }

    async fn granted(&mut self, request: u64, name: &str) -> pb::Granted {
        let lock = Some(pb::LockRef { namespace: String::new(), name: name.into() });
        self.send(Ask::Acquire(pb::Acquire { request, lock, ..Default::default() }));
        match self.next().await {
            Tell::Granted(granted) => granted,
            other => panic!("{other:?}"),
        }
    }

    async fn end(&mut self) -> End {
        loop {
            match self.tell.message().await {
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

fn is(code: Code, reason: &str, field: &str) -> End {
    (code, reason.to_owned(), field.to_owned())
}

fn open(ttl_ms: u32) -> pb::Open {
    pb::Open { protocol_version: 1, ttl_ms, ..pb::Open::default() }
}

fn resume(opened: &pb::Opened, keep_alive_number: u64) -> Ask {
    let resume_secret = opened.resume_secret.clone();
    Ask::Resume(pb::Resume {
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
fn table_has_the_rows_that_these_tests_show() {
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
    stream.send(Ask::KeepAlive(pb::KeepAlive { keep_alive_number: 1 }));
    let Raw { ask, mut tell } = stream;
    drop(ask);
    let answer = tell.message().await.unwrap().unwrap().message.unwrap();
    assert!(
        matches!(answer, Tell::KeptAlive(pb::KeptAlive { keep_alive_number: 1, .. })),
        "{answer:?}"
    );
    assert_eq!(tell.message().await.unwrap(), None);
    // The session and its grant stay.
    let mut stream = Raw::attach(&daemon.endpoint).await.unwrap();
    stream.send(resume(&opened, 2));
    assert!(matches!(stream.next().await, Tell::Opened(opened) if opened.resumed));
    let Tell::Granted(listed) = stream.next().await else { panic!("not listed") };
    assert_eq!((listed.token, &listed.handle), (granted.token, &granted.handle));
    // Closed: the session and its grant are gone.
    stream.send(Ask::Close(pb::Close {}));
    assert_eq!(stream.end().await, is(Code::Ok, "", ""));
    let gone = Raw::ends(&daemon.endpoint, [resume(&opened, 3)]).await;
    assert_eq!(gone, is(Code::NotFound, "UNKNOWN_SESSION", ""));
    let (mut next, _) = Raw::open(&daemon.endpoint, 0).await;
    assert!(next.granted(1, "a").await.token > granted.token);
}

#[tokio::test]
async fn half_closed_fenced_session_ends_with_its_stream() {
    let daemon = Daemon::start();
    let mut stream = Raw::attach(&daemon.endpoint).await.unwrap();
    stream.send(Ask::Open(pb::Open { fenced: true, ..open(60_000) }));
    let Tell::Opened(opened) = stream.next().await else { panic!("not opened") };
    drop(stream.ask);
    assert_eq!(stream.tell.message().await.unwrap(), None);
    let gone = Raw::ends(&daemon.endpoint, [resume(&opened, 1)]).await;
    assert_eq!(gone, is(Code::NotFound, "UNKNOWN_SESSION", ""));
}

#[tokio::test]
async fn sessions_that_are_gone_are_reported_by_reason() {
    let daemon = Daemon::start();
    let (mut silent, opened) = Raw::open(&daemon.endpoint, 1000).await;
    assert_eq!(silent.end().await, is(Code::Aborted, "EXPIRED", ""));
    let gone = Raw::ends(&daemon.endpoint, [resume(&opened, 1)]).await;
    assert_eq!(gone, is(Code::NotFound, "UNKNOWN_SESSION", ""));
}

#[tokio::test]
async fn client_errors_are_reported_by_reason_and_field() {
    let daemon = Daemon::start();
    let endpoint = &daemon.endpoint;
    let protocol = is(Code::FailedPrecondition, "PROTOCOL", "");
    let keep_alive = Ask::KeepAlive(pb::KeepAlive { keep_alive_number: 1 });
    assert_eq!(Raw::ends(endpoint, [keep_alive]).await, protocol);
    let twice = [Ask::Open(open(0)), Ask::Open(open(0))];
    assert_eq!(Raw::ends(endpoint, twice).await, protocol);
    let newer = pb::Open { protocol_version: 9, min_protocol_version: 5, ..open(0) };
    let version = is(Code::FailedPrecondition, "PROTOCOL_VERSION", "");
    assert_eq!(Raw::ends(endpoint, [Ask::Open(newer)]).await, version);
    let invalid = |field| is(Code::InvalidArgument, "INVALID", field);
    assert_eq!(Raw::ends(endpoint, [Ask::Open(open(999))]).await, invalid("ttl_ms"));
    let short = pb::Resume { protocol_version: 1, keep_alive_number: 1, ..Default::default() };
    assert_eq!(Raw::ends(endpoint, [Ask::Resume(short)]).await, invalid("resume_secret"));

    let (mut stream, opened) = Raw::open(endpoint, 60_000).await;
    stream.granted(1, "a").await;
    let value = Some(vec![0; 64 * 1024].into());
    stream.send(Ask::Acquire(pb::Acquire { request: 2, value, ..Default::default() }));
    assert_eq!(stream.end().await, invalid("message"));
    let number = |field| is(Code::FailedPrecondition, "PROTOCOL", field);
    assert_eq!(Raw::ends(endpoint, [resume(&opened, 0)]).await, number("keep_alive_number"));
    let keep_alive = Ask::KeepAlive(pb::KeepAlive { keep_alive_number: 0 });
    assert_eq!(
        Raw::ends(endpoint, [Ask::Open(open(0)), keep_alive]).await,
        number("keep_alive_number")
    );
    let release = || Ask::Release(pb::Release { request: 1, handle: vec![7; 16].into() });
    let reused = [Ask::Open(open(0)), release(), release()];
    assert_eq!(Raw::ends(endpoint, reused).await, number("request"));
    // None of them ended the session.
    let mut stream = Raw::attach(endpoint).await.unwrap();
    stream.send(resume(&opened, 1));
    assert!(matches!(stream.next().await, Tell::Opened(opened) if opened.resumed));
    assert!(matches!(stream.next().await, Tell::Granted(_)));
}

#[tokio::test]
async fn limits_and_silence_are_reported_as_limit() {
    let daemon = Daemon::start_with(&["--max-sessions", "1"]);
    let limit = is(Code::ResourceExhausted, "LIMIT", "");
    let (_held, _) = Raw::open(&daemon.endpoint, 60_000).await;
    assert_eq!(Raw::ends(&daemon.endpoint, [Ask::Open(open(0))]).await, limit);
    assert_eq!(Raw::ends(&daemon.endpoint, []).await, limit);
}

#[tokio::test]
async fn draining_daemon_opens_no_session_and_ends_streams() {
    let mut daemon = Daemon::start_with(&["--drain-timeout", "2s"]);
    let stopped = is(Code::Unavailable, "SHUTTING_DOWN", "");
    let (mut holder, _) = Raw::open(&daemon.endpoint, 1000).await;
    holder.granted(1, "a").await;
    let mut late = Raw::attach(&daemon.endpoint).await.unwrap();
    daemon.process.signal(Signal::SIGTERM);
    let Tell::AtRisk(risk) = holder.next().await else { panic!("no warning") };
    assert_eq!(risk.reason(), pb::Reason::ShuttingDown);
    late.send(Ask::Open(open(0)));
    assert_eq!(late.end().await, stopped);
    let mut keep_alive_number = 0;
    let ended = loop {
        keep_alive_number += 1;
        holder.send(Ask::KeepAlive(pb::KeepAlive { keep_alive_number }));
        match holder.tell.message().await {
            Ok(Some(pb::AttachResponse { message: Some(Tell::Lost(lost)) })) => {
                let handle = lost.handle;
                holder.send(Ask::Release(pb::Release { request: 2, handle }));
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
    let refused = Raw::ends(&daemon.endpoint, [Ask::Open(open(60_000))]).await;
    assert_eq!(refused, is(Code::Unavailable, "STORE_UNAVAILABLE", ""));
}

#[tokio::test]
async fn foreign_server_and_killed_daemon_give_no_reason() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let (_, health) = tonic_health::server::health_reporter();
    let server = Server::builder().add_service(health);
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    let foreign = Raw::ends(&endpoint, [Ask::Open(open(0))]).await;
    assert_eq!(foreign, is(Code::Unimplemented, "", ""));

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
                Some(Ask::Open(_)) => seen.opens += 1,
                Some(Ask::Resume(_)) => seen.resumes += 1,
                _ => {}
            }
            request
        });
        let outbound = SessionServiceClient::new(channel).attach(inbound).await?.into_inner();
        let seen = Arc::clone(&self.seen);
        let outbound = outbound.map(move |response| {
            if let Ok(pb::AttachResponse { message: Some(Tell::Opened(opened)) }) = &response
                && !opened.resumed
            {
                seen.lock().unwrap().secret = opened.resume_secret.to_vec();
            }
            response
        });
        Ok(Response::new(Box::pin(outbound)))
    }
}

/// Two clients with the same resume secret: the one that was superseded does
/// not resume, so each session is resumed once.
#[tokio::test]
async fn superseded_client_opens_a_new_session_and_never_resumes() {
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
    assert!(matches!(thief.next().await, Tell::Opened(opened) if opened.resumed));
    let Tell::Granted(granted) = thief.next().await else { panic!("not listed") };
    assert_eq!(granted.token, guard.token().get());
    assert_eq!(thief.next().await, Tell::Restored(pb::Restored {}));

    let loss = guard.lost().await;
    assert_eq!(loss.reason, Reason::ResumedElsewhere);
    assert!(!guard.is_valid() && guard.deadline().has_passed());
    drop(guard);
    // Its next acquire opens a session of its own. The lock is not free.
    let other = until(async || client.lock("b").acquire().await.ok()).await;
    assert!(client.lock("a").no_wait().acquire().await.is_err());
    {
        let seen = seen.lock().unwrap();
        assert_eq!((seen.opens, seen.resumes), (2, 0));
    }
    // The stream that resumed last still carries the session.
    thief.send(Ask::KeepAlive(pb::KeepAlive { keep_alive_number: 1001 }));
    let kept = thief.next().await;
    assert!(
        matches!(kept, Tell::KeptAlive(pb::KeptAlive { keep_alive_number: 1001, .. })),
        "{kept:?}"
    );
    // A late resume with a lower number does not end it.
    let late = Raw::ends(&daemon.endpoint, [resume(&stolen, 1001)]).await;
    assert_eq!(late, is(Code::FailedPrecondition, "PROTOCOL", "keep_alive_number"));
    thief.send(Ask::KeepAlive(pb::KeepAlive { keep_alive_number: 1002 }));
    assert!(matches!(thief.next().await, Tell::KeptAlive(_)));
    // A higher one does, with the reason.
    let last = Raw::attach(&daemon.endpoint).await.unwrap();
    last.send(resume(&stolen, 1003));
    assert_eq!(thief.end().await, is(Code::Aborted, "RESUMED_ELSEWHERE", ""));
    other.release().await.unwrap();
}
