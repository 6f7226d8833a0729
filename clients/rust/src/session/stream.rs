//! Stream task of a session: connects, reads messages, sends keep-alives, and
//! reconnects after a disconnect.

use std::{convert::Infallible, error::Error as _, pin::pin, sync::Arc, time::Duration};

use tokio::sync::mpsc;
use tokio_stream::{Stream, StreamExt, wrappers::UnboundedReceiverStream};
use tonic::{Code, Status};

use super::{
    attachment::{Disconnect, Next},
    runtime_gone,
    shared::Shared,
};
use crate::{
    Reason,
    backoff::Backoff,
    connection::{Connection, Incoming, Target},
    pb::{self, attach_request, attach_response::Message},
    status,
};
use leasehold_time::{ClockPair, Moment};

/// Lifetime of a stream after which a disconnect starts with the minimum delay.
const BACKOFF_RESET_AFTER: Duration = Duration::from_secs(1);

/// Runs until the session needs no stream. Started by the first request that needs
/// one.
pub(super) async fn run(mut cleanup: Cleanup, connection: Arc<Connection>) {
    let shared = Arc::clone(&cleanup.shared);
    let mut attempts = Attempts { backoff: Backoff::to_daemon(), failed_opens: 0, logged: None };
    loop {
        let disconnect = attach(&shared, &connection, &mut attempts).await;
        let retry_after = disconnect.retry_after();
        let cause = disconnect.to_string();
        let next = shared.update(|inner| {
            inner.outgoing = None;
            if connection.endpoints() > 1 && inner.is_daemon_gone(Moment::now()) {
                // The next stream opens a new session at another daemon.
                inner.state.abandon_session();
                inner.daemon.into_iter().for_each(|daemon| connection.mark_unreachable(daemon));
            }
            let next = inner.state.detach(disconnect, ClockPair::now());
            // Under the same lock, so that a concurrent request is either handled by
            // this task or starts a new one.
            inner.running = next != Next::Stop;
            next
        });
        match next {
            Next::Reconnect => {
                tracing::info!(target: "leasehold_client", cause, "reconnecting");
            }
            Next::ReconnectLater => {
                let delay = attempts.backoff.next(retry_after);
                attempts.log(delay, cause);
                leasehold_runtime::sleep(delay).await;
            }
            Next::Stop => {
                cleanup.finished = true;
                return;
            }
        }
    }
}

/// Fails the pending requests if the stream task is dropped before it has finished,
/// which happens when its runtime shuts down.
pub(super) struct Cleanup {
    shared: Arc<Shared>,
    finished: bool,
}

impl Cleanup {
    /// Creates the cleanup of a task that is about to start.
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, finished: false }
    }
}

impl Drop for Cleanup {
    fn drop(&mut self) {
        if !self.finished {
            self.shared.update(|inner| {
                inner.running = false;
                inner.outgoing = None;
                inner.waiters.clear();
                inner.state.detach(Disconnect::Refused(runtime_gone()), ClockPair::now());
            });
        }
        self.shared.stopped.notify_waiters();
    }
}

/// Progress of the attempts to attach.
struct Attempts {
    backoff: Backoff,
    /// Attempts to open a session that failed since the last stream began.
    failed_opens: usize,
    /// Cause of the last failure that was logged since a stream began.
    logged: Option<String>,
}

impl Attempts {
    /// Logs a failed attempt. Repetitions of the same failure are for debugging
    /// only, because an outage brings one per second.
    fn log(&mut self, delay: Duration, cause: String) {
        if self.logged.as_ref() == Some(&cause) {
            tracing::debug!(target: "leasehold_client", ?delay, cause, "reconnecting");
        } else {
            tracing::warn!(target: "leasehold_client", ?delay, cause, "reconnecting");
            self.logged = Some(cause);
        }
    }
}

