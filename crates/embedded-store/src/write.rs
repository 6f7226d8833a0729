//! Durable writes: token reservations, and retries after a failure.

use std::sync::Arc;

use leasehold_runtime as task;
use leasehold_store::Error;
use leasehold_types::TokenRange;
use tokio::sync::oneshot;

use super::{
    Embedded, Need, OpenError, RETRY_DELAY, State, Unavailability, directory, record::Record,
    tokens::Take, unavailable,
};

impl Embedded {
    /// Takes the token of one grant, and starts the next reservation when it is
    /// due.
    pub(super) fn take(&self, state: &mut State) -> Result<TokenRange, Need> {
        let taken = match state.tokens.take() {
            Take::Taken(tokens) => Ok(tokens),
            Take::Wait(duration) => Err(Need::Wait(duration)),
            Take::Reserve => Err(Need::Reserve),
        };
        if taken.is_ok() && state.tokens.is_low() && !state.reserving {
            state.reserving = true;
            let store = self.clone();
            task::spawn(async move { _ = store.reserve().await });
        }
        taken
    }

    pub(super) async fn satisfy(&self, need: Need) -> Result<(), Error> {
        match need {
            Need::Wait(duration) => {
                leasehold_runtime::sleep(duration).await;
                Ok(())
            }
            Need::Reserve => self.reserve().await,
        }
    }

    /// Reserves more tokens, unless another call has already reserved them.
    pub(super) async fn reserve(&self) -> Result<(), Error> {
        let store = self.clone();
        run_to_completion(async move {
            let reserved = match store.record().await {
                Ok(mut record) => store.reserve_in(&mut record).await,
                Err(closed) => Err(closed),
            };
            store.shared.state().reserving = false;
            reserved
        })
        .await
    }

    async fn reserve_in(&self, record: &mut Record) -> Result<(), Error> {
        let (is_low, end) = {
            let mut state = self.shared.state();
            (state.tokens.is_low(), state.tokens.reservation())
        };
        if !is_low {
            return Ok(());
        }
        if end - 1 <= record.highest_token {
            return Err(unavailable("tokens are exhausted (2^53)".to_owned()));
        }
        self.write(record, Record { highest_token: end - 1, ..*record }).await?;
        self.shared.state().tokens.reserve(end);
        Ok(())
    }

    /// Locks the record for writing. Fails once the store is closed.
    pub(super) async fn record(&self) -> Result<tokio::sync::MutexGuard<'_, Record>, Error> {
        let record = self.shared.record.lock().await;
        if self.shared.state().closed {
            return Err(unavailable("closed".to_owned()));
        }
        Ok(record)
    }

    /// Writes to disk. After a failure, the store grants nothing until a later
    /// write succeeds, and retries. A failed write may have reached the disk or
    /// not; no grant relies on it, so both are safe.
    ///
    /// Not cancel safe: the write would continue without its mutex (see
    /// `run_to_completion`).
    pub(super) async fn write(&self, record: &mut Record, next: Record) -> Result<(), Error> {
        if let Some(replaced @ Unavailability::Replaced(_)) = &self.shared.state().unavailability {
            return Err(replaced.error());
        }
        let (done, mut written) = oneshot::channel();
        let directory = Arc::clone(&self.shared.directory);
        let work = move || _ = done.send(directory::replace(&*directory, &next));
        self.shared.directory.run(Box::new(work)).await;
        let mut state = self.shared.state();
        match written.try_recv().ok() {
            Some(Ok(())) => {
                *record = next;
                state.writes += 1;
                if state.unavailability.take().is_some() {
                    tracing::info!("the data directory is writable again; granting resumes");
                }
                Ok(())
            }
            Some(Err(error)) => {
                state.failed_writes += 1;
                Err(self.fail(&mut state, &error))
            }
            None => {
                state.failed_writes += 1;
                let path = self.shared.directory.path();
                let source = std::io::Error::other("the write was interrupted");
                Err(self.fail(&mut state, &directory::failed("write", path)(source)))
            }
        }
    }

    /// Stops granting; permanently if the directory was replaced.
    pub(super) fn fail(&self, state: &mut State, error: &OpenError) -> Error {
        let why = error.to_string();
        match (&state.unavailability, error) {
            (Some(replaced @ Unavailability::Replaced(_)), _) => return replaced.error(),
            (_, OpenError::Replaced { .. }) => {
                tracing::error!("{why}");
                state.unavailability = Some(Unavailability::Replaced(why.clone()));
            }
            (before, _) => {
                if before.is_none() {
                    tracing::error!(%why, "the data directory is not usable; granting stopped");
                    let store = self.clone();
                    task::spawn(async move { store.retry().await });
                }
                state.unavailability = Some(Unavailability::Io(why.clone()));
            }
        }
        unavailable(why)
    }

    /// Retries the write until it succeeds.
    async fn retry(&self) {
        loop {
            leasehold_runtime::sleep(RETRY_DELAY).await;
            let Ok(mut record) = self.record().await else { return };
            let end = {
                let mut state = self.shared.state();
                if !matches!(state.unavailability, Some(Unavailability::Io(_))) {
                    return;
                }
                state.tokens.reservation()
            };
            let next = Record { highest_token: record.highest_token.max(end - 1), ..*record };
            if self.write(&mut record, next).await.is_ok() {
                self.shared.state().tokens.reserve(end);
                return;
            }
        }
    }
}

/// Runs `work` to completion even if the caller is dropped: a write without its
/// mutex could reach the disk after a later one.
pub(super) async fn run_to_completion<T: Send + 'static>(
    work: impl Future<Output = Result<T, Error>> + Send + 'static,
) -> Result<T, Error> {
    let (done, result) = oneshot::channel();
    task::spawn(async move { _ = done.send(work.await) });
    result.await.unwrap_or_else(|_| Err(unavailable("a write was interrupted".to_owned())))
}
