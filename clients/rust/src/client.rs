//! The client: a connection, a namespace, and a session shared by its clones.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use crate::{
    ClientBuilder, Election, Endpoints, Error, Guard, Leadership, LockRequest, SessionInfo,
    connection::Connection,
    session::{Profile, Session},
};

/// A connection to a daemon, with at most one session. Cheap to clone; the
/// clones share the session.
///
/// The session is opened by the first acquire. It ends, and gives back all
/// that it holds, when the last clone and the last [`Guard`] are gone.
///
/// **Every acquire competes on its own.** Two tasks that acquire the same lock
/// exclude each other, also through clones of one client. Locks are not
/// reentrant: a task that acquires a lock which it already holds waits for
/// itself. The session decides only how long grants outlive the program.
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
    /// to the first of [several](Endpoints) that answers.
    ///
    /// With several endpoints, a new session and every other call go to the
    /// daemon that answered last, and to the next in the list if it can't be
    /// reached. A session belongs to one daemon: after a broken connection the
    /// client resumes it there. If that daemon has been silent for the session's
    /// TTL, its grants are lost; the client then opens a new session at another
    /// endpoint, and waiting acquires continue there.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an endpoint of another form, and
    /// [`Error::Unavailable`] if no daemon answers.
    pub async fn connect(endpoints: impl Into<Endpoints>) -> Result<Self, Error> {
        Self::builder(endpoints).connect().await
    }

    /// Creates a client with other settings than [`connect`](Self::connect).
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

    /// Asks for a lock; by default, waits for it for ever.
    pub fn lock(&self, name: impl Into<String>) -> LockRequest {
        LockRequest::new(self.clone(), name.into())
    }

    /// Does `work` under a lock, and gives the lock back afterwards. When the
    /// lock is lost, `work` is dropped where it stands and the answer is
    /// [`Error::Lost`]. The same as
    /// [`client.lock(name).with(work)`](LockRequest::with).
    ///
    /// # Errors
    /// As [`LockRequest::acquire`], and [`Error::Lost`].
    pub async fn with_lock<T>(
        &self,
        name: impl Into<String>,
        work: impl AsyncFnOnce(&Guard) -> T,
    ) -> Result<T, Error> {
        self.lock(name).with(work).await
    }

    /// The election of this name: to campaign in it, or to look who leads.
    pub fn election(&self, name: impl Into<String>) -> Election {
        Election::new(self.clone(), name.into())
    }

    /// Does `work` whenever this client leads the election, until `work` ends
    /// by itself. The same as
    /// [`client.election(name).run_as_leader(work)`](Election::run_as_leader),
    /// which can also show a value.
    ///
    /// # Errors
    /// As [`Election::run_as_leader`].
    pub async fn run_as_leader<T>(
        &self,
        name: impl Into<String>,
        work: impl AsyncFnMut(&Leadership) -> T,
    ) -> Result<T, Error> {
        self.election(name).run_as_leader(work).await
    }

    /// The same session, for the locks of another namespace.
    #[must_use]
    pub fn in_namespace(&self, namespace: impl Into<String>) -> Self {
        Self { shared: Arc::clone(&self.shared), namespace: namespace.into().into() }
    }

    /// The same connection and namespace, with a session of its own, which
    /// expires and closes independently of this one.
    #[must_use]
    pub fn new_session(&self) -> Self {
        Self::new(
            Arc::clone(&self.shared.connection),
            Arc::clone(&self.shared.profile),
            Arc::clone(&self.namespace),
        )
    }

    /// The session as the daemon knows it; `None` before the first acquire.
    #[must_use]
    pub fn session(&self) -> Option<SessionInfo> {
        self.present_session()?.info()
    }

    /// Ends the session and frees its locks: its guards are lost. Waits for
    /// the daemon's answer, though not for long. A later acquire opens a new
    /// session.
    ///
    /// Call it before the program ends: what is still on its way then may not
    /// reach the daemon.
    pub async fn close(&self) {
        let session = self.slot().take();
        if let Some(session) = session {
            session.close().await;
        }
    }

    /// The session, made if there is none; it opens at its first use.
    pub(crate) fn any_session(&self) -> Arc<Session> {
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

    fn present_session(&self) -> Option<Arc<Session>> {
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
