//! The embedded store: leases in memory, tokens on disk.
//!
//! One durable write reserves a whole epoch of tokens for all locks; each hold
//! takes a slice of it. So an acquire costs no disk write, and the file does
//! not grow with the number of locks. The next epoch is reserved when half of
//! the present one is used, so that an acquire hardly ever waits for the disk.
//!
//! No lease survives the process, so a lease lasts as long as the process. The
//! longest ttl that any session was given is on disk before that session is
//! given anything: after a crash, nothing is granted until that long has
//! passed, for holders from before may still believe in their grants.

mod directory;
mod doctor;

use std::{
    collections::{BTreeMap, btree_map::Entry},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

pub use directory::OpenError;
use directory::{Directory, Record};
pub use doctor::examine;

use super::{
    Acquire, Acquired, Break, Breaker, Call, CallCount, Claim, Error, LeaseId, LeaseInfo,
    LeaseStore, Page, Publication, Publish, Release, Renew, Tokens,
};
use crate::{
    clock::{self, Moment},
    holder::Holder,
    name::LockName,
};

/// How many tokens a hold takes at once: enough that a contended lock seldom
/// asks, few enough that an epoch lasts for 65,536 holds.
const SLICE: u64 = 16;

/// How long to wait before a failed write is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// Leases of this process, in memory, with durable tokens in a directory.
#[derive(Clone)]
pub struct Embedded {
    shared: Arc<Shared>,
}

struct Shared {
    /// For people.
    path: PathBuf,
    state: Mutex<State>,
    /// One writer at a time, and what it wrote last.
    disk: tokio::sync::Mutex<Disk>,
}

struct State {
    leases: BTreeMap<LockName, Lease>,
    /// Durable and unused.
    tokens: Tokens,
    /// The epoch after that, once it is durable.
    spare: Option<Tokens>,
    /// Set while a write that will fill `spare` is under way.
    reserving: bool,
    /// Why the last write failed. While it is set, nothing is granted.
    trouble: Option<String>,
    /// After a crash: when the last holder from before has given up.
    recovered_at: Option<Moment>,
    /// The longest ttl that is on disk.
    covered: Duration,
    closed: bool,
}

struct Lease {
    id: LeaseId,
    holder: Arc<Holder>,
}

struct Disk {
    directory: Directory,
    /// What is surely on disk. After a failure the file may say what was tried,
    /// which covers at least as much.
    record: Record,
}

impl Embedded {
    /// Opens the directory, creating it if it is not there, and reserves the
    /// first epoch.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        let (directory, found) = Directory::open(path)?;
        let unclean = found.filter(|record| !record.clean);
        let record = Record {
            // At least the wall clock's seconds: so tokens rise also after the
            // directory was deleted or restored from a backup, unless more than
            // an epoch a second was used up before (65,536 holds).
            epoch: found.map_or(0, |record| record.epoch + 1).max(sane_seconds()),
            longest_ttl: unclean.map_or(Duration::ZERO, |record| record.longest_ttl),
            clean: false,
        };
        directory.write(&record)?;
        directory.mark_used()?;
        let state = State {
            leases: BTreeMap::new(),
            tokens: Tokens::of_epoch(record.epoch),
            spare: None,
            reserving: false,
            trouble: None,
            recovered_at: unclean.map(|record| Moment::now() + record.longest_ttl),
            covered: record.longest_ttl,
            closed: false,
        };
        let disk = tokio::sync::Mutex::new(Disk { directory, record });
        let path = path.to_owned();
        Ok(Self { shared: Arc::new(Shared { state: Mutex::new(state), disk, path }) })
    }

    /// Answers at once if that needs no write.
    fn acquire_now(&self, claim: &Claim) -> Option<Result<Acquire, Error>> {
        let mut state = self.shared.state();
        if let Some(refusal) = state.refusal() {
            return Some(Err(refusal));
        }
        state.refill()?;
        match state.leases.entry(claim.name.clone()) {
            Entry::Occupied(held) if held.get().id != claim.id => {
                return Some(Ok(Acquire::Held {
                    by: Some(Arc::new(info(&claim.name, held.get()))),
                }));
            }
            Entry::Occupied(_) => {}
            Entry::Vacant(free) => {
                free.insert(Lease { id: claim.id, holder: Arc::clone(&claim.holder) });
            }
        }
        let tokens = self.slice(&mut state);
        Some(Ok(Acquire::Acquired(Acquired { tokens, deadline: None })))
    }

    fn next_tokens_now(&self, name: &LockName, id: LeaseId) -> Option<Result<Acquire, Error>> {
        let mut state = self.shared.state();
        if let Some(refusal) = state.refusal() {
            return Some(Err(refusal));
        }
        match state.leases.get(name) {
            Some(lease) if lease.id == id => {}
            other => {
                let by = other.map(|lease| Arc::new(info(name, lease)));
                return Some(Ok(Acquire::Held { by }));
            }
        }
        state.refill()?;
        let tokens = self.slice(&mut state);
        Some(Ok(Acquire::Acquired(Acquired { tokens, deadline: None })))
    }

    /// Takes a slice of what there is, and has the next epoch reserved in good
    /// time.
    fn slice(&self, state: &mut State) -> Tokens {
        let slice = state.tokens.split(SLICE);
        let half = Tokens::of_epoch(0).len() / 2;
        if state.tokens.len() < half && state.spare.is_none() && !state.reserving {
            state.reserving = true;
            let store = self.clone();
            tokio::spawn(async move { store.reserve().await });
        }
        slice
    }

    /// Fills `spare`, unless another call has done so.
    async fn reserve(&self) -> Result<(), Error> {
        let store = self.clone();
        to_its_end(async move {
            let reserved = match store.disk().await {
                Ok(_) if store.shared.state().spare.is_some() => Ok(()),
                Ok(mut disk) => store.write_next_epoch(&mut disk).await,
                Err(closed) => Err(closed),
            };
            store.shared.state().reserving = false;
            reserved
        })
        .await
    }

    async fn write_next_epoch(&self, disk: &mut Disk) -> Result<(), Error> {
        let next = Record { epoch: disk.record.epoch + 1, ..disk.record };
        self.write(disk, next).await?;
        self.shared.state().spare = Some(Tokens::of_epoch(next.epoch));
        Ok(())
    }

    /// The right to write, unless the last word was written.
    async fn disk(&self) -> Result<tokio::sync::MutexGuard<'_, Disk>, Error> {
        let disk = self.shared.disk.lock().await;
        if self.shared.state().closed {
            return Err(unavailable("it is closed".to_owned()));
        }
        Ok(disk)
    }

    /// Writes to disk. A failure stops granting until a later write succeeds,
    /// and sees to it that one is tried. A failed write may have reached the
    /// disk or not; nothing was given on the strength of it, so both are fine.
    ///
    /// Must not be dropped before its end: the write itself would go on without
    /// its lock (see `to_its_end`).
    async fn write(&self, disk: &mut Disk, record: Record) -> Result<(), Error> {
        let directory = disk.directory.clone();
        let written = tokio::task::spawn_blocking(move || directory.write(&record)).await;
        let problem = match written {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some("the write was cut short".to_owned()),
        };
        let mut state = self.shared.state();
        let Some(why) = problem else {
            disk.record = record;
            if state.trouble.take().is_some() {
                tracing::info!("the data directory can be written again: granting goes on");
            }
            return Ok(());
        };
        if state.trouble.replace(why.clone()).is_none() {
            tracing::error!(%why, "the data directory can't be written: granting has stopped");
            self.clone().retry_later();
        }
        Err(unavailable(why))
    }

    fn retry_later(self) {
        tokio::spawn(async move { self.retry().await });
    }

    /// Tries to write until it works.
    async fn retry(&self) {
        loop {
            clock::sleep(RETRY).await;
            let Ok(mut disk) = self.disk().await else { return };
            if self.shared.state().trouble.is_none() {
                return;
            }
            if self.write_next_epoch(&mut disk).await.is_ok() {
                return;
            }
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // After a panic in the middle of a change nothing here can be trusted.
        self.state.lock().unwrap_or_else(|_| std::process::abort())
    }
}

