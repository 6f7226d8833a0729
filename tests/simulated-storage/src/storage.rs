//! A blob service: what a storage account does with blobs and their leases, as
//! Azure's table of lease states has it. Pure: it is given calls and the time.

use std::collections::BTreeMap;

use crate::{Nanos, SECOND};

/// How the service differs from Azure's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Habits {
    /// As the emulator: any id renews an expired lease, and is answered with the
    /// id of whoever had it.
    pub emulator: bool,
    /// How long after its expiry a lease keeps others out.
    pub grace: Nanos,
    /// How many nanoseconds the clock gains in a second that leases are counted
    /// on.
    pub drift: i64,
}

/// A call of a blob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Which blob, or what the names of the blobs begin with.
    pub path: String,
    /// What to do.
    pub act: Act,
    /// Only if the blob is of this version.
    pub if_match: Option<String>,
    /// Only if there is none.
    pub if_absent: bool,
    /// Only if this is the blob's lease.
    pub lease: Option<String>,
}

/// What can be done.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are what their names say")]
pub enum Act {
    /// Take a lease under this id, for so many seconds.
    Acquire { id: String, seconds: u64 },
    /// Keep it.
    Renew { id: String },
    /// Give it up.
    Release { id: String },
    /// Take it from whoever has it, after this many seconds or when its term is
    /// over.
    Break { within: Option<u64> },
    /// Read all but the content.
    Read,
    /// Read the content.
    Download,
    /// Replace the metadata.
    SetMetadata { metadata: Metadata },
    /// Replace everything.
    Upload { metadata: Metadata, content: Vec<u8> },
    /// Delete.
    Delete,
    /// List.
    List,
}

/// What is kept with a blob.
pub type Metadata = BTreeMap<String, String>;

/// All that is kept of a blob, with its content.
pub type Kept = (Metadata, Vec<u8>);

/// What the service answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The service's own code, if it is an error.
    pub code: &'static str,
    /// The version of the blob.
    pub etag: Option<String>,
    /// The id of the lease that was spoken of.
    pub lease: Option<String>,
    /// What is left of a broken lease, in seconds.
    pub lease_time: Option<u64>,
    /// The blob, if it was read.
    pub blob: Option<Blob>,
    /// The state of its lease.
    pub lease_state: &'static str,
    /// The blobs, if they were listed.
    pub listed: Vec<(String, Blob, &'static str)>,
    /// When to ask again, in seconds.
    pub retry_after: Option<u64>,
    /// The service's clock, in seconds since 1970.
    pub date: u64,
}

/// A blob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blob {
    /// Its version.
    pub etag: String,
    /// What is kept with it.
    pub metadata: Metadata,
    /// What it holds.
    pub content: Vec<u8>,
    /// When it was written last, in seconds since 1970.
    pub modified: u64,
    lease: Lease,
}

/// A blob's lease. What has run out stays until somebody touches the blob.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Lease {
    #[default]
    Available,
    Leased {
        id: String,
        until: Nanos,
        duration: Nanos,
    },
    /// Broken at `until`, perhaps long ago.
    Breaking {
        id: String,
        until: Nanos,
    },
}

/// The state of a lease at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Available,
    Leased,
    Expired,
    Breaking,
    Broken,
}

impl Lease {
    fn at(&self, now: Nanos) -> Standing {
        match self {
            Self::Available => Standing::Available,
            Self::Leased { until, .. } if now < *until => Standing::Leased,
            Self::Leased { .. } => Standing::Expired,
            Self::Breaking { until, .. } if now < *until => Standing::Breaking,
            Self::Breaking { .. } => Standing::Broken,
        }
    }

    fn id(&self) -> Option<&str> {
        match self {
            Self::Available => None,
            Self::Leased { id, .. } | Self::Breaking { id, .. } => Some(id),
        }
    }

    fn is(&self, other: &str) -> bool {
        self.id() == Some(other)
    }
}

impl Blob {
    /// Until when somebody has its lease.
    #[must_use]
    pub fn leased_until(&self, now: Nanos) -> Option<Nanos> {
        match (&self.lease, self.lease.at(now)) {
            (Lease::Leased { until, .. }, Standing::Leased)
            | (Lease::Breaking { until, .. }, Standing::Breaking) => Some(*until),
            _ => None,
        }
    }

    /// The id under which it is leased or was last.
    #[must_use]
    pub fn lease_id(&self) -> Option<&str> {
        self.lease.id()
    }

    fn lease_state(&self, now: Nanos) -> &'static str {
        match self.lease.at(now) {
            Standing::Available => "available",
            Standing::Leased => "leased",
            Standing::Expired => "expired",
            Standing::Breaking => "breaking",
            Standing::Broken => "broken",
        }
    }
}

impl Habits {
    /// How long it takes until so many seconds have passed for leases.
    fn seconds(self, seconds: u64) -> Nanos {
        let length = i128::from(seconds) * 1_000_000_000_000_000_000;
        (length / (1_000_000_000 + i128::from(self.drift))) as Nanos
    }
}

