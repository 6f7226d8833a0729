//! Observation of an election.

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

/// Observer of an election. Created by
/// [`Election::observe`](crate::Election::observe).
///
/// Reconnects automatically after a disconnect, and then returns the current state
/// if it differs from the last one. Until then, the last state may be out of date;
/// see [`on_error`](Self::on_error). A slow reader receives the latest state, not
/// every intermediate one.
///
/// Also a [`Stream`], which never ends.
#[must_use = "nothing is sent before `next`"]
pub struct Observer {
    connection: Arc<Connection>,
    /// Election, or the error of an invalid name.
    election: Result<pb::LockRef, Error>,
    states: States,
    backoff: Backoff,
    /// Last returned state.
    last_state: Option<ElectionState>,
    /// Message of the last reported error, if no state was received since.
    last_error: Option<String>,
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
            last_state: None,
            last_error: None,
            on_error: None,
        }
    }

    /// Sets a callback for errors, called before each reconnect; repetitions of an
    /// error are not reported. Until [`Self::next`] returns again, the last state may
    /// be out of date. If the state is unchanged after the reconnect, it is not returned
    /// again.
    pub fn on_error(mut self, report: impl FnMut(&Error) + Send + 'static) -> Self {
        self.on_error = Some(Box::new(report));
        self
    }

    /// Returns the current state on the first call, including a state without a
    /// leader. Each further call waits for the next change.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an invalid name, [`Error::NeedsOperator`] and
    /// [`Error::Incompatible`], as described there. A further call makes another
    /// attempt. [`Error::Unavailable`] is not returned, but retried.
    ///
    /// # Cancel safety
    /// Cancel-safe.
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
                    Some(Ok(response)) => match self.on_response(response) {
                        Some(state) => return Poll::Ready(Ok(state)),
                        None => continue,
                    },
                    Some(Err(status)) => status::error(&status),
                    None => Error::unavailable("the daemon ended the stream"),
                },
            };
            let Error::Unavailable { retry_after, .. } = &error else {
                self.reopen(Duration::ZERO);
                return Poll::Ready(Err(error));
            };
            let retry_after = retry_after.unwrap_or_default();
            self.report_error(&error);
            self.reopen(retry_after);
        }
    }

    /// Handles a response. Returns its state if it differs from the last one.
    fn on_response(&mut self, response: pb::ObserveResponse) -> Option<ElectionState> {
        self.backoff.reset();
        self.last_error = None;
        let state = ElectionState::from(response.state?);
        if self.last_state.as_ref().is_some_and(|last| last.equals_ignoring_time(&state)) {
            return None;
        }
        self.last_state = Some(state.clone());
        Some(state)
    }

    fn report_error(&mut self, error: &Error) {
        let message = error.to_string();
        if self.last_error.as_ref() != Some(&message) {
            self.last_error = Some(message);
            self.on_error.iter_mut().for_each(|report| report(error));
        }
    }

    fn reopen(&mut self, retry_after: Duration) {
        let delay = self.backoff.next(retry_after);
        let (connection, election) = (Arc::clone(&self.connection), self.election.clone());
        self.states = States::Opening(Box::pin(open(connection, election, delay)));
    }
}

async fn open(
    connection: Arc<Connection>,
    election: Result<pb::LockRef, Error>,
    delay: Duration,
) -> Result<Streaming<pb::ObserveResponse>, Error> {
    if !delay.is_zero() {
        leasehold_runtime::sleep(delay).await;
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
            connection.replace(target, generation);
            connection.mark_unreachable(target);
            Err(Error::unavailable(format!("no response from the daemon within {:?}", connection.timeout())))
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
            .field("last_state", &self.last_state)
            .finish_non_exhaustive()
    }
}
