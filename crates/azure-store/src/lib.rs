//! Store of leases in an Azure Storage account: one blob per lock, leased while
//! the lock is held.
//!
//! The lease keeps other daemons out. The blob's metadata is the lock's record:
//! its tokens, and the holder that peers see. A hold takes two calls: the lease,
//! and the record under it. Each renewal is one call, and so is the release. A
//! call with an unknown outcome never extends a hold. The decisions that safety
//! depends on are functions of `leasehold_rules`.
//!
//! | Module | Content |
//! |---|---|
//! | `protocol` | Sequences of calls: acquire, renew, release, publish, break, garbage collection; the record and its path |
//! | `calls` | Single storage calls, their limit, and the meaning of failures |
//! | `cache` | Records and versions that this process has seen |
//! | [`doctor`] | Checks that the account is usable |
//! | [`protect`] | Lease on the container, against accidental deletion |
//! | [`account`] | Client of the storage account |
//!
//! Access to the account (address, credentials, transport) is in
//! `leasehold_azure_account`.
#![forbid(unsafe_code)]

pub mod account;
mod cache;
mod calls;
pub mod doctor;
pub mod protect;
mod protocol;
mod settings;

use std::{
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use leasehold_runtime as task;
use leasehold_runtime::sleep;
use leasehold_store::{
    Acquire, AcquireParams, Break, Breaker, Call, CallCount, Endpoint, Error, LEASE_DURATIONS,
    LeaseId, LeaseInfo, LeaseStore, Page, Publication, Publish, Release, Renew, StoreStats,
};
use leasehold_time::Entropy;
use leasehold_types::LockName;

pub use self::settings::Settings;
use self::{
    account::Account,
    cache::LockCache,
    calls::{Blobs, CallOptions, limiter::Purpose},
    protocol::path,
};

/// Interval of checks of an account that is unavailable.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Timeout of calls that read for clients and operators.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// Minimum lease duration. Calls under a lease of unknown duration are limited as
/// if it had this one.
const MIN_LEASE_DURATION: Duration = *LEASE_DURATIONS.start();

/// Store of leases on blobs.
#[derive(Clone)]
pub struct AzureStore {
    shared: Arc<Shared>,
}

struct Shared {
    blobs: Blobs,
    cache: LockCache,
    prefix: String,
    /// Human-readable name of this daemon.
    daemon: String,
    /// Address of this daemon, once its listeners are bound.
    endpoint: OnceLock<Endpoint>,
    /// Human-readable location of the locks.
    location: String,
    entropy: Mutex<Entropy>,
}

impl Shared {
    fn entropy(&self) -> MutexGuard<'_, Entropy> {
        self.entropy.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AzureStore {
    /// Uses an account. Starts the background tasks: the check of an unavailable
    /// account and, if configured, the lease on the container and the garbage
    /// collection. `daemon` is the human-readable name of this process.
    #[must_use]
    pub fn new(account: Account, settings: &Settings, daemon: String, entropy: Entropy) -> Self {
        let account = Arc::new(account);
        let store = Self {
            shared: Arc::new(Shared {
                blobs: Blobs::new(Arc::clone(&account), settings.max_storage_calls),
                cache: LockCache::default(),
                prefix: settings.prefix.clone(),
                daemon,
                endpoint: OnceLock::new(),
                location: format!("azure, {} ({})", account.display(), account.credential_name()),
                entropy: Mutex::new(entropy),
            }),
        };
        task::spawn(store.clone().watch_account());
        if settings.protect_container {
            task::spawn(protect::keep(account, settings.container.clone()));
        }
        if !settings.gc_after.is_zero() {
            task::spawn(store.clone().collect(settings.gc_after));
        }
        store
    }

    /// Detects that an unavailable account has recovered, also without client requests.
    /// Never ends.
    async fn watch_account(self) {
        let options = CallOptions { purpose: Purpose::Check, timeout: CHECK_INTERVAL };
        loop {
            sleep(CHECK_INTERVAL).await;
            if self.shared.blobs.health.unavailability().is_some() {
                _ = self.shared.blobs.reach(options).await;
            }
        }
    }

    fn nonce(&self) -> u128 {
        self.shared.entropy().bits()
    }

    fn path(&self, name: &LockName) -> String {
        path::of(&self.shared.prefix, name)
    }

    /// Starts a protocol step, which owns a handle to the store and the name.
    fn run<T, F>(&self, name: &LockName, step: impl FnOnce(Self, LockName) -> F) -> Call<T>
    where
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        Call::pending(step(self.clone(), name.clone()))
    }
}

impl LeaseStore for AzureStore {
    fn acquire(&self, claim: AcquireParams) -> Call<Acquire> {
        let store = self.clone();
        Call::pending(async move { store.acquire_lease(claim).await })
    }

    fn next_tokens(&self, name: &LockName, id: LeaseId) -> Call<Acquire> {
        self.run(name, move |store, name| async move { store.more_tokens(name, id).await })
    }

    fn publish(&self, name: &LockName, id: LeaseId, publication: Publication) -> Call<Publish> {
        self.run(
            name,
            move |store, name| async move { store.publish_hold(name, id, publication).await },
        )
    }

    fn renew(&self, name: &LockName, id: LeaseId, duration: Duration) -> Call<Renew> {
        self.run(
            name,
            move |store, name| async move { Ok(store.renew_lease(name, id, duration).await) },
        )
    }

    fn release(&self, name: &LockName, id: LeaseId) -> Call<Release> {
        self.forget_hold(name, id);
        self.run(name, move |store, name| async move { Ok(store.release_hold(name, id).await) })
    }

    fn break_lease(&self, name: &LockName, breaker: Breaker) -> Call<Break> {
        self.run(name, move |store, name| async move { store.break_hold(name, breaker).await })
    }

    fn record_break(&self, name: &LockName, breaker: Breaker) -> Call<()> {
        let id = self.announce_break(name, &breaker);
        self.run(
            name,
            move |store, name| async move { store.record_own_break(name, breaker, id).await },
        )
    }

    fn inspect(&self, name: &LockName) -> Call<Option<LeaseInfo>> {
        self.run(name, move |store, name| async move { store.inspect_lease(name).await })
    }

    fn list(&self, page: &Page) -> Call<Vec<LeaseInfo>> {
        let (store, page) = (self.clone(), page.clone());
        Call::pending(async move { store.list_leases(&page).await })
    }

    fn persist_ttl(&self, _: Duration) -> Call<()> {
        // After a crash, the leases keep peers out until every grant has ended.
        Call::Done(Ok(()))
    }

    fn advertise(&self, endpoint: Endpoint) {
        // Set once: a daemon's listeners do not change.
        _ = self.shared.endpoint.set(endpoint);
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn unavailability(&self) -> Option<Error> {
        let why = self.shared.blobs.health.unavailability()?;
        Some(Error::Unavailable { why, retry_after: self.shared.blobs.limiter.throttled_for() })
    }

    fn describe(&self) -> String {
        self.shared.location.clone()
    }

    fn calls(&self) -> Vec<CallCount> {
        self.shared.blobs.limiter.counts()
    }

    fn stats(&self) -> StoreStats {
        StoreStats { account: Some(self.shared.blobs.stats()), directory: None }
    }

    fn close(&self) -> Call<()> {
        Call::Done(Ok(()))
    }
}