/// Opens a stream and serves it until its end. A session is resumed at its daemon,
/// and opened at the preferred one.
async fn attach(shared: &Shared, connection: &Connection, attempts: &mut Attempts) -> Disconnect {
    let (outgoing, messages) = mpsc::unbounded_channel();
    let (target, resumes) = shared.update(|inner| {
        let first = inner.state.begin(ClockPair::now());
        let resumes = matches!(first, attach_request::Message::Resume(_));
        let target = inner.daemon.filter(|_| resumes).unwrap_or_else(|| connection.preferred());
        inner.daemon = Some(target);
        // The receiver still exists.
        let _ = outgoing.send(pb::AttachRequest { message: Some(first) });
        inner.outgoing = Some(outgoing);
        (target, resumes)
    });
    let limit = if resumes { connection.timeout() } else { connection.attempt_timeout() };
    let generation = connection.generation(target);
    let opening = open(connection, target, UnboundedReceiverStream::new(messages));
    let opened = tokio::select! {
        biased;
        opened = opening => opened,
        () = leasehold_runtime::sleep(limit) => {
            connection.replace(target, generation);
            Err(Disconnect::ConnectionFailed(format!("no response from the daemon within {limit:?}")))
        }
    };
    let (first, mut incoming) = match opened {
        Ok(opened) => opened,
        Err(disconnect) if resumes => return disconnect,
        Err(disconnect) => {
            connection.mark_unreachable(target);
            attempts.failed_opens += 1;
            return match disconnect {
                // A request that does not wait fails only once all daemons have
                // refused.
                Disconnect::Unavailable(error)
                    if attempts.failed_opens < connection.endpoints() =>
                {
                    Disconnect::ConnectionFailed(error.to_string())
                }
                disconnect => disconnect,
            };
        }
    };
    connection.prefer(target);
    attempts.failed_opens = 0;
    attempts.logged = None;
    let mut health = StreamHealth { began: Moment::now(), kept_alive: false };
    deliver(shared, first, &mut health);
    let Err(end) = serve(shared, &mut incoming, &mut health).await;
    if health.is_stable(Moment::now()) {
        attempts.backoff.reset();
    }
    match end {
        StreamEnd::Disconnect(disconnect) => disconnect,
        StreamEnd::NoResponse => {
            connection.replace(target, generation);
            tracing::warn!(target: "leasehold_client", "no response to the last keep-alive");
            Disconnect::ConnectionFailed("the daemon does not respond to keep-alives".to_owned())
        }
    }
}

/// Information on a stream that decides whether to reset the backoff.
struct StreamHealth {
    began: Moment,
    /// True if a keep-alive has received a response.
    kept_alive: bool,
}

impl StreamHealth {
    /// Returns whether the backoff may be reset. It may not if the daemon ends each
    /// stream right after its start.
    fn is_stable(&self, now: Moment) -> bool {
        self.kept_alive || now.since(self.began) >= BACKOFF_RESET_AFTER
    }
}

/// End of an open stream.
enum StreamEnd {
    Disconnect(Disconnect),
    /// The daemon did not respond to a keep-alive. The connection may be dead.
    NoResponse,
}

impl From<Disconnect> for StreamEnd {
    fn from(disconnect: Disconnect) -> Self {
        Self::Disconnect(disconnect)
    }
}

/// Reads messages and sends keep-alives until the stream ends.
async fn serve(
    shared: &Shared,
    incoming: &mut (impl Stream<Item = Result<pb::AttachResponse, Status>> + Unpin),
    health: &mut StreamHealth,
) -> Result<Infallible, StreamEnd> {
    loop {
        let next_keep_alive = shared.lock().state.next_keep_alive().ok_or_else(|| {
            Disconnect::ConnectionFailed(
                "protocol error: the first message of the daemon is not Opened".to_owned(),
            )
        })?;
        let mut due = pin!(leasehold_runtime::sleep_until(next_keep_alive));
        loop {
            tokio::select! {
                biased;
                () = &mut due => break,
                message = incoming.next() => on_item(shared, message, health)?,
            }
        }
        drain_received(shared, incoming, health).await?;
        if shared.lock().state.is_closing() {
            let cause = "no response to the close of the session".to_owned();
            return Err(Disconnect::ConnectionFailed(cause).into());
        }
        if shared.lock().state.awaits_keep_alive() {
            return Err(StreamEnd::NoResponse);
        }
        shared.update(|inner| inner.state.send_keep_alive(ClockPair::now()));
    }
}

