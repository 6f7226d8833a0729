//! Whether something was written, as far as that is known.

/// Whether a call that failed has changed anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Written {
    /// Nothing, and it never will.
    No,
    /// Not known: all of it or nothing.
    Unknown,
}

impl Written {
    pub(super) const fn told(self) -> &'static str {
        match self {
            Self::No => "Nothing was written",
            Self::Unknown => "It is not known whether it was written: all of it or nothing",
        }
    }
}
