//! Error responses of the table service, in JSON.

use leasehold_azure_account::{Fault, Response, retry_after};
use serde_json::Value;

use crate::fault::header;

/// Converts an error response.
pub(super) fn fault(response: &Response) -> Fault {
    let (code, message) = code_and_message(&response.body);
    let code = code.or_else(|| header(response, "x-ms-error-code").map(str::to_owned));
    Fault::answered(
        response.status,
        code.unwrap_or_default(),
        message,
        retry_after(&response.headers),
    )
}

/// Parses the body of an error response: `{"odata.error":{"code":…,"message":{"value":…}}}`.
pub(super) fn code_and_message(body: &[u8]) -> (Option<String>, String) {
    let parsed: Value = serde_json::from_slice(body).unwrap_or_default();
    let error = &parsed["odata.error"];
    let message = error["message"]["value"].as_str().unwrap_or_default();
    // The lines that follow contain the ID and the time of the request.
    let message = message.lines().next().unwrap_or_default();
    (error["code"].as_str().map(str::to_owned), message.to_owned())
}

/// Returns true if the table exists, but the row does not.
pub(super) fn is_missing_row(fault: &Fault) -> bool {
    matches!(fault, Fault::Refused { status: 404, code, .. }
        if ["ResourceNotFound", "EntityNotFound"].contains(&code.as_str()))
}

/// Returns true if a concurrent write was first. This call was not applied; a new
/// read returns the current state.
pub(super) const fn is_contended(fault: &Fault) -> bool {
    matches!(fault, Fault::Refused { status: 409 | 412, .. })
}
