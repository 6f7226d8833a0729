//! Errors of a blob, by what to do about them.

use leasehold_azure_account::Fault;

use super::Place;
use crate::fault::remedy;

/// Error of a blob.
pub type Error = crate::Error<Place, Conflict>;

/// State that was found in place of the expected one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Conflict {
    /// The blob has changed since it had the ETag that was named.
    #[error("the blob has changed since it was read")]
    Changed,
    /// The blob that was to be created is there.
    #[error("the blob is there already")]
    Exists,
    /// The blob that was to be changed or deleted is not there.
    #[error("the blob is not there")]
    Missing,
    /// Somebody else has a lease on it.
    #[error("somebody else has a lease on the blob")]
    Leased,
}

impl Error {
    /// Converts a fault. `changes` if the call would have changed something.
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
                    "there is no such container. Check its name and the account's, or create it",
                );
                let rights = "It needs the right to read and write blobs: a SAS for blobs with \
                              sp=rcw, or the role Storage Blob Data Contributor";
                Self::invalid(place, remedy(status, code, message, rights, missing))
            }
        })
    }
}
