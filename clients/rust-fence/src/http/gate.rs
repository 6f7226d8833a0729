//! Admission of requests by their tokens.

use std::{
    collections::HashMap,
    fmt,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
};

use http::{Method, request::Parts};
use leasehold_client::Token;

use super::{
    TokenLayer, read,
    refusal::{Refusal, is_grpc},
};
use crate::{Admitted, HighestToken, LockToken};

/// Default number of locks. Their tokens take about 10 MiB of memory.
const MAX_LOCKS: usize = 100_000;

type Persisted = Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;
type Remember = Box<dyn Fn(&str, Token) -> Persisted + Send + Sync>;
type LockOf = Box<dyn Fn(&Parts) -> Option<String> + Send + Sync>;

/// Gate that stores the highest token of each lock and refuses lower ones.
pub struct TokenGate {
    max_locks: usize,
    remember: Option<Remember>,
    lock_of: Option<LockOf>,
    /// Highest tokens by lock (namespace, slash, name).
    seen: Mutex<HashMap<String, HighestToken>>,
    /// Locked while a token is raised and persisted, so that persisted tokens never
    /// decrease.
    raising: tokio::sync::Mutex<()>,
}

impl Default for TokenGate {
    fn default() -> Self {
        Self::new()
    }
}

impl TokenGate {
    /// Creates a gate that has seen no token.
    #[must_use]
    pub fn new() -> Self {
        Self {
            max_locks: MAX_LOCKS,
            remember: None,
            lock_of: None,
            seen: Mutex::default(),
            raising: tokio::sync::Mutex::default(),
        }
    }

    /// Sets the maximum number of locks whose tokens are stored (default 100,000).
    #[must_use]
    pub fn max_locks(mut self, max_locks: usize) -> Self {
        self.max_locks = max_locks;
        self
    }

    /// Restores a token that the callback of [`remember`](Self::remember) persisted
    /// before a restart.
    #[must_use]
    pub fn known(self, lock: impl Into<String>, token: Token) -> Self {
        _ = self.seen().entry(lock.into()).or_default().admit(token);
        self
    }

    /// Sets the callback that persists a raised token. Its arguments are the lock
    /// (namespace, slash, name) and a token higher than all before. The
    /// request is admitted after the callback has succeeded, and refused if it fails.
    #[must_use]
    pub fn remember<F>(
        mut self,
        remember: impl Fn(&str, Token) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<(), String>> + Send + 'static,
    {
        self.remember = Some(Box::new(move |lock, token| Box::pin(remember(lock, token))));
        self
    }

    /// Sets the function that returns the lock (namespace, slash, name) of the
    /// requested resource. A request for which it returns `None` needs no token.
    #[must_use]
    pub fn lock_of(
        mut self,
        lock_of: impl Fn(&Parts) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.lock_of = Some(Box::new(lock_of));
        self
    }

    /// Converts the gate into a layer. All clones and services of the layer share
    /// the stored tokens.
    #[must_use]
    pub fn layer(self) -> TokenLayer {
        TokenLayer(Arc::new(self))
    }

    /// Admits or refuses a request. Returns the lock and token of an admitted one;
    /// `None` if it needs none.
    pub(super) async fn admit(&self, request: &Parts) -> Result<Option<LockToken>, Refusal> {
        let required = match &self.lock_of {
            Some(lock_of) => match lock_of(request) {
                Some(lock) => Some(lock),
                None => return Ok(None),
            },
            None => None,
        };
        let Some(lock_token) = read(&request.headers)? else {
            let safe = [Method::GET, Method::HEAD, Method::OPTIONS].contains(&request.method);
            let passes = safe && !is_grpc(&request.headers);
            return if passes { Ok(None) } else { Err(Refusal::Missing) };
        };
        let lock = lock_token.qualified_lock();
        if let Some(required) = required.filter(|required| *required != lock) {
            return Err(Refusal::OtherLock { required, presented: lock });
        }
        if self.check(&lock, lock_token.token())? == Admitted::Raised {
            self.raise(&lock, lock_token.token()).await?;
        }
        Ok(Some(lock_token))
    }

    /// Compares a token with the highest one, without raising it.
    fn check(&self, lock: &str, token: Token) -> Result<Admitted, Refusal> {
        let seen = self.seen();
        let Some(highest) = seen.get(lock) else {
            let max_locks = self.max_locks;
            return if seen.len() < max_locks {
                Ok(Admitted::Raised)
            } else {
                Err(Refusal::Full { max_locks })
            };
        };
        let mut highest = *highest;
        highest.admit(token).map_err(|stale| Refusal::Stale { lock: lock.to_owned(), stale })
    }

    async fn raise(&self, lock: &str, token: Token) -> Result<(), Refusal> {
        let _one_at_a_time = self.raising.lock().await;
        // A concurrent request may have raised it.
        if self.check(lock, token)? == Admitted::Current {
            return Ok(());
        }
        if let Some(remember) = &self.remember {
            remember(lock, token).await.map_err(Refusal::NotPersisted)?;
        }
        self.seen().insert(lock.to_owned(), HighestToken::new(token));
        Ok(())
    }

    pub(super) fn seen(&self) -> std::sync::MutexGuard<'_, HashMap<String, HighestToken>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for TokenGate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenGate")
            .field("locks", &self.seen().len())
            .field("max_locks", &self.max_locks)
            .finish_non_exhaustive()
    }
}
