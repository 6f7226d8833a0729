//! Check of the permissions, on a separate blob, deleted afterwards.

use std::collections::HashMap;

use azure_core::http::{RequestContent, headers::HeaderName};
use azure_storage_blob::{
    BlobClient,
    models::{
        BlobClientAcquireLeaseOptions, BlobClientDeleteOptions, BlobClientSetMetadataOptions,
        BlobClientUploadOptions, BlockBlobClientUploadResult,
    },
};

use super::{first_page, limited};
use crate::{
    Settings,
    account::Account,
    calls::{blob::guid, fault::Fault},
};
use leasehold_store::{LeaseId, finding::Finding};
use leasehold_time::Entropy;

/// Minimum lease duration: the lease is released immediately.
const SECONDS: i32 = 15;

/// Operations of the store on blobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Create,
    List,
    Read,
    Lease,
    Write,
    Release,
    Delete,
}

impl Step {
    const fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::List => "list",
            Self::Read => "read",
            Self::Lease => "lease",
            Self::Write => "write",
            Self::Release => "release",
            Self::Delete => "delete",
        }
    }
}

/// End of the steps: the remaining ones would be useless.
struct Abort;

/// Outcome of the steps.
#[derive(Debug)]
pub(super) struct Probe {
    path: String,
    done: Vec<Step>,
    failed: Vec<(Step, Fault)>,
    /// Set if the blob may exist.
    left: bool,
    /// Set if the service keeps earlier versions of blobs.
    pub(super) versioning: bool,
    /// Set if the service keeps deleted blobs; none if it did not report that.
    pub(super) soft_delete: Option<bool>,
}

impl Probe {
    /// Makes each step.
    pub(super) async fn of(account: &Account, settings: &Settings, entropy: &mut Entropy) -> Self {
        let slash = if settings.prefix.is_empty() { "" } else { "/" };
        let mut probe = Self {
            path: format!("{}{slash}check/{:032x}", settings.prefix, entropy.bits()),
            done: Vec::new(),
            failed: Vec::new(),
            left: false,
            versioning: false,
            soft_delete: None,
        };
        let blob = account.container().blob_client(&probe.path);
        let id = guid(LeaseId::new(entropy.bits()));
        // The blob is deleted regardless of the outcome of the other steps.
        _ = probe.use_blob(account, &blob, &id).await;
        if probe.left {
            probe.delete(&blob, &id).await;
        }
        probe
    }

    async fn use_blob(
        &mut self,
        account: &Account,
        blob: &BlobClient,
        id: &str,
    ) -> Result<(), Abort> {
        let created = self.create(blob).await?;
        let listed = self.list(account, created.is_some()).await;
        self.note(Step::List, listed)?;
        let Some(created) = created else { return Ok(()) };
        self.note(Step::Read, limited(blob.get_properties(None)).await)?;
        let options = BlobClientAcquireLeaseOptions {
            proposed_lease_id: Some(id.to_owned()),
            ..Default::default()
        };
        let leased = limited(blob.acquire_lease(SECONDS, Some(options))).await;
        let leased = self.note(Step::Lease, leased)?.is_some();
        let options = BlobClientSetMetadataOptions {
            lease_id: leased.then(|| id.to_owned()),
            if_match: created.etag,
            ..Default::default()
        };
        let metadata = HashMap::from([("purpose".to_owned(), "check".to_owned())]);
        let written = limited(blob.set_metadata(&metadata, Some(options))).await;
        self.note(Step::Write, written)?;
        if leased {
            let released = limited(blob.release_lease(id.to_owned(), None)).await;
            self.note(Step::Release, released)?;
        }
        Ok(())
    }

