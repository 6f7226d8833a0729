//! Classification of failed calls: cause, and whether the call may have been
//! applied.

use std::time::Duration;

use azure_core::{
    error::ErrorKind,
    http::headers::{HeaderName, Headers},
};

use crate::transport::root_cause;

/// Cause of a missing response.
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
            // Errors of credentials have several lines.
            ErrorKind::Credential => {
                Self::NoAccessToken(error.to_string().lines().next().unwrap_or_default().to_owned())
            }
            _ => {
                let why = root_cause(error);
                Self::Unknown(format!("no response from the storage account: {why}"))
            }
        }
    }
}

/// Returns the delay that the service requests before the next call.
#[must_use]
pub fn retry_after(headers: &Headers) -> Option<Duration> {
    let text = headers.get_optional_str(&HeaderName::from_static("retry-after"))?;
    text.parse().ok().map(Duration::from_secs)
}

/// Returns the fix for an account that can't be reached. The causes can be
/// distinguished only by the text of the error.
#[must_use]
pub fn unreachable_fix(why: &str) -> &'static str {
    let why = why.to_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| why.contains(word));
    if has(&["dns error", "lookup", "resolve"]) {
        "The host name can't be resolved: check the account name in the URL or connection string, \
         and this machine's DNS"
    } else if has(&["certificate", "tls", "ssl", "handshake", "corrupt message"]) {
        "The TLS handshake failed: check the scheme of the address (http:// or https://), and \
         whether a proxy intercepts the connection"
    } else if has(&["refused"]) {
        "No server listens at this address: check the address, and start the emulator if it is one"
    } else {
        "Check the address, the network route and the firewalls"
    }
}

/// Returns the fix for an error code that refuses the credential, regardless of
/// the call.
#[must_use]
pub fn credential_fix(code: &str) -> Option<&'static str> {
    match code {
        "AuthenticationFailed" | "InvalidAuthenticationInfo" | "NoAuthenticationInformation" => {
            Some(
                "The key, SAS or access token does not belong to the account or has expired, or \
                 this machine's clock is off by more than 15 minutes",
            )
        }
        "KeyBasedAuthenticationNotPermitted" => {
            Some("The account does not allow account keys: use an Entra ID identity")
        }
        _ => None,
    }
}

/// Failure of a call through [`Service`](crate::Service).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The service refused the call; it was not applied.
    Refused {
        /// HTTP status.
        status: u16,
        /// Error code of the service, such as "TableNotFound".
        code: String,
        /// Message of the service.
        message: String,
    },
    /// The service can't serve the call now; it may have been applied.
    Busy {
        /// Human-readable cause.
        why: String,
        /// Delay that the service requests before the next call.
        retry_after: Option<Duration>,
    },
    /// The call was not sent.
    Unsent {
        /// Human-readable cause and fix.
        why: String,
    },
    /// The outcome is unknown: the call may have been applied.
    Unclear {
        /// Human-readable cause.
        why: String,
    },
}

impl Fault {
    /// Returns whether the call may have been applied.
    #[must_use]
    pub const fn is_unclear(&self) -> bool {
        matches!(self, Self::Unclear { .. } | Self::Busy { .. })
    }

    /// Returns whether the same call may succeed later.
    #[must_use]
    pub const fn may_pass(&self) -> bool {
        !matches!(self, Self::Refused { .. })
    }

    /// Returns the minimum delay before the next attempt.
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
                let why = format!("the storage account is busy or failing ({status} {code})");
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
                let fix = unreachable_fix(&why);
                Self::Unsent { why: format!("{why}. {fix}") }
            }
            NoResponse::NoAccessToken(why) => {
                Self::Unsent { why: format!("no access token: {why}") }
            }
            NoResponse::Unknown(why) => Self::Unclear { why },
        }
    }
}
