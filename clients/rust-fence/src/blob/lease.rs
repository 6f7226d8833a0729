//! Leased blob: exclusive write access of one writer, by the blob's own lease.

use std::{
    fmt,
    sync::{Mutex as StdMutex, PoisonError},
    time::Duration,
};

use azure_core::Uuid;
use leasehold_azure_account::Fault;
use leasehold_rules::lease_deadline;
use leasehold_time::Moment;
use tokio::sync::{Mutex, MutexGuard};

use super::{
    Blob, Content, Error, Upload,
    record::{Record, new_write_id},
    rest::{BlobState, Change},
    write::{Outcome, Write},
};
use crate::{ETag, Written, retry::Retries};

/// A leased blob. The service refuses every write without the lease ID (412
/// LeaseIdMissing) and every other lease (409 LeaseAlreadyPresent). Returned by
/// [`Blob::lease`]. Needs no daemon. The lease expires: call
/// [`renew`](Self::renew) in time, or run the work within [`keep`](Self::keep).
///
/// **A lease protects this blob only.** It refuses a late write, because each
/// lease has its own ID and each write carries it. It can't protect several
/// resources together, and readers can't see the holder.
pub struct LeasedBlob {
    blob: Blob,
    /// Lease ID. A secret: any client that knows it can write.
    id: String,
    duration: Duration,
    /// `None` when the lease is lost.
    deadline: StdMutex<Option<Moment>>,
    /// Locked during a write, so that writes of this lease are sequential.
    held: Mutex<Held>,
}

/// State of the leased blob that writes change.
struct Held {
    /// Last known version of the blob.
    state: BlobState,
    /// IDs of writes from that version that were canceled or have an unknown
    /// outcome. The storage may still apply one of them.
    unknown_writes: Vec<String>,
}

impl Blob {
    /// Leases the blob, for 15 to 60 s. The blob must exist.
    ///
    /// # Errors
    /// [`Error::Conflict`] if the blob does not exist or another client has leased
    /// it; [`Error::Invalid`] if the blob is fenced or the duration is out of range.
    pub async fn lease(&self, duration: Duration) -> Result<LeasedBlob, Error> {
        let seconds = duration.as_secs();
        if !(15..=60).contains(&seconds) || duration.subsec_nanos() != 0 {
            let message =
                format!("invalid lease duration {duration:?}; use 15 to 60 whole seconds");
            return Err(Error::invalid(self.place(), message));
        }
        let id = Uuid::new_v4().hyphenated().to_string();
        let more =
            [("x-ms-proposed-lease-id", id.clone()), ("x-ms-lease-duration", seconds.to_string())];
        // The lease may have started at the first attempt, so it counts from there.
        let sent = Moment::now();
        let mut retries = Retries::for_service();
        loop {
            let fault = match self.lease_call("acquire", &more).await {
                Ok(answered) if answered.as_deref() == Some(&id) => break,
                Ok(_) => {
                    let why = "the response names another lease".to_owned();
                    Fault::Unclear { why }
                }
                Err(fault) => fault,
            };
            if !(fault.may_pass() && retries.next_attempt(fault.retry_after()).await) {
                let lease_id = [("x-ms-lease-id", id)];
                if fault.is_unclear() {
                    // The acquire may have been applied. If the release fails, the
                    // lease expires.
                    _ = self.lease_call("release", &lease_id).await;
                }
                return Err(Error::of(&fault, self.place(), false));
            }
        }
        let deadline = StdMutex::new(Some(lease_deadline(sent, duration)));
        let read = self.read_state().await.and_then(|state| {
            let state =
                state.ok_or_else(|| Error::conflict(self.place(), super::Conflict::Missing))?;
            state.refuse_if_fenced(self.place())?;
            Ok(state)
        });
        match read {
            Ok(state) => {
                let held = Mutex::new(Held { state, unknown_writes: Vec::new() });
                Ok(LeasedBlob { blob: self.clone(), id, duration, deadline, held })
            }
            Err(error) => {
                _ = self.lease_call("release", &[("x-ms-lease-id", id)]).await;
                Err(error)
            }
        }
    }
}

