//! Break of a lease by an operator.
//!
//! The note for the holder's daemon is written first (`break_note.rs`), then the
//! lease is broken, and then the break is recorded with the lock: at once if this
//! daemon has the lease, and otherwise when the broken lease has expired.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};

use super::{amend::Written, record::Record};
use crate::{
    AzureStore, MIN_LEASE_DURATION, READ_TIMEOUT,
    calls::{CallOptions, fault::Fault, limiter::Purpose},
};
use leasehold_runtime as task;
use leasehold_runtime::sleep;
use leasehold_store::{Break, Breaker, Error, LeaseId};
use leasehold_time::Moment;
use leasehold_types::LockName;

/// Maximum number of attempts to record a break, which take some minutes.
const MAX_RECORD_ATTEMPTS: usize = 10;

impl AzureStore {
    /// Implements [`LeaseStore::break_lease`](leasehold_store::LeaseStore::break_lease).
    pub(crate) async fn break_hold(self, name: LockName, breaker: Breaker) -> Result<Break, Error> {
        let options = CallOptions { purpose: Purpose::Break, timeout: READ_TIMEOUT };
        let (path, until) = (self.path(&name), Moment::now() + READ_TIMEOUT);
        let mut retries = self.retries();
        let mut may_be_broken = false;
        let note = self.write_break_note(&name, &breaker).await;
        let free_within = loop {
            match self.shared.blobs.break_lease(&path, options).await {
                Ok(free_within) => break free_within,
                Err(Fault::NotOurs { .. }) if may_be_broken => break Duration::ZERO,
                Err(Fault::NotOurs { .. } | Fault::NoBlob) => {
                    self.delete_break_note(note).await;
                    return Ok(Break::NotHeld);
                }
                Err(fault) if fault.is_unknown() => {
                    may_be_broken = true;
                    if !retries.wait(until).await {
                        return Ok(Break::Unknown { why: fault.why() });
                    }
                }
                Err(fault) => {
                    // An earlier attempt may have broken the lease: then the note is
                    // right.
                    if !may_be_broken {
                        self.delete_break_note(note).await;
                    }
                    return Err(fault.into_error());
                }
            }
        };
        // While the lease lasts, only its holder can write: the record follows, with
        // this daemon's next hold or on its own.
        self.shared.cache.change(&name, |cached| cached.unrecorded = Some(breaker.clone()));
        task::spawn(async move {
            self.clone().record_break_later(name, breaker, free_within).await;
            self.delete_break_note(note).await;
        });
        Ok(Break::Broken { free_within })
    }

    /// Marks a break as to be recorded. Returns the lease ID of this daemon's hold, if
    /// there is one.
    pub(crate) fn announce_break(&self, name: &LockName, breaker: &Breaker) -> Option<LeaseId> {
        let hold = self.shared.cache.get(name).and_then(|cached| cached.hold);
        self.shared.cache.change(name, |cached| cached.unrecorded = Some(breaker.clone()));
        hold.map(|(id, _)| id)
    }

    /// Implements [`LeaseStore::record_break`](leasehold_store::LeaseStore::record_break).
    pub(crate) async fn record_own_break(
        self,
        name: LockName,
        breaker: Breaker,
        id: Option<LeaseId>,
    ) -> Result<(), Error> {
        let recorded = self.write_break(name.clone(), breaker.clone(), id).await;
        // The holder may have been faster, and its lease is gone.
        task::spawn(self.record_break_later(name, breaker, Duration::ZERO));
        recorded
    }

    /// Records a break unless that is done: after `delay`, and then with retries,
    /// because no daemon can write to the record while another one has the lease.
    /// After that, this daemon's next hold records it.
    async fn record_break_later(self, name: LockName, breaker: Breaker, delay: Duration) {
        let delays = ExponentialBuilder::default()
            .with_min_delay(Duration::from_secs(1))
            .with_max_delay(Duration::from_secs(60))
            .with_max_times(MAX_RECORD_ATTEMPTS);
        for delay in std::iter::once(delay).chain(delays.build()) {
            sleep(delay).await;
            let cached = self.shared.cache.get(&name);
            if cached.and_then(|cached| cached.unrecorded).as_ref() != Some(&breaker) {
                return;
            }
            _ = self.write_break(name.clone(), breaker.clone(), None).await;
        }
    }

    /// Records a break with a lock, under this daemon's lease or none. Does nothing if
    /// another daemon has the lease.
    async fn write_break(
        &self,
        name: LockName,
        breaker: Breaker,
        id: Option<LeaseId>,
    ) -> Result<(), Error> {
        let amendment = self.amendment(&name, id, Purpose::Break, MIN_LEASE_DURATION);
        let amended = self.amend_latest(&amendment, |record, _| {
            if id.is_none() {
                // The hold has ended, also at the version that this makes.
                *record = Record { token: record.token, bytes: record.bytes, ..Record::default() };
            }
            record.broken = Some(breaker.clone());
            Ok(None)
        });
        match amended.await {
            Ok(Written::Stored(_) | Written::NotOurs(_)) => Ok(()),
            Ok(Written::Unknown(why)) => Err(Error::Unavailable { why, retry_after: None }),
            Err(corrupt) => Err(self.data_loss(&name, &amendment.path, &corrupt)),
        }
    }
}
