//! Asking for a lock.

use std::{fmt, pin::Pin, time::Duration};

use crate::{
    Client, Error, Guard, Holder, name,
    wait_options::{WaitOptions, wait_option_methods},
};

/// How a waiting acquire stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// How many waiters are served before it, plus one; 0 while it is not in
    /// the queue.
    pub position: u32,
    /// Who holds the lock now, if it is known.
    pub holder: Option<Holder>,
    /// For how long, if it is known.
    pub held_for: Option<Duration>,
    /// Whether the holder is another acquire of the same session.
    pub held_by_same_session: bool,
    /// Anything out of the ordinary, for people; empty as a rule.
    pub note: String,
}

pub(crate) type OnProgress = Box<dyn FnMut(Progress) + Send>;

/// Request for a lock. Made by [`Client::lock`].
///
/// Send it with [`acquire`](Self::acquire) or, which is the same, by awaiting
/// it:
///
/// ```no_run
/// # async fn example(client: leasehold_client::Client) -> Result<(), leasehold_client::Error> {
/// let guard = client.lock("orders").await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing is sent before `acquire`, `try_acquire` or `.await`"]
pub struct LockRequest {
    client: Client,
    name: String,
    options: WaitOptions,
    max_hold_time: Option<Duration>,
}

impl LockRequest {
    pub(crate) fn new(client: Client, name: String) -> Self {
        Self { client, name, options: WaitOptions::default(), max_hold_time: None }
    }

    wait_option_methods!();

    /// The longest time for which the lock may be held: at least 1 s. The
    /// grant is lost afterwards, however alive its holder is.
    pub fn max_hold_time(mut self, limit: Duration) -> Self {
        self.max_hold_time = Some(limit);
        self
    }

    /// Waits for the lock. Dropping the future takes the request back.
    ///
    /// # Errors
    /// [`Error::NotGranted`] if somebody else has the lock,
    /// [`Error::Unavailable`] if the daemon can't be reached or can't serve
    /// this, [`Error::Invalid`] if the request can't be served by any daemon,
    /// [`Error::NeedsOperator`] and [`Error::Incompatible`] as they say.
    pub async fn acquire(self) -> Result<Guard, Error> {
        let lock = name::lock_ref(self.client.namespace(), &self.name)?;
        let Self { client, options, max_hold_time, .. } = self;
        let (terms, on_progress) = (options.terms(max_hold_time, None), options.on_progress());
        client.any_session().acquire(lock, options.wait, terms, on_progress).await
    }

    /// Acquires the lock if it is free, without waiting for a holder, whatever
    /// [wait](Self::wait) is set. Returns `None` if the lock is held. To learn
    /// by whom, use [`no_wait`](Self::no_wait) and [`acquire`](Self::acquire),
    /// whose error names the holder.
    ///
    /// ```no_run
    /// # async fn example(client: leasehold_client::Client) -> Result<(), leasehold_client::Error> {
    /// if let Some(guard) = client.lock("nightly-report").try_acquire().await? {
    ///     println!("it is this program's turn, with token {}", guard.token());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire), except [`Error::NotGranted`].
    pub async fn try_acquire(self) -> Result<Option<Guard>, Error> {
        granted_or_held(self.no_wait().acquire().await)
    }

    /// Acquires the lock, does `work`, and gives the lock back. When the lock
    /// is lost, `work` is dropped where it stands and the answer is
    /// [`Error::Lost`]; it is the same if `work` has ended but only after the
    /// lock was lost.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire), and [`Error::Lost`].
    pub async fn with<T>(self, work: impl AsyncFnOnce(&Guard) -> T) -> Result<T, Error> {
        let guard = self.acquire().await?;
        let outcome = tokio::select! {
            biased;
            loss = guard.lost() => Err(loss),
            done = work(&guard) => guard.loss().map_or(Ok(done), Err),
        };
        match outcome {
            Ok(done) => {
                // What was done is done, whether or not the release is
                // confirmed; it is tried again in the background.
                let _ = guard.release().await;
                Ok(done)
            }
            Err(loss) => Err(loss.of(guard.name())),
        }
    }
}

impl IntoFuture for LockRequest {
    type Output = Result<Guard, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    /// Sends the request, as [`acquire`](LockRequest::acquire) does.
    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.acquire())
    }
}

/// Turns the refusal of a request that does not wait into `None`.
pub(crate) fn granted_or_held<T>(outcome: Result<T, Error>) -> Result<Option<T>, Error> {
    match outcome {
        Ok(granted) => Ok(Some(granted)),
        Err(Error::NotGranted { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

impl fmt::Debug for LockRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockRequest")
            .field("namespace", &self.client.namespace())
            .field("name", &self.name)
            .field("wait", &self.options.wait)
            .field("lease_duration", &self.options.lease_duration)
            .field("max_hold_time", &self.max_hold_time)
            .finish_non_exhaustive()
    }
}
