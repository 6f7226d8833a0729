//! Why a call did not succeed, and whether it may have been done all the same.

use std::time::Duration;

use azure_core::error::ErrorKind;

/// Why a call was not answered with success.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The service said no; nothing was done.
    Refused {
        /// The HTTP status.
        status: u16,
        /// The service's own code, such as "TableNotFound".
        code: String,
        /// The service's words.
        message: String,
    },
    /// The service can't do it now; perhaps it was done.
    Busy {
        /// For people.
        why: String,
        /// When to ask again.
        retry_after: Option<Duration>,
    },
    /// The call was not sent; nothing was done.
    Unsent {
        /// For people: why, and what to do.
        why: String,
    },
    /// No clear answer: perhaps it was done.
    Unclear {
        /// For people.
        why: String,
    },
}

impl Fault {
    /// Whether it may have been done all the same.
    pub(crate) const fn is_unclear(&self) -> bool {
        matches!(self, Self::Unclear { .. } | Self::Busy { .. })
    }

    /// Whether the same call may succeed later.
    pub(crate) const fn may_pass(&self) -> bool {
        !matches!(self, Self::Refused { .. })
    }

    /// When to ask again at the earliest.
    pub(crate) fn retry_after(&self) -> Duration {
        match self {
            Self::Busy { retry_after, .. } => retry_after.unwrap_or_default(),
            _ => Duration::ZERO,
        }
    }

    /// What an answer other than success means.
    pub(crate) fn answered(
        status: u16,
        code: String,
        message: String,
        retry_after: Option<Duration>,
    ) -> Self {
        match status {
            408 | 429 | 500.. => {
                let why = format!("the storage account is busy or disturbed ({status} {code})");
                Self::Busy { why, retry_after }
            }
            _ => Self::Refused { status, code, message },
        }
    }
}

impl From<azure_core::Error> for Fault {
    fn from(error: azure_core::Error) -> Self {
        let why = error.to_string();
        let why = why.lines().next().unwrap_or_default();
        match error.kind() {
            ErrorKind::Connection => Self::Unsent { why: unreached(why) },
            ErrorKind::Credential => Self::Unsent { why: format!("there is no token: {why}") },
            _ => Self::Unclear { why: format!("no answer from the storage account: {why}") },
        }
    }
}

/// What to do about an account that can't be reached. Only the client's words
/// tell the reasons apart.
fn unreached(why: &str) -> String {
    let words = why.to_lowercase();
    let says = |list: &[&str]| list.iter().any(|word| words.contains(word));
    let remedy = if says(&["dns error", "lookup", "resolve"]) {
        "The host's name is not known: check the account's name, and whether this machine can \
         resolve names"
    } else if says(&["certificate", "tls", "ssl", "handshake", "corrupt message"]) {
        "No secure connection could be made: check whether the address begins with http:// or \
         https:// as it should, and whether a proxy is in between"
    } else if says(&["refused"]) {
        "Nothing listens there: check the address, and if it is an emulator, whether it runs"
    } else {
        "Check the address, and whether a firewall or the lack of a route is in between"
    };
    format!("the storage account can't be reached: {why}. {remedy}")
}
