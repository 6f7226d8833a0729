//! What the table service's error codes mean.

use leasehold_azure_account::{Fault, Response, retry_after};
use serde_json::Value;

use crate::fault::header;

/// Reads an answer that is not a success.
pub(super) fn fault(answer: &Response) -> Fault {
    let (code, message) = code_and_message(&answer.body);
    let code = code.or_else(|| header(answer, "x-ms-error-code").map(str::to_owned));
    Fault::answered(answer.status, code.unwrap_or_default(), message, retry_after(&answer.headers))
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
