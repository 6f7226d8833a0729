//! Request for a lock.

use std::{fmt, pin::Pin, time::Duration};

use crate::{
    Client, Error, Guard, Holder, name,
    wait_options::{WaitOptions, wait_option_methods},
};

/// Progress of a waiting acquire.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Position in the queue of the daemon, counted from 1; 0 while the acquire
    /// is not in the queue.
    pub position: u32,
    /// Current holder, if known.
    pub holder: Option<Holder>,
    /// Time since the grant of the holder, if known.
    pub held_for: Option<Duration>,
    /// True if the holder is another acquire of the same session.
    pub held_by_same_session: bool,
    /// Human-readable note on an unusual condition; usually empty.
    pub note: String,
}

pub(crate) type OnProgress = Box<dyn FnMut(Progress) + Send>;

/// Request for a lock. Created by [`Client::lock`].
///
/// Send it with [`acquire`](Self::acquire), or await the request itself:
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

    /// Sets the maximum hold time, at least 1 s. The grant is lost when it has
    /// elapsed, even if the holder sends keep-alives. Default: no limit.
    pub fn max_hold_time(mut self, limit: Duration) -> Self {
        self.max_hold_time = Some(limit);
        self
    }

    /// Acquires the lock, and waits for it as configured. Without a limit, waits
    /// until the lock is granted, also while the daemon is unreachable.
    ///
    /// # Errors
    /// - [`Error::NotGranted`]: another acquire held the lock until the end of the
    ///   wait.
    /// - [`Error::Unavailable`]: the daemon is unreachable, or can't serve the
    ///   request now.
    /// - [`Error::Invalid`]: the request is invalid.
    /// - [`Error::NeedsOperator`] and [`Error::Incompatible`], as described there.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the request. A grant that was already on its
    /// way is released. A new request joins the queue at its end.
    pub async fn acquire(self) -> Result<Guard, Error> {
        let lock = name::lock_ref(self.client.namespace(), &self.name)?;
        let Self { client, options, max_hold_time, .. } = self;
        let acquire_options = options.acquire_options(max_hold_time, None);
        let on_progress = options.on_progress();
        client.session_or_new().acquire(lock, options.wait, acquire_options, on_progress).await
    }

    /// Acquires the lock if it is free. Returns `None` if it is held. Does not
    /// wait for a holder, regardless of the configured [wait](Self::wait).
    ///
    /// For a description of the holder, use [`no_wait`](Self::no_wait) and
    /// [`acquire`](Self::acquire), whose error contains it.
    ///
    /// ```no_run
    /// # async fn example(client: leasehold_client::Client) -> Result<(), leasehold_client::Error> {
    /// if let Some(guard) = client.lock("nightly-report").try_acquire().await? {
    ///     println!("acquired with token {}", guard.token());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The errors of [`acquire`](Self::acquire), except [`Error::NotGranted`].
    pub async fn try_acquire(self) -> Result<Option<Guard>, Error> {
        granted_or_held(self.no_wait().acquire().await)
    }

    /// Acquires the lock, runs `work`, and releases the lock. If the lock is lost,
    /// drops `work` at its current await point and returns [`Error::Lost`]. Also
    /// returns [`Error::Lost`] if `work` completed only after the loss.
    ///
    /// # Errors
    /// The errors of [`acquire`](Self::acquire), and [`Error::Lost`].
    pub async fn with<T>(self, work: impl AsyncFnOnce(&Guard) -> T) -> Result<T, Error> {
        let guard = self.acquire().await?;
        match guard.until_lost(work(&guard)).await {
            Ok(done) => {
                // The result is valid even if the release is not confirmed; it
                // is retried in the background.
                let _ = guard.release().await;
                Ok(done)
            }
            Err(loss) => Err(loss.into_error(guard.name())),
        }
    }
}

impl IntoFuture for LockRequest {
    type Output = Result<Guard, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    /// Equivalent to [`acquire`](LockRequest::acquire).
    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.acquire())
    }
}

/// Converts the refusal of a request that does not wait into `None`.
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
