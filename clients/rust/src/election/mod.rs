//! Elections: locks whose holder publishes a value.

mod info;
mod leadership;
mod observe;
mod progress;
mod run;
mod step_down;

use std::{
    fmt,
    pin::Pin,
    sync::{Arc, Mutex},
    time::Duration,
};

pub use info::{ElectionState, Leader, StepDownResult};
pub use leadership::Leadership;
pub use observe::Observer;
pub use step_down::StepDownRequest;

use crate::{
    Client, Error,
    connection::elections,
    name, pb,
    request::granted_or_held,
    value::Value,
    wait_options::{WaitOptions, wait_option_methods},
};

type OnError = Box<dyn FnMut(&Error) + Send>;

/// Election, for campaigns and for observation. Created by [`Client::election`].
///
/// An election is the lock with the same name. The leader holds the lock and
/// publishes a value, candidates wait for the lock, and observers only read.
///
/// As with locks, **every campaign competes separately**: of two tasks that
/// campaign through clones of one client, one leads and the other waits.
#[must_use = "nothing is sent before `campaign`, `run_as_leader`, `observe` or `leader`"]
pub struct Election {
    client: Client,
    name: String,
    value: Vec<u8>,
    options: WaitOptions,
    /// Behind a mutex, so that elections can be shared between threads.
    on_error: Option<Arc<Mutex<OnError>>>,
}

impl Election {
    pub(crate) fn new(client: Client, name: String) -> Self {
        let options = WaitOptions::default();
        Self { client, name, value: Vec::new(), options, on_error: None }
    }

    /// Sets the value that [`run_as_leader`](Self::run_as_leader) publishes while it
    /// leads, for example the address of this worker: at most 4,096 bytes.
    /// Default: empty.
    pub fn value(mut self, value: impl Into<Vec<u8>>) -> Self {
        self.value = value.into();
        self
    }

    wait_option_methods!();

    /// Sets a callback for the errors after which
    /// [`run_as_leader`](Self::run_as_leader) campaigns again: [`Error::Lost`] and
    /// [`Error::Unavailable`]. Intended for logging.
    pub fn on_error(mut self, report: impl FnMut(&Error) + Send + 'static) -> Self {
        self.on_error = Some(Arc::new(Mutex::new(Box::new(report))));
        self
    }

    /// Campaigns: waits for the leadership, and then publishes `value` (at most
    /// 4,096 bytes; may be empty) until the leader
    /// [proclaims](Leadership::proclaim) another one. Await the returned value.
    ///
    /// # Errors
    /// - [`Error::NotGranted`]: another candidate led until the end of the wait.
    /// - [`Error::Unavailable`]: the daemon is unreachable, or can't serve the
    ///   request now.
    /// - [`Error::Invalid`]: the request is invalid. A value that is too large is
    ///   refused before anything is sent.
    /// - [`Error::NeedsOperator`] and [`Error::Incompatible`], as described there.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the campaign. A leadership that was already
    /// granted is released.
    pub fn campaign(self, value: impl Into<Vec<u8>>) -> Campaign {
        Campaign { value: Value::new(value), election: self }
    }

    async fn acquire_leadership(&self, value: Value) -> Result<Leadership, Error> {
        let (session, election) = (self.client.session_or_new(), self.lock_ref()?);
        let options = self.options.acquire_options(None, Some(value));
        let on_progress = self.options.on_progress();
        let guard = session.acquire(election, self.options.wait, options, on_progress).await?;
        Ok(Leadership::new(guard))
    }

    /// Returns the current state of the election. An election without any campaign
    /// so far has no leader.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an invalid name, [`Error::Unavailable`] if no daemon
    /// responds or the daemon can't read its storage.
    pub async fn leader(&self) -> Result<ElectionState, Error> {
        let request = pb::LeaderRequest { election: Some(self.lock_ref()?) };
        let response = self.client.connection().call(request, |channel, request| async move {
            elections(channel).leader(request).await
        });
        Ok(response.await?.state.unwrap_or_default().into())
    }

    /// Returns an observer, which receives the current state and then every change,
    /// including the state without a leader.
    pub fn observe(&self) -> Observer {
        Observer::new(self.client.connection(), self.lock_ref())
    }

    /// Returns an operator request to the leader to step down:
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # async fn example(client: leasehold_client::Client) -> Result<(), leasehold_client::Error> {
    /// let election = client.election("scheduler");
    /// election
    ///     .step_down()
    ///     .by("root@vm")
    ///     .reason("upgrade of node 7")
    ///     .timeout(Duration::from_secs(60))
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// The leader is [notified](crate::Guard::at_risk) at once. It loses the
    /// leadership when the timeout has elapsed, if it has not resigned by then.
    pub fn step_down(&self) -> StepDownRequest {
        StepDownRequest::new(self.client.clone(), self.lock_ref())
    }

    fn lock_ref(&self) -> Result<pb::LockRef, Error> {
        name::lock_ref(self.client.namespace(), &self.name)
    }
}

/// Campaign in an election. Created by [`Election::campaign`]; await it.
#[must_use = "nothing is sent before `.await`"]
#[derive(Debug)]
pub struct Campaign {
    election: Election,
    /// Value, or the error of a value that is too large.
    value: Result<Value, Error>,
}

impl Campaign {
    /// Takes the leadership if there is no leader, and returns `None` otherwise. Does
    /// not wait, regardless of the configured [wait](Election::wait).
    ///
    /// # Errors
    /// The errors of [`Election::campaign`], except [`Error::NotGranted`].
    pub async fn try_lead(self) -> Result<Option<Leadership>, Error> {
        granted_or_held(self.election.no_wait().acquire_leadership(self.value?).await)
    }
}

impl IntoFuture for Campaign {
    type Output = Result<Leadership, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    /// Sends the campaign and waits for the leadership.
    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { self.election.acquire_leadership(self.value?).await })
    }
}

impl fmt::Debug for Election {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Election")
            .field("namespace", &self.client.namespace())
            .field("name", &self.name)
            .field("wait", &self.options.wait)
            .finish_non_exhaustive()
    }
}
