//! Errors of a table, grouped by the caller's next step.

use leasehold_azure_account::Fault;
use leasehold_client::Token;

use super::{Place, fault::is_missing_row};
use crate::fault::remedy;

/// Error of a table.
pub type Error = crate::Error<Place, Conflict>;

/// Difference between the expected and the actual state of a row or a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Conflict {
    /// The row no longer has the ETag that the change named.
    #[error("the row has changed since it was read")]
    Changed,
    /// The row to insert exists.
    #[error("the row already exists")]
    Exists,
    /// The row to change or delete does not exist.
    #[error("the row does not exist")]
    Missing,
    /// Another user of the same token has opened the partition or written to it, so
    /// earlier reads may be outdated.
    #[error("another user of the same token has opened the partition or written to it")]
    SameToken,
}

impl Error {
    /// Adds the token of the attempt.
    pub(super) fn with_token(mut self, token: u64) -> Self {
        self.place_mut().token = Some(Token::new(token));
        self
    }

    /// Converts a fault of a storage call. `changes`: whether the call was a write.
    pub(super) fn of(fault: &Fault, place: &Place, changes: bool) -> Self {
        Self::from_fault(fault, place, changes, |status, code, message| match (status, code) {
            _ if is_missing_row(fault) => Self::conflict(place, Conflict::Missing),
            (409, "EntityAlreadyExists") => Self::conflict(place, Conflict::Exists),
            (412, _) => Self::conflict(place, Conflict::Changed),
            _ => {
                let missing = (code == "TableNotFound")
                    .then_some("no such table; check its name and the account name, or create it");
                let rights = "The call needs permission to read, add, update and delete entities: a \
                              SAS for tables with sp=raud, or the role Storage Table Data Contributor";
                Self::invalid(place, remedy(status, code, message, rights, missing))
            }
        })
    }
}
