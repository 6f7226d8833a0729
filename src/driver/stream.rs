//! Streams of sessions, and their pending messages.

use std::{
    collections::VecDeque,
    task::{Context, Poll, Waker},
};

use super::Driver;
use crate::telemetry::traces::RemoteContext;
use leasehold_core::{
    error::RequestError,
    session::{Event, Message, Open, Request, Secret, StreamId},
};
use leasehold_types::Reason;

/// Number of streams beyond one per session: some streams have no session yet, or no
/// longer.
const SPARE_STREAMS: usize = 1000;

/// Pending messages of a stream. Bounded by the requests of its session, because a
/// stream is read only while it has no pending message.
#[derive(Default)]
pub(super) struct Outbox {
    messages: VecDeque<Message>,
    end: Option<Option<Box<RequestError>>>,
    waker: Option<Waker>,
}

impl Outbox {
    /// Adds a message.
    pub(super) fn push(&mut self, message: Message) {
        self.messages.push_back(message);
        self.wake();
    }

    /// Ends the stream after its pending messages, unless it is ending already.
    pub(super) fn end(&mut self, problem: Option<Box<RequestError>>) {
        self.end.get_or_insert(problem);
        self.wake();
    }

    /// Ends the stream without its pending messages, because the session continues on
    /// another stream.
    pub(super) fn supersede(&mut self) {
        tracing::debug!("a session was resumed on another stream");
        let problem = RequestError::new(
            Reason::ResumedElsewhere,
            "the session was resumed on another stream; do not resume it again, open a new one",
        );
        self.messages = VecDeque::new();
        self.end = Some(Some(Box::new(problem)));
        self.wake();
    }

    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

impl Driver {
    /// Creates a stream without a session.
    pub fn attach(&self) -> Result<Stream, RequestError> {
        let mut state = self.state();
        let most = self.shared.settings.max_sessions + SPARE_STREAMS;
        if state.streams.len() >= most {
            let message = format!(
                "stream refused: the daemon has reached {most} streams; increase max_sessions"
            );
            return Err(RequestError::new(Reason::Limit, message));
        }
        let id = StreamId(state.streams.insert(Outbox::default()) as u32);
        Ok(Stream { driver: self.clone(), id })
    }
}

/// Stream of a client. Dropping it reports the end of the stream.
pub struct Stream {
    driver: Driver,
    id: StreamId,
}

impl Stream {
    /// Opens a session, whose TTL the store must have persisted.
    pub fn open(&self, open: Open) {
        self.driver.handle(Event::Open(self.id, Box::new(open)));
    }

    /// Resumes a session.
    pub fn resume(&self, secret: Secret, keep_alive_number: u64) {
        self.driver.handle(Event::Resume(self.id, secret, keep_alive_number));
    }

    /// Handles a request. The caller must poll for messages afterwards, because the
    /// response does not wake its task.
    pub fn request(&self, request: Request) {
        self.request_in(request, None);
    }

    /// Like [`Self::request`], for an acquire that is traced.
    pub(crate) fn request_in(&self, mut request: Request, sampled: Option<RemoteContext>) {
        let mut state = self.driver.state();
        if let (Some(remote), Request::Acquire { name, trace, .. }) = (sampled, &mut request) {
            *trace = state.telemetry.begin_trace(&remote, name);
        }
        if let Some(outbox) = state.streams.get_mut(self.id.0 as usize) {
            outbox.waker = None;
        }
        self.driver.run(&mut state, Event::Request(self.id, request));
    }

    /// Returns the next message; none once the stream has ended.
    pub fn poll_message(&self, cx: &Context<'_>) -> Poll<Option<Result<Message, RequestError>>> {
        let mut state = self.driver.state();
        let Some(outbox) = state.streams.get_mut(self.id.0 as usize) else {
            return Poll::Ready(None);
        };
        if let Some(message) = outbox.messages.pop_front() {
            return Poll::Ready(Some(Ok(message)));
        }
        // Frees the memory of a session that received many messages once.
        if outbox.messages.capacity() > 64 {
            outbox.messages = VecDeque::new();
        }
        match &mut outbox.end {
            Some(end) => Poll::Ready(end.take().map(|problem| Err(*problem))),
            None => {
                if !outbox.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
                    outbox.waker = Some(cx.waker().clone());
                }
                Poll::Pending
            }
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let mut state = self.driver.state();
        self.driver.run(&mut state, Event::Detached(self.id));
        state.streams.try_remove(self.id.0 as usize);
    }
}