impl State {
    /// Takes up the next epoch if the present one is used up. None if that one
    /// must be written first.
    fn refill(&mut self) -> Option<()> {
        if self.tokens.is_empty() {
            self.tokens = self.spare.take()?;
        }
        Some(())
    }

    /// Why nothing can be granted now.
    fn refusal(&mut self) -> Option<Error> {
        if self.closed {
            return Some(unavailable("it is closed".to_owned()));
        }
        if let Some(why) = &self.trouble {
            return Some(unavailable(why.clone()));
        }
        let remaining = self.recovered_at?.remaining();
        if remaining.is_zero() {
            self.recovered_at = None;
            return None;
        }
        Some(Error::Recovering { remaining })
    }
}

/// Seconds of the wall clock, or none if it is set to after the year 2100: an
/// epoch that far ahead could not be taken back.
fn sane_seconds() -> u64 {
    Some(clock::unix_seconds()).filter(|seconds| *seconds < 4_102_444_800).unwrap_or(1)
}

/// Runs to its end even if nobody waits for it any more: a write that is cut
/// off from its lock could land after a later one.
async fn to_its_end<T: Send + 'static>(
    work: impl Future<Output = Result<T, Error>> + Send + 'static,
) -> Result<T, Error> {
    let done = tokio::spawn(work).await;
    done.unwrap_or_else(|_| Err(unavailable("a write was cut short".to_owned())))
}

