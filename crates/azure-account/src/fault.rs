//! Classification of calls that did not succeed: their cause, and whether they
//! may have been applied.

use std::time::Duration;

use azure_core::{
    error::ErrorKind,
    http::headers::{HeaderName, Headers},
};

use crate::transport::root_cause;

/// Cause of a call that got no response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoResponse {
    /// No connection: the call was not sent.
    Unreachable(String),
    /// No access token: the call was not sent.
    NoAccessToken(String),
    /// The call was sent, and may have been applied.
    Unknown(String),
}

impl NoResponse {
    /// Classifies an error other than an HTTP status.
    #[must_use]
    pub fn of(error: &azure_core::Error) -> Self {
        match error.kind() {
            ErrorKind::Connection => Self::Unreachable(format!(
                "the storage account can't be reached: {}",
                root_cause(error)
            )),
            // Credentials explain themselves at length.
            ErrorKind::Credential => {
                Self::NoAccessToken(error.to_string().lines().next().unwrap_or_default().to_owned())
            }
            _ => {
                Self::Unknown(format!("no answer from the storage account: {}", root_cause(error)))
            }
        }
    }
}

/// Time after which the service asks to be called again.
#[must_use]
pub fn retry_after(headers: &Headers) -> Option<Duration> {
    let text = headers.get_optional_str(&HeaderName::from_static("retry-after"))?;
    text.parse().ok().map(Duration::from_secs)
}

/// Fix for an account that can't be reached. Only the text of the error tells
/// the causes apart.
#[must_use]
pub fn unreachable_remedy(why: &str) -> &'static str {
    let why = why.to_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| why.contains(word));
    if says(&["dns error", "lookup", "resolve"]) {
        "The host's name is not known: check the account's name in its URL or connection string, \
         and whether this machine can resolve names"
    } else if says(&["certificate", "tls", "ssl", "handshake", "corrupt message"]) {
        "No secure connection could be made: check whether the address begins with http:// or \
         https:// as it should, and whether a proxy is in between"
    } else if says(&["refused"]) {
        "Nothing listens there: check the address, and if it is an emulator, whether it runs"
    } else {
        "Check the address, and whether a firewall or the lack of a route is in between"
    }
}

/// Fix for an error code of the service that refuses the credential itself,
/// regardless of the call.
#[must_use]
pub fn credential_remedy(code: &str) -> Option<&'static str> {
    match code {
        "AuthenticationFailed" | "InvalidAuthenticationInfo" | "NoAuthenticationInformation" => {
            Some(
                "The key, the SAS or the token is not the account's, or has expired, or this \
                 machine's clock is wrong by more than 15 minutes",
            )
        }
        "KeyBasedAuthenticationNotPermitted" => {
            Some("The account does not allow keys: use an identity of Entra ID")
        }
        _ => None,
    }
}

/// Cause of a call through [`Service`](crate::Service) that did not succeed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The service refused the call; it was not applied.
    Refused {
        /// The HTTP status.
        status: u16,
        /// The service's own code, such as "TableNotFound".
        code: String,
        /// The service's message.
        message: String,
    },
    /// The service can't serve the call now; it may have been applied.
    Busy {
        /// Human-readable.
        why: String,
        /// Time after which the service asks to be called again.
        retry_after: Option<Duration>,
    },
    /// The call was not sent.
    Unsent {
        /// Human-readable: the cause, and the fix.
        why: String,
    },
    /// No clear answer: the call may have been applied.
    Unclear {
        /// Human-readable.
        why: String,
    },
}

impl Fault {
    /// Whether the call may have been applied all the same.
    #[must_use]
    pub const fn is_unclear(&self) -> bool {
        matches!(self, Self::Unclear { .. } | Self::Busy { .. })
    }

    /// Whether the same call may succeed later.
    #[must_use]
    pub const fn may_pass(&self) -> bool {
        !matches!(self, Self::Refused { .. })
    }

    /// Minimum delay before the next attempt.
    #[must_use]
    pub fn retry_after(&self) -> Duration {
        match self {
            Self::Busy { retry_after, .. } => retry_after.unwrap_or_default(),
            _ => Duration::ZERO,
        }
    }

    /// Classifies a response other than success.
    #[must_use]
    pub fn answered(
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
        match NoResponse::of(&error) {
            NoResponse::Unreachable(why) => {
                let remedy = unreachable_remedy(&why);
                Self::Unsent { why: format!("{why}. {remedy}") }
            }
            NoResponse::NoAccessToken(why) => {
                Self::Unsent { why: format!("there is no token: {why}") }
            }
            NoResponse::Unknown(why) => Self::Unclear { why },
        }
    }
}
