//! The client: a connection, a namespace, and a session that its clones share.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use crate::{
    ClientBuilder, Election, Endpoints, Error, Guard, Leadership, LockRequest, SessionInfo,
    connection::Connection,
    session::{Profile, Session},
};

/// Connection to a daemon, with at most one session. Cheap to clone; all clones
/// share the session.
///
/// The first acquire opens the session. When the last clone and the last
/// [`Guard`] are dropped, the session closes and releases its locks.
///
/// **Every acquire competes separately.** Two tasks that acquire the same lock
/// exclude each other, also through clones of one client. Locks are not
/// reentrant: a task that acquires a lock it already holds deadlocks. The
/// session determines only how long grants outlive the program.
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
    namespace: Arc<str>,
}

struct Shared {
    connection: Arc<Connection>,
    profile: Arc<Profile>,
    session: Mutex<Option<Arc<Session>>>,
}

impl Client {
    /// Connects to a daemon at `http://HOST:PORT` or, on Unix, `unix:/PATH`, or
    /// to the first of [several](Endpoints) daemons that responds.
    ///
    /// With several endpoints, new sessions and unary calls go to the daemon that
    /// responded last. If it is unreachable, they go to the next one in the list.
    /// A session belongs to one daemon, and the client resumes it there after a
    /// disconnect. If that daemon has been silent for the session TTL, the grants
    /// of the session are lost. The client then opens a new session at another
    /// endpoint, and pending acquires continue there.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a malformed endpoint, and [`Error::Unavailable`] if
    /// no daemon responds.
    pub async fn connect(endpoints: impl Into<Endpoints>) -> Result<Self, Error> {
        Self::builder(endpoints).connect().await
    }

    /// Returns a builder for a client with custom settings.
    pub fn builder(endpoints: impl Into<Endpoints>) -> ClientBuilder {
        ClientBuilder::new(endpoints.into())
    }

    pub(crate) fn new(
        connection: Arc<Connection>,
        profile: Arc<Profile>,
        namespace: Arc<str>,
    ) -> Self {
        let shared = Shared { connection, profile, session: Mutex::new(None) };
        Self { shared: Arc::new(shared), namespace }
    }

    /// Returns a request for a lock. By default it waits without a time limit.
    pub fn lock(&self, name: impl Into<String>) -> LockRequest {
        LockRequest::new(self.clone(), name.into())
    }

    /// Acquires a lock, runs `work`, and releases the lock. If the lock is lost,
    /// drops `work` at its current await point and returns [`Error::Lost`].
    ///
    /// Shorthand for [`client.lock(name).with(work)`](LockRequest::with).
    ///
    /// # Errors
    /// The errors of [`LockRequest::acquire`], and [`Error::Lost`].
    pub async fn with_lock<T>(
        &self,
        name: impl Into<String>,
        work: impl AsyncFnOnce(&Guard) -> T,
    ) -> Result<T, Error> {
        self.lock(name).with(work).await
    }

    /// Returns the election with this name, to campaign in it or to observe it.
    pub fn election(&self, name: impl Into<String>) -> Election {
        Election::new(self.clone(), name.into())
    }

    /// Runs `work` in each leadership of this client, until `work` returns.
    ///
    /// Shorthand for
    /// [`client.election(name).run_as_leader(work)`](Election::run_as_leader),
    /// without a published value.
    ///
    /// # Errors
    /// The errors of [`Election::run_as_leader`].
    pub async fn run_as_leader<T>(
        &self,
        name: impl Into<String>,
        work: impl AsyncFnMut(&Leadership) -> T,
    ) -> Result<T, Error> {
        self.election(name).run_as_leader(work).await
    }

    /// Returns a client for another namespace that shares this session.
    #[must_use]
    pub fn in_namespace(&self, namespace: impl Into<String>) -> Self {
        Self { shared: Arc::clone(&self.shared), namespace: namespace.into().into() }
    }

    /// Returns a client with the same connection and namespace and a separate
    /// session, which expires and closes independently of this one.
    #[must_use]
    pub fn new_session(&self) -> Self {
        Self::new(
            Arc::clone(&self.shared.connection),
            Arc::clone(&self.shared.profile),
            Arc::clone(&self.namespace),
        )
    }

    /// Returns the parameters of the session; `None` while no session is open.
    #[must_use]
    pub fn session(&self) -> Option<SessionInfo> {
        self.current_session()?.info()
    }

    /// Closes the session, which releases its locks; its guards are lost. Waits
    /// until the daemon has confirmed, at most for the connect timeout. A later
    /// acquire opens a new session.
    ///
    /// Call this before the program ends, because messages that are pending at
    /// exit may not reach the daemon.
    ///
    /// If the future is dropped, the session closes in the background.
    pub async fn close(&self) {
        let session = self.slot().take();
        if let Some(session) = session {
            session.close().await;
        }
    }

    /// Returns the session, and creates it if there is none. It opens at its first
    /// use.
    pub(crate) fn session_or_new(&self) -> Arc<Session> {
        let mut slot = self.slot();
        let session = slot.get_or_insert_with(|| {
            Session::new(Arc::clone(&self.shared.connection), Arc::clone(&self.shared.profile))
        });
        Arc::clone(session)
    }

    pub(crate) fn connection(&self) -> &Arc<Connection> {
        &self.shared.connection
    }

    pub(crate) fn namespace(&self) -> &str {
        &self.namespace
    }

    fn current_session(&self) -> Option<Arc<Session>> {
        self.slot().clone()
    }

    fn slot(&self) -> std::sync::MutexGuard<'_, Option<Arc<Session>>> {
        self.shared.session.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("namespace", &self.namespace)
            .field("session", &self.session())
            .finish_non_exhaustive()
    }
}
