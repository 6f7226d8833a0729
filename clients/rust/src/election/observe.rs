//! Looking on as leaders change.

use std::{
    fmt,
    future::poll_fn,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio_stream::Stream;
use tonic::Streaming;

use super::{ElectionState, OnError};
use crate::{
    Error,
    backoff::Backoff,
    connection::{Connection, elections},
    pb, status,
};

/// The states of an election. Made by [`Election::observe`](crate::Election::observe).
///
/// It comes back by itself when the daemon or the connection went away, and
/// then tells the present state if it differs from the last. What was told last
/// may be out of date meanwhile: see [`on_error`](Self::on_error). Of what
/// changes faster than it is asked for, the latest state is told.
///
/// It is also a [`Stream`], which never ends.
#[must_use = "nothing is asked for before `next`"]
pub struct Observer {
    connection: Arc<Connection>,
    /// Or why it can't be one.
    election: Result<pb::LockRef, Error>,
    states: States,
    backoff: Backoff,
    /// The last state that was told.
    told: Option<ElectionState>,
    /// What is wrong since then, for people.
    trouble: Option<String>,
    on_error: Option<OnError>,
}

enum States {
    Opening(Opening),
    Arriving(Box<Streaming<pb::ObserveResponse>>),
}

type Opening = Pin<Box<dyn Future<Output = Result<Streaming<pb::ObserveResponse>, Error>> + Send>>;

impl Observer {
    pub(super) fn new(connection: &Arc<Connection>, election: Result<pb::LockRef, Error>) -> Self {
        Self {
            connection: Arc::clone(connection),
            states: States::Opening(Box::pin(open(
                Arc::clone(connection),
                election.clone(),
                Duration::ZERO,
            ))),
            election,
            backoff: Backoff::to_daemon(),
            told: None,
            trouble: None,
            on_error: None,
        }
    }

    /// Is told why the daemon can't be asked, before it is tried again; the
    /// same trouble is told once. Until the next state, the last one may be out
    /// of date. If nothing has changed in the end, no state follows.
    pub fn on_error(mut self, tell: impl FnMut(&Error) + Send + 'static) -> Self {
        self.on_error = Some(Box::new(tell));
        self
    }

    /// The present state at first, "nobody leads" included; then waits for the
    /// next change. Cancel-safe.
    ///
    /// # Errors
    /// What trying again is no help against: [`Error::Invalid`] for a name that
    /// can't be one, [`Error::NeedsOperator`] and [`Error::Incompatible`] as
    /// they say. Who calls again nevertheless makes a new attempt.
    pub async fn next(&mut self) -> Result<ElectionState, Error> {
        poll_fn(|context| self.poll_state(context)).await
    }

    fn poll_state(&mut self, context: &mut Context<'_>) -> Poll<Result<ElectionState, Error>> {
        loop {
            let error = match &mut self.states {
                States::Opening(opening) => match ready!(opening.as_mut().poll(context)) {
                    Ok(states) => {
                        self.states = States::Arriving(Box::new(states));
                        continue;
                    }
                    Err(error) => error,
                },
                States::Arriving(states) => match ready!(Pin::new(states).poll_next(context)) {
                    Some(Ok(response)) => match self.news(response) {
                        Some(state) => return Poll::Ready(Ok(state)),
                        None => continue,
                    },
                    Some(Err(status)) => status::error(&status),
                    None => Error::unavailable("the daemon ended the stream"),
                },
            };
            let Error::Unavailable { retry_after, .. } = &error else {
                self.open_again(Duration::ZERO);
                return Poll::Ready(Err(error));
            };
            let retry_after = retry_after.unwrap_or_default();
            self.tell(&error);
            self.open_again(retry_after);
        }
    }

    /// What the response says that was not told before.
    fn news(&mut self, response: pb::ObserveResponse) -> Option<ElectionState> {
        self.backoff.start_over();
        self.trouble = None;
        let state = ElectionState::from(response.state?);
        if self.told.as_ref().is_some_and(|told| told.says_the_same_as(&state)) {
            return None;
        }
        self.told = Some(state.clone());
        Some(state)
    }

    fn tell(&mut self, trouble: &Error) {
        let words = trouble.to_string();
        if self.trouble.as_ref() != Some(&words) {
            self.trouble = Some(words);
            self.on_error.iter_mut().for_each(|tell| tell(trouble));
        }
    }

    fn open_again(&mut self, retry_after: Duration) {
        let pause = self.backoff.next(retry_after);
        let (connection, election) = (Arc::clone(&self.connection), self.election.clone());
        self.states = States::Opening(Box::pin(open(connection, election, pause)));
    }
}

async fn open(
    connection: Arc<Connection>,
    election: Result<pb::LockRef, Error>,
    pause: Duration,
) -> Result<Streaming<pb::ObserveResponse>, Error> {
    if !pause.is_zero() {
        leasehold_runtime::sleep(pause).await;
    }
    let request = pb::ObserveRequest { election: Some(election?) };
    let target = connection.preferred();
    let generation = connection.generation(target);
    let observing = connection.on_any(|channel| {
        let request = request.clone();
        async move { elections(channel).observe(request).await }
    });
    tokio::select! {
        response = observing => match response {
            Ok(response) => Ok(response.into_inner()),
            Err(status) => Err(status::error(&status)),
        },
        () = leasehold_runtime::sleep(connection.timeout()) => {
            connection.renew(target, generation);
            connection.pass_over(target);
            Err(Error::unavailable(format!("no answer within {:?}", connection.timeout())))
        }
    }
}

impl Stream for Observer {
    type Item = Result<ElectionState, Error>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().poll_state(context).map(Some)
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer")
            .field("election", &self.election)
            .field("told", &self.told)
            .finish_non_exhaustive()
    }
}
