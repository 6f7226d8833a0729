//! Calls for inspection and for operators.

use std::{
    collections::VecDeque,
    fmt,
    future::poll_fn,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use tokio_stream::Stream;
use tonic::Streaming;

use crate::{
    BreakRequest, Change, Check, Client, DaemonInfo, Endpoints, Error, LockInfo, StoredInfo, Token,
    TokenState, Watch,
    connection::{Connection, locks},
    name, pb, status,
};

const PAGE_SIZE: u32 = 500;

impl Client {
    /// Returns the current state of a lock. A lock that was never used is reported
    /// as not held.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an invalid name, [`Error::Unavailable`] if no daemon
    /// responds.
    pub async fn inspect(&self, name: &str) -> Result<LockInfo, Error> {
        let lock = Some(name::lock_ref(self.namespace(), name)?);
        let request = pb::InspectRequest { lock, include_storage: false };
        let response = self
            .connection()
            .call(request, |channel, request| async move { locks(channel).inspect(request).await });
        Ok(response.await?.lock.unwrap_or_default().into())
    }

    /// Returns the current state of a lock including its record in the store, and
    /// the storage calls of the daemon since its start. Always reads the storage,
    /// unlike [`inspect`](Self::inspect) of a lock that a session of the daemon
    /// holds.
    ///
    /// # Errors
    /// The errors of [`inspect`](Self::inspect).
    pub async fn inspect_stored(&self, name: &str) -> Result<StoredInfo, Error> {
        let lock = Some(name::lock_ref(self.namespace(), name)?);
        let request = pb::InspectRequest { lock, include_storage: true };
        let response = self
            .connection()
            .call(request, |channel, request| async move { locks(channel).inspect(request).await });
        Ok(response.await?.into())
    }

    /// Lists the locks that have a holder or a waiter and whose name starts with
    /// `prefix`, ordered by name.
    pub fn list(&self, prefix: &str) -> List {
        let namespace = self.namespace().to_owned();
        self.list_pages(pb::ListRequest { namespace, ..list_request(prefix) })
    }

    /// Lists the locks of all namespaces that have a holder or a waiter and whose
    /// name within the namespace starts with `prefix`, ordered by
    /// "namespace/name".
    pub fn list_all_namespaces(&self, prefix: &str) -> List {
        self.list_pages(pb::ListRequest { all_namespaces: true, ..list_request(prefix) })
    }

    fn list_pages(&self, request: pb::ListRequest) -> List {
        let connection = Arc::clone(self.connection());
        List { connection, request: Some(request), page: VecDeque::new(), fetching: None }
    }

    /// Watches one or more locks: the stream returns their current state, and then
    /// the latest state of each lock that changes.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an invalid name, [`Error::Unavailable`] if no daemon
    /// responds.
    pub async fn watch(&self, target: Watch) -> Result<WatchStream, Error> {
        let target = match target {
            Watch::Name(name) => {
                name::lock_ref(self.namespace(), &name)?;
                pb::watch_request::Target::Name(name)
            }
            Watch::Prefix(prefix) => pb::watch_request::Target::Prefix(prefix),
        };
        let request =
            pb::WatchRequest { namespace: self.namespace().to_owned(), target: Some(target) };
        let response = self.connection().on_any(|channel| {
            let request = request.clone();
            async move { locks(channel).watch(request).await }
        });
        let changes = response.await.map_err(|status| status::error(&status))?.into_inner();
        Ok(WatchStream { changes: Some(changes) })
    }

    /// Breaks a lock: ends the grant of its holder, which is notified at once. The
    /// lock is free when the holder has released it, and no later than at the
    /// deadline of the holder.
    ///
    /// ```no_run
    /// # async fn example(client: leasehold_client::Client) -> Result<(), leasehold_client::Error> {
    /// client.break_lock("orders").by("root@vm").reason("worker stuck, incident 4711").await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn break_lock(&self, name: &str) -> BreakRequest {
        BreakRequest::new(self.clone(), name::lock_ref(self.namespace(), name))
    }

    /// Checks whether a token belongs to the current holder of a lock. If only a
    /// peer of the daemon knows, the client queries that peer, if it is reachable
    /// from this host.
    ///
    /// The result may be out of date on arrival. A fenced resource therefore
    /// compares tokens itself, and refuses a token lower than the highest it has
    /// seen.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an invalid name, [`Error::Unavailable`] if no daemon
    /// responds.
    pub async fn check(&self, name: &str, token: Token) -> Result<Check, Error> {
        let lock = Some(name::lock_ref(self.namespace(), name)?);
        let request = pb::CheckTokenRequest { lock, token: token.get() };
        let first = send_check(self.connection(), request.clone()).await?;
        let peer = first.lock.daemon.as_ref().filter(|_| first.state == TokenState::Unknown);
        match self.peer(peer).await {
            // If the peer does not respond, or does not know either, the first
            // response is the more useful one.
            Some(peer) => match send_check(&peer, request).await {
                Ok(second) if second.state != TokenState::Unknown => Ok(second),
                _ => Ok(first),
            },
            None => Ok(first),
        }
    }

    /// Connects to a peer of the daemon, if its address is known and reachable from
    /// this host. The address comes from the record of a lock and is not
    /// authenticated. The client sends only the same operator request to it.
    pub(crate) async fn peer(&self, peer: Option<&DaemonInfo>) -> Option<Connection> {
        let endpoint = Endpoints::from(peer?.reachable()?);
        Connection::open(&endpoint, self.connection().timeout()).await.ok()
    }
}

