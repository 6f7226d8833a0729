//! Converts faults of storage calls to errors, and parses the XML error responses of
//! the blob and queue services. The table service responds with JSON.

use std::time::Duration;

use leasehold_azure_account::{Fault, Response, credential_fix, retry_after};

use crate::Written;

/// Returns a header of a response.
pub(crate) fn header<'a>(response: &'a Response, name: &'static str) -> Option<&'a str> {
    response.headers.get_optional_str(&azure_core::http::headers::HeaderName::from_static(name))
}

/// Returns the response if its status is a success.
pub(crate) fn success(response: Response) -> Result<Response, Fault> {
    if (200..300).contains(&response.status) {
        return Ok(response);
    }
    let body = String::from_utf8_lossy(&response.body);
    let code = header(&response, "x-ms-error-code").or_else(|| element(&body, "Code"));
    // The lines that follow contain the ID and the time of the request.
    let message = element(&body, "Message").and_then(|message| message.lines().next());
    Err(Fault::answered(
        response.status,
        code.unwrap_or_default().to_owned(),
        message.unwrap_or_default().to_owned(),
        retry_after(&response.headers),
    ))
}

fn element<'a>(xml: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = xml.split_once(&format!("<{name}>"))?;
    Some(rest.split_once(&format!("</{name}>"))?.0)
}

/// Converts a fault of a storage call to an error. `changes` is true for a write.
///
/// - `unavailable` creates the error if the service did not answer or could not serve
///   the call, from the message, the outcome and the minimum delay of a retry.
/// - `refused` creates the error of a refusal, from its status, code and message.
pub(crate) fn convert<E>(
    fault: &Fault,
    changes: bool,
    unavailable: impl FnOnce(String, Written, Duration) -> E,
    refused: impl FnOnce(u16, &str, &str) -> E,
) -> E {
    match fault {
        Fault::Busy { why, .. } | Fault::Unsent { why } | Fault::Unclear { why } => {
            unavailable(why.clone(), Written::after(fault, changes), fault.retry_after())
        }
        Fault::Refused { status, code, message } => refused(*status, code, message),
    }
}

/// Returns a human-readable message: the problem and the fix. `rights` names the
/// permissions that the call needs, `missing` is the message for a resource that
/// does not exist.
pub(crate) fn remedy(
    status: u16,
    code: &str,
    message: &str,
    rights: &str,
    missing: Option<&str>,
) -> String {
    if let Some(missing) = missing {
        return format!("{missing} ({status} {code})");
    }
    let remedy = credential_fix(code).unwrap_or(match (status, code) {
        (_, "TableBeingDeleted") => {
            "The table is being deleted: wait until it is gone, or use another"
        }
        (401 | 403, _) => rights,
        _ => "For its meaning, see Microsoft's list of storage error codes",
    });
    let detail = if message.is_empty() { String::new() } else { format!(": {message}") };
    format!("the storage account refused the call ({status} {code}){detail}. {remedy}")
}
