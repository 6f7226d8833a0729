//! What the service's answers mean. The only file that reads its error codes.

use std::time::Duration;

use azure_core::{error::ErrorKind, http::StatusCode};
use leasehold_azure_account::{NoResponse, credential_fix, retry_after, unreachable_fix};

use leasehold_store as lease;

/// Why a call did not do what it asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
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
        /// To what.
        refusal: Refusal,
        /// The status and the service's own code.
        code: String,
        /// For people: how that comes, and what to do.
        fix: &'static str,
    },
    /// There is no token to call the service with; nothing was done.
    NoToken {
        /// For people.
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

/// What the service said no to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// To whoever called, whatever the call.
    Caller,
    /// To this call by this caller.
    Permission,
    /// To the call itself.
    Call,
}

impl Fault {
    /// Whether it may have been done all the same.
    pub(crate) const fn is_unclear(&self) -> bool {
        matches!(self, Self::Unclear { .. } | Self::Busy { .. })
    }

    /// Whether the account can't be used at present, whatever the blob.
    pub(crate) const fn is_trouble(&self) -> bool {
        matches!(
            self,
            Self::NoContainer
                | Self::Busy { .. }
                | Self::Refused { .. }
                | Self::NoToken { .. }
                | Self::Unreached { .. }
                | Self::Unclear { .. }
        )
    }

    /// For people: what happened, and what to do about it.
    pub(crate) fn why(&self) -> String {
        match self.fix() {
            Some(fix) => format!("{}. {fix}", self.what()),
            None => self.what(),
        }
    }

    /// For people: what happened.
    pub(crate) fn what(&self) -> String {
        match self {
            Self::NoBlob => "the lock's blob is not there".to_owned(),
            Self::NoContainer => "the container is not there: it was deleted".to_owned(),
            Self::Held => "the lease is held".to_owned(),
            Self::NotOurs { why } => (*why).to_owned(),
            Self::Changed => "the blob was changed meanwhile".to_owned(),
            Self::Busy { .. } => "the storage account is busy and throttles calls".to_owned(),
            Self::Refused { code, .. } => format!("the storage account refused a call ({code})"),
            Self::NoToken { why } | Self::Unreached { why } | Self::Unclear { why } => why.clone(),
        }
    }

    /// For people: what to do about it, in whole sentences without the last
    /// full stop.
    pub(crate) fn fix(&self) -> Option<&'static str> {
        match self {
            Self::NoContainer => Some(
                "Create it again (`leasehold doctor` does), and locks are granted again, with \
                 greater tokens",
            ),
            Self::Refused { fix, .. } => Some(fix),
            Self::Unreached { why } => Some(unreachable_fix(why)),
            _ => None,
        }
    }

    /// What a store says that did nothing.
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
            NoResponse::Unknown(why) => Self::Unclear { why },
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
            why: "its lease was broken, expired or was taken over in the storage account",
        },
        (409, "BlobAlreadyExists" | "ContainerAlreadyExists") | (412, _) => Fault::Changed,
        (429, _) | (503, _) | (500, "OperationTimedOut" | "ServerBusy") => {
            Fault::Busy { retry_after }
        }
        // 408: the service stopped waiting for the request, or for its own answer.
        (408 | 500.., _) => {
            Fault::Unclear { why: format!("the storage service failed ({status} {code})") }
        }
        _ => {
            let (refusal, fix) = refused(u16::from(status), code);
            Fault::Refused { refusal, code: format!("{status} {code}").trim().to_owned(), fix }
        }
    }
}

/// To what the service said no, and what to do about it.
fn refused(status: u16, code: &str) -> (Refusal, &'static str) {
    use Refusal::{Call, Caller, Permission};
    if let Some(fix) = credential_fix(code) {
        return (Caller, fix);
    }
    match code {
        // Emulators say this of wrong keys too.
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
        _ if status == 401 || status == 403 => (Permission, LOOK_UP),
        _ => (Call, LOOK_UP),
    }
}

const LOOK_UP: &str = "Microsoft's list of Blob Storage error codes says what the code means";

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
        assert!(meaning(408, "RequestTimeout").is_unclear());
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
    fn what_can_t_be_reached_says_what_to_do() {
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
    fn a_create_that_meets_a_leased_blob_finds_it_there() {
        // Azure answers so; the emulator says BlobAlreadyExists.
        assert!(matches!(meaning(412, "LeaseIdMissing"), Fault::NotOurs { .. }));
    }
}
