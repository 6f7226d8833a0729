//! The task that keeps a session attached: connects, reads, keep-alives, and comes
//! back after a break.

use std::{convert::Infallible, pin::pin, sync::Arc, time::Duration};

use tokio::sync::mpsc;
use tokio_stream::{Stream, StreamExt, wrappers::UnboundedReceiverStream};
use tonic::{Code, Status};

use super::{
    attachment::{Next, Setback},
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

/// A stream that lives for this long has served somebody.
const PROOF: Duration = Duration::from_secs(1);

/// Runs until there is nothing to keep alive. Started by whoever needs a
/// stream and finds none running.
pub(super) async fn run(mut watch: Watch, connection: Arc<Connection>) {
    let shared = Arc::clone(&watch.shared);
    let mut attempts = Attempts { backoff: Backoff::to_daemon(), failed_opens: 0, logged: None };
    loop {
        let setback = attach(&shared, &connection, &mut attempts).await;
        let retry_after = setback.retry_after();
        let cause = setback.to_string();
        let next = shared.update(|inner| {
            inner.outgoing = None;
            if connection.endpoints() > 1 && inner.is_daemon_gone(Moment::now()) {
                // The next stream opens a new session, at another daemon.
                inner.state.abandon_session();
                inner.daemon.into_iter().for_each(|silent| connection.pass_over(silent));
            }
            let next = inner.state.detach(setback, ClockPair::now());
            // In the same breath, so that a request that comes now either is
            // seen by this task or starts a new one.
            inner.running = next != Next::Rest;
            next
        });
        match next {
            Next::TryAgain => {
                tracing::info!(target: "leasehold_client", cause, "reconnecting");
            }
            Next::TryAgainLater => {
                let delay = attempts.backoff.next(retry_after);
                attempts.log(delay, cause);
                leasehold_runtime::sleep(delay).await;
            }
            Next::Rest => {
                watch.rests = true;
                return;
            }
        }
    }
}

/// Sees that nobody waits for a task that is gone: the runtime may drop it in
/// the middle of its work, or before it has begun.
pub(super) struct Watch {
    shared: Arc<Shared>,
    rests: bool,
}

impl Watch {
    /// Over a task that is about to be started.
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, rests: false }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if !self.rests {
            self.shared.update(|inner| {
                inner.running = false;
                inner.outgoing = None;
                inner.waiters.clear();
                inner.state.detach(Setback::Refused(runtime_gone()), ClockPair::now());
            });
        }
        self.shared.rested.notify_waiters();
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

/// One stream, from its beginning to its end. A session is resumed at the daemon
/// that has it, and opened at any.
async fn attach(shared: &Shared, connection: &Connection, attempts: &mut Attempts) -> Setback {
    let (outgoing, messages) = mpsc::unbounded_channel();
    let (target, resumes) = shared.update(|inner| {
        let first = inner.state.begin(ClockPair::now());
        let resumes = matches!(first, attach_request::Message::Resume(_));
        let target = inner.daemon.filter(|_| resumes).unwrap_or_else(|| connection.preferred());
        inner.daemon = Some(target);
        // It can't have ended: its other half is here.
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
            connection.renew(target, generation);
            Err(Setback::Broken(format!("no answer within {limit:?}")))
        }
    };
    let (first, mut incoming) = match opened {
        Ok(opened) => opened,
        Err(setback) if resumes => return setback,
        Err(setback) => {
            connection.pass_over(target);
            attempts.failed_opens += 1;
            return match setback {
                // A request that does not wait is refused only once every daemon
                // has refused it.
                Setback::NotNow(error) if attempts.failed_opens < connection.endpoints() => {
                    Setback::Broken(error.to_string())
                }
                setback => setback,
            };
        }
    };
    connection.prefer(target);
    attempts.failed_opens = 0;
    attempts.logged = None;
    let mut life = Life { began: Moment::now(), kept_alive: false };
    hear(shared, first, &mut life);
    let Err(ending) = keep(shared, &mut incoming, &mut life).await;
    if life.has_served(Moment::now()) {
        attempts.backoff.start_over();
    }
    match ending {
        Ending::Setback(setback) => setback,
        Ending::Silence => {
            connection.renew(target, generation);
            tracing::warn!(target: "leasehold_client", "no response to the last keep-alive");
            Setback::Broken("the daemon does not answer keep-alives".to_owned())
        }
    }
}

/// How a stream did.
struct Life {
    began: Moment,
    /// Whether a keep-alive was answered.
    kept_alive: bool,
}

impl Life {
    /// A daemon that begins streams only to end them is not to be asked without
    /// a pause.
    fn has_served(&self, now: Moment) -> bool {
        self.kept_alive || now.since(self.began) >= PROOF
    }
}

/// How a stream that had begun came to its end.
enum Ending {
    Setback(Setback),
    /// The connection may be dead without anybody having noticed.
    Silence,
}

impl From<Setback> for Ending {
    fn from(setback: Setback) -> Self {
        Self::Setback(setback)
    }
}

/// Reads, and keep-alives when it is time, until the stream ends.
async fn keep(
    shared: &Shared,
    incoming: &mut (impl Stream<Item = Result<pb::AttachResponse, Status>> + Unpin),
    life: &mut Life,
) -> Result<Infallible, Ending> {
    loop {
        let next_keep_alive = shared.lock().state.next_keep_alive().ok_or_else(|| {
            Setback::Broken("the daemon did not begin as the protocol says".to_owned())
        })?;
        let mut due = pin!(leasehold_runtime::sleep_until(next_keep_alive));
        loop {
            tokio::select! {
                biased;
                () = &mut due => break,
                message = incoming.next() => take(shared, message, life)?,
            }
        }
        catch_up(shared, incoming, life).await?;
        if shared.lock().state.is_closing() {
            return Err(Setback::Broken("the daemon did not end the session".to_owned()).into());
        }
        if shared.lock().state.is_owed_an_answer() {
            return Err(Ending::Silence);
        }
        shared.update(|inner| inner.state.send_keep_alive(ClockPair::now()));
    }
}

/// Before the daemon is judged by what it has not said: takes what is already
/// there, without waiting. No longer than that, lest the next keep-alive be late.
async fn catch_up(
    shared: &Shared,
    incoming: &mut (impl Stream<Item = Result<pb::AttachResponse, Status>> + Unpin),
    life: &mut Life,
) -> Result<(), Setback> {
    while shared.lock().state.awaits_word() {
        let message = tokio::select! {
            biased;
            message = tokio::task::unconstrained(incoming.next()) => message,
            () = std::future::ready(()) => return Ok(()),
        };
        take(shared, message, life)?;
    }
    Ok(())
}

/// The next that the stream has: a message, or its end.
fn take(
    shared: &Shared,
    message: Option<Result<pb::AttachResponse, Status>>,
    life: &mut Life,
) -> Result<(), Setback> {
    match message {
        Some(Ok(message)) => hear(shared, message, life),
        Some(Err(status)) => return Err(setback(&status)),
        None => return Err(Setback::Ended),
    }
    Ok(())
}

async fn open(
    connection: &Connection,
    target: Target,
    messages: UnboundedReceiverStream<pb::AttachRequest>,
) -> Result<(pb::AttachResponse, Incoming), Setback> {
    let mut incoming =
        connection.attach(target, messages).await.map_err(|status| setback(&status))?;
    match incoming.next().await {
        Some(Ok(first)) => Ok((first, incoming)),
        Some(Err(status)) => Err(setback(&status)),
        None => Err(Setback::Ended),
    }
}

fn hear(shared: &Shared, response: pb::AttachResponse, life: &mut Life) {
    let Some(message) = response.message else { return };
    life.kept_alive |= matches!(message, Message::KeptAlive(_));
    shared.update(|inner| {
        let now = ClockPair::now();
        inner.last_heard = Some(now.at());
        inner.state.hear(message, now);
    });
}

fn setback(status: &Status) -> Setback {
    let permanent = matches!(
        status.code(),
        Code::Unimplemented | Code::PermissionDenied | Code::Unauthenticated
    );
    match status::reason(status) {
        Some(Reason::UnknownSession | Reason::Expired) => Setback::UnknownSession,
        Some(Reason::ResumedElsewhere) => Setback::ResumedElsewhere,
        Some(Reason::Invalid | Reason::ProtocolVersion | Reason::Protocol | Reason::DataLoss) => {
            Setback::Refused(status::error(status))
        }
        Some(_) => Setback::NotNow(status::error(status)),
        None if permanent => Setback::Refused(status::error(status)),
        None => Setback::Broken(status::message(status)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::Profile;

    #[test]
    fn a_stream_that_only_began_has_not_served() {
        let began = Moment::from_boot(Duration::from_secs(1000));
        let life = |kept_alive| Life { began, kept_alive };
        assert!(!life(false).has_served(began + PROOF / 2));
        assert!(life(false).has_served(began + PROOF));
        assert!(life(true).has_served(began));
    }

    /// The rows of the table on `SessionService.Attach`.
    #[test]
    fn status_decides_the_next_step() {
        use tonic_types::{ErrorDetails, StatusExt};
        let with = |code, reason: &str| {
            let details = ErrorDetails::with_error_info(reason, "leasehold", []);
            setback(&Status::with_error_details(code, "why", details))
        };
        assert_eq!(with(Code::Aborted, "EXPIRED"), Setback::UnknownSession);
        assert_eq!(with(Code::NotFound, "UNKNOWN_SESSION"), Setback::UnknownSession);
        assert_eq!(with(Code::Aborted, "RESUMED_ELSEWHERE"), Setback::ResumedElsewhere);
        for (code, reason) in [
            (Code::FailedPrecondition, "PROTOCOL"),
            (Code::FailedPrecondition, "PROTOCOL_VERSION"),
            (Code::InvalidArgument, "INVALID"),
        ] {
            assert!(matches!(with(code, reason), Setback::Refused(_)), "{reason}");
        }
        for (code, reason) in [
            (Code::ResourceExhausted, "LIMIT"),
            (Code::Unavailable, "SHUTTING_DOWN"),
            (Code::Unavailable, "STORE_UNAVAILABLE"),
            (Code::Unavailable, "RECOVERING"),
        ] {
            assert!(matches!(with(code, reason), Setback::NotNow(_)), "{reason}");
        }
        for code in [Code::Unimplemented, Code::PermissionDenied, Code::Unauthenticated] {
            assert!(matches!(setback(&Status::new(code, "why")), Setback::Refused(_)), "{code:?}");
        }
        for code in [Code::Unavailable, Code::Internal, Code::Unknown, Code::Cancelled] {
            assert!(matches!(setback(&Status::new(code, "why")), Setback::Broken(_)), "{code:?}");
        }
    }

    fn response(message: Message) -> pb::AttachResponse {
        pb::AttachResponse { message: Some(message) }
    }

    /// With a stream whose last keep-alive has not been answered.
    fn owed_an_answer() -> (Shared, Life) {
        let profile = Profile { ttl: None, holder: pb::Holder::default(), fenced: false };
        let shared = Shared::new(Arc::new(profile));
        let mut life = Life { began: Moment::now(), kept_alive: false };
        shared.lock().state.begin(ClockPair::now());
        let opened =
            pb::Opened { ttl_ms: 9000, keep_alive_interval_ms: 3000, ..Default::default() };
        hear(&shared, response(Message::Opened(opened)), &mut life);
        shared.update(|inner| inner.state.send_keep_alive(ClockPair::now()));
        assert!(shared.lock().state.is_owed_an_answer());
        (shared, life)
    }

    #[tokio::test]
    async fn an_answer_that_is_there_counts_before_the_daemon_is_judged() {
        let (shared, mut life) = owed_an_answer();
        let answer = pb::KeptAlive { keep_alive_number: 1, valid_for_ms: 9000, limits: vec![] };
        let said = [Message::Restored(pb::Restored {}), Message::KeptAlive(answer)];
        let mut incoming =
            tokio_stream::iter(said.map(response).map(Ok)).chain(tokio_stream::pending());
        assert_eq!(catch_up(&shared, &mut incoming, &mut life).await, Ok(()));
        assert!(!shared.lock().state.is_owed_an_answer() && life.kept_alive);
    }

    #[tokio::test]
    async fn nothing_is_waited_for() {
        let (shared, mut life) = owed_an_answer();
        let mut silent = tokio_stream::pending();
        assert_eq!(catch_up(&shared, &mut silent, &mut life).await, Ok(()));
        assert!(shared.lock().state.is_owed_an_answer() && !life.kept_alive);
        let mut ended = tokio_stream::empty();
        assert_eq!(catch_up(&shared, &mut ended, &mut life).await, Err(Setback::Ended));
    }
}
