//! Break notes: operator and reason of a break, for the daemon that holds the
//! lease.
//!
//! While a lease lasts, only its holder can write to the lock's blob. The
//! daemon that breaks a peer's lease therefore writes a note next to the blob
//! first, `<lock's path>/~break`. The holder's daemon reads it when a renewal
//! fails because the lease is lost. Nothing but the message to the holder depends
//! on a note.

use std::time::Duration;

use azure_core::http::Etag;

use super::{path, record::Record};
use crate::{
    AzureStore,
    calls::{CallOptions, limiter::Purpose},
};
use leasehold_store::{Breaker, LeaseId};
use leasehold_time::Moment;
use leasehold_types::LockName;

/// Timeout of the calls that write a note, together: a break must not wait long
/// for it.
const WRITE_TIMEOUT: Duration = Duration::from_secs(3);

/// Timeout of the call that reads a note. The holder is notified of its loss
/// after that.
const READ_TIMEOUT: Duration = Duration::from_secs(2);

/// A note that was written: its path and version.
pub(crate) struct BreakNote {
    path: String,
    etag: Etag,
}

impl AzureStore {
    /// Writes the note for the current hold of a lock. Without one, the break goes
    /// ahead, and the holder is notified of a lost lease.
    pub(crate) async fn write_break_note(
        &self,
        name: &LockName,
        breaker: &Breaker,
    ) -> Option<BreakNote> {
        let options = CallOptions { purpose: Purpose::Break, timeout: WRITE_TIMEOUT / 2 };
        let until = Moment::now() + WRITE_TIMEOUT;
        let state = self.shared.blobs.read(&self.path(name), options).await.ok()?;
        let record = state.record.ok().filter(|record| state.leased && record.token > 0)?;
        let note = Record {
            token: record.token,
            nonce: self.nonce(),
            daemon: self.shared.daemon.clone(),
            broken: Some(breaker.clone()),
            ..Record::default()
        };
        let path = path::break_note(&self.shared.prefix, name);
        let mut retries = self.retries();
        loop {
            match self.shared.blobs.put(&path, &note, options).await {
                Ok(etag) => return Some(BreakNote { path, etag }),
                Err(fault) if fault.is_unknown() && retries.wait(until).await => {}
                Err(fault) => {
                    let why = fault.why();
                    tracing::warn!(namespace = name.namespace(), lock = name.name(), %why, "failed to write the break note for the holder");
                    return None;
                }
            }
        }
    }

    /// Returns the operator that broke the hold with this lease ID, if a note has one.
    pub(crate) async fn read_break_note(&self, name: &LockName, id: LeaseId) -> Option<Breaker> {
        let cached = self.shared.cache.get(name)?;
        let (_, first) = cached.hold.filter(|(held, _)| *held == id)?;
        let options = CallOptions { purpose: Purpose::Renew, timeout: READ_TIMEOUT };
        let path = path::break_note(&self.shared.prefix, name);
        let note = self.shared.blobs.read(&path, options).await.ok()?.record.ok()?;
        // A note names the hold by its token: earlier and later holds have others.
        note.broken.filter(|_| (first..=cached.highest).contains(&note.token))
    }

    /// Deletes a note that has served its purpose, unless it was replaced. One
    /// that stays is replaced by the next break, or garbage-collected.
    pub(crate) async fn delete_break_note(&self, note: Option<BreakNote>) {
        let Some(BreakNote { path, etag }) = note else { return };
        let options = CallOptions { purpose: Purpose::Break, timeout: WRITE_TIMEOUT };
        _ = self.shared.blobs.delete(&path, &etag, options).await;
    }
}