type Refusal = (u16, &'static str);

/// The service.
#[derive(Clone, Debug, Default)]
pub struct Storage {
    habits: Habits,
    blobs: BTreeMap<String, Blob>,
    versions: u64,
    /// The container was deleted.
    gone: bool,
}

impl Storage {
    /// Without a blob.
    #[must_use]
    pub fn new(habits: Habits) -> Self {
        Self { habits, ..Self::default() }
    }

    /// A blob as it is.
    #[must_use]
    pub fn blob(&self, path: &str) -> Option<&Blob> {
        self.blobs.get(path)
    }

    /// Puts a blob there, whoever leases it: an operator's doing.
    /// Gives its version.
    pub fn put(&mut self, path: &str, (metadata, content): Kept, modified: u64) -> String {
        let etag = self.next_version();
        let lease = Lease::Available;
        let blob = Blob { etag: etag.clone(), metadata, content, modified, lease };
        self.blobs.insert(path.to_owned(), blob);
        etag
    }

    /// Writes a blob as it is, unless somebody leases it: an operator's doing. Says
    /// whether it did.
    pub fn touch(&mut self, path: &str, now: Nanos, date: u64) -> bool {
        let version = self.next_version();
        let blob = self.blobs.get_mut(path).filter(|blob| blob.leased_until(now).is_none());
        let Some(blob) = blob else { return false };
        (blob.etag, blob.modified, blob.lease) = (version, date, Lease::Available);
        true
    }

    /// The container is deleted with all that is in it.
    pub fn delete_container(&mut self) {
        self.blobs.clear();
        self.gone = true;
    }

    /// It is created again.
    pub const fn create_container(&mut self) {
        self.gone = false;
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_gone(&self) -> bool {
        self.gone
    }

    /// Removes a blob, whoever leases it: an operator's doing.
    pub fn remove(&mut self, path: &str) -> Option<Blob> {
        self.blobs.remove(path)
    }

    /// Does what a call asks for. `date` is what the service's clock shows.
    pub fn answer(&mut self, call: &Call, now: Nanos, date: u64) -> Answer {
        let mut answer = Answer {
            status: 200,
            code: "",
            etag: None,
            lease: None,
            lease_time: None,
            blob: None,
            lease_state: "",
            listed: Vec::new(),
            retry_after: None,
            date,
        };
        if let Err((status, code)) = self.act(call, now, &mut answer) {
            answer.status = status;
            answer.code = code;
        }
        answer
    }

    fn act(&mut self, call: &Call, now: Nanos, answer: &mut Answer) -> Result<(), Refusal> {
        match &call.act {
            _ if self.gone => Err((404, "ContainerNotFound")),
            Act::List => {
                let listed = self.blobs.iter().filter(|(path, _)| path.starts_with(&call.path));
                answer.listed = listed
                    .map(|(path, blob)| (path.clone(), blob.clone(), blob.lease_state(now)))
                    .collect();
                Ok(())
            }
            Act::Upload { metadata, content } => self.upload(call, metadata, content, now, answer),
            act => {
                let habits = self.habits;
                let version = self.next_version();
                let blob = self.blobs.get_mut(&call.path).ok_or((404, "BlobNotFound"))?;
                if call.if_match.as_ref().is_some_and(|etag| *etag != blob.etag) {
                    return Err((412, "ConditionNotMet"));
                }
                match act {
                    Act::SetMetadata { metadata } => {
                        blob.may_write(call, habits.emulator, now)?;
                        blob.metadata.clone_from(metadata);
                        blob.written(version, call.lease.is_some(), answer);
                    }
                    Act::Delete => {
                        blob.may_write(call, habits.emulator, now)?;
                        answer.status = 202;
                        self.blobs.remove(&call.path);
                        return Ok(());
                    }
                    Act::Read | Act::Download => {
                        answer.blob = Some(blob.clone());
                        answer.lease_state = blob.lease_state(now);
                    }
                    lease => blob.lease(lease, habits, now, answer)?,
                }
                answer.etag = Some(blob.etag.clone());
                Ok(())
            }
        }
    }

    fn upload(
        &mut self,
        call: &Call,
        metadata: &Metadata,
        content: &[u8],
        now: Nanos,
        answer: &mut Answer,
    ) -> Result<(), Refusal> {
        let habits = self.habits;
        let version = self.next_version();
        answer.status = 201;
        match self.blobs.get_mut(&call.path) {
            Some(blob) if call.if_absent => {
                let leased = blob.leased_until(now).is_some();
                Err(if leased && !habits.emulator {
                    (412, "LeaseIdMissing")
                } else {
                    (409, "BlobAlreadyExists")
                })
            }
            Some(blob) => {
                if call.if_match.as_ref().is_some_and(|etag| *etag != blob.etag) {
                    return Err((412, "ConditionNotMet"));
                }
                blob.may_write(call, habits.emulator, now)?;
                blob.metadata.clone_from(metadata);
                blob.content = content.to_vec();
                blob.written(version, call.lease.is_some(), answer);
                Ok(())
            }
            None if call.if_match.is_some() => Err((412, "ConditionNotMet")),
            None if call.lease.is_some() => Err((412, "LeaseNotPresentWithBlobOperation")),
            None => {
                answer.etag = Some(version.clone());
                let blob = Blob {
                    etag: version,
                    metadata: metadata.clone(),
                    content: content.to_vec(),
                    modified: answer.date,
                    lease: Lease::Available,
                };
                self.blobs.insert(call.path.clone(), blob);
                Ok(())
            }
        }
    }

    fn next_version(&mut self) -> String {
        self.versions += 1;
        format!("\"0x{:x}\"", self.versions)
    }
}

impl Blob {
    fn may_write(&self, call: &Call, emulator: bool, now: Nanos) -> Result<(), Refusal> {
        match (self.lease.at(now), &call.lease) {
            (Standing::Leased | Standing::Breaking, Some(id)) if self.lease.is(id) => Ok(()),
            (Standing::Leased | Standing::Breaking, Some(_)) => {
                Err((412, "LeaseIdMismatchWithBlobOperation"))
            }
            (Standing::Leased | Standing::Breaking, None) => Err((412, "LeaseIdMissing")),
            (Standing::Available, Some(_)) => Err((412, "LeaseNotPresentWithBlobOperation")),
            (Standing::Expired | Standing::Broken, Some(_)) if emulator => {
                Err((412, "LeaseNotPresentWithBlobOperation"))
            }
            (Standing::Expired | Standing::Broken, Some(_)) => Err((412, "LeaseLost")),
            (Standing::Available | Standing::Expired | Standing::Broken, None) => Ok(()),
        }
    }

    fn written(&mut self, version: String, under_lease: bool, answer: &mut Answer) {
        self.etag = version;
        self.modified = answer.date;
        answer.etag = Some(self.etag.clone());
        // Without a lease a write passes only when nobody has one any more; what
        // has run out can't be renewed after that.
        if !under_lease {
            self.lease = Lease::Available;
        }
    }

    fn lease(
        &mut self,
        act: &Act,
        habits: Habits,
        now: Nanos,
        answer: &mut Answer,
    ) -> Result<(), Refusal> {
        let standing = self.lease.at(now);
        match act {
            Act::Acquire { id, seconds } => {
                match standing {
                    Standing::Leased if !self.lease.is(id) => {
                        return Err((409, "LeaseAlreadyPresent"));
                    }
                    Standing::Breaking if self.lease.is(id) => {
                        return Err((409, "LeaseIsBreakingAndCannotBeAcquired"));
                    }
                    Standing::Breaking => return Err((409, "LeaseAlreadyPresent")),
                    Standing::Expired if !self.lease.is(id) && self.in_grace(habits, now) => {
                        return Err((409, "LeaseAlreadyPresent"));
                    }
                    _ => {}
                }
                let duration = habits.seconds(*seconds);
                self.lease = Lease::Leased { id: id.clone(), until: now + duration, duration };
                answer.status = 201;
                answer.lease = Some(id.clone());
            }
            Act::Renew { id } => match (standing, &mut self.lease) {
                (
                    Standing::Leased | Standing::Expired,
                    Lease::Leased { id: held, until, duration },
                ) if held == id || (standing == Standing::Expired && habits.emulator) => {
                    *until = now + *duration;
                    answer.lease = Some(held.clone());
                }
                (Standing::Breaking | Standing::Broken, lease) if lease.is(id) => {
                    return Err((409, "LeaseIsBrokenAndCannotBeRenewed"));
                }
                _ => return Err((409, "LeaseIdMismatchWithLeaseOperation")),
            },
            Act::Release { id } => {
                if !self.lease.is(id) {
                    return Err((409, "LeaseIdMismatchWithLeaseOperation"));
                }
                self.lease = Lease::Available;
            }
            Act::Break { within } => {
                let (id, left) = match (&self.lease, standing) {
                    (Lease::Available, _) => {
                        return Err((409, "LeaseNotPresentWithLeaseOperation"));
                    }
                    (Lease::Leased { id, until, .. }, Standing::Leased)
                    | (Lease::Breaking { id, until }, Standing::Breaking) => {
                        let left = until - now;
                        (id, within.map_or(left, |within| left.min(habits.seconds(within))))
                    }
                    (Lease::Leased { id, .. } | Lease::Breaking { id, .. }, _) => (id, 0),
                };
                answer.status = 202;
                answer.lease_time = Some(left.div_ceil(SECOND));
                self.lease = Lease::Breaking { id: id.clone(), until: now + left };
            }
            _ => {}
        }
        Ok(())
    }

    fn in_grace(&self, habits: Habits, now: Nanos) -> bool {
        matches!(&self.lease, Lease::Leased { until, .. } if now < *until + habits.grace)
    }
}
