//! Sessions' streams: what they are told, and what they have yet to send.

use std::{
    collections::VecDeque,
    task::{Context, Poll, Waker},
};

use super::Driver;
use leasehold_core::{
    error::RequestError,
    session::{Event, Message, Open, Request, Secret, StreamId},
};
use leasehold_types::Reason;

/// How many streams there may be beyond one for each session: some have none
/// yet, others none any more.
const SPARE_STREAMS: usize = 1000;

/// What a stream has yet to send. Bounded by what its session has asked for: a
/// stream is read from only while nothing is left to be sent.
#[derive(Default)]
pub(super) struct Outbox {
    messages: VecDeque<Message>,
    end: Option<Option<Box<RequestError>>>,
    waker: Option<Waker>,
}

impl Outbox {
    /// One more message.
    pub(super) fn push(&mut self, message: Message) {
        self.messages.push_back(message);
        self.wake();
    }

    /// The stream ends when all is sent, unless it was to end before.
    pub(super) fn end(&mut self, problem: Option<Box<RequestError>>) {
        self.end.get_or_insert(problem);
        self.wake();
    }

    /// The session goes on elsewhere: what was not sent here is not for this
    /// stream any more.
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
    /// A new stream, without a session yet.
    pub fn attach(&self) -> Result<Stream, RequestError> {
        let mut state = self.state();
        let most = self.shared.settings.max_sessions + SPARE_STREAMS;
        if state.streams.len() >= most {
            let message = format!("this daemon keeps at most {most} streams (max_sessions)");
            return Err(RequestError::new(Reason::Limit, message));
        }
        let id = StreamId(state.streams.insert(Outbox::default()) as u32);
        Ok(Stream { driver: self.clone(), id })
    }
}

/// A client's stream. Dropping it says that the stream is gone.
pub struct Stream {
    driver: Driver,
    id: StreamId,
}

impl Stream {
    /// Begins a session. The store must have covered its ttl.
    pub fn open(&self, open: Open) {
        self.driver.handle(Event::Open(self.id, Box::new(open)));
    }

    /// Takes up a session.
    pub fn resume(&self, secret: Secret, keep_alive_number: u64) {
        self.driver.handle(Event::Resume(self.id, secret, keep_alive_number));
    }

    /// Asks for something. Messages must be polled for after that: whoever
    /// asks is awake, and is not woken for the answer.
    pub fn request(&self, request: Request) {
        let mut state = self.driver.state();
        if let Some(outbox) = state.streams.get_mut(self.id.0 as usize) {
            outbox.waker = None;
        }
        self.driver.run(&mut state, Event::Request(self.id, request));
    }

    /// The next message to send; none once the stream has ended.
    pub fn poll_message(&self, cx: &Context<'_>) -> Poll<Option<Result<Message, RequestError>>> {
        let mut state = self.driver.state();
        let Some(outbox) = state.streams.get_mut(self.id.0 as usize) else {
            return Poll::Ready(None);
        };
        if let Some(message) = outbox.messages.pop_front() {
            return Poll::Ready(Some(Ok(message)));
        }
        // A session that once got a great many messages must not keep their
        // room for ever.
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