impl LeasedBlob {
    /// Time until which no other client can write. In the past if the lease is
    /// lost.
    #[must_use]
    pub fn deadline(&self) -> Moment {
        let known = *self.deadline.lock().unwrap_or_else(PoisonError::into_inner);
        known.unwrap_or(Moment::from_boot(Duration::ZERO))
    }

    /// Returns true while the lease is held. Once false, it stays false.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        let mut deadline = self.deadline.lock().unwrap_or_else(PoisonError::into_inner);
        *deadline = deadline.filter(|deadline| !deadline.has_passed());
        deadline.is_some()
    }

    /// Renews the lease for its full duration.
    ///
    /// # Errors
    /// [`Error::Lost`]: stop. [`Error::Unavailable`]: the deadline is unchanged;
    /// retry.
    pub async fn renew(&self) -> Result<(), Error> {
        self.check(Written::No)?;
        let sent = Moment::now();
        match self.blob.lease_call("renew", &[("x-ms-lease-id", self.id.clone())]).await {
            Ok(answered) if answered.as_ref() == Some(&self.id) => {
                self.check(Written::No)?;
                let mut deadline = self.deadline.lock().unwrap_or_else(PoisonError::into_inner);
                *deadline = deadline.map(|known| known.max(lease_deadline(sent, self.duration)));
                Ok(())
            }
            Ok(_) => Err(self.lost("another client holds it", Written::No)),
            Err(Fault::Refused { status: 404 | 409 | 412, code, .. }) => {
                Err(self
                    .lost(&format!("the storage account refused the call ({code})"), Written::No))
            }
            Err(fault) => Err(Error::of(&fault, self.blob.place(), false)),
        }
    }

    /// Renews the lease while `work` runs. Drops `work` when the lease is lost.
    ///
    /// # Errors
    /// [`Error::Lost`].
    pub async fn keep<T>(&self, work: impl Future<Output = T>) -> Result<T, Error> {
        let renewals = async {
            loop {
                leasehold_runtime::sleep(self.duration / 3).await;
                while let Err(error) = self.renew().await {
                    if matches!(error, Error::Lost { .. }) {
                        return error;
                    }
                    leasehold_runtime::sleep(Duration::from_secs(1)).await;
                }
            }
        };
        let expiry = async {
            while self.is_valid() {
                leasehold_runtime::sleep_until(self.deadline()).await;
            }
            self.lost("the lease expired before a renewal succeeded", Written::No)
        };
        tokio::select! {
            done = work => Ok(done),
            lost = renewals => Err(lost),
            lost = expiry => Err(lost),
        }
    }

    /// Reads the blob.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub async fn read(&self) -> Result<Content, Error> {
        let _held = self.resolved().await?;
        match self.blob.fetch().await? {
            Some((_, content)) => Ok(content),
            None => Err(self.lost("the blob was deleted", Written::No)),
        }
    }

    /// Replaces the content of the blob. If a response is lost, the call
    /// determines the outcome and retries a few times.
    ///
    /// # Errors
    /// [`Error::Lost`]: stop. [`Error::Unavailable`]: retry; `written` states the
    /// outcome. [`Error::Invalid`]: change the call.
    pub async fn write(&self, upload: impl Into<Upload>) -> Result<ETag, Error> {
        let upload = upload.into();
        upload.check(self.blob.place())?;
        let mut held = self.resolved().await?;
        match self.attempt(&mut held, Change::Content(&upload)).await? {
            Some(etag) => Ok(etag),
            None => Err(self.lost("another client has written", Written::No)),
        }
    }

    /// Releases the lease.
    ///
    /// # Errors
    /// [`Error::Lost`] if the lease was lost before: the work under it may not have
    /// been exclusive. [`Error::Unavailable`]: the lease expires.
    pub async fn release(self) -> Result<(), Error> {
        self.check(Written::No)?;
        let mut retries = Retries::for_service();
        let mut unclear = false;
        loop {
            let id = [("x-ms-lease-id", self.id.clone())];
            match self.blob.lease_call("release", &id).await {
                Ok(_) => return Ok(()),
                // The earlier attempt was applied.
                Err(Fault::Refused { status: 404 | 409, .. }) if unclear => return Ok(()),
                Err(Fault::Refused { status: 404 | 409 | 412, code, .. }) => {
                    return Err(self.lost(
                        &format!("the storage account refused the call ({code})"),
                        Written::No,
                    ));
                }
                Err(fault) => {
                    unclear |= fault.is_unclear();
                    if !(fault.may_pass() && retries.next_attempt(fault.retry_after()).await) {
                        return Err(Error::of(&fault, self.blob.place(), false));
                    }
                }
            }
        }
    }

    /// Makes one write, conditional on the known version. Returns `None` if an
    /// earlier write was applied instead.
    async fn attempt(&self, held: &mut Held, change: Change<'_>) -> Result<Option<ETag>, Error> {
        self.check(Written::No)?;
        let write_id = new_write_id();
        let record = Record { gone: false, ..held.state.record.after(&write_id) };
        let earlier = held.unknown_writes.clone();
        held.unknown_writes.push(write_id.clone());
        let (from, lease) = (Some(&held.state), Some(self.id.as_str()));
        let write = Write { from, change, record: &record, write_id: &write_id, lease };
        match write.run(&self.blob).await? {
            Outcome::Written(etag) => {
                let metadata = match change {
                    Change::Content(upload) => upload.metadata.clone(),
                    Change::Record(metadata) => metadata.clone(),
                };
                let state = BlobState { etag: etag.clone(), record, metadata };
                *held = Held { state, unknown_writes: Vec::new() };
                Ok(Some(etag))
            }
            Outcome::Changed { state: Some(state), .. }
                if earlier.iter().any(|write_id| state.record.has(write_id)) =>
            {
                *held = Held { state, unknown_writes: Vec::new() };
                Ok(None)
            }
            // No other client could have changed the blob under this lease.
            Outcome::Changed { written, .. } => {
                Err(self.lost("another client has written", written))
            }
            Outcome::Failed(fault) => {
                if !fault.is_unclear() {
                    held.unknown_writes = earlier;
                }
                match &fault {
                    Fault::Refused { status: 404 | 409 | 412, code, .. } => Err(self.lost(
                        &format!("the storage account refused the call ({code})"),
                        Written::No,
                    )),
                    fault => Err(Error::of(fault, self.blob.place(), true)),
                }
            }
        }
    }

    /// Locks the known version. Ensures first that no earlier write can still be
    /// applied.
    async fn resolved(&self) -> Result<MutexGuard<'_, Held>, Error> {
        let mut held = self.held.lock().await;
        self.check(Written::No)?;
        if !held.unknown_writes.is_empty() {
            let metadata = held.state.metadata.clone();
            self.attempt(&mut held, Change::Record(&metadata)).await?;
        }
        Ok(held)
    }

    fn check(&self, written: Written) -> Result<(), Error> {
        if self.is_valid() {
            return Ok(());
        }
        Err(self.lost("it has expired or was lost before", written))
    }

    fn lost(&self, message: &str, written: Written) -> Error {
        *self.deadline.lock().unwrap_or_else(PoisonError::into_inner) = None;
        let place = Box::new(self.blob.place().clone());
        Error::Lost { place, message: message.to_owned(), written }
    }
}

impl fmt::Debug for LeasedBlob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeasedBlob")
            .field("place", self.blob.place())
            .field("valid", &self.is_valid())
            .finish_non_exhaustive()
    }
}