async fn send_check(
    connection: &Connection,
    request: pb::CheckTokenRequest,
) -> Result<Check, Error> {
    let response = connection
        .call(request, |channel, request| async move { locks(channel).check_token(request).await });
    let check = response.await?;
    let state = match check.state() {
        pb::TokenState::Current => TokenState::Current,
        pb::TokenState::Stale => TokenState::Stale,
        pb::TokenState::NotHeld => TokenState::NotHeld,
        pb::TokenState::NeverGranted => TokenState::NeverGranted,
        pb::TokenState::Unknown => TokenState::Unknown,
        pb::TokenState::Unspecified => {
            return Err(Error::Incompatible {
                message: "the daemon sent an unknown token state; upgrade this client".to_owned(),
            });
        }
    };
    Ok(Check { state, lock: check.lock.unwrap_or_default().into() })
}

fn list_request(prefix: &str) -> pb::ListRequest {
    pb::ListRequest { prefix: prefix.to_owned(), page_size: PAGE_SIZE, ..Default::default() }
}

type Fetching = Pin<Box<dyn Future<Output = Result<pb::ListResponse, Error>> + Send>>;

/// Stream of locks, fetched page by page. Created by [`Client::list`].
#[must_use = "nothing is fetched before `next`"]
pub struct List {
    connection: Arc<Connection>,
    /// Request for the next page; `None` after the last page or a failure.
    request: Option<pb::ListRequest>,
    page: VecDeque<pb::LockInfo>,
    /// Pending request for the next page.
    fetching: Option<Fetching>,
}

impl List {
    /// Returns the next lock; `None` after the last lock or a failure.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an invalid namespace, [`Error::Unavailable`] if no
    /// daemon responds.
    ///
    /// # Cancel safety
    /// Cancel-safe.
    pub async fn next(&mut self) -> Option<Result<LockInfo, Error>> {
        poll_fn(|context| Pin::new(&mut *self).poll_next(context)).await
    }
}

async fn fetch(
    connection: Arc<Connection>,
    request: pb::ListRequest,
) -> Result<pb::ListResponse, Error> {
    let response = connection
        .call(request, |channel, request| async move { locks(channel).list(request).await });
    response.await
}

impl Stream for List {
    type Item = Result<LockInfo, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(lock) = self.page.pop_front() {
                return Poll::Ready(Some(Ok(lock.into())));
            }
            let Some(request) = self.request.clone() else { return Poll::Ready(None) };
            let connection = Arc::clone(&self.connection);
            let fetching =
                self.fetching.get_or_insert_with(|| Box::pin(fetch(connection, request)));
            let fetched = ready!(fetching.as_mut().poll(context));
            self.fetching = None;
            let request = self.request.take();
            match fetched {
                Ok(response) => {
                    self.page = response.locks.into();
                    let page_token = response.next_page_token;
                    self.request = request
                        .filter(|_| !page_token.is_empty())
                        .map(|request| pb::ListRequest { page_token, ..request });
                }
                Err(error) => return Poll::Ready(Some(Err(error))),
            }
        }
    }
}

impl fmt::Debug for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("List").field("request", &self.request).finish_non_exhaustive()
    }
}

/// Stream of changes of locks. Created by [`Client::watch`].
#[derive(Debug)]
#[must_use = "nothing is received before `next`"]
pub struct WatchStream {
    /// `None` after the end of the stream.
    changes: Option<Streaming<pb::WatchResponse>>,
}

impl WatchStream {
    /// Returns the next state or change; `None` after the end of the watch or a
    /// failure.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if the connection to the daemon fails.
    ///
    /// # Cancel safety
    /// Cancel-safe.
    pub async fn next(&mut self) -> Option<Result<Change, Error>> {
        poll_fn(|context| Pin::new(&mut *self).poll_next(context)).await
    }
}

impl Stream for WatchStream {
    type Item = Result<Change, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some(changes) = &mut self.changes else { return Poll::Ready(None) };
        let received = ready!(Pin::new(changes).poll_next(context));
        if !matches!(received, Some(Ok(_))) {
            self.changes = None;
        }
        Poll::Ready(received.map(|received| match received {
            Ok(change) => {
                Ok(Change { lock: change.lock.unwrap_or_default().into(), initial: change.initial })
            }
            Err(status) => Err(status::error(&status)),
        }))
    }
}
