//! Embedded store: leases in memory, tokens on disk.
//!
//! A token is a time of the wall clock (`tokens.rs`). One durable write
//! reserves a second of tokens for all locks, so an acquire costs no disk write
//! and the file does not grow with the number of locks. The next reservation is
//! written while half of the current one is left.
//!
//! Leases do not expire, and end with the process. The TTL of a session is on
//! disk before the session opens. After a crash, the store grants nothing until
//! the maximum of these TTLs has elapsed, because earlier holders may still rely
//! on their grants.
//!
//! The directory belongs to this process only while its path leads to the
//! directory and the lock file that the process has locked (`directory.rs`).
//! Otherwise another daemon may have opened the same path. This daemon then
//! permanently stops granting and writing.

mod breaks;
mod data_dir;
mod directory;
mod doctor;
mod record;
mod tokens;
mod write;

use std::{
    collections::{BTreeMap, btree_map::Entry},
    path::Path,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use breaks::Breaks;
use data_dir::DataDir;
pub use directory::{Blocking, Completion, Identity, NewState, OpenError, StateDir};
pub use doctor::diagnose;
use record::Record;
use tokens::TokenSource;
use write::run_to_completion;

use leasehold_rules::recovered_at;
use leasehold_store::{
    Acquire, AcquireParams, Acquired, Break, Breaker, Call, CallCount, Error, LeaseId, LeaseInfo,
    LeaseStore, Page, Publication, Publish, Release, Renew, StoreStats, stats::DirectoryStats,
};
use leasehold_time::Moment;
use leasehold_types::{Holder, LockName};

/// Delay before a failed write is retried.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Maximum age of the identity check before a grant. Another daemon needs longer
/// from opening the directory to its first grant, because it writes and syncs its
/// state in between.
const MAX_IDENTITY_AGE: Duration = Duration::from_millis(1);

/// Leases of this process, in memory, with durable tokens in a directory.
#[derive(Clone)]
pub struct Embedded {
    shared: Arc<Shared>,
}

struct Shared {
    directory: Arc<dyn StateDir>,
    state: Mutex<State>,
    /// Contents of the file; the mutex admits one writer at a time. After a
    /// failed write, the file may contain the new record instead, which reserves
    /// at least as much.
    record: tokio::sync::Mutex<Record>,
}

struct State {
    leases: BTreeMap<LockName, Lease>,
    breaks: Breaks,
    tokens: TokenSource,
    /// True while a reservation is in flight.
    reserving: bool,
    unavailability: Option<Unavailability>,
    /// Time of the last successful identity check.
    verified_at: Moment,
    /// After a crash: the time by which every earlier grant has ended.
    recovered_at: Option<Moment>,
    /// Maximum TTL on disk.
    persisted_ttl: Duration,
    closed: bool,
    /// Number of successful writes, with the one of the start.
    writes: u64,
    failed_writes: u64,
}

/// Reason why the store can't grant.
enum Unavailability {
    /// A write failed; it is retried.
    Io(String),
    /// The path no longer leads to the locked directory; permanent.
    Replaced(String),
}

impl Unavailability {
    fn error(&self) -> Error {
        let (Self::Io(why) | Self::Replaced(why)) = self;
        unavailable(why.clone())
    }
}

struct Lease {
    id: LeaseId,
    holder: Arc<Holder>,
}

/// Condition that a grant waits for.
enum Need {
    /// The wall clock reaches the next token after this long.
    Wait(Duration),
    /// Tokens must be reserved on disk.
    Reserve,
}

impl Embedded {
    /// Opens a directory, creates it if it does not exist, and reserves the
    /// first tokens.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        Self::open_in(Arc::new(DataDir::open(path)?), tokens::RESERVED_TOKENS)
    }

    /// Opens the store in a locked directory. `reservation` is the number of
    /// tokens that one write reserves, at most those of one second.
    pub fn open_in(directory: Arc<dyn StateDir>, reservation: u64) -> Result<Self, OpenError> {
        let found = directory::read(&*directory)?;
        let unclean = found.filter(|record| !record.clean);
        let highest = found.map(|record| record.highest_token);
        let mut tokens = TokenSource::after(highest, reservation.clamp(1, tokens::RESERVED_TOKENS));
        let end = tokens.reservation();
        let record = Record {
            highest_token: end - 1,
            max_ttl: unclean.map_or(Duration::ZERO, |record| record.max_ttl),
            clean: false,
        };
        directory::replace(&*directory, &record)?;
        let lock = directory.path().join(directory::LOCK);
        directory.mark().map_err(directory::failed("write", &lock))?;
        tokens.reserve(end);
        let state = State {
            leases: BTreeMap::new(),
            breaks: Breaks::default(),
            tokens,
            reserving: false,
            unavailability: None,
            verified_at: Moment::now(),
            recovered_at: found
                .and_then(|found| recovered_at(found.clean, found.max_ttl, Moment::now())),
            persisted_ttl: record.max_ttl,
            closed: false,
            writes: 1,
            failed_writes: 0,
        };
        let (state, record) = (Mutex::new(state), tokio::sync::Mutex::new(record));
        Ok(Self { shared: Arc::new(Shared { directory, state, record }) })
    }

    /// Answers an acquire, unless it needs a write or a wait.
    fn acquire_now(&self, params: &AcquireParams) -> Result<Result<Acquire, Error>, Need> {
        let mut state = self.shared.state();
        if let Some(refusal) = self.refusal(&mut state) {
            return Ok(Err(refusal));
        }
        if let Some(held) = state.leases.get(&params.name).filter(|held| held.id != params.id) {
            let by = Some(Arc::new(info(&params.name, held, &state.breaks)));
            return Ok(Ok(Acquire::Held { by }));
        }
        let tokens = self.take(&mut state)?;
        if let Entry::Vacant(free) = state.leases.entry(params.name.clone()) {
            free.insert(Lease { id: params.id, holder: Arc::clone(&params.holder) });
        }
        Ok(Ok(Acquire::Acquired(Acquired { tokens, deadline: None })))
    }

    fn next_tokens_now(
        &self,
        name: &LockName,
        id: LeaseId,
    ) -> Result<Result<Acquire, Error>, Need> {
        let mut state = self.shared.state();
        if let Some(refusal) = self.refusal(&mut state) {
            return Ok(Err(refusal));
        }
        match state.leases.get(name) {
            Some(lease) if lease.id == id => {}
            other => {
                let by = other.map(|lease| Arc::new(info(name, lease, &state.breaks)));
                return Ok(Ok(Acquire::Held { by }));
            }
        }
        let tokens = self.take(&mut state)?;
        Ok(Ok(Acquire::Acquired(Acquired { tokens, deadline: None })))
    }

    /// Returns the reason why the store can't grant now, if there is one.
    fn refusal(&self, state: &mut State) -> Option<Error> {
        if state.closed {
            return Some(unavailable("closed".to_owned()));
        }
        let now = Moment::now();
        if state.unavailability.is_none() && now.since(state.verified_at) >= MAX_IDENTITY_AGE {
            match directory::verify(&*self.shared.directory) {
                Ok(()) => state.verified_at = now,
                Err(error) => _ = self.fail(state, &error),
            }
        }
        if let Some(cause) = &state.unavailability {
            return Some(cause.error());
        }
        let remaining = state.recovered_at?.since(now);
        if remaining.is_zero() {
            state.recovered_at = None;
            return None;
        }
        Some(Error::Recovering { remaining })
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // After a panic within a change, the state can't be trusted.
        self.state.lock().unwrap_or_else(|_| std::process::abort())
    }
}

