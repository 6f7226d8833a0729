//! Meaning of the service's answers. The only file that reads its error codes.

use std::time::Duration;

use azure_core::{error::ErrorKind, http::StatusCode};
use leasehold_azure_account::{NoResponse, credential_fix, retry_after, unreachable_fix};

use leasehold_store as lease;

/// Reason why a call failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The blob does not exist.
    NoBlob,
    /// The container does not exist.
    NoContainer,
    /// Another process has the lease.
    Held,
    /// The named lease is not, or no longer, the blob's.
    NotOurs {
        /// Human-readable reason.
        why: &'static str,
    },
    /// The blob has changed, or exists already.
    Changed,
    /// The service is busy. The call may or may not have been applied.
    Busy {
        /// Delay that the service asks for.
        retry_after: Option<Duration>,
    },
    /// The service refused the call, which was not applied.
    Refused {
        /// Scope of the refusal.
        refusal: Refusal,
        /// HTTP status and error code of the service.
        code: String,
        /// Human-readable cause and fix.
        fix: &'static str,
    },
    /// No access token is available; the call was not sent.
    NoToken {
        /// Human-readable reason.
        why: String,
    },
    /// The service could not be reached; the call was not applied.
    Unreached {
        /// Human-readable reason.
        why: String,
    },
    /// Unknown outcome: the call may or may not have been applied.
    Unknown {
        /// Human-readable reason.
        why: String,
    },
}

/// Scope of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Every call of this caller.
    Caller,
    /// This call by this caller.
    Permission,
    /// This call by any caller.
    Call,
}

impl Fault {
    /// Reports whether the call may have been applied despite the fault.
    pub(crate) const fn is_unknown(&self) -> bool {
        matches!(self, Self::Unknown { .. } | Self::Busy { .. })
    }

    /// Reports whether the account is unavailable for any blob.
    pub(crate) const fn is_account_failure(&self) -> bool {
        matches!(
            self,
            Self::NoContainer
                | Self::Busy { .. }
                | Self::Refused { .. }
                | Self::NoToken { .. }
                | Self::Unreached { .. }
                | Self::Unknown { .. }
        )
    }

    /// Human-readable cause and fix.
    pub(crate) fn why(&self) -> String {
        match self.fix() {
            Some(fix) => format!("{}. {fix}", self.what()),
            None => self.what(),
        }
    }

    /// Human-readable cause.
    pub(crate) fn what(&self) -> String {
        match self {
            Self::NoBlob => "the lock's blob does not exist".to_owned(),
            Self::NoContainer => "the container does not exist: it was deleted".to_owned(),
            Self::Held => "the lease is held".to_owned(),
            Self::NotOurs { why } => (*why).to_owned(),
            Self::Changed => "the blob was changed by another process".to_owned(),
            Self::Busy { .. } => "the storage account is busy and throttles calls".to_owned(),
            Self::Refused { code, .. } => format!("the storage account refused a call ({code})"),
            Self::NoToken { why } | Self::Unreached { why } | Self::Unknown { why } => why.clone(),
        }
    }

    /// Human-readable fix: whole sentences without the last full stop.
    pub(crate) fn fix(&self) -> Option<&'static str> {
        match self {
            Self::NoContainer => Some(
                "Create it again (`leasehold doctor` does). Locks are then granted with higher \
                 tokens",
            ),
            Self::Refused { fix, .. } => Some(fix),
            Self::Unreached { why } => Some(unreachable_fix(why)),
            _ => None,
        }
    }

    /// Returns the error of a store call that was not applied.
    pub(crate) fn into_error(self) -> lease::Error {
        let retry_after = match self {
            Self::Busy { retry_after } => retry_after,
            _ => None,
        };
        lease::Error::Unavailable { why: self.why(), retry_after }
    }
}

impl From<azure_core::Error> for Fault {
    fn from(error: azure_core::Error) -> Self {
        if let ErrorKind::HttpResponse { status, error_code, raw_response } = error.kind() {
            let retry_after =
                raw_response.as_ref().and_then(|response| retry_after(response.headers()));
            return answered(*status, error_code.as_deref().unwrap_or_default(), retry_after);
        }
        match NoResponse::of(&error) {
            NoResponse::Unreachable(why) => Self::Unreached { why },
            NoResponse::NoAccessToken(why) => Self::NoToken { why },
            NoResponse::Unknown(why) => Self::Unknown { why },
        }
    }
}

