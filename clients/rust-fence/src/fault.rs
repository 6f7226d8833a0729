//! What blobs and queues say when they refuse something. Tables say it in
//! another form.

use leasehold_azure_account::{Fault, Response, credential_fix, retry_after};

/// A header of an answer.
pub(crate) fn header<'a>(answer: &'a Response, name: &'static str) -> Option<&'a str> {
    answer.headers.get_optional_str(&azure_core::http::headers::HeaderName::from_static(name))
}

/// The answer, if it is a success.
pub(crate) fn success(answer: Response) -> Result<Response, Fault> {
    if (200..300).contains(&answer.status) {
        return Ok(answer);
    }
    let body = String::from_utf8_lossy(&answer.body);
    let code = header(&answer, "x-ms-error-code").or_else(|| element(&body, "Code"));
    // What follows is the number and the time of the request.
    let message = element(&body, "Message").and_then(|message| message.lines().next());
    Err(Fault::answered(
        answer.status,
        code.unwrap_or_default().to_owned(),
        message.unwrap_or_default().to_owned(),
        retry_after(&answer.headers),
    ))
}

fn element<'a>(xml: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = xml.split_once(&format!("<{name}>"))?;
    Some(rest.split_once(&format!("</{name}>"))?.0)
}

/// Human-readable: what happened, and what to do. `rights` are the permissions
/// that the call needs, `missing` is the text for a resource that does not exist.
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
        _ => "Microsoft's list of storage error codes says what the code means",
    });
    let said = if message.is_empty() { String::new() } else { format!(": {message}") };
    format!("the storage account refused it ({status} {code}){said}. {remedy}")
}
