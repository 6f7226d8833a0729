//! Blob service with Azure's table of lease states. Sans-IO: it takes calls and
//! the time.

use std::collections::BTreeMap;

use crate::{Nanos, SECOND};

/// Variations of the service's behavior.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Behavior {
    /// Behaves as the emulator: any ID renews an expired lease, and the
    /// response has the previous holder's lease ID.
    pub emulator: bool,
    /// Time after expiry during which a lease still blocks other IDs.
    pub grace: Nanos,
    /// Nanoseconds per second gained by the clock that times leases.
    pub drift: i64,
}

/// Call of the blob service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Path of the blob, or prefix of the paths to list.
    pub path: String,
    /// Requested operation.
    pub operation: Operation,
    /// Condition: the blob has this ETag.
    pub if_match: Option<String>,
    /// Condition: the blob does not exist.
    pub if_absent: bool,
    /// Condition: the blob has this lease ID.
    pub lease: Option<String>,
}

/// Operation of the blob service.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names describe the fields")]
pub enum Operation {
    /// Acquire a lease with this ID, for this duration.
    Acquire { id: String, seconds: u64 },
    /// Renew a lease.
    Renew { id: String },
    /// Release a lease.
    Release { id: String },
    /// Break a lease after this many seconds, or at its expiry.
    Break { within: Option<u64> },
    /// Read the properties and metadata.
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

/// Metadata of a blob.
pub type Metadata = BTreeMap<String, String>;

/// Metadata and content of a blob.
pub type Contents = (Metadata, Vec<u8>);

/// Answer of the service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Status code.
    pub status: u16,
    /// Error code of the service, or empty.
    pub code: &'static str,
    /// ETag of the blob.
    pub etag: Option<String>,
    /// Lease ID in the response.
    pub lease: Option<String>,
    /// Remaining time of a broken lease, in seconds.
    pub lease_time: Option<u64>,
    /// Blob as read.
    pub blob: Option<Blob>,
    /// State of the blob's lease.
    pub lease_state: &'static str,
    /// Listed blobs with the states of their leases.
    pub listed: Vec<(String, Blob, &'static str)>,
    /// Delay before a retry, in seconds.
    pub retry_after: Option<u64>,
    /// Date of the service, in seconds since 1970.
    pub date: u64,
}

/// Stored blob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blob {
    /// ETag of the blob.
    pub etag: String,
    /// Metadata of the blob.
    pub metadata: Metadata,
    /// Content of the blob.
    pub content: Vec<u8>,
    /// Time of the last write, in seconds since 1970.
    pub modified: u64,
    lease: Lease,
}

/// Lease of a blob. An expired or broken lease remains until the next write or
/// acquisition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Lease {
    #[default]
    Available,
    Leased {
        id: String,
        until: Nanos,
        duration: Nanos,
    },
    /// Broken at `until`, which may be in the past.
    Breaking {
        id: String,
        until: Nanos,
    },
}

/// State of a lease at a given time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LeaseState {
    Available,
    Leased,
    Expired,
    Breaking,
    Broken,
}

