//! Whether something was written, as far as that is known.

use leasehold_azure_account::Fault;

/// Whether a call that failed has changed anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Written {
    /// Nothing, and it never will.
    No,
    /// Not known: all of it or nothing.
    Unknown,
}

impl Written {
    /// Outcome of a call that failed. `changes` if it would have changed
    /// something.
    pub(crate) const fn after(fault: &Fault, changes: bool) -> Self {
        if changes && fault.is_unclear() { Self::Unknown } else { Self::No }
    }

    pub(crate) const fn told(self) -> &'static str {
        match self {
            Self::No => "Nothing was written",
            Self::Unknown => "It is not known whether it was written: all of it or nothing",
        }
    }
}