fn unavailable(why: String) -> Error {
    Error::Unavailable { why, retry_after: Some(RETRY) }
}

impl LeaseStore for Embedded {
    fn acquire(&self, claim: Claim) -> Call<Acquire> {
        if let Some(answer) = self.acquire_now(&claim) {
            return Call::Done(answer);
        }
        let store = self.clone();
        Call::pending(async move {
            loop {
                store.reserve().await?;
                if let Some(answer) = store.acquire_now(&claim) {
                    return answer;
                }
            }
        })
    }

    fn next_tokens(&self, name: &LockName, id: LeaseId) -> Call<Acquire> {
        if let Some(answer) = self.next_tokens_now(name, id) {
            return Call::Done(answer);
        }
        let (store, name) = (self.clone(), name.clone());
        Call::pending(async move {
            loop {
                store.reserve().await?;
                if let Some(answer) = store.next_tokens_now(&name, id) {
                    return answer;
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
            Renew::Lost { why: "the lease was released or broken".to_owned() }
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

    fn break_lease(&self, name: &LockName, _: Breaker) -> Call<Break> {
        Call::Done(Ok(match self.shared.state().leases.remove(name) {
            Some(_) => Break::Broken { free_within: Duration::ZERO },
            None => Break::NotHeld,
        }))
    }

    fn note_break(&self, _: &LockName, _: Breaker) -> Call<()> {
        Call::Done(Ok(()))
    }

    fn inspect(&self, name: &LockName) -> Call<Option<LeaseInfo>> {
        let state = self.shared.state();
        Call::Done(Ok(state.leases.get(name).map(|lease| info(name, lease))))
    }

    fn list(&self, page: &Page) -> Call<Vec<LeaseInfo>> {
        let leases = &self.shared.state().leases;
        let names = page.names(|range| leases.range(range).next().map(|(name, _)| name.clone()));
        let known = names.iter().filter_map(|name| leases.get(name).map(|lease| info(name, lease)));
        Call::Done(Ok(known.collect()))
    }

    fn cover(&self, ttl: Duration) -> Call<()> {
        {
            let state = self.shared.state();
            if state.covered >= ttl && state.trouble.is_none() {
                return Call::Done(Ok(()));
            }
        }
        let store = self.clone();
        Call::pending(to_its_end(async move {
            let mut disk = store.disk().await?;
            if disk.record.longest_ttl < ttl || store.shared.state().trouble.is_some() {
                let longest_ttl = disk.record.longest_ttl.max(ttl);
                let record = Record { longest_ttl, ..disk.record };
                store.write(&mut disk, record).await?;
            }
            store.shared.state().covered = disk.record.longest_ttl;
            Ok(())
        }))
    }

    fn is_shared(&self) -> bool {
        false
    }

    fn trouble(&self) -> Option<Error> {
        self.shared.state().refusal()
    }

    fn describe(&self) -> String {
        format!("embedded, in {}", self.shared.path.display())
    }

    fn calls(&self) -> Vec<CallCount> {
        Vec::new()
    }

    fn close(&self) -> Call<()> {
        let store = self.clone();
        Call::pending(to_its_end(async move {
            let mut disk = store.disk().await?;
            let recovering = {
                let mut state = store.shared.state();
                state.closed = true;
                if !state.leases.is_empty() {
                    return Err(unavailable("leases are still held".to_owned()));
                }
                state.recovered_at.is_some_and(|moment| !moment.has_passed())
            };
            // Holders from before a crash may still believe in their grants:
            // then the next start has to wait as well.
            let record = Record { clean: !recovering, ..disk.record };
            store.write(&mut disk, record).await
        }))
    }
}

fn info(name: &LockName, lease: &Lease) -> LeaseInfo {
    let holder = Some(Arc::clone(&lease.holder));
    LeaseInfo { held: true, holder, ..LeaseInfo::free(name.clone()) }
}

#[cfg(test)]
mod tests;