impl Lease {
    fn at(&self, now: Nanos) -> LeaseState {
        match self {
            Self::Available => LeaseState::Available,
            Self::Leased { until, .. } if now < *until => LeaseState::Leased,
            Self::Leased { .. } => LeaseState::Expired,
            Self::Breaking { until, .. } if now < *until => LeaseState::Breaking,
            Self::Breaking { .. } => LeaseState::Broken,
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
    /// Returns the expiry of the active lease, if any.
    #[must_use]
    pub fn leased_until(&self, now: Nanos) -> Option<Nanos> {
        match (&self.lease, self.lease.at(now)) {
            (Lease::Leased { until, .. }, LeaseState::Leased)
            | (Lease::Breaking { until, .. }, LeaseState::Breaking) => Some(*until),
            _ => None,
        }
    }

    /// Returns the ID of the current or last lease.
    #[must_use]
    pub fn lease_id(&self) -> Option<&str> {
        self.lease.id()
    }

    fn lease_state(&self, now: Nanos) -> &'static str {
        match self.lease.at(now) {
            LeaseState::Available => "available",
            LeaseState::Leased => "leased",
            LeaseState::Expired => "expired",
            LeaseState::Breaking => "breaking",
            LeaseState::Broken => "broken",
        }
    }
}

impl Behavior {
    /// Returns the true time in which this many seconds pass on the clock that
    /// times leases.
    fn seconds(self, seconds: u64) -> Nanos {
        let length = i128::from(seconds) * 1_000_000_000_000_000_000;
        (length / (1_000_000_000 + i128::from(self.drift))) as Nanos
    }
}

type Refusal = (u16, &'static str);

/// Blob service.
#[derive(Clone, Debug, Default)]
pub struct Storage {
    behavior: Behavior,
    blobs: BTreeMap<String, Blob>,
    versions: u64,
    /// True if the container was deleted.
    container_deleted: bool,
}

impl Storage {
    /// Creates a service without blobs.
    #[must_use]
    pub fn new(behavior: Behavior) -> Self {
        Self { behavior, ..Self::default() }
    }

    /// Returns a blob.
    #[must_use]
    pub fn blob(&self, path: &str) -> Option<&Blob> {
        self.blobs.get(path)
    }

    /// Replaces a blob, even if it is leased, as an operator can. Returns its
    /// ETag.
    pub fn put(&mut self, path: &str, (metadata, content): Contents, modified: u64) -> String {
        let etag = self.next_version();
        let lease = Lease::Available;
        let blob = Blob { etag: etag.clone(), metadata, content, modified, lease };
        self.blobs.insert(path.to_owned(), blob);
        etag
    }

    /// Rewrites a blob unchanged if it is not leased, as an operator can.
    /// Returns whether it was written.
    pub fn rewrite(&mut self, path: &str, now: Nanos, date: u64) -> bool {
        let version = self.next_version();
        let blob = self.blobs.get_mut(path).filter(|blob| blob.leased_until(now).is_none());
        let Some(blob) = blob else { return false };
        (blob.etag, blob.modified, blob.lease) = (version, date, Lease::Available);
        true
    }

    /// Deletes the container and its blobs.
    pub fn delete_container(&mut self) {
        self.blobs.clear();
        self.container_deleted = true;
    }

    /// Creates the container again.
    pub const fn create_container(&mut self) {
        self.container_deleted = false;
    }

    /// Returns whether the container is missing.
    #[must_use]
    pub const fn is_container_deleted(&self) -> bool {
        self.container_deleted
    }

    /// Removes a blob, even if it is leased, as an operator can.
    pub fn remove(&mut self, path: &str) -> Option<Blob> {
        self.blobs.remove(path)
    }

    /// Executes a call. `date` is the service's date.
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
        if let Err((status, code)) = self.execute(call, now, &mut answer) {
            answer.status = status;
            answer.code = code;
        }
        answer
    }

    fn execute(&mut self, call: &Call, now: Nanos, answer: &mut Answer) -> Result<(), Refusal> {
        match &call.operation {
            _ if self.container_deleted => Err((404, "ContainerNotFound")),
            Operation::List => {
                let listed = self.blobs.iter().filter(|(path, _)| path.starts_with(&call.path));
                answer.listed = listed
                    .map(|(path, blob)| (path.clone(), blob.clone(), blob.lease_state(now)))
                    .collect();
                Ok(())
            }
            Operation::Upload { metadata, content } => {
                self.upload(call, metadata, content, now, answer)
            }
            operation => {
                let behavior = self.behavior;
                let version = self.next_version();
                let blob = self.blobs.get_mut(&call.path).ok_or((404, "BlobNotFound"))?;
                if call.if_match.as_ref().is_some_and(|etag| *etag != blob.etag) {
                    return Err((412, "ConditionNotMet"));
                }
                match operation {
                    Operation::SetMetadata { metadata } => {
                        blob.check_lease(call, behavior.emulator, now)?;
                        blob.metadata.clone_from(metadata);
                        blob.mark_written(version, call.lease.is_some(), answer);
                    }
                    Operation::Delete => {
                        blob.check_lease(call, behavior.emulator, now)?;
                        answer.status = 202;
                        self.blobs.remove(&call.path);
                        return Ok(());
                    }
                    Operation::Read | Operation::Download => {
                        answer.blob = Some(blob.clone());
                        answer.lease_state = blob.lease_state(now);
                    }
                    lease => blob.lease(lease, behavior, now, answer)?,
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
        let behavior = self.behavior;
        let version = self.next_version();
        answer.status = 201;
        match self.blobs.get_mut(&call.path) {
            Some(blob) if call.if_absent => {
                let leased = blob.leased_until(now).is_some();
                Err(if leased && !behavior.emulator {
                    (412, "LeaseIdMissing")
                } else {
                    (409, "BlobAlreadyExists")
                })
            }
            Some(blob) => {
                if call.if_match.as_ref().is_some_and(|etag| *etag != blob.etag) {
                    return Err((412, "ConditionNotMet"));
                }
                blob.check_lease(call, behavior.emulator, now)?;
                blob.metadata.clone_from(metadata);
                blob.content = content.to_vec();
                blob.mark_written(version, call.lease.is_some(), answer);
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
    fn check_lease(&self, call: &Call, emulator: bool, now: Nanos) -> Result<(), Refusal> {
        match (self.lease.at(now), &call.lease) {
            (LeaseState::Leased | LeaseState::Breaking, Some(id)) if self.lease.is(id) => Ok(()),
            (LeaseState::Leased | LeaseState::Breaking, Some(_)) => {
                Err((412, "LeaseIdMismatchWithBlobOperation"))
            }
            (LeaseState::Leased | LeaseState::Breaking, None) => Err((412, "LeaseIdMissing")),
            (LeaseState::Available, Some(_)) => Err((412, "LeaseNotPresentWithBlobOperation")),
            (LeaseState::Expired | LeaseState::Broken, Some(_)) if emulator => {
                Err((412, "LeaseNotPresentWithBlobOperation"))
            }
            (LeaseState::Expired | LeaseState::Broken, Some(_)) => Err((412, "LeaseLost")),
            (LeaseState::Available | LeaseState::Expired | LeaseState::Broken, None) => Ok(()),
        }
    }

    fn mark_written(&mut self, version: String, under_lease: bool, answer: &mut Answer) {
        self.etag = version;
        self.modified = answer.date;
        answer.etag = Some(self.etag.clone());
        // A write without a lease ID succeeds only if no lease is active. An
        // expired lease can't be renewed afterwards.
        if !under_lease {
            self.lease = Lease::Available;
        }
    }

    fn lease(
        &mut self,
        operation: &Operation,
        behavior: Behavior,
        now: Nanos,
        answer: &mut Answer,
    ) -> Result<(), Refusal> {
        let state = self.lease.at(now);
        match operation {
            Operation::Acquire { id, seconds } => {
                match state {
                    LeaseState::Leased if !self.lease.is(id) => {
                        return Err((409, "LeaseAlreadyPresent"));
                    }
                    LeaseState::Breaking if self.lease.is(id) => {
                        return Err((409, "LeaseIsBreakingAndCannotBeAcquired"));
                    }
                    LeaseState::Breaking => return Err((409, "LeaseAlreadyPresent")),
                    LeaseState::Expired if !self.lease.is(id) && self.in_grace(behavior, now) => {
                        return Err((409, "LeaseAlreadyPresent"));
                    }
                    _ => {}
                }
                let duration = behavior.seconds(*seconds);
                self.lease = Lease::Leased { id: id.clone(), until: now + duration, duration };
                answer.status = 201;
                answer.lease = Some(id.clone());
            }
            Operation::Renew { id } => match (state, &mut self.lease) {
                (
                    LeaseState::Leased | LeaseState::Expired,
                    Lease::Leased { id: held, until, duration },
                ) if held == id || (state == LeaseState::Expired && behavior.emulator) => {
                    *until = now + *duration;
                    answer.lease = Some(held.clone());
                }
                (LeaseState::Breaking | LeaseState::Broken, lease) if lease.is(id) => {
                    return Err((409, "LeaseIsBrokenAndCannotBeRenewed"));
                }
                _ => return Err((409, "LeaseIdMismatchWithLeaseOperation")),
            },
            Operation::Release { id } => {
                if !self.lease.is(id) {
                    return Err((409, "LeaseIdMismatchWithLeaseOperation"));
                }
                self.lease = Lease::Available;
            }
            Operation::Break { within } => {
                let (id, left) = match (&self.lease, state) {
                    (Lease::Available, _) => {
                        return Err((409, "LeaseNotPresentWithLeaseOperation"));
                    }
                    (Lease::Leased { id, until, .. }, LeaseState::Leased)
                    | (Lease::Breaking { id, until }, LeaseState::Breaking) => {
                        let left = until - now;
                        (id, within.map_or(left, |within| left.min(behavior.seconds(within))))
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

    fn in_grace(&self, behavior: Behavior, now: Nanos) -> bool {
        matches!(&self.lease, Lease::Leased { until, .. } if now < *until + behavior.grace)
    }
}
