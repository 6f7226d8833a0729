//! Errors of a blob, grouped by the caller's next step.

use leasehold_azure_account::Fault;

use super::Place;
use crate::fault::remedy;

/// Error of a blob.
pub type Error = crate::Error<Place, Conflict>;

/// Difference between the expected and the actual state of a blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Conflict {
    /// The blob no longer has the ETag that the call named.
    #[error("the blob has changed since it was read")]
    Changed,
    /// The blob to create exists.
    #[error("the blob already exists")]
    Exists,
    /// The blob to change or delete does not exist.
    #[error("the blob does not exist")]
    Missing,
    /// Another client has leased the blob.
    #[error("another client has leased the blob")]
    Leased,
}

impl Error {
    /// Converts a fault of a storage call. `changes`: whether the call was a write.
    pub(super) fn of(fault: &Fault, place: &Place, changes: bool) -> Self {
        Self::from_fault(fault, place, changes, |status, code, message| match (status, code) {
            (404, "BlobNotFound") => Self::conflict(place, Conflict::Missing),
            (409, "BlobAlreadyExists") => Self::conflict(place, Conflict::Exists),
            (409, "LeaseAlreadyPresent") | (412, "LeaseIdMissing") => {
                Self::conflict(place, Conflict::Leased)
            }
            (412, "ConditionNotMet") => Self::conflict(place, Conflict::Changed),
            _ => {
                let missing = (code == "ContainerNotFound").then_some(
                    "no such container; check its name and the account name, or create it",
                );
                let rights = "The call needs permission to read and write blobs: a SAS for blobs \
                              with sp=rcw, or the role Storage Blob Data Contributor";
                Self::invalid(place, remedy(status, code, message, rights, missing))
            }
        })
    }
}