/// Handles the messages that have already arrived, until no message of the daemon is
/// due. After a pause, timers fire before sockets are read, so that a response may
/// be unread. Does not wait, because the next keep-alive would be late.
async fn drain_received(
    shared: &Shared,
    incoming: &mut (impl Stream<Item = Result<pb::AttachResponse, Status>> + Unpin),
    health: &mut StreamHealth,
) -> Result<(), Disconnect> {
    while shared.lock().state.awaits_message() {
        let message = tokio::select! {
            biased;
            message = tokio::task::unconstrained(incoming.next()) => message,
            () = std::future::ready(()) => return Ok(()),
        };
        on_item(shared, message, health)?;
    }
    Ok(())
}

/// Handles an item of the stream: a message, or its end.
fn on_item(
    shared: &Shared,
    message: Option<Result<pb::AttachResponse, Status>>,
    health: &mut StreamHealth,
) -> Result<(), Disconnect> {
    match message {
        Some(Ok(message)) => deliver(shared, message, health),
        Some(Err(status)) => return Err(disconnect(&status)),
        None => return Err(Disconnect::Ended),
    }
    Ok(())
}

async fn open(
    connection: &Connection,
    target: Target,
    messages: UnboundedReceiverStream<pb::AttachRequest>,
) -> Result<(pb::AttachResponse, Incoming), Disconnect> {
    let mut incoming =
        connection.attach(target, messages).await.map_err(|status| disconnect(&status))?;
    match incoming.next().await {
        Some(Ok(first)) => Ok((first, incoming)),
        Some(Err(status)) => Err(disconnect(&status)),
        None => Err(Disconnect::Ended),
    }
}

fn deliver(shared: &Shared, response: pb::AttachResponse, health: &mut StreamHealth) {
    let Some(message) = response.message else { return };
    health.kept_alive |= matches!(message, Message::KeptAlive(_));
    shared.update(|inner| {
        let now = ClockPair::now();
        inner.last_message_at = Some(now.at());
        inner.state.on_message(message, now);
    });
}

