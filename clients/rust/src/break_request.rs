//! Operator request to break a lock.

use std::{fmt, pin::Pin, time::Duration};

use crate::{BreakResult, Client, Error, connection::locks, pb};

/// Request to break a lock. Created by [`Client::break_lock`].
#[must_use = "nothing is sent before `send` or `.await`"]
pub struct BreakRequest {
    client: Client,
    /// Lock, or the error of an invalid name.
    lock: Result<pb::LockRef, Error>,
    by: String,
    reason: String,
}

impl BreakRequest {
    pub(crate) fn new(client: Client, lock: Result<pb::LockRef, Error>) -> Self {
        Self { client, lock, by: String::new(), reason: String::new() }
    }

    /// Sets the name of the operator. The daemon logs it and sends it to the
    /// holder.
    pub fn by(mut self, operator: impl Into<String>) -> Self {
        self.by = operator.into();
        self
    }

    /// Sets the reason, which the daemon sends to the holder. Required.
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.reason = reason.into();
        self
    }

    /// Sends the request. Dropping the future does not undo a break that the
    /// daemon has already received.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an invalid name or reason, [`Error::Unavailable`]
    /// if no daemon responds.
    pub async fn send(self) -> Result<BreakResult, Error> {
        let request = pb::BreakRequest { lock: Some(self.lock?), reason: self.reason, by: self.by };
        let response = self
            .client
            .connection()
            .call(request, |channel, request| async move { locks(channel).r#break(request).await });
        let broken = response.await?;
        Ok(BreakResult {
            broken: broken.broken,
            lock: broken.lock.unwrap_or_default().into(),
            free_within: Duration::from_millis(broken.free_within_ms),
        })
    }
}

impl IntoFuture for BreakRequest {
    type Output = Result<BreakResult, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    /// Equivalent to [`send`](BreakRequest::send).
    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.send())
    }
}

impl fmt::Debug for BreakRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BreakRequest")
            .field("lock", &self.lock)
            .field("by", &self.by)
            .field("reason", &self.reason)
            .finish_non_exhaustive()
    }
}
