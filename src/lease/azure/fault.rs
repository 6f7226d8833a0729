//! What the service's answers mean. The only file that reads its error codes.

use std::{error::Error as _, time::Duration};

use azure_core::{
    error::ErrorKind,
    http::{StatusCode, headers::HeaderName},
};

use crate::lease;

/// Why a call did not do what it asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// There is no such blob.
    NoBlob,
    /// There is no such container.
    NoContainer,
    /// Somebody has the lease.
    Held,
    /// The lease that was named is not the blob's, or not any more.
    NotOurs {
        /// For people.
        why: &'static str,
    },
    /// The blob has changed since, or is there already.
    Changed,
    /// The service is busy; perhaps it was done.
    Busy {
        /// When to ask again.
        retry_after: Option<Duration>,
    },
    /// The service said no; nothing was done.
    Refused {
        /// For people: what happened and what to do.
        why: String,
    },
    /// The service could not be reached; nothing was done.
    Unreached {
        /// For people.
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
    pub(super) const fn is_unclear(&self) -> bool {
        matches!(self, Self::Unclear { .. } | Self::Busy { .. })
    }

    /// Whether the account can't be used at present, whatever the blob.
    pub(super) const fn is_trouble(&self) -> bool {
        matches!(
            self,
            Self::NoContainer
                | Self::Busy { .. }
                | Self::Refused { .. }
                | Self::Unreached { .. }
                | Self::Unclear { .. }
        )
    }

    /// For people.
    pub(super) fn why(&self) -> String {
        match self {
            Self::NoBlob => "the lock's blob is not there".to_owned(),
            Self::NoContainer => "the container is not there: it was deleted. Create it again \
                 (`leasehold doctor` does), and locks are granted again, with greater tokens"
                .to_owned(),
            Self::Held => "the lease is held".to_owned(),
            Self::NotOurs { why } => (*why).to_owned(),
            Self::Changed => "the blob was changed meanwhile".to_owned(),
            Self::Busy { .. } => "the storage account is busy and throttles calls".to_owned(),
            Self::Refused { why } | Self::Unreached { why } | Self::Unclear { why } => why.clone(),
        }
    }

    /// What a store says that did nothing.
    pub(super) fn into_error(self) -> lease::Error {
        let retry_after = match self {
            Self::Busy { retry_after } => retry_after,
            _ => None,
        };
        lease::Error::Unavailable { why: self.why(), retry_after }
    }
}

impl From<azure_core::Error> for Fault {
    fn from(error: azure_core::Error) -> Self {
        match error.kind() {
            ErrorKind::HttpResponse { status, error_code, raw_response } => {
                let headers = raw_response.as_ref().map(|response| response.headers());
                let retry_after = headers
                    .and_then(|headers| {
                        headers.get_optional_str(&HeaderName::from_static("retry-after"))
                    })
                    .and_then(|text| text.parse().ok())
                    .map(Duration::from_secs);
                answered(*status, error_code.as_deref().unwrap_or_default(), retry_after)
            }
            ErrorKind::Connection => Self::Unreached {
                why: format!("the storage account can't be reached: {}", root_cause(&error)),
            },
            ErrorKind::Credential => Self::Refused {
                why: format!("no credential for the storage account: {}", first_line(&error)),
            },
            _ => Self::Unclear {
                why: format!("no answer from the storage account: {}", root_cause(&error)),
            },
        }
    }
}