fn disconnect(status: &Status) -> Disconnect {
    let permanent = matches!(
        status.code(),
        Code::Unimplemented | Code::PermissionDenied | Code::Unauthenticated
    );
    match status::reason(status) {
        Some(Reason::UnknownSession | Reason::Expired) => Disconnect::UnknownSession,
        Some(Reason::ResumedElsewhere) => Disconnect::ResumedElsewhere,
        Some(Reason::Invalid | Reason::ProtocolVersion | Reason::Protocol | Reason::DataLoss) => {
            Disconnect::Refused(status::error(status))
        }
        Some(_) => Disconnect::Unavailable(status::error(status)),
        None if permanent => Disconnect::Refused(status::error(status)),
        None => Disconnect::ConnectionFailed(match status.source() {
            Some(source) => {
                format!("lost the connection to the daemon: {}", status::root_cause(source))
            }
            None => status::message(status),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::Profile;

    #[test]
    fn short_stream_does_not_reset_backoff() {
        let began = Moment::from_boot(Duration::from_secs(1000));
        let health = |kept_alive| StreamHealth { began, kept_alive };
        assert!(!health(false).is_stable(began + BACKOFF_RESET_AFTER / 2));
        assert!(health(false).is_stable(began + BACKOFF_RESET_AFTER));
        assert!(health(true).is_stable(began));
    }

    /// The rows of the table on `SessionService.Attach`.
    #[test]
    fn status_decides_the_next_step() {
        use tonic_types::{ErrorDetails, StatusExt};
        let with = |code, reason: &str| {
            let details = ErrorDetails::with_error_info(reason, "leasehold", []);
            disconnect(&Status::with_error_details(code, "cause", details))
        };
        assert_eq!(with(Code::Aborted, "EXPIRED"), Disconnect::UnknownSession);
        assert_eq!(with(Code::NotFound, "UNKNOWN_SESSION"), Disconnect::UnknownSession);
        assert_eq!(with(Code::Aborted, "RESUMED_ELSEWHERE"), Disconnect::ResumedElsewhere);
        for (code, reason) in [
            (Code::FailedPrecondition, "PROTOCOL"),
            (Code::FailedPrecondition, "PROTOCOL_VERSION"),
            (Code::InvalidArgument, "INVALID"),
        ] {
            assert!(matches!(with(code, reason), Disconnect::Refused(_)), "{reason}");
        }
        for (code, reason) in [
            (Code::ResourceExhausted, "LIMIT"),
            (Code::Unavailable, "SHUTTING_DOWN"),
            (Code::Unavailable, "STORE_UNAVAILABLE"),
            (Code::Unavailable, "RECOVERING"),
        ] {
            assert!(matches!(with(code, reason), Disconnect::Unavailable(_)), "{reason}");
        }
        for code in [Code::Unimplemented, Code::PermissionDenied, Code::Unauthenticated] {
            assert!(
                matches!(disconnect(&Status::new(code, "cause")), Disconnect::Refused(_)),
                "{code:?}"
            );
        }
        for code in [Code::Unavailable, Code::Internal, Code::Unknown, Code::Cancelled] {
            assert!(
                matches!(disconnect(&Status::new(code, "cause")), Disconnect::ConnectionFailed(_)),
                "{code:?}"
            );
        }
    }

    fn response(message: Message) -> pb::AttachResponse {
        pb::AttachResponse { message: Some(message) }
    }

    /// Returns a session whose last keep-alive has no response.
    fn awaiting_keep_alive() -> (Shared, StreamHealth) {
        let profile = Profile { ttl: None, holder: pb::Holder::default(), fenced: false };
        let shared = Shared::new(Arc::new(profile));
        let mut health = StreamHealth { began: Moment::now(), kept_alive: false };
        shared.lock().state.begin(ClockPair::now());
        let opened =
            pb::Opened { ttl_ms: 9000, keep_alive_interval_ms: 3000, ..Default::default() };
        deliver(&shared, response(Message::Opened(opened)), &mut health);
        shared.update(|inner| inner.state.send_keep_alive(ClockPair::now()));
        assert!(shared.lock().state.awaits_keep_alive());
        (shared, health)
    }

    #[tokio::test]
    async fn received_response_counts_before_keep_alive_timeout() {
        let (shared, mut health) = awaiting_keep_alive();
        let answer = pb::KeptAlive { keep_alive_number: 1, valid_for_ms: 9000, limits: vec![] };
        let received = [Message::Restored(pb::Restored {}), Message::KeptAlive(answer)];
        let mut incoming =
            tokio_stream::iter(received.map(response).map(Ok)).chain(tokio_stream::pending());
        assert_eq!(drain_received(&shared, &mut incoming, &mut health).await, Ok(()));
        assert!(!shared.lock().state.awaits_keep_alive() && health.kept_alive);
    }

    #[tokio::test]
    async fn drain_received_does_not_wait() {
        let (shared, mut health) = awaiting_keep_alive();
        let mut silent = tokio_stream::pending();
        assert_eq!(drain_received(&shared, &mut silent, &mut health).await, Ok(()));
        assert!(shared.lock().state.awaits_keep_alive() && !health.kept_alive);
        let mut ended = tokio_stream::empty();
        assert_eq!(drain_received(&shared, &mut ended, &mut health).await, Err(Disconnect::Ended));
    }
}
