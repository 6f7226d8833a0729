//! The session stream and the unary calls, message by message, against a real daemon. Also
//! covers messages that no client library sends.

use std::{
    collections::HashMap,
    io::{Read, Write},
    net::TcpStream,
    time::Duration,
};

use leasehold_protocol::{
    v1 as pb,
    v1::attach_request::Message as ClientMessage,
    v1::attach_response::Message as DaemonMessage,
    v1::{lock_service_client::LockServiceClient, session_service_client::SessionServiceClient},
};
use leasehold_test_support::Daemon;
use nix::sys::signal::Signal;
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{Code, Status, Streaming, transport::Channel};
use tonic_types::StatusExt;

/// Session stream without a client library.
struct Stream {
    requests: mpsc::UnboundedSender<pb::AttachRequest>,
    responses: Streaming<pb::AttachResponse>,
}

impl Stream {
    async fn attach(daemon: &Daemon) -> Self {
        let mut client = SessionServiceClient::new(channel(daemon).await);
        Self::on(&mut client).await
    }

    async fn on(client: &mut SessionServiceClient<Channel>) -> Self {
        let (requests, outbound) = mpsc::unbounded_channel();
        let outbound = UnboundedReceiverStream::new(outbound);
        let responses = client.attach(outbound).await.unwrap().into_inner();
        Self { requests, responses }
    }

    async fn open(daemon: &Daemon, ttl_ms: u32) -> (Self, pb::Opened) {
        let mut stream = Self::attach(daemon).await;
        let opened = stream.opened(open(ttl_ms)).await;
        (stream, opened)
    }

    async fn opened(&mut self, open: pb::Open) -> pb::Opened {
        self.send(ClientMessage::Open(open));
        match self.next().await {
            DaemonMessage::Opened(opened) => opened,
            other => panic!("{other:?}"),
        }
    }

    fn send(&self, message: ClientMessage) {
        _ = self.requests.send(pb::AttachRequest { message: Some(message) });
    }

    async fn next(&mut self) -> DaemonMessage {
        self.responses.message().await.unwrap().unwrap().message.unwrap()
    }

    async fn end(&mut self) -> Result<(), Status> {
        loop {
            match self.responses.message().await {
                Ok(Some(_)) => {}
                Ok(None) => return Ok(()),
                Err(status) => return Err(status),
            }
        }
    }

    fn acquire(&self, request: u64, name: &str, wait_ms: Option<u64>) {
        let lock = Some(pb::LockRef { namespace: String::new(), name: name.into() });
        self.send(ClientMessage::Acquire(pb::Acquire {
            request,
            lock,
            wait_ms,
            ..Default::default()
        }));
    }

    async fn granted(&mut self, request: u64, name: &str) -> pb::Granted {
        self.acquire(request, name, None);
        self.grant(request).await
    }

