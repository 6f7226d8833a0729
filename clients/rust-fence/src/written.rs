//! Outcome of a failed call, as far as it is known.

use leasehold_azure_account::Fault;

/// Outcome of a failed call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Written {
    /// The call was not applied, and never will be.
    No,
    /// The call was applied completely or not at all.
    Unknown,
}

impl Written {
    /// Returns the outcome after a fault. `changes`: whether the call was a write.
    pub(crate) const fn after(fault: &Fault, changes: bool) -> Self {
        if changes && fault.is_unclear() { Self::Unknown } else { Self::No }
    }

    /// Returns the outcome as a sentence of an error message.
    pub(crate) const fn sentence(self) -> &'static str {
        match self {
            Self::No => "Nothing was written",
            Self::Unknown => "It is not known whether it was written: all of it or nothing",
        }
    }
}
