//! Transport to the storage account that breaks a safety rule: wrapped mutants
//! 2a, 2b, 2e, 7a and 7b.

use std::{fmt, sync::Arc, time::Duration};

use azure_core::{
    error::ErrorKind,
    http::{
        AsyncRawResponse, HttpClient, Method, Request, StatusCode, Transport,
        headers::{HeaderName, Headers},
    },
};
use leasehold_runtime::sleep;

use crate::broken::{Wrapped, is};

/// Time after which mutants 7a and 7b fabricate a response. Shorter than the
/// timeout of every storage call under a lease.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(2500);

/// ETag in a fabricated response.
const FABRICATED_ETAG: &str = "\"0xffffffff\"";

const IF_MATCH: HeaderName = HeaderName::from_static("if-match");
const LEASE_ID: HeaderName = HeaderName::from_static("x-ms-lease-id");
const LEASE_ACTION: HeaderName = HeaderName::from_static("x-ms-lease-action");
const TOKEN: HeaderName = HeaderName::from_static("x-ms-meta-token");
const NONCE: HeaderName = HeaderName::from_static("x-ms-meta-nonce");

/// Returns a transport that sends requests through this client, with the defect
/// of the active mutant.
#[must_use]
pub fn wrap(client: Arc<dyn HttpClient>) -> Transport {
    Transport::new(Arc::new(BrokenTransport(client)))
}

struct BrokenTransport(Arc<dyn HttpClient>);

impl fmt::Debug for BrokenTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BrokenTransport")
    }
}

/// Request affected by a mutant.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Record write, under a lease or from a version.
    Write,
    Renewal,
    Read,
    Other,
}

impl Kind {
    fn of(request: &Request) -> Self {
        let headers = request.headers();
        let action = headers.get_optional_str(&LEASE_ACTION);
        let is_conditional =
            [&IF_MATCH, &LEASE_ID].iter().any(|name| headers.get_optional_str(name).is_some());
        match request.method() {
            Method::Put if action == Some("renew") => Self::Renewal,
            Method::Put if action.is_none() && is_conditional => Self::Write,
            Method::Head => Self::Read,
            _ => Self::Other,
        }
    }
}

#[async_trait::async_trait]
impl HttpClient for BrokenTransport {
    async fn execute_request(&self, request: &Request) -> azure_core::Result<AsyncRawResponse> {
        let kind = Kind::of(request);
        let accepts_unknown = (kind == Kind::Renewal && is(Wrapped::UnknownRenewExtends))
            || (kind == Kind::Write && is(Wrapped::UnknownWriteSucceeds));
        if accepts_unknown {
            return tokio::select! {
                biased;
                response = self.0.execute_request(request) => match response {
                    Ok(response) if is_definite(response.status()) => Ok(response),
                    Err(error) if matches!(error.kind(), ErrorKind::Connection) => Err(error),
                    Ok(_) | Err(_) => Ok(success(request)),
                },
                () = sleep(ANSWER_TIMEOUT) => Ok(success(request)),
            };
        }
        if kind == Kind::Write && is(Wrapped::GrantBeforeWrite) {
            return Ok(success(request));
        }
        if kind == Kind::Write && is(Wrapped::WriteWithoutMatch) {
            return self.0.execute_request(&without_match(request)).await;
        }
        let response = self.0.execute_request(request).await?;
        let hides_invalid = kind == Kind::Read && is(Wrapped::InvalidRecordIsNew);
        Ok(if hides_invalid { with_valid_record(response) } else { response })
    }
}

fn is_definite(status: StatusCode) -> bool {
    let status = u16::from(status);
    status < 500 && status != 429
}

/// Returns the response to a successful renewal or write.
fn success(request: &Request) -> AsyncRawResponse {
    let mut headers = Headers::new();
    headers.insert("etag", FABRICATED_ETAG);
    if let Some(id) = request.headers().get_optional_str(&LEASE_ID) {
        headers.insert(LEASE_ID, id.to_owned());
    }
    let query = request.url().query().unwrap_or_default();
    let status = if query.contains("comp=") { StatusCode::Ok } else { StatusCode::Created };
    AsyncRawResponse::from_bytes(status, headers, Vec::new())
}

fn without_match(request: &Request) -> Request {
    let mut headers = Headers::new();
    for (name, value) in request.headers().iter().filter(|(name, _)| **name != IF_MATCH) {
        headers.insert(name.clone(), value.clone());
    }
    let mut request = request.clone();
    *request.headers_mut() = headers;
    request
}

/// Replaces an invalid record with that of a new blob.
fn with_valid_record(response: AsyncRawResponse) -> AsyncRawResponse {
    let (status, mut headers, body) = response.deconstruct();
    let number = |name: &HeaderName, radix| {
        let text = headers.get_optional_str(name)?;
        u128::from_str_radix(text, radix).ok()
    };
    let is_valid =
        number(&TOKEN, 10).is_some_and(|token| token < 1 << 53) && number(&NONCE, 16).is_some();
    if status != StatusCode::Ok || is_valid {
        return AsyncRawResponse::new(status, headers, Box::pin(body));
    }
    headers.insert(TOKEN, "0");
    headers.insert(NONCE, "0");
    AsyncRawResponse::new(status, headers, Box::pin(body))
}