fn unavailable(why: String) -> Error {
    Error::Unavailable { why, retry_after: Some(RETRY_DELAY) }
}

impl LeaseStore for Embedded {
    fn acquire(&self, params: AcquireParams) -> Call<Acquire> {
        let mut need = match self.acquire_now(&params) {
            Ok(answer) => return Call::Done(answer),
            Err(need) => need,
        };
        let store = self.clone();
        Call::pending(async move {
            loop {
                store.satisfy(need).await?;
                match store.acquire_now(&params) {
                    Ok(answer) => return answer,
                    Err(next) => need = next,
                }
            }
        })
    }

    fn next_tokens(&self, name: &LockName, id: LeaseId) -> Call<Acquire> {
        let mut need = match self.next_tokens_now(name, id) {
            Ok(answer) => return Call::Done(answer),
            Err(need) => need,
        };
        let (store, name) = (self.clone(), name.clone());
        Call::pending(async move {
            loop {
                store.satisfy(need).await?;
                match store.next_tokens_now(&name, id) {
                    Ok(answer) => return answer,
                    Err(next) => need = next,
                }
            }
        })
    }

    fn publish(&self, name: &LockName, id: LeaseId, publication: Publication) -> Call<Publish> {
        let mut state = self.shared.state();
        Call::Done(Ok(match state.leases.get_mut(name).filter(|lease| lease.id == id) {
            Some(lease) => {
                lease.holder = publication.holder;
                Publish::Published
            }
            None => Publish::Lost,
        }))
    }

