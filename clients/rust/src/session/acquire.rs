//! Acquire call of the program.

use std::{pin::pin, sync::Arc, time::Duration};

use tokio::sync::{mpsc, oneshot};

use super::{
    AcquireOptions, Session, Wait,
    pending_acquire::PendingAcquire,
    runtime_gone,
    shared::{Reply, Waiter},
    state::{Outcome, Ticket},
};
use crate::{Error, Guard, Progress, pb, request::OnProgress, trace};
use leasehold_time::Moment;

impl Session {
    /// Sends an acquire and waits for its result. Dropping the future cancels it.
    pub(crate) async fn acquire(
        self: Arc<Self>,
        lock: pb::LockRef,
        wait: Wait,
        mut options: AcquireOptions,
        mut on_progress: Option<OnProgress>,
    ) -> Result<Guard, Error> {
        let span = trace::acquire_span(&lock);
        options.trace = trace::context_of(&span).map(Box::new);
        let (progress_sender, mut progress) =
            on_progress.is_some().then(mpsc::unbounded_channel).unzip();
        let started = Moment::now();
        let response_timeout = self.connection.timeout();
        let limit = match wait {
            Wait::Not => Some(started + response_timeout),
            Wait::AtMost(wait) => Some(started + wait),
            Wait::Forever => None,
        };
        let acquire = PendingAcquire::new(lock.clone(), wait, options, limit);
        let mut pending = self.submit(acquire, progress_sender);
        // The daemon enforces the limit too. If it has the request at the limit, its
        // response is in flight, and this waits for it once more.
        let mut extension = (wait != Wait::Not).then_some(response_timeout);
        let mut timeout_at = limit;
        let reply = loop {
            let mut timeout = pin!(leasehold_runtime::sleep_until_any(timeout_at));
            tokio::select! {
                biased;
                reply = &mut pending.reply => break Some(reply),
                Some(update) = next(&mut progress) => {
                    if let Some(report) = &mut on_progress {
                        report(update);
                    }
                }
                () = &mut timeout => match (pending.status(), extension.take()) {
                    (AcquireStatus::Answered, _) => timeout_at = None,
                    (AcquireStatus::AtDaemon, Some(extension)) => {
                        timeout_at = timeout_at.map(|limit| limit + extension);
                    }
                    _ => break None,
                },
            }
        };
        pending.answered = reply.is_some();
        let acquired = match reply {
            Some(Ok(Reply::Granted { grant, token, changed })) => {
                drop(pending);
                Ok(Guard::new(self, grant, lock, token, changed))
            }
            Some(Ok(Reply::Other(Outcome::Failed(error)))) => Err(error),
            Some(Ok(Reply::Other(_)) | Err(_)) => Err(runtime_gone()),
            None => Err(self.timed_out(pending.ticket, started)),
        };
        trace::record_outcome(&span, acquired.as_ref().map(|guard| Some(guard.token())));
        acquired
    }

    fn submit(
        &self,
        acquire: PendingAcquire,
        progress: Option<mpsc::UnboundedSender<Progress>>,
    ) -> CancelOnDrop<'_> {
        let (reply_sender, reply) = oneshot::channel();
        let lock = Some(acquire.lock.name.clone());
        let ticket = self.update(|inner| {
            let ticket = inner.state.acquire(acquire, Moment::now());
            inner.waiters.insert(ticket, Waiter { reply: reply_sender, progress, lock });
            ticket
        });
        CancelOnDrop { session: self, ticket, reply, answered: false }
    }

    fn timed_out(&self, ticket: Ticket, started: Moment) -> Error {
        let waited = Duration::from_secs(Moment::now().since(started).as_secs());
        let inner = self.shared.lock();
        match inner.state.pending(ticket) {
            Some(acquire) => acquire.unanswered(Some(waited), inner.state.disconnect_cause()),
            None => Error::unavailable(format!("no response from the daemon within {waited:?}")),
        }
    }
}

/// Status of an acquire.
enum AcquireStatus {
    Answered,
    AtDaemon,
    NotSent,
}

/// Acquire of a waiting caller. Dropping it cancels the acquire.
struct CancelOnDrop<'a> {
    session: &'a Session,
    ticket: Ticket,
    reply: oneshot::Receiver<Reply>,
    /// True once the reply was received.
    answered: bool,
}

impl CancelOnDrop<'_> {
    fn status(&self) -> AcquireStatus {
        let inner = self.session.shared.lock();
        if !inner.waiters.contains_key(&self.ticket) {
            AcquireStatus::Answered
        } else if inner.state.is_at_daemon(self.ticket) {
            AcquireStatus::AtDaemon
        } else {
            AcquireStatus::NotSent
        }
    }
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        if self.answered {
            return;
        }
        let granted = self.session.shared.update(|inner| {
            inner.waiters.remove(&self.ticket);
            inner.state.abandon(self.ticket);
            // Replies are sent under the same lock, so that none is missed.
            self.reply.try_recv()
        });
        if let Ok(Reply::Granted { grant, .. }) = granted {
            self.session.drop_user(grant);
        }
    }
}

async fn next(progress: &mut Option<mpsc::UnboundedReceiver<Progress>>) -> Option<Progress> {
    match progress {
        Some(progress) => progress.recv().await,
        None => std::future::pending().await,
    }
}
