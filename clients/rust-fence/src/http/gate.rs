//! Decision which requests pass.

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

/// As many as take about 10 MiB.
const MAX_LOCKS: usize = 100_000;

type Remembering = Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;
type Remember = Box<dyn Fn(&str, Token) -> Remembering + Send + Sync>;
type LockOf = Box<dyn Fn(&Parts) -> Option<String> + Send + Sync>;

/// Remembers the highest token of each lock, and refuses lower ones.
pub struct TokenGate {
    max_locks: usize,
    remember: Option<Remember>,
    lock_of: Option<LockOf>,
    /// By lock: namespace, slash, name.
    seen: Mutex<HashMap<String, HighestToken>>,
    /// Who raises a token: one at a time, so that what is remembered never
    /// falls.
    raising: tokio::sync::Mutex<()>,
}

impl Default for TokenGate {
    fn default() -> Self {
        Self::new()
    }
}

impl TokenGate {
    /// One that has seen nothing.
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

    /// Of how many locks tokens are remembered; 100,000 if nothing is said.
    #[must_use]
    pub fn max_locks(mut self, most: usize) -> Self {
        self.max_locks = most;
        self
    }

    /// A token that was seen before, as it was given to
    /// [`remember`](Self::remember).
    #[must_use]
    pub fn known(self, lock: impl Into<String>, token: Token) -> Self {
        _ = self.seen().entry(lock.into()).or_default().admit(token);
        self
    }

    /// Called with a lock (namespace, slash, name) and a token that is greater
    /// than all before, and waited for before the request is let through. If it
    /// fails, the request is refused.
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

    /// Which lock (namespace, slash, name) guards what a request is about. None
    /// if nothing does: then it is let through without a token.
    #[must_use]
    pub fn lock_of(
        mut self,
        lock_of: impl Fn(&Parts) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.lock_of = Some(Box::new(lock_of));
        self
    }

    /// As a layer. Its clones, and the services that it makes, share one memory.
    #[must_use]
    pub fn layer(self) -> TokenLayer {
        TokenLayer(Arc::new(self))
    }

    /// Whether a request is let through, and as whose.
    pub(super) async fn admit(&self, request: &Parts) -> Result<Option<LockToken>, Refusal> {
        let wanted = match &self.lock_of {
            Some(lock_of) => match lock_of(request) {
                Some(lock) => Some(lock),
                None => return Ok(None),
            },
            None => None,
        };
        let Some(fence) = read(&request.headers)? else {
            let safe = [Method::GET, Method::HEAD, Method::OPTIONS].contains(&request.method);
            let passes = safe && !is_grpc(&request.headers);
            return if passes { Ok(None) } else { Err(Refusal::Missing) };
        };
        let lock = fence.qualified_lock();
        if let Some(wanted) = wanted.filter(|wanted| *wanted != lock) {
            return Err(Refusal::OtherLock { wanted, given: lock });
        }
        if self.check(&lock, fence.token())? == Admitted::Raised {
            self.raise(&lock, fence.token()).await?;
        }
        Ok(Some(fence))
    }

    /// What would become of a token. Nothing is changed.
    fn check(&self, lock: &str, token: Token) -> Result<Admitted, Refusal> {
        let seen = self.seen();
        let Some(highest) = seen.get(lock) else {
            let most = self.max_locks;
            return if seen.len() < most {
                Ok(Admitted::Raised)
            } else {
                Err(Refusal::Full { most })
            };
        };
        let mut highest = *highest;
        highest.admit(token).map_err(|stale| Refusal::Stale { lock: lock.to_owned(), stale })
    }

    async fn raise(&self, lock: &str, token: Token) -> Result<(), Refusal> {
        let _one_at_a_time = self.raising.lock().await;
        // Others may have raised it meanwhile.
        if self.check(lock, token)? == Admitted::Current {
            return Ok(());
        }
        if let Some(remember) = &self.remember {
            remember(lock, token).await.map_err(Refusal::NotRemembered)?;
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
