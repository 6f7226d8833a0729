//! The core of a daemon on an embedded store, with clients that follow a script.

use std::{
    collections::VecDeque,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::Duration,
};

use futures_core::Stream;
use leasehold_fuzz::wire::{self, Value};
use prost::Message as _;
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};
use tonic::{Code, Status};

use super::{BREAK, CUT, SETTINGS, STEP_DOWN, acquire, model::Model, open, release};
use crate::{
    driver::Driver,
    rpc::{decode, pb, pb::attach_request::Message, session::Attached},
    telemetry::Telemetry,
};
use leasehold_core::lock;
use leasehold_embedded_store::Embedded;
use leasehold_store::Breaker;
use leasehold_time::Entropy;

/// Number of streams of a script.
pub(super) const STREAMS: usize = 3;

/// Longer than any script takes, so that nothing expires during a script.
const LONG: u64 = 60_000;

pub(super) struct Daemon {
    runtime: Runtime,
    driver: Driver,
    _dir: TempDir,
}

impl Daemon {
    pub(super) fn start() -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let driver = runtime.block_on(async {
            let locks = lock::Settings {
                lease_duration: Duration::from_secs(30),
                linger: Duration::ZERO,
                poll_interval: Duration::from_secs(2),
                max_locks: 40,
                max_waiters_per_lock: 10,
                journal: leasehold_core::journal::Level::Off,
            };
            let store = Arc::new(Embedded::open(dir.path()).unwrap());
            let driver =
                Driver::new(SETTINGS, locks, store, Entropy::seeded(1), Telemetry::default());
            driver.persist_ttl(SETTINGS.max_ttl).await.unwrap();
            tokio::spawn(driver.clone().keep_time());
            driver
        });
        Self { runtime, driver, _dir: dir }
    }

    /// Runs a script, ends its sessions, and checks that an ordinary client is still
    /// served.
    pub(super) fn play(&mut self, script: &[u8]) -> String {
        let driver = &self.driver;
        self.runtime.block_on(async {
            let mut play = Play::new(driver);
            for field in wire::read(script).0 {
                play.step(field.number, field.value).await;
            }
            play.model.check_all_answered();
            play.end();
            assert_eq!(driver.counts(), (0, 0), "sessions or locks are left behind");
            let mut ordinary = Play::new(driver);
            for message in [open(false), acquire(1, "orders", Some(0)), release(2, 0)] {
                ordinary.send(0, Ok(message));
            }
            assert_eq!(ordinary.model.released(), 1, "an ordinary client is not served");
            ordinary.end();
            // Runs the store's own tasks.
            tokio::task::yield_now().await;
            play.model.coverage()
        })
    }
}

/// Messages of a client that the daemon has not read yet. Dropping the reader ends the
/// stream.
#[derive(Clone, Default)]
struct Inbox(Arc<Mutex<VecDeque<Result<pb::AttachRequest, Status>>>>);

impl Stream for Inbox {
    type Item = Result<pb::AttachRequest, Status>;

    fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.lock().unwrap().pop_front().map_or(Poll::Pending, |item| Poll::Ready(Some(item)))
    }
}

struct Play<'a> {
    driver: &'a Driver,
    streams: [Option<(Attached<Inbox>, Inbox)>; STREAMS],
    model: Model,
}

impl<'a> Play<'a> {
    fn new(driver: &'a Driver) -> Self {
        Self { driver, streams: Default::default(), model: Model::default() }
    }

    async fn step(&mut self, number: u32, value: Value) {
        match (number, value) {
            (1..=3, Value::Bytes(bytes)) => {
                let stream = number as usize - 1;
                match pb::AttachRequest::decode(&*bytes) {
                    Ok(pb::AttachRequest { message: Some(message) }) => {
                        self.send(stream, Ok(message));
                    }
                    Ok(pb::AttachRequest { message: None }) => self.send(stream, Err(None)),
                    // The error that the codec returns.
                    Err(error) => {
                        self.send(stream, Err(Some(Status::internal(error.to_string()))));
                    }
                }
            }
            (CUT, Value::Varint(stream)) => {
                let stream = stream as usize % STREAMS;
                if self.streams[stream].take().is_some() {
                    self.model.cut(stream);
                }
            }
            (event @ (BREAK | STEP_DOWN), Value::Bytes(bytes)) => {
                let lock = pb::LockRef::decode(&*bytes).unwrap_or_default();
                let Ok(name) = decode::lock(Some(lock)) else { return };
                let breaker = Breaker { by: "ops".into(), reason: "fuzz".into() };
                if event == BREAK {
                    self.driver.break_lock(name, breaker).await.unwrap();
                } else {
                    let timeout = Duration::from_millis(LONG);
                    self.driver.step_down(name, breaker, timeout).await.unwrap();
                }
            }
            _ => return,
        }
        self.receive();
    }

