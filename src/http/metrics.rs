//! Metrics in the text formats of Prometheus.

use axum::{
    extract::State,
    http::{
        HeaderMap,
        header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE},
    },
    response::IntoResponse,
};

use super::{
    Http,
    answer::{self, Answer},
};
use crate::telemetry::metrics::{Format, encode};

/// Answers with the current values of all metrics.
pub(super) async fn metrics(State(http): State<Http>, headers: HeaderMap) -> Answer {
    let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok());
    let format = Format::accepted(accept.unwrap_or_default());
    let Some(families) = http.driver.metrics().await else { return answer::not_found() };
    let text = encode(families, format);
    ([(CONTENT_TYPE, format.content_type()), (CACHE_CONTROL, "no-store")], text).into_response()
}