/// What an answer other than success means.
fn answered(status: StatusCode, code: &str, retry_after: Option<Duration>) -> Fault {
    match (u16::from(status), code) {
        (404, "ContainerNotFound") | (409, "ContainerBeingDeleted" | "ContainerDisabled") => {
            Fault::NoContainer
        }
        (404, _) => Fault::NoBlob,
        (409, "LeaseAlreadyPresent" | "LeaseIsBreakingAndCannotBeAcquired") => Fault::Held,
        // Breaking what nobody has.
        (409, "LeaseNotPresentWithLeaseOperation") => {
            Fault::NotOurs { why: "nobody has the lease" }
        }
        (409, "LeaseIsBrokenAndCannotBeRenewed" | "LeaseIsBreakingAndCannotBeChanged") => {
            Fault::NotOurs { why: "its lease was broken" }
        }
        (
            409 | 412,
            "LeaseIdMismatchWithLeaseOperation"
            | "LeaseIdMismatchWithBlobOperation"
            | "LeaseLost"
            | "LeaseNotPresentWithBlobOperation"
            | "LeaseIdMissing",
        ) => Fault::NotOurs { why: "its lease was broken, or has expired, or is another's by now" },
        (409, "BlobAlreadyExists") | (412, _) => Fault::Changed,
        (429, _) | (503, _) | (500, "OperationTimedOut" | "ServerBusy") => {
            Fault::Busy { retry_after }
        }
        (500.., _) => {
            Fault::Unclear { why: format!("the storage service failed ({status} {code})") }
        }
        _ => Fault::Refused { why: refused(status, code) },
    }
}

/// What happened, and what to do about it.
fn refused(status: StatusCode, code: &str) -> String {
    let what_to_do = match code {
        "AuthenticationFailed" => {
            "the key, the SAS or the identity is wrong for this account, the SAS has expired, or \
             this machine's clock is wrong by more than 15 minutes"
        }
        "AuthorizationFailure" => {
            "the account's firewall refuses this address, or the SAS does not allow this"
        }
        "AuthorizationPermissionMismatch" | "InsufficientAccountPermissions" => {
            "the identity may not do this: give it the role Storage Blob Data Contributor on the \
             container, or a SAS with the permissions racwdl"
        }
        "AuthorizationResourceTypeMismatch" | "AuthorizationServiceMismatch" => {
            "the SAS is not for blobs in this container"
        }
        "KeyBasedAuthenticationNotPermitted" => {
            "the account does not allow keys: use an identity (azure_credential)"
        }
        "AccountIsDisabled" => "the storage account is disabled",
        "InvalidQueryParameterValue" | "InvalidHeaderValue" | "UnsupportedHeader" => {
            "the service does not take this version of its protocol"
        }
        _ => "see the code",
    };
    format!("the storage account refused a call: {what_to_do} ({status} {code})")
}

/// The innermost error: what the operating system said, without the URL, which
/// may hold a signature.
fn root_cause(error: &azure_core::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    let mut source = error.source();
    while let Some(inner) = source {
        cause = inner;
        source = inner.source();
    }
    cause.to_string()
}

/// Credentials explain themselves at length.
fn first_line(error: &azure_core::Error) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meaning(status: u16, code: &str) -> Fault {
        answered(StatusCode::from(status), code, Some(Duration::from_secs(7)))
    }

    #[test]
    fn lost_unclear_and_refused_are_told_apart() {
        for code in ["LeaseLost", "LeaseNotPresentWithBlobOperation", "LeaseIdMissing"] {
            assert!(matches!(meaning(412, code), Fault::NotOurs { .. }), "{code}");
        }
        assert!(matches!(meaning(409, "LeaseIdMismatchWithLeaseOperation"), Fault::NotOurs { .. }));
        assert_eq!(meaning(409, "LeaseAlreadyPresent"), Fault::Held);
        assert_eq!(meaning(412, "ConditionNotMet"), Fault::Changed);
        assert_eq!(meaning(409, "BlobAlreadyExists"), Fault::Changed);
        assert_eq!(meaning(404, "BlobNotFound"), Fault::NoBlob);
        assert_eq!(meaning(404, "ContainerNotFound"), Fault::NoContainer);
        let busy = Fault::Busy { retry_after: Some(Duration::from_secs(7)) };
        assert_eq!(meaning(503, "ServerBusy"), busy);
        assert!(meaning(500, "InternalError").is_unclear());
        for code in ["AuthenticationFailed", "AuthorizationFailure", "Anything"] {
            assert!(matches!(meaning(403, code), Fault::Refused { .. }), "{code}");
        }
    }

    #[test]
    fn a_create_that_meets_a_leased_blob_finds_it_there() {
        // Azure answers so; the emulator says BlobAlreadyExists.
        assert!(matches!(meaning(412, "LeaseIdMissing"), Fault::NotOurs { .. }));
    }
}
