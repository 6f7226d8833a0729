//! What blobs and queues say when they refuse something. Tables say it in
//! another form.

use std::time::Duration;

use crate::azure::{Answer, Fault};

/// A header of an answer.
pub(super) fn header<'a>(answer: &'a Answer, name: &'static str) -> Option<&'a str> {
    answer.headers.get_optional_str(&azure_core::http::headers::HeaderName::from_static(name))
}

/// The answer, if it is a success.
pub(super) fn success(answer: Answer) -> Result<Answer, Fault> {
    if (200..300).contains(&answer.status) {
        return Ok(answer);
    }
    let body = String::from_utf8_lossy(&answer.body);
    let retry_after = header(&answer, "retry-after").and_then(|text| text.parse().ok());
    let code = header(&answer, "x-ms-error-code").or_else(|| element(&body, "Code"));
    // What follows is the number and the time of the request.
    let message = element(&body, "Message").and_then(|message| message.lines().next());
    Err(Fault::answered(
        answer.status,
        code.unwrap_or_default().to_owned(),
        message.unwrap_or_default().to_owned(),
        retry_after.map(Duration::from_secs),
    ))
}

fn element<'a>(xml: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = xml.split_once(&format!("<{name}>"))?;
    Some(rest.split_once(&format!("</{name}>"))?.0)
}

/// For people: what happened, and what to do. `rights` is what the call needs,
/// `missing` what is not there if the service says so.
pub(super) fn remedy(
    status: u16,
    code: &str,
    message: &str,
    rights: &str,
    missing: Option<&str>,
) -> String {
    if let Some(missing) = missing {
        return format!("{missing} ({status} {code})");
    }
    let remedy = match code {
        "AuthenticationFailed" | "InvalidAuthenticationInfo" | "NoAuthenticationInformation" => {
            "The key, the SAS or the token is not the account's, or has expired, or this \
             machine's clock is wrong by more than 15 minutes"
        }
        "KeyBasedAuthenticationNotPermitted" => {
            "The account does not allow keys: use a token of Entra ID"
        }
        _ if status == 401 || status == 403 => rights,
        _ => "Microsoft's list of storage error codes says what the code means",
    };
    let said = if message.is_empty() { String::new() } else { format!(": {message}") };
    format!("the storage account refused it ({status} {code}){said}. {remedy}")
}
