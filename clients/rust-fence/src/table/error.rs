//! Errors of a table, by what to do about them.

use leasehold_azure_account::Fault;
use leasehold_client::Token;

use super::{Place, fault::is_missing_row};
use crate::fault::remedy;

/// Error of a table.
pub type Error = crate::Error<Place, Conflict>;

/// State that was found in place of the expected one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Conflict {
    /// The row has changed since it had the ETag that was named.
    #[error("the row has changed since it was read")]
    Changed,
    /// The row that was to be inserted is there.
    #[error("the row is there already")]
    Exists,
    /// The row that was to be changed or deleted is not there.
    #[error("the row is not there")]
    Missing,
    /// Another user of the same token has come or written to the partition
    /// since this one did, so what was read before may have changed.
    #[error("another has come or written with the same token since")]
    SameToken,
}

impl Error {
    /// Names the token of the attempt.
    pub(super) fn with_token(mut self, token: u64) -> Self {
        self.place_mut().token = Some(Token::new(token));
        self
    }

    /// Converts a fault of a call on a row. `changes` if the call would have
    /// changed something.
    pub(super) fn of(fault: &Fault, place: &Place, changes: bool) -> Self {
        Self::from_fault(fault, place, changes, |status, code, message| match (status, code) {
            _ if is_missing_row(fault) => Self::conflict(place, Conflict::Missing),
            (409, "EntityAlreadyExists") => Self::conflict(place, Conflict::Exists),
            (412, _) => Self::conflict(place, Conflict::Changed),
            _ => {
                let missing = (code == "TableNotFound").then_some(
                    "there is no such table. Check its name and the account's, or create it",
                );
                let rights = "It needs the right to read, add, update and delete entities: a SAS \
                              for tables with sp=raud, or the role Storage Table Data Contributor";
                Self::invalid(place, remedy(status, code, message, rights, missing))
            }
        })
    }
}
