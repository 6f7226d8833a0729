//! What the table service's error codes mean.

use std::time::Duration;

use azure_core::http::headers::HeaderName;
use serde_json::Value;

use crate::azure::{Answer, Fault};

/// Reads an answer that is not a success.
pub(super) fn fault(answer: &Answer) -> Fault {
    let header = |name: &'static str| {
        answer.headers.get_optional_str(&HeaderName::from_static(name)).map(str::to_owned)
    };
    let retry_after = header("retry-after").and_then(|text| text.parse().ok());
    let (code, message) = code_and_message(&answer.body);
    let code = code.or_else(|| header("x-ms-error-code")).unwrap_or_default();
    Fault::answered(answer.status, code, message, retry_after.map(Duration::from_secs))
}

/// What an error's body says: `{"odata.error":{"code":…,"message":{"value":…}}}`.
pub(super) fn code_and_message(body: &[u8]) -> (Option<String>, String) {
    let parsed: Value = serde_json::from_slice(body).unwrap_or_default();
    let error = &parsed["odata.error"];
    let message = error["message"]["value"].as_str().unwrap_or_default();
    // What follows is the number and the time of the request.
    let message = message.lines().next().unwrap_or_default();
    (error["code"].as_str().map(str::to_owned), message.to_owned())
}

/// Whether there is a table, but not this row in it.
pub(super) fn is_missing_row(fault: &Fault) -> bool {
    matches!(fault, Fault::Refused { status: 404, code, .. }
        if ["ResourceNotFound", "EntityNotFound"].contains(&code.as_str()))
}

/// Whether somebody else was there first: nothing was done, and another look
/// shows what is there now.
pub(super) const fn is_contended(fault: &Fault) -> bool {
    matches!(fault, Fault::Refused { status: 409 | 412, .. })
}

/// For people: what happened, and what to do.
pub(super) fn remedy(status: u16, code: &str, message: &str) -> String {
    let remedy = match code {
        "TableNotFound" => {
            return format!(
                "there is no such table ({status} {code}). Check its name and the account's, or \
                 create it"
            );
        }
        "TableBeingDeleted" => "The table is being deleted: wait until it is gone, or use another",
        "AuthenticationFailed" | "InvalidAuthenticationInfo" => {
            "The key, the SAS or the token is not the account's, or has expired, or this \
             machine's clock is wrong by more than 15 minutes"
        }
        "AuthorizationPermissionMismatch"
        | "AuthorizationServiceMismatch"
        | "AuthorizationResourceTypeMismatch"
        | "AuthorizationFailure" => {
            "It needs the right to read, add, update and delete entities: a SAS for tables with \
             sp=raud, or the role Storage Table Data Contributor"
        }
        "KeyBasedAuthenticationNotPermitted" => {
            "The account does not allow keys: use a token of Entra ID"
        }
        _ if status == 401 || status == 403 => "Check the credential, and what it is allowed to do",
        _ => "Microsoft's list of Table Storage error codes says what the code means",
    };
    let said = if message.is_empty() { String::new() } else { format!(": {message}") };
    format!("the storage account refused it ({status} {code}){said}. {remedy}")
}