    async fn create(
        &mut self,
        blob: &BlobClient,
    ) -> Result<Option<BlockBlobClientUploadResult>, Abort> {
        let empty = RequestContent::from(Vec::new());
        let options = BlobClientUploadOptions::default().if_not_exists();
        let created = limited(blob.upload(empty, Some(options))).await;
        self.left = created.as_ref().map_or_else(Fault::is_unknown, |_| true);
        let created = self.note(Step::Create, created)?;
        self.versioning = created.as_ref().is_some_and(|created| created.version_id.is_some());
        Ok(created)
    }

    async fn list(&self, account: &Account, created: bool) -> Result<(), Fault> {
        let page = limited(first_page(account, Some(self.path.clone()))).await?;
        let blobs = page.map(|page| page.into_model().map(|page| page.blob_items)).transpose()?;
        let listed = blobs.unwrap_or_default().into_iter().filter_map(|blob| blob.name);
        if listed.eq(created.then_some(self.path.clone())) {
            return Ok(());
        }
        Err(Fault::Unknown { why: "the listing does not match the existing blobs".to_owned() })
    }

    /// Deletes the blob, under the lease that may still be on it.
    async fn delete(&mut self, blob: &BlobClient, id: &str) {
        let mut deleted = limited(blob.delete(None)).await;
        if matches!(deleted, Err(Fault::NotOurs { .. })) {
            let options =
                BlobClientDeleteOptions { lease_id: Some(id.to_owned()), ..Default::default() };
            deleted = limited(blob.delete(Some(options))).await;
        }
        self.left = !matches!(deleted, Ok(_) | Err(Fault::NoBlob));
        if let Ok(deleted) = &deleted {
            let permanent = HeaderName::from_static("x-ms-delete-type-permanent");
            let permanent = deleted.headers().get_optional_str(&permanent);
            self.soft_delete = permanent.map(|permanent| permanent == "false");
        }
        // Without a created blob, a deletion is no evidence of permissions.
        if self.done.contains(&Step::Create) || self.left {
            _ = self.note(Step::Delete, deleted);
        }
    }

    /// Records the outcome of a step. After a refusal, the other steps still make
    /// sense.
    fn note<T>(&mut self, step: Step, outcome: Result<T, Fault>) -> Result<Option<T>, Abort> {
        match outcome {
            Ok(answer) => {
                self.done.push(step);
                Ok(Some(answer))
            }
            Err(fault) => {
                let refused = matches!(fault, Fault::Refused { .. });
                self.failed.push((step, fault));
                if refused { Ok(None) } else { Err(Abort) }
            }
        }
    }

    /// Returns the finding. `deletes` is set if the store deletes blobs.
    pub(super) fn finding(&self, deletes: bool) -> Finding {
        const CHECK: &str = "permissions";
        let Some((step, fault)) = self.failed.first() else {
            let done = in_words(self.done.iter().copied());
            return Finding::ok(CHECK, format!("may {done} blobs, as tried on {}", self.path));
        };
        let text = match fault {
            Fault::Refused { code, .. } => {
                let alike = self.failed.iter().filter(|(_, other)| other == fault);
                let steps = in_words(alike.map(|(step, _)| *step));
                format!("may not {steps} blobs ({code})")
            }
            fault => format!("could not {} a blob: {}", step.name(), fault.what()),
        };
        let text = match self.left {
            true => format!("{text}; the blob {} stays behind", self.path),
            false => text,
        };
        let dispensable = match fault {
            Fault::Refused { .. } => *step == Step::Delete && !deletes,
            fault => matches!(fault, Fault::Busy { .. }),
        };
        let finding = match dispensable {
            true => Finding::warning(CHECK, text),
            false => Finding::failed(CHECK, text),
        };
        finding.fix(match fault {
            Fault::NoContainer => "Create the container",
            fault => fault.fix().unwrap_or("Try again"),
        })
    }
}

fn in_words(steps: impl Iterator<Item = Step>) -> String {
    let names: Vec<_> = steps.map(Step::name).collect();
    match names.split_last() {
        Some((last, [])) => (*last).to_owned(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
        None => String::new(),
    }
}