    /// Sends a message, an empty one or an invalid one, and receives the responses.
    fn send(&mut self, stream: usize, message: Result<Message, Option<Status>>) {
        let message = message.map(|message| self.filled_in(message));
        self.put(stream, message);
    }

    fn put(&mut self, stream: usize, message: Result<Message, Option<Status>>) {
        if self.streams[stream].is_none() {
            let inbox = Inbox::default();
            let attached = Attached::begin(self.driver, inbox.clone()).unwrap();
            self.streams[stream] = Some((attached, inbox));
        }
        let message = match message {
            Ok(message) => {
                self.model.sends(stream, &message);
                Ok(pb::AttachRequest { message: Some(message) })
            }
            Err(None) => Ok(pb::AttachRequest::default()),
            Err(Some(status)) => Err(status),
        };
        if let Some((_, inbox)) = &self.streams[stream] {
            inbox.0.lock().unwrap().push_back(message);
        }
        self.receive();
    }

    /// Replaces a single byte by a secret that the daemon has sent. Extends times that
    /// could pass before the end of the script.
    fn filled_in(&self, mut message: Message) -> Message {
        let longer = |ms: u64| if ms >= 1000 { ms.max(LONG) } else { ms };
        match &mut message {
            Message::Open(open) if (1000..=60_000).contains(&open.ttl_ms) => open.ttl_ms = 60_000,
            Message::Resume(resume) => {
                self.model.fill_in_secret(&mut resume.resume_secret);
                // The cleanup needs a higher number.
                resume.keep_alive_number = resume.keep_alive_number.min(u64::MAX - 1);
            }
            Message::KeepAlive(keep_alive) => {
                keep_alive.keep_alive_number = keep_alive.keep_alive_number.min(u64::MAX - 1);
            }
            Message::Acquire(acquire) => {
                acquire.max_hold_time_ms = acquire.max_hold_time_ms.map(longer);
                acquire.wait_ms = acquire.wait_ms.map(|ms| if ms > 0 { ms.max(LONG) } else { 0 });
            }
            Message::Release(release) => self.model.fill_in_handle(&mut release.handle),
            Message::Proclaim(proclaim) => self.model.fill_in_handle(&mut proclaim.handle),
            _ => {}
        }
        message
    }

    /// Receives the messages of the daemon on all streams.
    fn receive(&mut self) {
        let mut cx = Context::from_waker(std::task::Waker::noop());
        for (number, slot) in self.streams.iter_mut().enumerate() {
            while let Some((attached, inbox)) = slot {
                match Pin::new(attached).poll_next(&mut cx) {
                    Poll::Ready(Some(Ok(response))) => {
                        // Clients can decode every message.
                        let bytes = response.encode_to_vec();
                        assert_eq!(pb::AttachResponse::decode(&*bytes).as_ref(), Ok(&response));
                        self.model.receives(number, response.message.unwrap());
                    }
                    Poll::Ready(Some(Err(status))) => {
                        assert_ne!(status.code(), Code::Unknown, "{status:?}");
                        assert!(!status.message().is_empty(), "{status:?}");
                        self.model.ends(number, Some(&status));
                        *slot = None;
                    }
                    Poll::Ready(None) => {
                        self.model.ends(number, None);
                        *slot = None;
                    }
                    Poll::Pending => {
                        assert!(inbox.0.lock().unwrap().is_empty(), "a message was not read");
                        break;
                    }
                }
            }
        }
    }

    /// Ends all sessions, as their clients could do.
    fn end(&mut self) {
        for stream in 0..STREAMS {
            if self.streams[stream].take().is_some() {
                self.model.cut(stream);
            }
        }
        self.receive();
        while let Some((resume_secret, keep_alive_number)) = self.model.next_session() {
            let resume = pb::Resume {
                protocol_version: 1,
                min_protocol_version: 1,
                resume_secret,
                keep_alive_number: keep_alive_number + 1,
            };
            self.put(0, Ok(Message::Resume(resume)));
            self.put(0, Ok(Message::Close(pb::Close {})));
            assert!(self.streams[0].is_none(), "the stream of a closed session continues");
        }
    }
}
