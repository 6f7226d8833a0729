//! An acquire, from the program's side.

use std::{pin::pin, sync::Arc, time::Duration};

use tokio::sync::{mpsc, oneshot};

use super::{
    Session, Terms, Wait,
    ask::Ask,
    attachment::out_of_reach,
    runtime_gone,
    shared::{Reply, Waiter},
    state::{Outcome, Ticket},
};
use crate::{Error, Guard, Progress, Token, pb, request::OnProgress};
use leasehold_time::Moment;

impl Session {
    /// Asks for a lock and waits for the answer. Dropping the future takes the
    /// request back.
    pub(crate) async fn acquire(
        self: Arc<Self>,
        lock: pb::LockRef,
        wait: Wait,
        terms: Terms,
        mut on_progress: Option<OnProgress>,
    ) -> Result<Guard, Error> {
        let (teller, mut progress) = on_progress.is_some().then(mpsc::unbounded_channel).unzip();
        let started = Moment::now();
        let answer_within = self.connection.timeout();
        let limit = match wait {
            Wait::Not => Some(started + answer_within),
            Wait::AtMost(wait) => Some(started + wait),
            Wait::Forever => None,
        };
        let mut pending = self.ask(Ask::new(lock.clone(), wait, terms, limit), teller);
        // At the limit the answer of a daemon that has the request is on its
        // way, and is given some more time.
        let mut patience = (wait != Wait::Not).then_some(answer_within);
        let mut alarm = limit;
        let reply = loop {
            let mut rung = pin!(leasehold_runtime::sleep_until_any(alarm));
            tokio::select! {
                biased;
                reply = &mut pending.reply => break reply,
                Some(news) = next(&mut progress) => {
                    if let Some(tell) = &mut on_progress {
                        tell(news);
                    }
                }
                () = &mut rung => match (pending.standing(), patience.take()) {
                    (Standing::Answered, _) => alarm = None,
                    (Standing::WithDaemon, Some(more)) => alarm = alarm.map(|limit| limit + more),
                    _ => return Err(self.gave_up(started)),
                },
            }
        };
        pending.answered = true;
        match reply {
            Ok(Reply::Granted { grant, token, bell }) => {
                drop(pending);
                Ok(Guard::new(self, grant, lock, Token::new(token), bell))
            }
            Ok(Reply::Other(Outcome::Failed(error))) => Err(error),
            Ok(Reply::Other(_)) | Err(_) => Err(runtime_gone()),
        }
    }

    fn ask(&self, ask: Ask, progress: Option<mpsc::UnboundedSender<Progress>>) -> Pending<'_> {
        let (answer, reply) = oneshot::channel();
        let lock = Some(ask.lock.name.clone());
        let ticket = self.update(|inner| {
            let ticket = inner.state.acquire(ask, Moment::now());
            inner.waiters.insert(ticket, Waiter { reply: answer, progress, lock });
            ticket
        });
        Pending { session: self, ticket, reply, answered: false }
    }

    fn gave_up(&self, started: Moment) -> Error {
        let trouble = self.shared.lock().state.trouble().map(out_of_reach);
        let waited = Duration::from_secs(Moment::now().since(started).as_secs());
        let trouble = trouble.map(|trouble| format!(": {trouble}")).unwrap_or_default();
        Error::unavailable(format!("no response from the daemon within {waited:?}{trouble}"))
    }
}

/// Where an acquire is.
enum Standing {
    Answered,
    WithDaemon,
    Unsent,
}

/// An acquire that somebody waits for.
struct Pending<'a> {
    session: &'a Session,
    ticket: Ticket,
    reply: oneshot::Receiver<Reply>,
    /// The reply was taken.
    answered: bool,
}

impl Pending<'_> {
    fn standing(&self) -> Standing {
        let inner = self.session.shared.lock();
        if !inner.waiters.contains_key(&self.ticket) {
            Standing::Answered
        } else if inner.state.is_with_daemon(self.ticket) {
            Standing::WithDaemon
        } else {
            Standing::Unsent
        }
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if self.answered {
            return;
        }
        let granted = self.session.shared.update(|inner| {
            inner.waiters.remove(&self.ticket);
            inner.state.abandon(self.ticket);
            // Answers are given under the same lock, so that none can slip in
            // between.
            self.reply.try_recv()
        });
        if let Ok(Reply::Granted { grant, .. }) = granted {
            self.session.let_go(grant);
        }
    }
}

async fn next(progress: &mut Option<mpsc::UnboundedReceiver<Progress>>) -> Option<Progress> {
    match progress {
        Some(progress) => progress.recv().await,
        None => std::future::pending().await,
    }
}
