//! Refusals of requests, and their responses.

use http::{HeaderMap, HeaderValue, Response, StatusCode, header::CONTENT_TYPE};

use super::{FencedBody, LOCK, TOKEN};
use crate::{StaleToken, escape::escape};

/// Reason why a request was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    #[error("the headers {LOCK} and {TOKEN} are required; acquire the lock and send them")]
    Missing,
    #[error("invalid headers {LOCK} and {TOKEN}: {0}")]
    Malformed(&'static str),
    #[error("the resource is fenced by lock {required:?}, not by {presented:?}; use that lock")]
    OtherLock { required: String, presented: String },
    #[error("lock {lock:?}: {stale}")]
    Stale { lock: String, stale: StaleToken },
    #[error(
        "the server stores the tokens of at most {max_locks} locks; ask its operator to raise max_locks"
    )]
    Full { max_locks: usize },
    #[error("failed to persist the token: {0}; retry")]
    NotPersisted(String),
}

/// Status codes of gRPC.
const INVALID_ARGUMENT: &str = "3";
const RESOURCE_EXHAUSTED: &str = "8";
const FAILED_PRECONDITION: &str = "9";
const UNAVAILABLE: &str = "14";

impl Refusal {
    /// Returns the status codes of HTTP and gRPC.
    const fn codes(&self) -> (StatusCode, &'static str) {
        match self {
            Self::Missing => (StatusCode::PRECONDITION_REQUIRED, INVALID_ARGUMENT),
            Self::Malformed(_) => (StatusCode::BAD_REQUEST, INVALID_ARGUMENT),
            Self::OtherLock { .. } | Self::Stale { .. } => {
                (StatusCode::PRECONDITION_FAILED, FAILED_PRECONDITION)
            }
            Self::Full { .. } => (StatusCode::SERVICE_UNAVAILABLE, RESOURCE_EXHAUSTED),
            Self::NotPersisted(_) => (StatusCode::SERVICE_UNAVAILABLE, UNAVAILABLE),
        }
    }

    /// Returns the response in the protocol of the request.
    pub(super) fn response<R>(&self, request: &HeaderMap) -> Response<FencedBody<R>> {
        let (status, code) = self.codes();
        let message = self.to_string();
        if !is_grpc(request) {
            let mut response = Response::new(FencedBody::text(message + "\n"));
            *response.status_mut() = status;
            let plain = HeaderValue::from_static("text/plain; charset=utf-8");
            response.headers_mut().insert(CONTENT_TYPE, plain);
            return response;
        }
        let mut response = Response::new(FencedBody::empty());
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        headers.insert("grpc-status", HeaderValue::from_static(code));
        if let Ok(message) = HeaderValue::from_str(&escape(&message, b" :,\"'()/")) {
            headers.insert("grpc-message", message);
        }
        response
    }
}

pub(super) fn is_grpc(headers: &HeaderMap) -> bool {
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    content_type.is_some_and(|text| text.starts_with("application/grpc"))
}
