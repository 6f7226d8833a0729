//! Elections: a lock whose holder shows a value.

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

pub use info::{ElectionState, Leader, SteppedDown};
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

/// An election: to campaign in it, or to look who leads. Made by
/// [`Client::election`].
///
/// It is the lock of the same name: who leads, holds the lock, and shows a
/// value to all who look. Candidates wait for it in turn. Who only looks does
/// not compete.
///
/// As with locks, **every campaign competes on its own**: of two tasks that
/// campaign through clones of one client, one leads and the other waits.
#[must_use = "nothing is asked for before `campaign`, `run_as_leader` or `leader`"]
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

    /// What [`run_as_leader`](Self::run_as_leader) shows while it leads, such
    /// as the address where this worker is reached: at most 4,096 bytes.
    /// Nothing if it is not set.
    pub fn value(mut self, value: impl Into<Vec<u8>>) -> Self {
        self.value = value.into();
        self
    }

    wait_option_methods!();

    /// Is told of what [`run_as_leader`](Self::run_as_leader) goes on after:
    /// [`Error::Lost`] and [`Error::Unavailable`]. For logs.
    pub fn on_error(mut self, tell: impl FnMut(&Error) + Send + 'static) -> Self {
        self.on_error = Some(Arc::new(Mutex::new(Box::new(tell))));
        self
    }

    /// Campaigns: waits to lead, and then publishes `value` (at most 4,096
    /// bytes; may be empty) until the leader [proclaims](Leadership::proclaim)
    /// another. Await the result; dropping that future takes the campaign back.
    ///
    /// # Errors
    /// [`Error::NotGranted`] if somebody else leads, [`Error::Unavailable`] if
    /// the daemon can't be reached or can't serve this, [`Error::Invalid`] if
    /// the request can't be served by any daemon (a value that is too large is
    /// not even sent), [`Error::NeedsOperator`] and [`Error::Incompatible`] as
    /// they say.
    pub fn campaign(self, value: impl Into<Vec<u8>>) -> Campaign {
        Campaign { value: Value::new(value), election: self }
    }

    async fn stand(&self, value: Value) -> Result<Leadership, Error> {
        let (session, election) = (self.client.any_session(), self.lock_ref()?);
        let terms = self.options.terms(None, Some(value));
        let on_progress = self.options.on_progress();
        let guard = session.acquire(election, self.options.wait, terms, on_progress).await?;
        Ok(Leadership::new(guard))
    }

    /// Who leads now. An election that nobody has ever campaigned in is shown
    /// without a leader.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a name that can't be one, [`Error::Unavailable`]
    /// if the daemon does not answer or can't look into its storage.
    pub async fn leader(&self) -> Result<ElectionState, Error> {
        let request = pb::LeaderRequest { election: Some(self.lock_ref()?) };
        let response = self.client.connection().call(request, |channel, request| async move {
            elections(channel).leader(request).await
        });
        Ok(response.await?.state.unwrap_or_default().into())
    }

    /// Who leads now, and then every change, "nobody" included.
    pub fn observe(&self) -> Observer {
        Observer::new(self.client.connection(), self.lock_ref())
    }

    /// Asks the leader to finish and resign:
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

/// Campaign in an election. Made by [`Election::campaign`]; await it.
#[must_use = "nothing is sent before `.await`"]
#[derive(Debug)]
pub struct Campaign {
    election: Election,
    /// Or the reason why it can't be published.
    value: Result<Value, Error>,
}

impl Campaign {
    /// Leads if no one does, without waiting, whatever [wait](Election::wait) is
    /// set. Returns `None` if there is a leader.
    ///
    /// # Errors
    /// As [`Election::campaign`], except [`Error::NotGranted`].
    pub async fn try_lead(self) -> Result<Option<Leadership>, Error> {
        granted_or_held(self.election.no_wait().stand(self.value?).await)
    }
}

impl IntoFuture for Campaign {
    type Output = Result<Leadership, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    /// Sends the campaign and waits for the leadership.
    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { self.election.stand(self.value?).await })
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
