//! Session stream: messages of one session in both directions.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use futures_core::Stream;
use tonic::{Request, Response, Status, Streaming};

use super::{
    decode::{self, First},
    encode,
    pb::{self, attach_request::Message},
    status::{status, store_problem, unreadable},
    trace,
};
use crate::{
    driver::{self, Driver},
    telemetry::traces::RemoteContext,
};
use leasehold_core::{error::RequestError, session::Open};
use leasehold_runtime::sleep;
use leasehold_store::Call;
use leasehold_time::Moment;
use leasehold_types::Reason;

/// Maximum time until the first message of a stream.
const FIRST_MESSAGE_TIMEOUT: Duration = Duration::from_secs(5);

/// Time for which the daemon must run without a pause before that timeout applies.
const PAUSE_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Implements `SessionService`.
pub(super) struct Service {
    driver: Driver,
}

impl Service {
    pub(super) const fn new(driver: Driver) -> Self {
        Self { driver }
    }
}

#[tonic::async_trait]
impl leasehold_protocol::server::session_service_server::SessionService for Service {
    type AttachStream = Attached<Streaming<pb::AttachRequest>>;

    async fn attach(
        &self,
        request: Request<Streaming<pb::AttachRequest>>,
    ) -> Result<Response<Self::AttachStream>, Status> {
        let headers = request.metadata().as_ref();
        let remote = self.driver.tracing().map(|_| trace::remote_context(headers));
        let mut attached = Attached::begin(&self.driver, request.into_inner())?;
        attached.remote = remote;
        Ok(Response::new(attached))
    }
}

/// One stream, in both directions. One task sends and reads, and reads only while no
/// message is pending. A session therefore needs no other task, and a client that does
/// not read its messages is not read from.
pub(super) struct Attached<In> {
    driver: Driver,
    inbound: In,
    stream: driver::Stream,
    phase: Phase,
    /// Trace context of the stream, if traces are on.
    remote: Option<RemoteContext>,
}

enum Phase {
    /// The first message has not arrived. Ends with a timeout.
    First(Pin<Box<dyn Future<Output = ()> + Send>>),
    /// The store persists the TTL before the session opens.
    PersistingTtl(<Call<()> as IntoFuture>::IntoFuture, Option<Open>),
    /// The session is open, or was refused.
    Open,
    /// The stream has ended.
    Done,
}

/// Timeout of the first message. After a pause, timers fire before sockets are read.
/// The timeout therefore waits until the daemon has run for 100 ms without a pause.
async fn first_message_timeout() {
    sleep(FIRST_MESSAGE_TIMEOUT).await;
    loop {
        let before = Moment::now();
        sleep(PAUSE_CHECK_INTERVAL).await;
        if Moment::now().since(before) < 2 * PAUSE_CHECK_INTERVAL {
            return;
        }
    }
}

impl<In> Attached<In> {
    pub(super) fn begin(driver: &Driver, inbound: In) -> Result<Self, Status> {
        let stream = driver.attach().map_err(status)?;
        let phase = Phase::First(Box::pin(first_message_timeout()));
        Ok(Self { driver: driver.clone(), inbound, stream, phase, remote: None })
    }

    fn received(&mut self, message: pb::AttachRequest) -> Result<(), Status> {
        if matches!(self.phase, Phase::Open) {
            let sampled = self.sampled(&message);
            self.stream.request_in(decode::request(message).map_err(status)?, sampled);
            return Ok(());
        }
        self.phase = match decode::first(message, self.driver.settings()).map_err(status)? {
            First::Open(open) => {
                Phase::PersistingTtl(self.driver.persist_ttl(open.ttl).into_future(), Some(open))
            }
            First::Resume(secret, keep_alive_number) => {
                self.stream.resume(secret, keep_alive_number);
                Phase::Open
            }
        };
        Ok(())
    }

    /// Returns the trace context of an acquire that is traced: its own, or else that of
    /// the stream.
    fn sampled(&self, message: &pb::AttachRequest) -> Option<RemoteContext> {
        let tracing = self.driver.tracing()?;
        let Some(Message::Acquire(acquire)) = &message.message else { return None };
        let own = acquire.trace_context.as_deref();
        let own = own.map(|own| RemoteContext::new(&own.parent, &own.state)).unwrap_or_default();
        let remote =
            if own.parent().is_some() { own } else { self.remote.clone().unwrap_or_default() };
        tracing.is_sampled(&remote).then_some(remote)
    }

    fn end(&mut self, with: Option<Status>) -> Poll<Option<Result<pb::AttachResponse, Status>>> {
        self.phase = Phase::Done;
        Poll::Ready(with.map(Err))
    }
}

impl<In> Stream for Attached<In>
where
    In: Stream<Item = Result<pb::AttachRequest, Status>> + Unpin,
{
    type Item = Result<pb::AttachResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        loop {
            if matches!(this.phase, Phase::Done) {
                return Poll::Ready(None);
            }
            match this.stream.poll_message(cx) {
                Poll::Ready(Some(Ok(message))) => {
                    return Poll::Ready(Some(Ok(encode::message(message))));
                }
                Poll::Ready(Some(Err(problem))) => return this.end(Some(status(problem))),
                Poll::Ready(None) => return this.end(None),
                Poll::Pending => {}
            }
            match &mut this.phase {
                Phase::Done | Phase::Open | Phase::First(_) => {}
                Phase::PersistingTtl(call, open) => {
                    let covered = ready!(call.as_mut().poll(cx));
                    if let (Ok(()), Some(open)) = (&covered, open.take()) {
                        this.stream.open(open);
                    }
                    if let Err(error) = covered {
                        return this.end(Some(status(store_problem(error))));
                    }
                    this.phase = Phase::Open;
                    continue;
                }
            }
            let Poll::Ready(inbound) = Pin::new(&mut this.inbound).poll_next(cx) else {
                if let Phase::First(first_message_timeout) = &mut this.phase
                    && first_message_timeout.as_mut().poll(cx).is_ready()
                {
                    // The client retries after this reason.
                    let problem = RequestError::new(
                        Reason::Limit,
                        format!("no first message on this stream within {FIRST_MESSAGE_TIMEOUT:?}"),
                    );
                    return this.end(Some(status(problem)));
                }
                return Poll::Pending;
            };
            match inbound {
                Some(Ok(message)) => {
                    if let Err(status) = this.received(message) {
                        return this.end(Some(status));
                    }
                }
                Some(Err(error)) => return this.end(Some(unreadable(error))),
                // Half-closed: all available responses are sent. The session lives until
                // its TTL has passed, as after a broken connection.
                None => return this.end(None),
            }
        }
    }
}