    fn renew(&self, name: &LockName, id: LeaseId, _: Duration) -> Call<Renew> {
        let held = self.shared.state().leases.get(name).is_some_and(|lease| lease.id == id);
        Call::Done(Ok(if held {
            Renew::Renewed { deadline: None }
        } else {
            Renew::Lost { why: "the lease was released or broken".to_owned(), broken: None }
        }))
    }

    fn release(&self, name: &LockName, id: LeaseId) -> Call<Release> {
        let mut state = self.shared.state();
        if let Entry::Occupied(held) = state.leases.entry(name.clone())
            && held.get().id == id
        {
            held.remove();
        }
        Call::Done(Ok(Release::Released))
    }

    fn break_lease(&self, name: &LockName, breaker: Breaker) -> Call<Break> {
        let mut state = self.shared.state();
        Call::Done(Ok(match state.leases.remove(name) {
            Some(_) => {
                state.breaks.add(name, breaker);
                Break::Broken { free_within: Duration::ZERO }
            }
            None => Break::NotHeld,
        }))
    }

    fn record_break(&self, name: &LockName, breaker: Breaker) -> Call<()> {
        self.shared.state().breaks.add(name, breaker);
        Call::Done(Ok(()))
    }

    fn inspect(&self, name: &LockName) -> Call<Option<LeaseInfo>> {
        let state = self.shared.state();
        let broken = state.breaks.of(name).cloned();
        Call::Done(Ok(match (state.leases.get(name), broken) {
            (Some(lease), _) => Some(info(name, lease, &state.breaks)),
            (None, None) => None,
            (None, broken) => Some(LeaseInfo { broken, ..LeaseInfo::free(name.clone()) }),
        }))
    }

    fn list(&self, page: &Page) -> Call<Vec<LeaseInfo>> {
        let state = self.shared.state();
        let (leases, breaks) = (&state.leases, &state.breaks);
        let names = page.names(|range| leases.range(range).next().map(|(name, _)| name.clone()));
        let known = names.iter().filter_map(|name| Some(info(name, leases.get(name)?, breaks)));
        Call::Done(Ok(known.collect()))
    }

    fn persist_ttl(&self, ttl: Duration) -> Call<()> {
        {
            let state = self.shared.state();
            if state.persisted_ttl >= ttl && state.unavailability.is_none() {
                return Call::Done(Ok(()));
            }
        }
        let store = self.clone();
        Call::pending(run_to_completion(async move {
            let mut record = store.record().await?;
            if record.max_ttl < ttl || store.shared.state().unavailability.is_some() {
                let next = Record { max_ttl: record.max_ttl.max(ttl), ..*record };
                store.write(&mut record, next).await?;
            }
            store.shared.state().persisted_ttl = record.max_ttl;
            Ok(())
        }))
    }

    fn is_shared(&self) -> bool {
        false
    }

    fn unavailability(&self) -> Option<Error> {
        self.refusal(&mut self.shared.state())
    }

    fn describe(&self) -> String {
        format!("embedded, in {}", self.shared.directory.path().display())
    }

    fn calls(&self) -> Vec<CallCount> {
        Vec::new()
    }

    fn stats(&self) -> StoreStats {
        let state = self.shared.state();
        let recovery_left = state.recovered_at.map_or(Duration::ZERO, Moment::remaining);
        let (writes, failed_writes) = (state.writes, state.failed_writes);
        let directory = DirectoryStats { writes, failed_writes, recovery_left };
        StoreStats { account: None, directory: Some(directory) }
    }

    fn close(&self) -> Call<()> {
        let store = self.clone();
        Call::pending(run_to_completion(async move {
            let mut record = store.record().await?;
            let (recovering, highest_token) = {
                let mut state = store.shared.state();
                state.closed = true;
                if !state.leases.is_empty() {
                    return Err(unavailable("leases are still held".to_owned()));
                }
                let recovering = state.recovered_at.is_some_and(|moment| !moment.has_passed());
                (recovering, state.tokens.highest())
            };
            // A shutdown during recovery is not recorded as clean, so that the next
            // start waits too: holders from before the crash may still rely on their
            // grants.
            let next = Record { highest_token, clean: !recovering, ..*record };
            store.write(&mut record, next).await
        }))
    }
}

fn info(name: &LockName, lease: &Lease, breaks: &Breaks) -> LeaseInfo {
    let (holder, broken) = (Some(Arc::clone(&lease.holder)), breaks.of(name).cloned());
    LeaseInfo { held: true, holder, broken, ..LeaseInfo::free(name.clone()) }
}

#[cfg(test)]
mod tests;