    /// Next grant. Skips queue positions and keep-alives before it.
    async fn grant(&mut self, request: u64) -> pb::Granted {
        loop {
            match self.next().await {
                DaemonMessage::Granted(granted) => {
                    assert_eq!(granted.request, request);
                    return granted;
                }
                DaemonMessage::Queued(_) | DaemonMessage::KeptAlive(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    async fn refused(&mut self, request: u64) -> pb::Refused {
        match self.next().await {
            DaemonMessage::Refused(refused) => {
                assert_eq!(refused.request, request);
                refused
            }
            other => panic!("{other:?}"),
        }
    }

    async fn release(&mut self, request: u64, handle: &[u8]) -> Result<(), pb::Refused> {
        self.send(ClientMessage::Release(pb::Release { request, handle: handle.to_vec().into() }));
        match self.next().await {
            DaemonMessage::Released(released) => assert_eq!(released.request, request),
            DaemonMessage::Refused(refused) => return Err(refused),
            other => panic!("{other:?}"),
        }
        Ok(())
    }
}

fn open(ttl_ms: u32) -> pb::Open {
    let holder = pb::Holder { client: "test".into(), pid: 7, ..pb::Holder::default() };
    pb::Open { protocol_version: 1, ttl_ms, holder: Some(holder), ..pb::Open::default() }
}

async fn channel(daemon: &Daemon) -> Channel {
    Channel::from_shared(daemon.endpoint.clone()).unwrap().connect().await.unwrap()
}

async fn locks(daemon: &Daemon) -> LockServiceClient<Channel> {
    LockServiceClient::new(channel(daemon).await)
}

fn lock_ref(namespace: &str, name: &str) -> Option<pb::LockRef> {
    Some(pb::LockRef { namespace: namespace.into(), name: name.into() })
}

async fn inspect(locks: &mut LockServiceClient<Channel>, name: &str) -> pb::LockInfo {
    let request = pb::InspectRequest { lock: lock_ref("", name), include_storage: false };
    locks.inspect(request).await.unwrap().into_inner().lock.unwrap()
}

#[tokio::test]
async fn opened_has_version_ttl_and_validity() {
    let daemon = Daemon::start();
    let (_stream, opened) = Stream::open(&daemon, 0).await;
    assert_eq!(opened.protocol_version, 1);
    assert_eq!(opened.daemon_version, env!("CARGO_PKG_VERSION"));
    assert_eq!(opened.ttl_ms, 10_000);
    assert_eq!(opened.keep_alive_interval_ms, 3333);
    assert_eq!(opened.valid_for_ms, 9980, "the TTL minus the tolerated drift");
    assert_eq!(opened.resume_secret.len(), 16);
    assert!(!opened.resumed);
}

#[tokio::test]
async fn refused_open_names_field_and_valid_values() {
    let daemon = Daemon::start();
    let holder = |client: String| Some(pb::Holder { client, ..pb::Holder::default() });
    let labels: HashMap<_, _> = (0..40).map(|n| (format!("label-{n}"), "v".repeat(30))).collect();
    let many = Some(pb::Holder { labels, ..pb::Holder::default() });
    let cases: [(pb::Open, &str, &str, Code); 7] = [
        (open(999), "ttl_ms", "1s to 1m", Code::InvalidArgument),
        (open(60_001), "ttl_ms", "1s to 1m", Code::InvalidArgument),
        (
            pb::Open { holder: holder("x".repeat(1025)), ..open(0) },
            "holder.client",
            "1024",
            Code::InvalidArgument,
        ),
        (
            pb::Open { holder: holder("\u{1b}[31m".into()), ..open(0) },
            "holder.client",
            "control character",
            Code::InvalidArgument,
        ),
        (pb::Open { holder: many, ..open(0) }, "holder", "1024", Code::InvalidArgument),
        (
            pb::Open { protocol_version: 0, ..open(0) },
            "",
            "versions 0 to 0",
            Code::FailedPrecondition,
        ),
        (
            pb::Open { protocol_version: 9, min_protocol_version: 5, ..open(0) },
            "",
            "versions 5 to 9",
            Code::FailedPrecondition,
        ),
    ];
    for (open, field, text, code) in cases {
        let mut stream = Stream::attach(&daemon).await;
        stream.send(ClientMessage::Open(open));
        let status = stream.end().await.unwrap_err();
        assert_eq!(status.code(), code, "{status}");
        assert!(status.message().contains(text), "{status}");
        let details = status.get_error_details();
        assert_eq!(details.error_info().unwrap().domain, "leasehold");
        let violations = details.bad_request().map(|bad| bad.field_violations.clone());
        let named = violations.unwrap_or_default().first().map(|bad| bad.field.clone());
        assert_eq!(named.unwrap_or_default(), field);
    }
    // A newer client that also supports this version gets this version.
    let mut stream = Stream::attach(&daemon).await;
    let newer = pb::Open { protocol_version: 7, min_protocol_version: 1, ..open(0) };
    assert_eq!(stream.opened(newer).await.protocol_version, 1);
}

#[tokio::test]
async fn messages_out_of_order_end_stream_with_reason() {
    let daemon = Daemon::start();
    let cases = [
        vec![ClientMessage::KeepAlive(pb::KeepAlive { keep_alive_number: 1 })],
        vec![ClientMessage::Open(open(0)), ClientMessage::Open(open(0))],
        vec![
            ClientMessage::Open(open(0)),
            ClientMessage::Release(pb::Release { request: 0, handle: vec![0; 16].into() }),
        ],
        vec![ClientMessage::Resume(pb::Resume {
            protocol_version: 1,
            keep_alive_number: 1,
            ..pb::Resume::default()
        })],
    ];
    for messages in cases {
        let mut stream = Stream::attach(&daemon).await;
        for message in messages {
            stream.send(message);
        }
        let status = stream.end().await.unwrap_err();
        assert!(!status.message().is_empty());
        assert!(status.get_error_details().error_info().is_some(), "{status}");
    }
    let mut stream = Stream::attach(&daemon).await;
    _ = stream.requests.send(pb::AttachRequest { message: None });
    assert_eq!(stream.end().await.unwrap_err().code(), Code::FailedPrecondition);
}

#[tokio::test]
async fn number_that_does_not_increase_ends_stream() {
    let daemon = Daemon::start();
    let release =
        |request| ClientMessage::Release(pb::Release { request, handle: vec![7; 16].into() });
    for (message, field) in [
        (ClientMessage::KeepAlive(pb::KeepAlive { keep_alive_number: 3 }), "keep_alive_number"),
        (ClientMessage::KeepAlive(pb::KeepAlive { keep_alive_number: 2 }), "keep_alive_number"),
        (release(5), "request"),
        (release(4), "request"),
    ] {
        let (mut stream, opened) = Stream::open(&daemon, 0).await;
        let held = stream.granted(5, field).await;
        stream.send(ClientMessage::KeepAlive(pb::KeepAlive { keep_alive_number: 3 }));
        assert!(
            matches!(stream.next().await, DaemonMessage::KeptAlive(kept) if kept.keep_alive_number == 3)
        );
        stream.send(message);
        let status = stream.end().await.unwrap_err();
        assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
        let details = status.get_error_details();
        assert_eq!(details.error_info().unwrap().reason, "PROTOCOL");
        assert_eq!(details.bad_request().unwrap().field_violations[0].field, field);
        // The session continues. A repeated acquire is the same request.
        let mut stream = Stream::attach(&daemon).await;
        let resume_secret = opened.resume_secret;
        stream.send(ClientMessage::Resume(pb::Resume {
            protocol_version: 1,
            resume_secret,
            keep_alive_number: 4,
            ..pb::Resume::default()
        }));
        for _ in 0..3 {
            stream.next().await;
        }
        let again = stream.granted(5, field).await;
        assert_eq!((again.token, again.handle), (held.token, held.handle.clone()));
        stream.release(6, &held.handle).await.unwrap();
    }
}

#[tokio::test]
async fn stream_without_first_message_is_ended() {
    let daemon = Daemon::start();
    let mut stream = Stream::attach(&daemon).await;
    let status = stream.end().await.unwrap_err();
    assert!(status.message().contains("no first message"), "{status}");
}

/// The first message is sent while the daemon is paused for longer than the timeout of first messages.
#[tokio::test]
async fn first_message_sent_during_daemon_pause_is_accepted() {
    let daemon = Daemon::start();
    let mut stream = Stream::attach(&daemon).await;
    daemon.process.signal(Signal::SIGSTOP);
    stream.send(ClientMessage::Open(open(10_000)));
    leasehold_runtime::sleep(Duration::from_secs(6)).await;
    daemon.process.signal(Signal::SIGCONT);
    assert!(matches!(stream.next().await, DaemonMessage::Opened(_)));
}

#[tokio::test]
async fn invalid_requests_are_refused_and_change_nothing() {
    let daemon = Daemon::start();
    let (mut stream, _) = Stream::open(&daemon, 0).await;
    let held = stream.granted(1, "good").await;
    let acquire = |request, namespace: &str, name: &str, max_hold_time_ms| {
        let lock = lock_ref(namespace, name);
        ClientMessage::Acquire(pb::Acquire {
            request,
            lock,
            wait_ms: Some(0),
            max_hold_time_ms,
            ..Default::default()
        })
    };
    let release = |request, handle| ClientMessage::Release(pb::Release { request, handle });
    let cases = [
        (acquire(2, "", "", None), "name", "1 to 256 bytes"),
        (acquire(3, "", &"x".repeat(257), None), "name", "at most 256"),
        (acquire(4, "", "a\nb", None), "name", "control character"),
        (acquire(5, "Not_A_Label", "a", None), "namespace", "1 to 63 of a-z"),
        (acquire(6, &"x".repeat(64), "a", None), "namespace", "DNS label"),
        (acquire(7, "", "a", Some(999)), "max_hold_time_ms", "minimum is 1s"),
        (
            ClientMessage::Acquire(pb::Acquire { request: 8, ..pb::Acquire::default() }),
            "lock",
            "is missing",
        ),
        (release(9, vec![1; 15].into()), "handle", "must have 16"),
    ];
    for (number, (message, field, text)) in (2..).zip(cases) {
        stream.send(message);
        let refused = stream.refused(number).await;
        assert_eq!(refused.reason(), pb::Reason::Invalid, "{refused:?}");
        assert_eq!(refused.field, field);
        assert!(refused.message.contains(text), "{refused:?}");
    }
    let unknown = stream.release(10, &[9; 16]).await.unwrap_err();
    assert_eq!(unknown.reason(), pb::Reason::UnknownHandle);

    let mut locks = locks(&daemon).await;
    let list = locks.list(pb::ListRequest::default()).await.unwrap().into_inner();
    assert_eq!(list.locks.len(), 1, "another lock was created");
    assert_eq!(list.locks[0].token, Some(held.token));
}

#[tokio::test]
async fn oversized_message_is_refused_with_limit() {
    let daemon = Daemon::start();
    let (mut stream, _) = Stream::open(&daemon, 0).await;
    stream.acquire(1, &"x".repeat(100_000), None);
    let status = stream.end().await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument, "{status}");
    assert!(status.message().contains("65536"), "{status}");

    let mut locks = locks(&daemon).await;
    let request =
        pb::InspectRequest { lock: lock_ref("", &"x".repeat(100_000)), include_storage: false };
    let status = locks.inspect(request).await.unwrap_err();
    assert!(status.message().contains("65536"), "{status}");
}

#[tokio::test]
async fn garbage_on_port_does_not_affect_sessions() {
    let daemon = Daemon::start();
    let (mut stream, _) = Stream::open(&daemon, 0).await;
    stream.granted(1, "a").await;
    let garbage: [&[u8]; 4] = [
        b"\x00\xff\x00\xff garbage",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ];
    for bytes in garbage {
        let mut socket = TcpStream::connect(daemon.address()).unwrap();
        socket.write_all(bytes).unwrap();
        // The read ends, because the daemon closes the connection.
        _ = socket.shutdown(std::net::Shutdown::Write);
        _ = socket.read_to_end(&mut Vec::new());
    }
    stream.send(ClientMessage::KeepAlive(pb::KeepAlive { keep_alive_number: 1 }));
    assert!(matches!(stream.next().await, DaemonMessage::KeptAlive(_)));
    assert!(inspect(&mut locks(&daemon).await, "a").await.held);
}

#[tokio::test]
async fn repeated_or_foreign_release_frees_nothing() {
    let daemon = Daemon::start();
    let (mut first, _) = Stream::open(&daemon, 0).await;
    let (mut second, _) = Stream::open(&daemon, 0).await;
    let old = first.granted(1, "a").await;
    let foreign = second.release(1, &old.handle).await.unwrap_err();
    assert_eq!(foreign.reason(), pb::Reason::UnknownHandle);
    let mut locks = locks(&daemon).await;
    assert_eq!(inspect(&mut locks, "a").await.token, Some(old.token));

    first.release(2, &old.handle).await.unwrap();
    let new = second.granted(2, "a").await;
    assert!(new.token > old.token);
    let repeated = first.release(3, &old.handle).await.unwrap_err();
    assert_eq!(repeated.reason(), pb::Reason::UnknownHandle);
    assert_eq!(inspect(&mut locks, "a").await.token, Some(new.token), "a newer hold was freed");
}

#[tokio::test]
async fn refusal_without_wait_names_holder() {
    let daemon = Daemon::start();
    let (mut first, _) = Stream::open(&daemon, 0).await;
    let (mut second, _) = Stream::open(&daemon, 0).await;
    first.granted(1, "a").await;
    second.acquire(1, "a", Some(0));
    let refused = second.refused(1).await;
    assert_eq!(refused.reason(), pb::Reason::Held);
    let holder = refused.holder.unwrap();
    assert_eq!((&*holder.client, holder.pid), ("test", 7));
    assert!(refused.held_for_ms.is_some());
    assert!(refused.message.contains("held by \"test\" (pid 7)"), "{}", refused.message);
    second.acquire(2, "a", Some(50));
    assert!(matches!(second.next().await, DaemonMessage::Queued(queued) if queued.position == 1));
    assert_eq!(second.refused(2).await.reason(), pb::Reason::TimedOut);
}

#[tokio::test]
async fn waiters_are_granted_in_order_except_gone_and_canceled() {
    let daemon = Daemon::start();
    let mut client = SessionServiceClient::new(channel(&daemon).await);
    let mut holder = Stream::on(&mut client).await;
    holder.opened(open(60_000)).await;
    let mut last = holder.granted(1, "a").await;
    let mut waiters = Vec::new();
    for number in 0..1000 {
        let mut waiter = Stream::on(&mut client).await;
        waiter.opened(open(60_000)).await;
        waiter.acquire(1, "a", None);
        let DaemonMessage::Queued(queued) = waiter.next().await else { panic!() };
        assert_eq!(queued.position, number + 1);
        waiters.push(Some(waiter));
    }
    for disconnected in (0..1000).step_by(10) {
        waiters[disconnected] = None;
    }
    for canceled in (5..1000).step_by(10) {
        let waiter = waiters[canceled].as_mut().unwrap();
        waiter.send(ClientMessage::Cancel(pb::Cancel { request: 1 }));
        assert_eq!(waiter.refused(1).await.reason(), pb::Reason::Canceled);
    }
    // Canceled waiters are not counted. Disconnected ones are, until their TTL elapses.
    let mut observer = locks(&daemon).await;
    assert_eq!(inspect(&mut observer, "a").await.waiting, 900);
    holder.release(2, &last.handle).await.unwrap();
    let mut served = 0;
    for (number, waiter) in waiters.iter_mut().enumerate() {
        let Some(waiter) = waiter else { continue };
        if number % 10 == 5 {
            continue;
        }
        let granted = waiter.grant(1).await;
        assert!(granted.token > last.token, "the token did not increase");
        let info = inspect(&mut observer, "a").await;
        assert_eq!(info.token, Some(granted.token), "another session was granted the lock");
        waiter.release(2, &granted.handle).await.unwrap();
        last = granted;
        served += 1;
    }
    assert_eq!(served, 800);
}

#[tokio::test]
async fn resumed_session_keeps_grants_and_pending_acquires() {
    let daemon = Daemon::start();
    let (mut other, _) = Stream::open(&daemon, 0).await;
    let taken = other.granted(1, "taken").await;
    let (mut stream, opened) = Stream::open(&daemon, 0).await;
    let mine = stream.granted(1, "mine").await;
    stream.acquire(2, "taken", None);
    assert!(matches!(stream.next().await, DaemonMessage::Queued(_)));
    drop(stream);

    let mut stream = Stream::attach(&daemon).await;
    let resume = |keep_alive_number| {
        let resume_secret = opened.resume_secret.clone();
        ClientMessage::Resume(pb::Resume {
            protocol_version: 1,
            min_protocol_version: 0,
            resume_secret,
            keep_alive_number,
        })
    };
    stream.send(resume(1));
    let DaemonMessage::Opened(again) = stream.next().await else { panic!() };
    assert!(again.resumed && again.resume_secret.is_empty());
    assert_eq!(again.session_id, opened.session_id);
    let granted = stream.grant(1).await;
    assert_eq!((granted.token, &granted.handle), (mine.token, &mine.handle));
    assert_eq!(granted.keep_alive_number, 1);
    assert!(matches!(stream.next().await, DaemonMessage::Queued(queued) if queued.request == 2));
    assert!(matches!(stream.next().await, DaemonMessage::Restored(_)));
    other.release(2, &taken.handle).await.unwrap();
    stream.grant(2).await;

    // A second stream resumes the session, which ends the first.
    let mut third = Stream::attach(&daemon).await;
    third.send(resume(2));
    assert!(matches!(third.next().await, DaemonMessage::Opened(_)));
    assert_eq!(stream.end().await.unwrap_err().code(), Code::Aborted);
    // A keep-alive number that does not increase is refused, and so is an unknown secret.
    let mut stale = Stream::attach(&daemon).await;
    stale.send(resume(2));
    assert_eq!(stale.end().await.unwrap_err().code(), Code::FailedPrecondition);
    let mut unknown = Stream::attach(&daemon).await;
    unknown.send(ClientMessage::Resume(pb::Resume {
        protocol_version: 1,
        resume_secret: vec![7; 16].into(),
        keep_alive_number: 1,
        ..pb::Resume::default()
    }));
    let status = unknown.end().await.unwrap_err();
    assert_eq!(status.get_error_details().error_info().unwrap().reason, "UNKNOWN_SESSION");
}

#[tokio::test]
async fn disconnect_releases_only_fenced_sessions() {
    let daemon = Daemon::start();
    let (mut plain, _) = Stream::open(&daemon, 60_000).await;
    let mut fenced = Stream::attach(&daemon).await;
    fenced.opened(pb::Open { fenced: true, ..open(60_000) }).await;
    let held = plain.granted(1, "plain").await;
    fenced.granted(1, "fenced").await;
    drop((plain, fenced));
    let (mut next, _) = Stream::open(&daemon, 60_000).await;
    next.granted(1, "fenced").await;
    // The plain session is older and has the same TTL. If it still holds its lock, the
    // fenced session did not end by its TTL.
    assert_eq!(inspect(&mut locks(&daemon).await, "plain").await.token, Some(held.token));
}

#[tokio::test]
async fn expired_session_receives_loss_and_status() {
    let daemon = Daemon::start();
    let (mut stream, _) = Stream::open(&daemon, 1000).await;
    let granted = stream.granted(1, "a").await;
    let DaemonMessage::Lost(lost) = stream.next().await else { panic!() };
    assert_eq!(lost.handle, granted.handle);
    assert_eq!(lost.reason(), pb::Reason::Expired);
    let status = stream.end().await.unwrap_err();
    assert_eq!(status.get_error_details().error_info().unwrap().reason, "EXPIRED");
}

#[tokio::test]
async fn break_notifies_holder_and_lock_passes_on_after_release() {
    let daemon = Daemon::start();
    let (mut holder, _) = Stream::open(&daemon, 60_000).await;
    let (mut waiter, _) = Stream::open(&daemon, 60_000).await;
    let granted = holder.granted(1, "a").await;
    waiter.acquire(1, "a", None);
    assert!(matches!(waiter.next().await, DaemonMessage::Queued(_)));
    let mut locks = locks(&daemon).await;
    let request = |reason: &str| pb::BreakRequest {
        lock: lock_ref("", "a"),
        reason: reason.into(),
        by: "ops@host".into(),
    };
    let status = locks.r#break(request("")).await.unwrap_err();
    assert!(status.message().contains("reason"), "{status}");
    assert!(!inspect(&mut locks, "a").await.ending, "an invalid request broke the lock");

    let broken = locks.r#break(request("stuck")).await.unwrap().into_inner();
    assert!(broken.broken);
    assert!(broken.free_within_ms <= 60_000);
    assert_eq!(broken.lock.unwrap().token, Some(granted.token));
    let DaemonMessage::Lost(lost) = holder.next().await else { panic!() };
    assert_eq!(lost.reason(), pb::Reason::Broken);
    assert!(lost.message.contains("ops@host") && lost.message.contains("stuck"), "{lost:?}");
    let operator = pb::BreakInfo { by: "ops@host".into(), reason: "stuck".into() };
    assert_eq!(lost.operator, Some(operator));
    assert!(inspect(&mut locks, "a").await.ending);
    holder.release(2, &granted.handle).await.unwrap();
    assert!(waiter.grant(1).await.token > granted.token);

    let unused = pb::BreakRequest { lock: lock_ref("", "unused"), ..request("x") };
    assert!(!locks.r#break(unused).await.unwrap().into_inner().broken);
}

#[tokio::test]
async fn check_distinguishes_token_states() {
    let daemon = Daemon::start();
    let (mut stream, _) = Stream::open(&daemon, 0).await;
    let granted = stream.granted(1, "a").await;
    let mut locks = locks(&daemon).await;
    let mut check = async |name: &str, token| {
        let request = pb::CheckTokenRequest { lock: lock_ref("", name), token };
        locks.check_token(request).await.unwrap().into_inner().state()
    };
    assert_eq!(check("a", granted.token).await, pb::TokenState::Current);
    assert_eq!(check("a", granted.token - 1).await, pb::TokenState::Stale);
    assert_eq!(check("a", granted.token + 1).await, pb::TokenState::NeverGranted);
    assert_eq!(check("b", granted.token).await, pb::TokenState::NotHeld);
}

#[tokio::test]
async fn lists_are_paged() {
    let daemon = Daemon::start();
    let (mut stream, _) = Stream::open(&daemon, 0).await;
    for number in 0..25 {
        stream.granted(number + 1, &format!("job-{number:02}")).await;
    }
    stream.granted(100, "other").await;
    let mut locks = locks(&daemon).await;
    let (mut names, mut page_token, mut pages) = (Vec::new(), String::new(), 0);
    loop {
        let request = pb::ListRequest {
            prefix: "job-".into(),
            page_size: 10,
            page_token,
            ..pb::ListRequest::default()
        };
        let page = locks.list(request).await.unwrap().into_inner();
        names.extend(page.locks.into_iter().map(|info| info.lock.unwrap().name));
        page_token = page.next_page_token;
        pages += 1;
        if page_token.is_empty() {
            break;
        }
    }
    assert_eq!(pages, 3);
    assert_eq!(names, (0..25).map(|number| format!("job-{number:02}")).collect::<Vec<_>>());
    let foreign = pb::ListRequest {
        prefix: "job-".into(),
        page_token: "elsewhere".into(),
        ..pb::ListRequest::default()
    };
    assert_eq!(locks.list(foreign).await.unwrap_err().code(), Code::InvalidArgument);
}

#[tokio::test]
async fn list_of_all_namespaces_is_paged_over_both() {
    let daemon = Daemon::start();
    let (mut stream, _) = Stream::open(&daemon, 0).await;
    for (number, namespace) in ["a", "b", "c"].into_iter().enumerate() {
        for (step, name) in ["job-1", "job-2"].into_iter().enumerate() {
            let request = (10 * number + step + 1) as u64;
            let lock = pb::LockRef { namespace: namespace.into(), name: name.into() };
            stream.send(ClientMessage::Acquire(pb::Acquire {
                request,
                lock: Some(lock),
                ..pb::Acquire::default()
            }));
            stream.grant(request).await;
        }
    }
    let mut locks = locks(&daemon).await;
    let request = |page_token| pb::ListRequest {
        prefix: "job-".into(),
        page_size: 4,
        page_token,
        all_namespaces: true,
        ..pb::ListRequest::default()
    };
    let names = |page: pb::ListResponse| {
        let locks = page.locks.into_iter().map(|info| info.lock.unwrap());
        locks.map(|lock| format!("{}/{}", lock.namespace, lock.name)).collect::<Vec<_>>()
    };
    let first = locks.list(request(String::new())).await.unwrap().into_inner();
    let second = locks.list(request(first.next_page_token.clone())).await.unwrap().into_inner();
    assert_eq!(names(first), ["a/job-1", "a/job-2", "b/job-1", "b/job-2"]);
    assert_eq!(second.next_page_token, "");
    assert_eq!(names(second), ["c/job-1", "c/job-2"]);
    for wrong in [
        request("job-1".into()),
        request("a/other".into()),
        pb::ListRequest { namespace: "a".into(), ..request(String::new()) },
    ] {
        assert_eq!(locks.list(wrong).await.unwrap_err().code(), Code::InvalidArgument);
    }
}

#[tokio::test]
async fn watch_sends_state_first_and_then_each_change() {
    use pb::watch_request::Target;
    let daemon = Daemon::start();
    let (mut stream, _) = Stream::open(&daemon, 0).await;
    let first = stream.granted(1, "job-1").await;
    let mut locks = locks(&daemon).await;
    let request =
        pb::WatchRequest { namespace: String::new(), target: Some(Target::Prefix("job-".into())) };
    let mut watch = locks.watch(request).await.unwrap().into_inner();
    let state = watch.message().await.unwrap().unwrap();
    assert!(state.initial);
    assert_eq!(state.lock.unwrap().token, Some(first.token));
    let second = stream.granted(2, "job-2").await;
    let change = watch.message().await.unwrap().unwrap();
    assert!(!change.initial);
    assert_eq!(change.lock.unwrap().token, Some(second.token));
    stream.granted(3, "elsewhere").await;
    stream.release(4, &first.handle).await.unwrap();
    let change = watch.message().await.unwrap().unwrap().lock.unwrap();
    assert_eq!((change.lock.unwrap().name, change.held), ("job-1".into(), false));
}
