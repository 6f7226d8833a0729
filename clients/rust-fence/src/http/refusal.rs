//! Why a request was not let through, as a response.

use http::{HeaderMap, HeaderValue, Response, StatusCode, header::CONTENT_TYPE};

use super::{FencedBody, LOCK, TOKEN};
use crate::{StaleToken, escape::escape};

/// Why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    #[error("this needs the headers {LOCK} and {TOKEN}. Acquire the lock, and send them")]
    Missing,
    #[error("the headers {LOCK} and {TOKEN} can't be understood: {0}")]
    Malformed(&'static str),
    #[error("this is guarded by the lock {wanted:?}, not by {given:?}. Use that one")]
    OtherLock { wanted: String, given: String },
    #[error("lock {lock:?}: {stale}")]
    Stale { lock: String, stale: StaleToken },
    #[error("the tokens of {most} locks are remembered, and no more. Let the operator raise that")]
    Full { most: usize },
    #[error("the token could not be remembered: {0}. Try again")]
    NotRemembered(String),
}

/// Of gRPC.
const INVALID_ARGUMENT: &str = "3";
const RESOURCE_EXHAUSTED: &str = "8";
const FAILED_PRECONDITION: &str = "9";
const UNAVAILABLE: &str = "14";

impl Refusal {
    const fn codes(&self) -> (StatusCode, &'static str) {
        match self {
            Self::Missing => (StatusCode::PRECONDITION_REQUIRED, INVALID_ARGUMENT),
            Self::Malformed(_) => (StatusCode::BAD_REQUEST, INVALID_ARGUMENT),
            Self::OtherLock { .. } | Self::Stale { .. } => {
                (StatusCode::PRECONDITION_FAILED, FAILED_PRECONDITION)
            }
            Self::Full { .. } => (StatusCode::SERVICE_UNAVAILABLE, RESOURCE_EXHAUSTED),
            Self::NotRemembered(_) => (StatusCode::SERVICE_UNAVAILABLE, UNAVAILABLE),
        }
    }

    /// In the words of whoever asked.
    pub(super) fn response<R>(&self, asked: &HeaderMap) -> Response<FencedBody<R>> {
        let (status, code) = self.codes();
        let message = self.to_string();
        if !is_grpc(asked) {
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
