//! The Azure store: one blob for each lock, leased while the lock is held.
//!
//! `acquire.rs` has the protocol, `blob.rs` the calls, `record.rs` what is kept
//! with a blob, `path.rs` where that is.

pub mod account;
mod cache;
mod calls;
pub mod doctor;
pub mod protect;
mod protocol;
mod settings;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

pub use self::settings::Settings;
use self::{
    account::Account,
    cache::LockCache,
    calls::{
        blob::{Blobs, CallOptions},
        fault::Fault,
        limiter::Purpose,
    },
    protocol::{acquire::deadline, path},
};
use leasehold_rules::mutant::{self, Mutant};
use leasehold_runtime as task;
use leasehold_runtime::sleep;
use leasehold_store::{
    Acquire, AcquireParams, Break, Breaker, Call, CallCount, DURATIONS, Endpoint, Error, LeaseId,
    LeaseInfo, LeaseStore, Page, Publication, Publish, Release, Renew,
};
use leasehold_time::{Entropy, Moment};
use leasehold_types::LockName;

/// How often an account in trouble is asked whether it is back.
const ASK_AGAIN: Duration = Duration::from_secs(5);

/// The time limit of calls for those who only look.
const LOOK: Duration = Duration::from_secs(10);

/// The shortest lease: what is done for one of unknown duration is done in its
/// time.
const MIN_LEASE_DURATION: Duration = *DURATIONS.start();

/// Leases on blobs.
#[derive(Clone)]
pub struct AzureStore {
    shared: Arc<Shared>,
}

struct Shared {
    blobs: Blobs,
    memory: LockCache,
    prefix: String,
    /// Which daemon this is, for people.
    daemon: String,
    /// Address of this daemon, once its listeners are bound.
    endpoint: OnceLock<Endpoint>,
    /// What is told of the account.
    place: String,
    entropy: Mutex<Entropy>,
}

impl Shared {
    fn entropy(&self) -> MutexGuard<'_, Entropy> {
        self.entropy.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AzureStore {
    /// Uses an account. Begins to keep the container, and to collect long idle
    /// blobs, if that is configured. `daemon` names this process to people.
    #[must_use]
    pub fn new(account: Account, settings: &Settings, daemon: String, entropy: Entropy) -> Self {
        let account = Arc::new(account);
        let store = Self {
            shared: Arc::new(Shared {
                blobs: Blobs::new(Arc::clone(&account), settings.max_storage_calls),
                memory: LockCache::default(),
                prefix: settings.prefix.clone(),
                daemon,
                endpoint: OnceLock::new(),
                place: format!("azure, {} ({})", account.display(), account.credential_name()),
                entropy: Mutex::new(entropy),
            }),
        };
        task::spawn(store.clone().watch_account());
        if settings.protect_container {
            task::spawn(protect::keep(account, settings.container.clone()));
        }
        if !settings.collect_after.is_zero() {
            task::spawn(store.clone().collect(settings.collect_after));
        }
        store
    }

    /// While the account is in trouble and perhaps nobody asks for anything,
    /// finds out when it is back.
    async fn watch_account(self) {
        let why = CallOptions { cause: Purpose::Check, limit: ASK_AGAIN };
        loop {
            sleep(ASK_AGAIN).await;
            if self.shared.blobs.health.trouble().is_some() {
                _ = self.shared.blobs.reach(why).await;
            }
        }
    }

    fn nonce(&self) -> u128 {
        self.shared.entropy().bits()
    }

    fn path(&self, name: &LockName) -> String {
        path::of(&self.shared.prefix, name)
    }

    async fn list_leases(&self, wanted: &Page) -> Result<Vec<LeaseInfo>, Error> {
        let why = CallOptions { cause: Purpose::Look, limit: LOOK };
        let root = &self.shared.prefix;
        let start = match &wanted.namespace {
            Some(namespace) => path::beginning(root, namespace.as_str(), &wanted.prefix),
            None => path::root(root),
        };
        // The order of paths is not that of names: all are looked at, and the
        // first so many are kept.
        let mut found = BTreeMap::new();
        let mut marker = None;
        loop {
            let page = self.shared.blobs.list(&start, marker, why).await;
            let (page, next) = page.map_err(Fault::into_error)?;
            for listed in page {
                let Some(name) = path::lock(&self.shared.prefix, &listed.path) else { continue };
                if listed.seen.leased && wanted.contains(&name) {
                    found.insert(name, listed.seen);
                    if found.len() > wanted.limit {
                        found.pop_last();
                    }
                }
            }
            match next {
                Some(next) => marker = Some(next),
                None => break,
            }
        }
        Ok(found.into_iter().map(|(name, seen)| self.info(name, seen, None)).collect())
    }

    /// Gives up a lease if it is ours.
    async fn release_lease(&self, path: &str, id: LeaseId, why: CallOptions) -> Release {
        match self.shared.blobs.release(path, id, why).await {
            Ok(())
            | Err(Fault::NotOurs { .. } | Fault::NoBlob | Fault::NoContainer | Fault::Changed) => {
                Release::Released
            }
            Err(fault) => Release::Unknown { why: fault.why() },
        }
    }

    async fn break_now(&self, name: LockName, breaker: Breaker) -> Result<Break, Error> {
        let why = CallOptions { cause: Purpose::Break, limit: LOOK };
        let (path, until) = (self.path(&name), Moment::now() + LOOK);
        let mut retries = self.retries();
        let mut perhaps_done = false;
        let note = self.write_break_note(&name, &breaker).await;
        let free_within = loop {
            match self.shared.blobs.break_lease(&path, None, why).await {
                Ok(free_within) => break free_within,
                Err(Fault::NotOurs { .. }) if perhaps_done => break Duration::ZERO,
                Err(Fault::NotOurs { .. } | Fault::NoBlob) => {
                    self.delete_break_note(note).await;
                    return Ok(Break::NotHeld);
                }
                Err(fault) if fault.is_unclear() => {
                    perhaps_done = true;
                    if !retries.wait(until).await {
                        return Ok(Break::Unknown { why: fault.why() });
                    }
                }
                Err(fault) => {
                    // An earlier attempt may have broken it: then the note is right.
                    if !perhaps_done {
                        self.delete_break_note(note).await;
                    }
                    return Err(fault.into_error());
                }
            }
        };
        // While the lease lasts nobody but its holder can write: the note
        // follows, with our next hold or on its own.
        self.shared.memory.change(&name, |known| known.unnoted = Some(breaker.clone()));
        let store = self.clone();
        task::spawn(async move {
            store.clone().note_later(name, breaker, free_within).await;
            store.delete_break_note(note).await;
        });
        Ok(Break::Broken { free_within })
    }
}

impl LeaseStore for AzureStore {
    fn acquire(&self, claim: AcquireParams) -> Call<Acquire> {
        let store = self.clone();
        Call::pending(async move { store.acquire_lease(claim).await })
    }

