//! The session stream and the unary calls, message by message, against a real
//! daemon: what a client library would never send as well.

use std::{
    collections::HashMap,
    io::{Read, Write},
    net::TcpStream,
    time::Duration,
};

use leasehold_protocol::{
    v1 as pb,
    v1::attach_request::Message as Ask,
    v1::attach_response::Message as Tell,
    v1::{lock_service_client::LockServiceClient, session_service_client::SessionServiceClient},
};
use leasehold_test_support::Daemon;
use nix::sys::signal::Signal;
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{Code, Status, Streaming, transport::Channel};
use tonic_types::StatusExt;

/// One session stream, by hand.
struct Stream {
    ask: mpsc::UnboundedSender<pb::AttachRequest>,
    tell: Streaming<pb::AttachResponse>,
}

impl Stream {
    async fn attach(daemon: &Daemon) -> Self {
        let mut client = SessionServiceClient::new(channel(daemon).await);
        Self::on(&mut client).await
    }

    async fn on(client: &mut SessionServiceClient<Channel>) -> Self {
        let (ask, asked) = mpsc::unbounded_channel();
        let tell = client.attach(UnboundedReceiverStream::new(asked)).await.unwrap().into_inner();
        Self { ask, tell }
    }

    async fn open(daemon: &Daemon, ttl_ms: u32) -> (Self, pb::Opened) {
        let mut stream = Self::attach(daemon).await;
        let opened = stream.opened(open(ttl_ms)).await;
        (stream, opened)
    }

    async fn opened(&mut self, open: pb::Open) -> pb::Opened {
        self.send(Ask::Open(open));
        match self.next().await {
            Tell::Opened(opened) => opened,
            other => panic!("{other:?}"),
        }
    }

    fn send(&self, message: Ask) {
        _ = self.ask.send(pb::AttachRequest { message: Some(message) });
    }

    async fn next(&mut self) -> Tell {
        self.tell.message().await.unwrap().unwrap().message.unwrap()
    }

    async fn end(&mut self) -> Result<(), Status> {
        loop {
            match self.tell.message().await {
                Ok(Some(_)) => {}
                Ok(None) => return Ok(()),
                Err(status) => return Err(status),
            }
        }
    }

    fn acquire(&self, request: u64, name: &str, wait_ms: Option<u64>) {
        let lock = Some(pb::LockRef { namespace: String::new(), name: name.into() });
        self.send(Ask::Acquire(pb::Acquire { request, lock, wait_ms, ..Default::default() }));
    }

    async fn granted(&mut self, request: u64, name: &str) -> pb::Granted {
        self.acquire(request, name, None);
        self.grant(request).await
    }

