//! Asking for a lock.

use std::{fmt, time::Duration};

use crate::{
    Client, Error, Guard, Holder, name,
    session::{Terms, Wait},
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

/// A wish for a lock. Made by [`Client::lock`].
#[must_use = "nothing is asked for before `acquire`"]
pub struct LockRequest {
    client: Client,
    name: String,
    wait: Wait,
    terms: Terms,
    on_progress: Option<OnProgress>,
}

impl LockRequest {
    pub(crate) fn new(client: Client, name: String) -> Self {
        let terms = Terms::default();
        Self { client, name, wait: Wait::Forever, terms, on_progress: None }
    }

    /// Waits at most this long.
    pub fn wait(mut self, limit: Duration) -> Self {
        self.wait = if limit.is_zero() { Wait::Not } else { Wait::AtMost(limit) };
        self
    }

    /// Does not wait: is refused if somebody else holds the lock.
    pub fn no_wait(mut self) -> Self {
        self.wait = Wait::Not;
        self
    }

    /// Waits for as long as it takes, also while the daemon can't be reached.
    /// This is the default.
    pub fn wait_forever(mut self) -> Self {
        self.wait = Wait::Forever;
        self
    }

    /// The longest time for which the lock may be held: at least 1 s. The
    /// grant is lost afterwards, however alive its holder is.
    pub fn longest_hold(mut self, limit: Duration) -> Self {
        self.terms.longest_hold = Some(limit);
        self
    }

    /// How long the storage lease lasts without a renewal, if it must be
    /// acquired for this request: 15 to 60 whole seconds. A shorter one frees
    /// the lock earlier after a crash of the daemon, a longer one outlasts
    /// longer outages of the storage. Without it, as the daemon is configured.
    pub fn lease_duration(mut self, duration: Duration) -> Self {
        self.terms.lease_duration = Some(duration);
        self
    }

    /// Is called while the acquire waits, whenever something has changed.
    pub fn on_progress(mut self, tell: impl FnMut(Progress) + Send + 'static) -> Self {
        self.on_progress = Some(Box::new(tell));
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
        self.client.any_session().acquire(lock, self.wait, self.terms, self.on_progress).await
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

impl fmt::Debug for LockRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockRequest")
            .field("namespace", &self.client.namespace())
            .field("name", &self.name)
            .field("wait", &self.wait)
            .field("terms", &self.terms)
            .finish_non_exhaustive()
    }
}
