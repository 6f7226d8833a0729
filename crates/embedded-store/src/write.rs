//! Durable writes: reservations of tokens, and retries after a failure.

use std::sync::Arc;

use leasehold_runtime as task;
use leasehold_store::Error;
use leasehold_types::TokenRange;
use tokio::sync::oneshot;

use super::{
    Embedded, Need, OpenError, RETRY_DELAY, State, Trouble, directory, record::Record,
    tokens::Take, unavailable,
};

impl Embedded {
    /// Takes the token of one grant, and has more reserved in good time.
    pub(super) fn take(&self, state: &mut State) -> Result<TokenRange, Need> {
        let taken = match state.tokens.take() {
            Take::Taken(tokens) => Ok(tokens),
            Take::Wait(length) => Err(Need::Wait(length)),
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
            Need::Wait(length) => {
                leasehold_runtime::sleep(length).await;
                Ok(())
            }
            Need::Reserve => self.reserve().await,
        }
    }

    /// Reserves more tokens, unless another call has done so.
    pub(super) async fn reserve(&self) -> Result<(), Error> {
        let store = self.clone();
        to_its_end(async move {
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
            return Err(unavailable("no tokens are left below 2^53".to_owned()));
        }
        self.write(record, Record { highest_token: end - 1, ..*record }).await?;
        self.shared.state().tokens.reserve(end);
        Ok(())
    }

    /// The right to write, until the clean shutdown is recorded.
    pub(super) async fn record(&self) -> Result<tokio::sync::MutexGuard<'_, Record>, Error> {
        let record = self.shared.record.lock().await;
        if self.shared.state().closed {
            return Err(unavailable("it is closed".to_owned()));
        }
        Ok(record)
    }

    /// Writes to disk. A failure stops granting until a later write succeeds,
    /// and schedules one. A failed write may have reached the disk or not;
    /// nothing was granted on the strength of it, so both are safe.
    ///
    /// Must not be dropped before its end: the write itself would go on without
    /// its mutex (see `to_its_end`).
    pub(super) async fn write(&self, record: &mut Record, next: Record) -> Result<(), Error> {
        if let Some(replaced @ Trouble::Replaced(_)) = &self.shared.state().trouble {
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
                if state.trouble.take().is_some() {
                    tracing::info!("the data directory can be written again: granting resumes");
                }
                Ok(())
            }
            Some(Err(error)) => Err(self.fail(&mut state, &error)),
            None => {
                let path = self.shared.directory.path();
                let source = std::io::Error::other("the write was interrupted");
                Err(self.fail(&mut state, &directory::failed("write", path)(source)))
            }
        }
    }

    /// Stops granting: for good if the directory is not ours any more.
    pub(super) fn fail(&self, state: &mut State, error: &OpenError) -> Error {
        let why = error.to_string();
        match (&state.trouble, error) {
            (Some(replaced @ Trouble::Replaced(_)), _) => return replaced.error(),
            (_, OpenError::Replaced { .. }) => {
                tracing::error!("{why}");
                state.trouble = Some(Trouble::Replaced(why.clone()));
            }
            (before, _) => {
                if before.is_none() {
                    tracing::error!(%why, "the data directory can't be used: granting has stopped");
                    let store = self.clone();
                    task::spawn(async move { store.retry().await });
                }
                state.trouble = Some(Trouble::Io(why.clone()));
            }
        }
        unavailable(why)
    }

    /// Writes again until that succeeds.
    async fn retry(&self) {
        loop {
            leasehold_runtime::sleep(RETRY_DELAY).await;
            let Ok(mut record) = self.record().await else { return };
            let end = {
                let mut state = self.shared.state();
                if !matches!(state.trouble, Some(Trouble::Io(_))) {
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

/// Runs to its end even if the caller is gone: a write that is cut off from its
/// mutex could land after a later one.
pub(super) async fn to_its_end<T: Send + 'static>(
    work: impl Future<Output = Result<T, Error>> + Send + 'static,
) -> Result<T, Error> {
    let (done, result) = oneshot::channel();
    task::spawn(async move { _ = done.send(work.await) });
    result.await.unwrap_or_else(|_| Err(unavailable("a write was interrupted".to_owned())))
}