    /// The next grant, past what comes before it.
    async fn grant(&mut self, request: u64) -> pb::Granted {
        loop {
            match self.next().await {
                Tell::Granted(granted) => {
                    assert_eq!(granted.request, request);
                    return granted;
                }
                Tell::Queued(_) | Tell::KeptAlive(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    async fn refused(&mut self, request: u64) -> pb::Refused {
        match self.next().await {
            Tell::Refused(refused) => {
                assert_eq!(refused.request, request);
                refused
            }
            other => panic!("{other:?}"),
        }
    }

    async fn release(&mut self, request: u64, handle: &[u8]) -> Result<(), pb::Refused> {
        self.send(Ask::Release(pb::Release { request, handle: handle.to_vec().into() }));
        match self.next().await {
            Tell::Released(released) => assert_eq!(released.request, request),
            Tell::Refused(refused) => return Err(refused),
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
async fn versions_and_terms_are_exchanged_at_the_opening() {
    let daemon = Daemon::start();
    let (_stream, opened) = Stream::open(&daemon, 0).await;
    assert_eq!(opened.protocol_version, 1);
    assert_eq!(opened.daemon_version, env!("CARGO_PKG_VERSION"));
    assert_eq!(opened.ttl_ms, 10_000);
    assert_eq!(opened.keep_alive_interval_ms, 3333);
    assert_eq!(opened.valid_for_ms, 9980, "a little less than the ttl: clocks drift");
    assert_eq!(opened.resume_secret.len(), 16);
    assert!(!opened.resumed);
}

#[tokio::test]
async fn a_stream_that_can_not_be_opened_says_which_field_and_what_is_allowed() {
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
        stream.send(Ask::Open(open));
        let status = stream.end().await.unwrap_err();
        assert_eq!(status.code(), code, "{status}");
        assert!(status.message().contains(text), "{status}");
        let details = status.get_error_details();
        assert_eq!(details.error_info().unwrap().domain, "leasehold");
        let violations = details.bad_request().map(|bad| bad.field_violations.clone());
        let named = violations.unwrap_or_default().first().map(|bad| bad.field.clone());
        assert_eq!(named.unwrap_or_default(), field);
    }
    // A newer client that still speaks our version is served with it.
    let mut stream = Stream::attach(&daemon).await;
    let newer = pb::Open { protocol_version: 7, min_protocol_version: 1, ..open(0) };
    assert_eq!(stream.opened(newer).await.protocol_version, 1);
}

#[tokio::test]
async fn messages_out_of_order_end_the_stream_with_a_reason() {
    let daemon = Daemon::start();
    let cases = [
        vec![Ask::KeepAlive(pb::KeepAlive { keep_alive_number: 1 })],
        vec![Ask::Open(open(0)), Ask::Open(open(0))],
        vec![
            Ask::Open(open(0)),
            Ask::Release(pb::Release { request: 0, handle: vec![0; 16].into() }),
        ],
        vec![Ask::Resume(pb::Resume {
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
    _ = stream.ask.send(pb::AttachRequest { message: None });
    assert_eq!(stream.end().await.unwrap_err().code(), Code::FailedPrecondition);
}

#[tokio::test]
async fn number_that_does_not_increase_ends_the_stream() {
    let daemon = Daemon::start();
    let release = |request| Ask::Release(pb::Release { request, handle: vec![7; 16].into() });
    for (message, field) in [
        (Ask::KeepAlive(pb::KeepAlive { keep_alive_number: 3 }), "keep_alive_number"),
        (Ask::KeepAlive(pb::KeepAlive { keep_alive_number: 2 }), "keep_alive_number"),
        (release(5), "request"),
        (release(4), "request"),
    ] {
        let (mut stream, opened) = Stream::open(&daemon, 0).await;
        let held = stream.granted(5, field).await;
        stream.send(Ask::KeepAlive(pb::KeepAlive { keep_alive_number: 3 }));
        assert!(
            matches!(stream.next().await, Tell::KeptAlive(kept) if kept.keep_alive_number == 3)
        );
        stream.send(message);
        let status = stream.end().await.unwrap_err();
        assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
        let details = status.get_error_details();
        assert_eq!(details.error_info().unwrap().reason, "PROTOCOL");
        assert_eq!(details.bad_request().unwrap().field_violations[0].field, field);
        // The session goes on. A repeated acquire is still the same request.
        let mut stream = Stream::attach(&daemon).await;
        let resume_secret = opened.resume_secret;
        stream.send(Ask::Resume(pb::Resume {
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
async fn a_stream_on_which_nothing_is_said_is_ended() {
    let daemon = Daemon::start();
    let mut stream = Stream::attach(&daemon).await;
    let status = stream.end().await.unwrap_err();
    assert!(status.message().contains("no first message"), "{status}");
}

/// What was said while the daemon stood still is heard, however late.
#[tokio::test]
async fn a_daemon_that_stood_still_does_not_blame_its_clients() {
    let daemon = Daemon::start();
    let mut stream = Stream::attach(&daemon).await;
    daemon.process.signal(Signal::SIGSTOP);
    stream.send(Ask::Open(open(10_000)));
    leasehold_runtime::sleep(Duration::from_secs(6)).await;
    daemon.process.signal(Signal::SIGCONT);
    assert!(matches!(stream.next().await, Tell::Opened(_)));
}

#[tokio::test]
async fn bad_requests_are_refused_by_number_and_change_nothing() {
    let daemon = Daemon::start();
    let (mut stream, _) = Stream::open(&daemon, 0).await;
    let held = stream.granted(1, "good").await;
    let acquire = |request, namespace: &str, name: &str, max_hold_time_ms| {
        let lock = lock_ref(namespace, name);
        Ask::Acquire(pb::Acquire {
            request,
            lock,
            wait_ms: Some(0),
            max_hold_time_ms,
            ..Default::default()
        })
    };
    let release = |request, handle| Ask::Release(pb::Release { request, handle });
    let cases = [
        (acquire(2, "", "", None), "name", "1 to 256 bytes"),
        (acquire(3, "", &"x".repeat(257), None), "name", "at most 256"),
        (acquire(4, "", "a\nb", None), "name", "control character"),
        (acquire(5, "Not_A_Label", "a", None), "namespace", "1 to 63 of a-z"),
        (acquire(6, &"x".repeat(64), "a", None), "namespace", "DNS label"),
        (acquire(7, "", "a", Some(999)), "max_hold_time_ms", "minimum is 1s"),
        (Ask::Acquire(pb::Acquire { request: 8, ..pb::Acquire::default() }), "lock", "is missing"),
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
    assert_eq!(list.locks.len(), 1, "nothing else came to be");
    assert_eq!(list.locks[0].token, Some(held.token));
}

#[tokio::test]
async fn an_oversized_message_is_told_the_limit() {
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
async fn garbage_on_the_port_harms_nobody() {
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
        // The daemon closes it, perhaps before we do: so this ends.
        _ = socket.shutdown(std::net::Shutdown::Write);
        _ = socket.read_to_end(&mut Vec::new());
    }
    stream.send(Ask::KeepAlive(pb::KeepAlive { keep_alive_number: 1 }));
    assert!(matches!(stream.next().await, Tell::KeptAlive(_)));
    assert!(inspect(&mut locks(&daemon).await, "a").await.held);
}

#[tokio::test]
async fn a_repeated_or_foreign_release_frees_nothing() {
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
async fn a_try_is_refused_with_the_holder() {
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
    assert!(matches!(second.next().await, Tell::Queued(queued) if queued.position == 1));
    assert_eq!(second.refused(2).await.reason(), pb::Reason::TimedOut);
}

#[tokio::test]
async fn a_thousand_waiters_are_served_in_order_without_the_dead_and_the_cancelled() {
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
        let Tell::Queued(queued) = waiter.next().await else { panic!() };
        assert_eq!(queued.position, number + 1);
        waiters.push(Some(waiter));
    }
    for dead in (0..1000).step_by(10) {
        waiters[dead] = None;
    }
    for cancelled in (5..1000).step_by(10) {
        let waiter = waiters[cancelled].as_mut().unwrap();
        waiter.send(Ask::Cancel(pb::Cancel { request: 1 }));
        assert_eq!(waiter.refused(1).await.reason(), pb::Reason::Cancelled);
    }
    // The daemon has noticed the dead once they no longer count as present.
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
        assert!(granted.token > last.token, "in order");
        let info = inspect(&mut observer, "a").await;
        assert_eq!(info.token, Some(granted.token), "nobody else was granted it meanwhile");
        waiter.release(2, &granted.handle).await.unwrap();
        last = granted;
        served += 1;
    }
    assert_eq!(served, 800);
}

#[tokio::test]
async fn a_session_resumes_with_all_that_it_held_and_waited_for() {
    let daemon = Daemon::start();
    let (mut other, _) = Stream::open(&daemon, 0).await;
    let taken = other.granted(1, "taken").await;
    let (mut stream, opened) = Stream::open(&daemon, 0).await;
    let mine = stream.granted(1, "mine").await;
    stream.acquire(2, "taken", None);
    assert!(matches!(stream.next().await, Tell::Queued(_)));
    drop(stream);

    let mut stream = Stream::attach(&daemon).await;
    let resume = |keep_alive_number| {
        let resume_secret = opened.resume_secret.clone();
        Ask::Resume(pb::Resume {
            protocol_version: 1,
            min_protocol_version: 0,
            resume_secret,
            keep_alive_number,
        })
    };
    stream.send(resume(1));
    let Tell::Opened(again) = stream.next().await else { panic!() };
    assert!(again.resumed && again.resume_secret.is_empty());
    assert_eq!(again.session_id, opened.session_id);
    let granted = stream.grant(1).await;
    assert_eq!((granted.token, &granted.handle), (mine.token, &mine.handle));
    assert_eq!(granted.keep_alive_number, 1);
    assert!(matches!(stream.next().await, Tell::Queued(queued) if queued.request == 2));
    assert!(matches!(stream.next().await, Tell::Restored(_)));
    other.release(2, &taken.handle).await.unwrap();
    stream.grant(2).await;

    // A second stream takes over; the first is told.
    let mut third = Stream::attach(&daemon).await;
    third.send(resume(2));
    assert!(matches!(third.next().await, Tell::Opened(_)));
    assert_eq!(stream.end().await.unwrap_err().code(), Code::Aborted);
    // A keep-alive that is not new is refused, and so is a stranger's secret.
    let mut stale = Stream::attach(&daemon).await;
    stale.send(resume(2));
    assert_eq!(stale.end().await.unwrap_err().code(), Code::FailedPrecondition);
    let mut stranger = Stream::attach(&daemon).await;
    stranger.send(Ask::Resume(pb::Resume {
        protocol_version: 1,
        resume_secret: vec![7; 16].into(),
        keep_alive_number: 1,
        ..pb::Resume::default()
    }));
    let status = stranger.end().await.unwrap_err();
    assert_eq!(status.get_error_details().error_info().unwrap().reason, "UNKNOWN_SESSION");
}

#[tokio::test]
async fn a_broken_stream_frees_only_the_fenced_at_once() {
    let daemon = Daemon::start();
    let (mut plain, _) = Stream::open(&daemon, 60_000).await;
    let mut fenced = Stream::attach(&daemon).await;
    fenced.opened(pb::Open { fenced: true, ..open(60_000) }).await;
    let held = plain.granted(1, "plain").await;
    fenced.granted(1, "fenced").await;
    drop((plain, fenced));
    let (mut next, _) = Stream::open(&daemon, 60_000).await;
    next.granted(1, "fenced").await;
    // The plain session is the older one and has the same ttl: if it still
    // holds, the fenced one was not freed by its ttl.
    assert_eq!(inspect(&mut locks(&daemon).await, "plain").await.token, Some(held.token));
}

#[tokio::test]
async fn a_session_that_is_silent_too_long_is_told_so() {
    let daemon = Daemon::start();
    let (mut stream, _) = Stream::open(&daemon, 1000).await;
    let granted = stream.granted(1, "a").await;
    let Tell::Lost(lost) = stream.next().await else { panic!() };
    assert_eq!(lost.handle, granted.handle);
    assert_eq!(lost.reason(), pb::Reason::Expired);
    let status = stream.end().await.unwrap_err();
    assert_eq!(status.get_error_details().error_info().unwrap().reason, "EXPIRED");
}

#[tokio::test]
async fn a_break_tells_the_holder_who_and_why_and_the_lock_passes_on_when_it_lets_go() {
    let daemon = Daemon::start();
    let (mut holder, _) = Stream::open(&daemon, 60_000).await;
    let (mut waiter, _) = Stream::open(&daemon, 60_000).await;
    let granted = holder.granted(1, "a").await;
    waiter.acquire(1, "a", None);
    assert!(matches!(waiter.next().await, Tell::Queued(_)));
    let mut locks = locks(&daemon).await;
    let request = |reason: &str| pb::BreakRequest {
        lock: lock_ref("", "a"),
        reason: reason.into(),
        by: "ops@host".into(),
    };
    let status = locks.r#break(request("")).await.unwrap_err();
    assert!(status.message().contains("reason"), "{status}");
    assert!(!inspect(&mut locks, "a").await.ending, "a bad request changes nothing");

    let broken = locks.r#break(request("stuck")).await.unwrap().into_inner();
    assert!(broken.broken);
    assert!(broken.free_within_ms <= 60_000);
    assert_eq!(broken.lock.unwrap().token, Some(granted.token));
    let Tell::Lost(lost) = holder.next().await else { panic!() };
    assert_eq!(lost.reason(), pb::Reason::Broken);
    assert!(lost.message.contains("ops@host") && lost.message.contains("stuck"), "{lost:?}");
    let operator = pb::BreakInfo { by: "ops@host".into(), reason: "stuck".into() };
    assert_eq!(lost.operator, Some(operator));
    assert!(inspect(&mut locks, "a").await.ending);
    holder.release(2, &granted.handle).await.unwrap();
    assert!(waiter.grant(1).await.token > granted.token);

    let nobody = pb::BreakRequest { lock: lock_ref("", "nobody"), ..request("x") };
    assert!(!locks.r#break(nobody).await.unwrap().into_inner().broken);
}

#[tokio::test]
async fn tokens_are_checked() {
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
            stream.send(Ask::Acquire(pb::Acquire {
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
async fn a_watch_shows_the_state_first_and_then_every_change() {
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
