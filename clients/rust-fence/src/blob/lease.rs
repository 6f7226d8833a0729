//! A blob that one writer has for long, by the blob's own lease.

use std::{
    fmt,
    sync::{Mutex as StdMutex, PoisonError},
    time::Duration,
};

use azure_core::Uuid;
use leasehold_azure_account::Fault;
use leasehold_time::Moment;
use tokio::sync::{Mutex, MutexGuard};

use super::{
    Blob, Content, Error, Upload,
    record::{Record, new_number},
    rest::{Change, Seen},
    write::{Outcome, Write},
};
use crate::{ETag, Written, retry::Retries};

/// A blob that is leased: the service refuses every write that does not name
/// the lease (412 LeaseIdMissing), and a second lease (409 LeaseAlreadyPresent).
/// Made by [`Blob::lease`]. Needs no daemon, but ends by itself: call
/// [`renew`](Self::renew) in time, or work within [`keep`](Self::keep).
///
/// **A lease is not a fence across holders.** It stops a late write because the
/// lease's id is in it, and each lease has another. But it protects this blob
/// alone, and readers are not told who holds it.
pub struct LeasedBlob {
    blob: Blob,
    /// A secret: whoever knows it may write.
    id: String,
    duration: Duration,
    /// None when it is lost.
    deadline: StdMutex<Option<Moment>>,
    /// Who holds the mutex writes.
    held: Mutex<Held>,
}

struct Held {
    /// The version that is known.
    seen: Seen,
    /// Numbers of writes from that version that were given up, or that nobody
    /// could tell the outcome of: one of them may still land.
    unknown_writes: Vec<String>,
}

impl Blob {
    /// Takes the blob's lease, for 15 to 60 s. The blob must be there.
    ///
    /// # Errors
    /// [`Error::Conflict`] if it is not there, or somebody else has its lease;
    /// [`Error::Invalid`] if a lock fences it, or there is no such duration.
    pub async fn lease(&self, duration: Duration) -> Result<LeasedBlob, Error> {
        let seconds = duration.as_secs();
        if !(15..=60).contains(&seconds) || duration.subsec_nanos() != 0 {
            let message = format!("a lease lasts 15 to 60 whole seconds, not {duration:?}");
            return Err(Error::invalid(self.place(), message));
        }
        let id = Uuid::new_v4().hyphenated().to_string();
        let more =
            [("x-ms-proposed-lease-id", id.clone()), ("x-ms-lease-duration", seconds.to_string())];
        // It counts from the first try: that may be the one that took it.
        let sent = Moment::now();
        let mut retries = Retries::for_service();
        loop {
            let fault = match self.lease_call("acquire", &more).await {
                Ok(answered) if answered.as_deref() == Some(&id) => break,
                Ok(_) => {
                    let why = "the service's answer names another lease".to_owned();
                    Fault::Unclear { why }
                }
                Err(fault) => fault,
            };
            if !(fault.may_pass() && retries.again(fault.retry_after()).await) {
                let given_up = [("x-ms-lease-id", id)];
                if fault.is_unclear() {
                    // If it was taken after all, it runs out by itself.
                    _ = self.lease_call("release", &given_up).await;
                }
                return Err(Error::of(&fault, self.place(), false));
            }
        }
        let deadline = StdMutex::new(Some(until(sent, duration)));
        let look = self.look().await.and_then(|seen| {
            let seen =
                seen.ok_or_else(|| Error::conflict(self.place(), super::Conflict::Missing))?;
            seen.refuse_if_guarded(self.place())?;
            Ok(seen)
        });
        match look {
            Ok(seen) => {
                let held = Mutex::new(Held { seen, unknown_writes: Vec::new() });
                Ok(LeasedBlob { blob: self.clone(), id, duration, deadline, held })
            }
            Err(error) => {
                _ = self.lease_call("release", &[("x-ms-lease-id", id)]).await;
                Err(error)
            }
        }
    }
}

/// Before that, nobody else can have the lease, although clocks drift.
fn until(sent: Moment, duration: Duration) -> Moment {
    let margin = (duration / 20).max(Duration::from_secs(1));
    sent + (duration - duration / 500 - margin)
}

impl LeasedBlob {
    /// Until when nobody else can write. It has passed if the lease is lost.
    #[must_use]
    pub fn deadline(&self) -> Moment {
        let known = *self.deadline.lock().unwrap_or_else(PoisonError::into_inner);
        known.unwrap_or(Moment::from_boot(Duration::ZERO))
    }

