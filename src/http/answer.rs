//! Answers: a status and a JSON object. An unknown value is null, so that the keys are
//! always the same.

use std::{collections::BTreeMap, time::Duration};

use axum::{
    http::{
        StatusCode,
        header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER},
    },
    response::{IntoResponse, Response},
};
use base64::prelude::{BASE64_STANDARD, Engine};
use serde::Serialize;

use leasehold_core::{
    error::RequestError,
    session::{HeldView, LockView},
};
use leasehold_store as lease;
use leasehold_types::{Token, holder, name::InvalidName};

pub(super) type Answer = Response;

/// Retry delay if the store requests none.
const RETRY: Duration = Duration::from_secs(1);

#[derive(Serialize)]
struct Status {
    status: &'static str,
}

#[derive(Serialize)]
struct Failed<'a> {
    error: Failure<'a>,
}

#[derive(Serialize)]
struct Failure<'a> {
    /// Machine-readable reason, as in the protocol where it has one.
    reason: &'static str,
    /// Invalid part of the request.
    field: Option<&'static str>,
    message: &'a str,
}

#[derive(Serialize)]
struct State<'a> {
    election: Election<'a>,
    leader: Option<Leader<'a>>,
    candidates: usize,
}

#[derive(Serialize)]
struct Election<'a> {
    namespace: &'a str,
    name: &'a str,
}

#[derive(Serialize)]
struct Leader<'a> {
    holder: Option<Holder<'a>>,
    /// None if the value is not UTF-8.
    value: Option<&'a str>,
    value_base64: String,
    token: Option<u64>,
    leading_for_ms: Option<u64>,
    local: bool,
    session_id: Option<String>,
    ending: bool,
    daemon: Option<&'a str>,
}

#[derive(Serialize)]
struct Holder<'a> {
    client: &'a str,
    host: &'a str,
    pid: Option<u32>,
    pod: Option<&'a str>,
    labels: BTreeMap<&'a str, &'a str>,
}

impl<'a> From<&'a HeldView> for Leader<'a> {
    fn from(held: &'a HeldView) -> Self {
        let value = held.value.as_deref().unwrap_or_default();
        Self {
            holder: held.holder.as_deref().map(Holder::from),
            value: std::str::from_utf8(value).ok(),
            value_base64: BASE64_STANDARD.encode(value),
            token: held.token.map(Token::get),
            leading_for_ms: held.held_for.map(|length| length.as_millis() as u64),
            local: held.session.is_some(),
            session_id: held.session.map(|session| session.to_string()),
            ending: held.free_within.is_some(),
            daemon: held.daemon.as_deref(),
        }
    }
}

impl<'a> From<&'a holder::Holder> for Holder<'a> {
    fn from(holder: &'a holder::Holder) -> Self {
        Self {
            client: holder.client(),
            host: holder.host(),
            pid: Some(holder.pid()).filter(|pid| *pid > 0),
            pod: Some(holder.pod()).filter(|pod| !pod.is_empty()),
            labels: holder.labels().collect(),
        }
    }
}

/// Answers that all is well.
pub(super) fn well(status: &'static str) -> Answer {
    json(StatusCode::OK, &Status { status })
}

/// Answers with the leader. With `own`, the election is unavailable unless a client of
/// this daemon leads. A client whose grant is lost no longer leads, even if it has not
/// released yet.
pub(super) fn election(view: &LockView, own: bool) -> Answer {
    let leader = view.leader().map(Leader::from);
    let leads_here = leader.as_ref().is_some_and(|leader| leader.local && !leader.ending);
    let status = if own && !leads_here { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK };
    let election = Election { namespace: view.name.namespace(), name: view.name.name() };
    json(status, &State { election, leader, candidates: view.waiting })
}

/// Answers that the path does not exist.
pub(super) fn not_found() -> Answer {
    let message =
        "no such path; use /v1/elections/{namespace}/{name}, /metrics, /healthz or /readyz";
    failed(StatusCode::NOT_FOUND, "NOT_FOUND", None, message)
}

/// Answers that only reads are allowed.
pub(super) fn method_not_allowed() -> Answer {
    let message = "method not allowed; use GET or HEAD";
    let answer = failed(StatusCode::METHOD_NOT_ALLOWED, "METHOD_NOT_ALLOWED", None, message);
    ([(ALLOW, "GET, HEAD")], answer).into_response()
}

/// Answers that a part of the path or of the query is invalid.
pub(super) fn invalid(invalid: InvalidName) -> Answer {
    let RequestError { field, message, .. } = invalid.into();
    failed(StatusCode::BAD_REQUEST, "INVALID", field, &message)
}

/// Answers that the store returned an error.
pub(super) fn store_error(error: &lease::Error) -> Answer {
    let (status, reason, retry_after) = match error {
        lease::Error::Unavailable { retry_after, .. } => {
            (StatusCode::SERVICE_UNAVAILABLE, "STORE_UNAVAILABLE", *retry_after)
        }
        lease::Error::Recovering { remaining } => {
            (StatusCode::SERVICE_UNAVAILABLE, "RECOVERING", Some(*remaining))
        }
        // A retry does not help: an operator must repair the record.
        lease::Error::DataLoss { .. } => {
            return failed(
                StatusCode::INTERNAL_SERVER_ERROR,
                "DATA_LOSS",
                None,
                &error.to_string(),
            );
        }
    };
    let answer = failed(status, reason, None, &error.to_string());
    let retry_after = whole_seconds(retry_after.unwrap_or(RETRY));
    ([(RETRY_AFTER, retry_after.to_string())], answer).into_response()
}

/// Answers that the daemon is shutting down.
pub(super) fn stopping() -> Answer {
    let message = "the daemon is shutting down and grants no locks";
    failed(StatusCode::SERVICE_UNAVAILABLE, "SHUTTING_DOWN", None, message)
}

/// Rounds up, because an early retry would fail.
fn whole_seconds(length: Duration) -> u64 {
    length.as_millis().div_ceil(1000).max(1) as u64
}

pub(super) fn failed(
    status: StatusCode,
    reason: &'static str,
    field: Option<&'static str>,
    message: &str,
) -> Answer {
    json(status, &Failed { error: Failure { reason, field, message } })
}

fn json(status: StatusCode, body: &impl Serialize) -> Answer {
    // All fields of these structs have a JSON form.
    text(status, serde_json::to_string(body).unwrap_or_default())
}

/// Answers with JSON.
pub(super) fn text(status: StatusCode, mut text: String) -> Answer {
    text.push('\n');
    let headers = [(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-store")];
    (status, headers, text).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_delay_is_rounded_up() {
        for (millis, seconds) in [(0, 1), (1, 1), (1000, 1), (1001, 2), (30_000, 30)] {
            assert_eq!(whole_seconds(Duration::from_millis(millis)), seconds, "{millis}");
        }
    }

    #[test]
    fn retry_after_is_sent_for_temporary_errors_only() {
        let retry_after = |error: &lease::Error| {
            let answer = store_error(error);
            let value = answer.headers().get(RETRY_AFTER);
            (answer.status().as_u16(), value.map(|value| value.to_str().unwrap().to_owned()))
        };
        let why = String::new;
        let unsaid = lease::Error::Unavailable { why: why(), retry_after: None };
        assert_eq!(retry_after(&unsaid), (503, Some("1".to_owned())));
        let remaining = Duration::from_millis(2500);
        let recovering = lease::Error::Recovering { remaining };
        assert_eq!(retry_after(&recovering), (503, Some("3".to_owned())));
        assert_eq!(retry_after(&lease::Error::DataLoss { why: why() }), (500, None));
    }
}
