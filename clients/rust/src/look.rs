//! Looking at locks, and an operator's means.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use tonic::{Request, Streaming};

use crate::{
    Broken, Change, Check, Client, DaemonInfo, Error, LockInfo, StoredInfo, TokenState, Watch,
    connection::Connection, name, pb, status,
};

const PAGE_SIZE: u32 = 500;

impl Client {
    /// One lock as it is now. A name that nobody has ever used is shown as not
    /// held.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a name that can't be one, [`Error::Unavailable`]
    /// if the daemon does not answer.
    pub async fn inspect(&self, name: &str) -> Result<LockInfo, Error> {
        let lock = Some(name::lock_ref(self.namespace(), name)?);
        let request = self.timed(pb::InspectRequest { lock, stored: false });
        let response = self.connection().locks().inspect(request).await;
        Ok(response.map_err(|s| status::error(&s))?.into_inner().lock.unwrap_or_default().into())
    }

    /// One lock as it is now and as it is stored, and what the daemon's storage
    /// was asked so far. Looks into the storage, unlike
    /// [`inspect`](Self::inspect) of a lock that a session of the daemon holds.
    ///
    /// # Errors
    /// As [`inspect`](Self::inspect).
    pub async fn inspect_stored(&self, name: &str) -> Result<StoredInfo, Error> {
        let lock = Some(name::lock_ref(self.namespace(), name)?);
        let request = self.timed(pb::InspectRequest { lock, stored: true });
        let response = self.connection().locks().inspect(request).await;
        Ok(response.map_err(|s| status::error(&s))?.into_inner().into())
    }

    /// The locks that are held or waited for and whose name begins with
    /// `prefix`, in the order of their names.
    #[must_use = "nothing is fetched before `next`"]
    pub fn list(&self, prefix: &str) -> List {
        List {
            connection: Arc::clone(self.connection()),
            request: Some(pb::ListRequest {
                namespace: self.namespace().to_owned(),
                prefix: prefix.to_owned(),
                page_size: PAGE_SIZE,
                page_token: String::new(),
            }),
            page: VecDeque::new(),
        }
    }

    /// The current state of one or more locks, and then every change.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a name that can't be one, [`Error::Unavailable`]
    /// if the daemon does not answer.
    pub async fn watch(&self, target: Watch) -> Result<Watching, Error> {
        let target = match target {
            Watch::Name(name) => {
                name::lock_ref(self.namespace(), &name)?;
                pb::watch_request::Target::Name(name)
            }
            Watch::Prefix(prefix) => pb::watch_request::Target::Prefix(prefix),
        };
        let request =
            pb::WatchRequest { namespace: self.namespace().to_owned(), target: Some(target) };
        let response = self.connection().locks().watch(request).await;
        Ok(Watching { changes: Some(response.map_err(|s| status::error(&s))?.into_inner()) })
    }

    /// Takes a lock from its holder, who is told at once. The lock is free as
    /// soon as the holder has let go, at the latest at its deadline. `reason`
    /// is shown to the holder; `by`, who asks, is written to the daemon's log.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a name or reason that can't be one,
    /// [`Error::Unavailable`] if the daemon does not answer.
    pub async fn break_lock(&self, name: &str, reason: &str, by: &str) -> Result<Broken, Error> {
        let lock = Some(name::lock_ref(self.namespace(), name)?);
        let (reason, by) = (reason.to_owned(), by.to_owned());
        let request = self.timed(pb::BreakRequest { lock, reason, by });
        let response = self.connection().locks().r#break(request).await;
        let broken = response.map_err(|s| status::error(&s))?.into_inner();
        Ok(Broken {
            broken: broken.broken,
            lock: broken.lock.unwrap_or_default().into(),
            free_within: Duration::from_millis(broken.free_within_ms),
        })
    }