/// Classifies an answer other than success.
fn answered(status: StatusCode, code: &str, retry_after: Option<Duration>) -> Fault {
    match (u16::from(status), code) {
        (404, "ContainerNotFound") | (409, "ContainerBeingDeleted" | "ContainerDisabled") => {
            Fault::NoContainer
        }
        (404, _) => Fault::NoBlob,
        (409, "LeaseAlreadyPresent" | "LeaseIsBreakingAndCannotBeAcquired") => Fault::Held,
        // Response to the break of a lease that no process has.
        (409, "LeaseNotPresentWithLeaseOperation") => {
            Fault::NotOurs { why: "its lease is no longer held" }
        }
        (409, "LeaseIsBrokenAndCannotBeRenewed" | "LeaseIsBreakingAndCannotBeChanged") => {
            Fault::NotOurs { why: "its lease was broken in the storage account" }
        }
        (
            409 | 412,
            "LeaseIdMismatchWithLeaseOperation"
            | "LeaseIdMismatchWithBlobOperation"
            | "LeaseLost"
            | "LeaseNotPresentWithBlobOperation"
            | "LeaseIdMissing",
        ) => Fault::NotOurs {
            why: "its lease was broken, expired or was acquired by another process in the storage \
                  account",
        },
        (409, "BlobAlreadyExists" | "ContainerAlreadyExists") | (412, _) => Fault::Changed,
        (429, _) | (503, _) | (500, "OperationTimedOut" | "ServerBusy") => {
            Fault::Busy { retry_after }
        }
        // 408: the service stopped waiting for the request, or for its own answer.
        (408 | 500.., _) => {
            Fault::Unknown { why: format!("the storage service failed ({status} {code})") }
        }
        _ => {
            let (refusal, fix) = refused(u16::from(status), code);
            Fault::Refused { refusal, code: format!("{status} {code}").trim().to_owned(), fix }
        }
    }
}

/// Returns the scope of a refusal, and the fix.
fn refused(status: u16, code: &str) -> (Refusal, &'static str) {
    use Refusal::{Call, Caller, Permission};
    if let Some(fix) = credential_fix(code) {
        return (Caller, fix);
    }
    match code {
        // Emulators return this for wrong keys too.
        "AuthorizationFailure" => (
            Caller,
            "The account's firewall refuses this address, or the SAS does not allow this; if it \
             is an emulator, the key or the SAS is wrong or has expired",
        ),
        "AuthorizationPermissionMismatch" | "InsufficientAccountPermissions" => (
            Permission,
            "Give the identity the role Storage Blob Data Contributor on the container, or use a \
             SAS with the permissions racwdl",
        ),
        "AuthorizationResourceTypeMismatch" | "AuthorizationServiceMismatch" => (
            Permission,
            "The SAS is not for blobs in this container: use one with the service b and the \
             resource types co, or one of the container itself",
        ),
        "AuthorizationSourceIPMismatch" | "AuthorizationProtocolMismatch" => {
            (Caller, "The SAS is not for calls from this address, or needs https")
        }
        "AccountIsDisabled" => (Call, "The storage account is disabled"),
        "InvalidQueryParameterValue" | "InvalidHeaderValue" | "UnsupportedHeader" => {
            (Call, "The service does not take this version of its protocol")
        }
        _ if status == 401 || status == 403 => (Permission, SEE_CODES),
        _ => (Call, SEE_CODES),
    }
}

const SEE_CODES: &str = "Microsoft's list of Blob Storage error codes explains the code";

#[cfg(test)]
mod tests {
    use super::*;

    fn meaning(status: u16, code: &str) -> Fault {
        answered(StatusCode::from(status), code, Some(Duration::from_secs(7)))
    }

    #[test]
    fn lost_unknown_and_refused_are_distinguished() {
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
        assert!(meaning(500, "InternalError").is_unknown());
        assert!(meaning(408, "RequestTimeout").is_unknown());
        for (code, expected) in [
            ("AuthenticationFailed", Refusal::Caller),
            ("AuthorizationFailure", Refusal::Caller),
            ("AuthorizationPermissionMismatch", Refusal::Permission),
            ("Anything", Refusal::Permission),
        ] {
            let fault = meaning(403, code);
            let Fault::Refused { refusal, .. } = fault else { panic!("{code}: {fault:?}") };
            assert_eq!(refusal, expected, "{code}");
            assert!(fault.what().contains(&format!("(403 {code})")), "{}", fault.what());
        }
    }

    #[test]
    fn unreachable_account_has_a_fix() {
        for (why, fix) in [
            ("x: dns error: failed to lookup address information", "can't be resolved"),
            ("x: invalid peer certificate: UnknownIssuer", "TLS handshake"),
            ("x: tcp connect error: Connection refused (os error 111)", "No server listens"),
            ("x: tcp connect error: No route to host (os error 113)", "firewall"),
        ] {
            let fault = Fault::Unreached { why: why.to_owned() };
            assert!(fault.why().starts_with(why), "{}", fault.why());
            assert!(fault.why().contains(fix), "{}", fault.why());
        }
    }

    #[test]
    fn create_of_leased_blob_finds_it_present() {
        // Azure returns this; the emulator returns BlobAlreadyExists.
        assert!(matches!(meaning(412, "LeaseIdMissing"), Fault::NotOurs { .. }));
    }
}
