//! Operator request to a leader to step down.

use std::{fmt, pin::Pin, time::Duration};

use super::StepDownResult;
use crate::{
    Client, Error,
    connection::{Connection, elections},
    error::format_duration,
    pb,
};

const MIN_TIMEOUT: Duration = Duration::from_secs(1);
const MAX_TIMEOUT: Duration = Duration::from_secs(3600);

/// Request to a leader to step down. Created by
/// [`Election::step_down`](crate::Election::step_down).
#[must_use = "nothing is sent before `send` or `.await`"]
pub struct StepDownRequest {
    client: Client,
    /// Election, or the error of an invalid name.
    election: Result<pb::LockRef, Error>,
    by: String,
    reason: String,
    timeout: Option<Duration>,
}

impl StepDownRequest {
    pub(super) fn new(client: Client, election: Result<pb::LockRef, Error>) -> Self {
        Self { client, election, by: String::new(), reason: String::new(), timeout: None }
    }

    /// Sets the name of the operator. The daemon logs it and sends it to the
    /// leader.
    pub fn by(mut self, operator: impl Into<String>) -> Self {
        self.by = operator.into();
        self
    }

    /// Sets the reason, which the daemon sends to the leader. Required.
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.reason = reason.into();
        self
    }

    /// Sets the time that the leader has to step down: 1 s to 1 h, but never
    /// less than its current validity. The default is 30 s.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sends the request. If the leader is a client of a peer of the daemon,
    /// forwards the request to that peer, if it is reachable from this host.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an invalid name, reason or timeout,
    /// [`Error::Unavailable`] if no daemon responds.
    pub async fn send(self) -> Result<StepDownResult, Error> {
        let request = pb::StepDownRequest {
            election: Some(self.election?),
            reason: self.reason,
            by: self.by,
            timeout_ms: self.timeout.map(to_millis).transpose()?.unwrap_or_default(),
        };
        let first = send(self.client.connection(), request.clone()).await?;
        let leader = first.state.leader.as_ref().filter(|_| !first.asked);
        let peer = leader.and_then(|leader| leader.peer.as_ref());
        match self.client.peer(peer).await {
            // If the peer does not respond, or the leader has changed since the
            // first request, the first response is the more useful one.
            Some(peer) => match send(&peer, request).await {
                Ok(second) if second.asked => Ok(second),
                _ => Ok(first),
            },
            None => Ok(first),
        }
    }
}

async fn send(
    connection: &Connection,
    request: pb::StepDownRequest,
) -> Result<StepDownResult, Error> {
    let response = connection.call(request, |channel, request| async move {
        elections(channel).step_down(request).await
    });
    Ok(response.await?.into())
}

impl IntoFuture for StepDownRequest {
    type Output = Result<StepDownResult, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    /// Equivalent to [`send`](StepDownRequest::send).
    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.send())
    }
}

impl fmt::Debug for StepDownRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StepDownRequest")
            .field("election", &self.election)
            .field("by", &self.by)
            .field("reason", &self.reason)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

fn to_millis(timeout: Duration) -> Result<u32, Error> {
    let allowed = MIN_TIMEOUT..=MAX_TIMEOUT;
    u32::try_from(timeout.as_millis()).ok().filter(|_| allowed.contains(&timeout)).ok_or_else(
        || {
            let timeout = format_duration(timeout);
            let message =
                format!("step-down timeout {timeout} is out of range: use {MIN_TIMEOUT:?} to 1h");
            Error::invalid("timeout", message)
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeout_is_one_second_to_one_hour() {
        for millis in [1000, 3_600_000] {
            assert_eq!(to_millis(Duration::from_millis(millis.into())).ok(), Some(millis));
        }
        for timeout in [Duration::ZERO, Duration::from_millis(999), Duration::MAX] {
            let Err(Error::Invalid { field, .. }) = to_millis(timeout) else {
                panic!("{timeout:?} was accepted")
            };
            assert_eq!(field, "timeout");
        }
    }
}