    /// Says whether a token is that of the lock's present holder. If only another
    /// daemon knows, that one is asked, if it can be reached from here. The answer
    /// may be out of date when it arrives: a resource that must be safe
    /// compares tokens itself, and refuses one that is lower than the greatest
    /// it has seen.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a name that can't be one, [`Error::Unavailable`]
    /// if the daemon does not answer.
    pub async fn check(&self, name: &str, token: u64) -> Result<Check, Error> {
        let request =
            pb::CheckTokenRequest { lock: Some(name::lock_ref(self.namespace(), name)?), token };
        let first = self.send_check(self.connection(), request.clone()).await?;
        let peer = first.lock.daemon.as_ref().filter(|_| first.state == TokenState::Unknown);
        match self.peer(peer).await {
            // If the peer does not answer, or does not know either, the first answer
            // says what to do.
            Some(peer) => match self.send_check(&peer, request).await {
                Ok(second) if second.state != TokenState::Unknown => Ok(second),
                _ => Ok(first),
            },
            None => Ok(first),
        }
    }

    async fn send_check(
        &self,
        connection: &Connection,
        request: pb::CheckTokenRequest,
    ) -> Result<Check, Error> {
        let response = connection.locks().check_token(self.timed(request)).await;
        let check = response.map_err(|s| status::error(&s))?.into_inner();
        let state = match check.state() {
            pb::TokenState::Current => TokenState::Current,
            pb::TokenState::Stale => TokenState::Stale,
            pb::TokenState::NotHeld => TokenState::NotHeld,
            pb::TokenState::NeverGranted => TokenState::NeverGranted,
            pb::TokenState::Unknown => TokenState::Unknown,
            pb::TokenState::Unspecified => {
                return Err(Error::Incompatible {
                    message: "the daemon's answer on a token is one that this client does not know"
                        .to_owned(),
                });
            }
        };
        Ok(Check { state, lock: check.lock.unwrap_or_default().into() })
    }

    /// Connects to the daemon that must be asked, if its address is known and can
    /// be used from here. The address is a hint from a lock's record: nothing is
    /// sent to it but the same operator's request.
    pub(crate) async fn peer(&self, peer: Option<&DaemonInfo>) -> Option<Connection> {
        let endpoint = peer?.reachable()?;
        Connection::open(endpoint, self.connection().timeout()).await.ok()
    }

    pub(crate) fn timed<T>(&self, message: T) -> Request<T> {
        timed(self.connection(), message)
    }
}

fn timed<T>(connection: &Connection, message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(connection.timeout());
    request
}

/// Locks, fetched page by page. Made by [`Client::list`].
#[derive(Debug)]
pub struct List {
    connection: Arc<Connection>,
    /// Asks for the next page; none after the last one, or after a failure.
    request: Option<pb::ListRequest>,
    page: VecDeque<pb::LockInfo>,
}

impl List {
    /// The next lock; `None` after the last one, or after a failure.
    pub async fn next(&mut self) -> Option<Result<LockInfo, Error>> {
        loop {
            if let Some(lock) = self.page.pop_front() {
                return Some(Ok(lock.into()));
            }
            // Only taken once the answer is here, so that a call that was
            // dropped half-way can be repeated.
            let request = timed(&self.connection, self.request.clone()?);
            match self.connection.locks().list(request).await {
                Ok(response) => {
                    let response = response.into_inner();
                    self.page = response.locks.into();
                    let token = response.next_page_token;
                    self.request = (self.request.take())
                        .filter(|_| !token.is_empty())
                        .map(|request| pb::ListRequest { page_token: token, ..request });
                }
                Err(status) => {
                    self.request = None;
                    return Some(Err(status::error(&status)));
                }
            }
        }
    }
}

/// Changes of locks. Made by [`Client::watch`].
#[derive(Debug)]
pub struct Watching {
    /// None after the end.
    changes: Option<Streaming<pb::WatchResponse>>,
}

impl Watching {
    /// The next state or change; `None` after the daemon ended the watch, or
    /// after a failure.
    pub async fn next(&mut self) -> Option<Result<Change, Error>> {
        match self.changes.as_mut()?.message().await {
            Ok(Some(change)) => Some(Ok(Change {
                lock: change.lock.unwrap_or_default().into(),
                initial: change.initial,
            })),
            Ok(None) => {
                self.changes = None;
                None
            }
            Err(status) => {
                self.changes = None;
                Some(Err(status::error(&status)))
            }
        }
    }
}