    fn next_tokens(&self, name: &LockName, id: LeaseId) -> Call<Acquire> {
        let (store, name) = (self.clone(), name.clone());
        Call::pending(async move { store.more_tokens(name, id).await })
    }

    fn publish(&self, name: &LockName, id: LeaseId, publication: Publication) -> Call<Publish> {
        let (store, name) = (self.clone(), name.clone());
        Call::pending(async move { store.publish_hold(name, id, publication).await })
    }

    fn renew(&self, name: &LockName, id: LeaseId, duration: Duration) -> Call<Renew> {
        let (store, name, path) = (self.clone(), name.clone(), self.path(name));
        Call::pending(async move {
            let why = CallOptions { cause: Purpose::Renew, limit: limit(duration) };
            let (sent, renewed) = store.shared.blobs.renew(&path, id, why).await;
            Ok(match renewed {
                Ok(()) => Renew::Renewed { deadline: Some(deadline(sent, duration)) },
                Err(fault @ (Fault::NotOurs { .. } | Fault::NoBlob | Fault::NoContainer)) => {
                    let broken = match fault {
                        Fault::NotOurs { .. } => store.read_break_note(&name, id).await,
                        _ => None,
                    };
                    Renew::Lost { why: fault.why(), broken }
                }
                Err(_) if mutant::is(Mutant::UnclearRenewExtends) => {
                    Renew::Renewed { deadline: Some(deadline(sent, duration)) }
                }
                Err(fault) => Renew::Unknown { why: fault.why() },
            })
        })
    }

    fn release(&self, name: &LockName, id: LeaseId) -> Call<Release> {
        let (store, path) = (self.clone(), self.path(name));
        self.shared.memory.change(name, |known| {
            known.hold.take_if(|(held, _)| *held == id);
        });
        Call::pending(async move {
            let why = CallOptions { cause: Purpose::Release, limit: limit(MIN_LEASE_DURATION) };
            Ok(store.release_lease(&path, id, why).await)
        })
    }

    fn break_lease(&self, name: &LockName, breaker: Breaker) -> Call<Break> {
        let (store, name) = (self.clone(), name.clone());
        Call::pending(async move { store.break_now(name, breaker).await })
    }

    fn note_break(&self, name: &LockName, breaker: Breaker) -> Call<()> {
        let hold = self.shared.memory.get(name).and_then(|known| known.hold);
        let hold = hold.map(|(id, _)| id);
        self.shared.memory.change(name, |known| known.unnoted = Some(breaker.clone()));
        let (store, name) = (self.clone(), name.clone());
        Call::pending(async move {
            let noted = store.note(name.clone(), breaker.clone(), hold).await;
            // The holder may have been faster, and its lease is gone.
            task::spawn(store.note_later(name, breaker, Duration::ZERO));
            noted
        })
    }

    fn inspect(&self, name: &LockName) -> Call<Option<LeaseInfo>> {
        let (store, name) = (self.clone(), name.clone());
        Call::pending(async move { store.look_at(name).await })
    }

    fn list(&self, page: &Page) -> Call<Vec<LeaseInfo>> {
        let (store, page) = (self.clone(), page.clone());
        Call::pending(async move { store.list_leases(&page).await })
    }

    fn cover(&self, _: Duration) -> Call<()> {
        // After a crash the leases themselves keep others out until no holder
        // can believe in its grant.
        Call::Done(Ok(()))
    }

    fn advertise(&self, endpoint: Endpoint) {
        // Set once: a daemon's listeners do not change.
        _ = self.shared.endpoint.set(endpoint);
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn trouble(&self) -> Option<Error> {
        let why = self.shared.blobs.health.trouble()?;
        Some(Error::Unavailable { why, retry_after: self.shared.blobs.budget.throttled_for() })
    }

    fn describe(&self) -> String {
        self.shared.place.clone()
    }

    fn calls(&self) -> Vec<CallCount> {
        self.shared.blobs.budget.counts()
    }

    fn close(&self) -> Call<()> {
        Call::Done(Ok(()))
    }
}

/// How long a call may take: short enough that several fit into a lease.
fn limit(duration: Duration) -> Duration {
    (duration / 5).clamp(Duration::from_secs(3), Duration::from_secs(10))
}