    /// Whether the lease is held at this moment. Once false, always false.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        let mut deadline = self.deadline.lock().unwrap_or_else(PoisonError::into_inner);
        *deadline = deadline.filter(|deadline| !deadline.has_passed());
        deadline.is_some()
    }

    /// Holds the lease for its duration from now on.
    ///
    /// # Errors
    /// [`Error::Lost`]: stop. [`Error::Unavailable`]: the deadline is as before,
    /// and it can be tried again.
    pub async fn renew(&self) -> Result<(), Error> {
        self.check(Written::No)?;
        let sent = Moment::now();
        match self.blob.lease_call("renew", &[("x-ms-lease-id", self.id.clone())]).await {
            Ok(answered) if answered.as_ref() == Some(&self.id) => {
                self.check(Written::No)?;
                let mut deadline = self.deadline.lock().unwrap_or_else(PoisonError::into_inner);
                *deadline = deadline.map(|known| known.max(until(sent, self.duration)));
                Ok(())
            }
            Ok(_) => Err(self.lost("somebody else has it", Written::No)),
            Err(Fault::Refused { status: 404 | 409 | 412, code, .. }) => {
                Err(self.lost(&format!("the service says {code}"), Written::No))
            }
            Err(fault) => Err(Error::of(&fault, self.blob.place(), false)),
        }
    }

    /// Renews the lease while some work is done, and drops the work where it
    /// stands when the lease is lost.
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
        let passed = async {
            while self.is_valid() {
                leasehold_runtime::sleep_until(self.deadline()).await;
            }
            self.lost("it was not renewed in time", Written::No)
        };
        tokio::select! {
            done = work => Ok(done),
            lost = renewals => Err(lost),
            lost = passed => Err(lost),
        }
    }

    /// Reads the blob.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub async fn read(&self) -> Result<Content, Error> {
        let _settled = self.settled().await?;
        match self.blob.fetch().await? {
            Some((_, content)) => Ok(content),
            None => Err(self.lost("the blob was deleted", Written::No)),
        }
    }

    /// Writes all of the blob. If the storage does not answer, what became of
    /// it is found out, and it is tried again a few times.
    ///
    /// # Errors
    /// [`Error::Lost`]: stop. [`Error::Unavailable`]: it says whether it was
    /// written. [`Error::Invalid`]: it can't be done as it is.
    pub async fn write(&self, upload: impl Into<Upload>) -> Result<ETag, Error> {
        let upload = upload.into();
        upload.check(self.blob.place())?;
        let mut held = self.settled().await?;
        match self.attempt(&mut held, Change::Content(&upload)).await? {
            Some(etag) => Ok(etag),
            None => Err(self.lost("somebody else has written", Written::No)),
        }
    }

    /// Gives the lease back.
    ///
    /// # Errors
    /// [`Error::Lost`] if it was lost before: what was done under it may not
    /// have been protected. [`Error::Unavailable`]: it runs out by itself.
    pub async fn release(self) -> Result<(), Error> {
        self.check(Written::No)?;
        let mut retries = Retries::for_service();
        let mut unclear = false;
        loop {
            let id = [("x-ms-lease-id", self.id.clone())];
            match self.blob.lease_call("release", &id).await {
                Ok(_) => return Ok(()),
                // The try before did it.
                Err(Fault::Refused { status: 404 | 409, .. }) if unclear => return Ok(()),
                Err(Fault::Refused { status: 404 | 409 | 412, code, .. }) => {
                    return Err(self.lost(&format!("the service says {code}"), Written::No));
                }
                Err(fault) => {
                    unclear |= fault.is_unclear();
                    if !(fault.may_pass() && retries.again(fault.retry_after()).await) {
                        return Err(Error::of(&fault, self.blob.place(), false));
                    }
                }
            }
        }
    }

    /// One write from the version that is known. None if an earlier write has
    /// landed instead.
    async fn attempt(&self, held: &mut Held, change: Change<'_>) -> Result<Option<ETag>, Error> {
        self.check(Written::No)?;
        let number = new_number();
        let record = Record { gone: false, ..held.seen.record.after(&number) };
        let earlier = held.unknown_writes.clone();
        held.unknown_writes.push(number.clone());
        let (from, lease) = (Some(&held.seen), Some(self.id.as_str()));
        let write = Write { from, change, record: &record, number: &number, lease };
        match write.run(&self.blob).await? {
            Outcome::Written(etag) => {
                let metadata = match change {
                    Change::Content(upload) => upload.metadata.clone(),
                    Change::Record(metadata) => metadata.clone(),
                };
                let seen = Seen { etag: etag.clone(), record, metadata };
                *held = Held { seen, unknown_writes: Vec::new() };
                Ok(Some(etag))
            }
            Outcome::Moved { seen: Some(seen), .. }
                if earlier.iter().any(|number| seen.record.has(number)) =>
            {
                *held = Held { seen, unknown_writes: Vec::new() };
                Ok(None)
            }
            // Nobody else could have changed it under this lease.
            Outcome::Moved { written, .. } => Err(self.lost("somebody else has written", written)),
            Outcome::Failed(fault) => {
                if !fault.is_unclear() {
                    held.unknown_writes = earlier;
                }
                match &fault {
                    Fault::Refused { status: 404 | 409 | 412, code, .. } => {
                        Err(self.lost(&format!("the service says {code}"), Written::No))
                    }
                    fault => Err(Error::of(fault, self.blob.place(), true)),
                }
            }
        }
    }

    /// Sees to it that no write of before can land any more.
    async fn settled(&self) -> Result<MutexGuard<'_, Held>, Error> {
        let mut held = self.held.lock().await;
        self.check(Written::No)?;
        if !held.unknown_writes.is_empty() {
            let metadata = held.seen.metadata.clone();
            self.attempt(&mut held, Change::Record(&metadata)).await?;
        }
        Ok(held)
    }

    fn check(&self, written: Written) -> Result<(), Error> {
        if self.is_valid() {
            return Ok(());
        }
        Err(self.lost("its time is over, or it was found lost before", written))
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
