//! HTTP client of the exporters. The threads of the SDK have no runtime, so that each
//! request runs in the runtime of the exporters.

use std::{fmt, time::Duration};

use opentelemetry_http::{Bytes, HttpError, Request, Response};
use opentelemetry_otlp::ExporterBuildError;
use tokio::runtime::Handle;

/// HTTP client in a runtime.
pub(super) struct HttpClient {
    client: reqwest::Client,
    runtime: Handle,
}

impl HttpClient {
    /// Creates a client with a timeout for each request.
    pub(super) fn new(runtime: &Handle, timeout: Duration) -> Result<Self, ExporterBuildError> {
        let client = reqwest::Client::builder().timeout(timeout).build();
        let client =
            client.map_err(|error| ExporterBuildError::InternalFailure(error.to_string()))?;
        Ok(Self { client, runtime: runtime.clone() })
    }
}

#[async_trait::async_trait]
impl opentelemetry_http::HttpClient for HttpClient {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let client = self.client.clone();
        let sent = self.runtime.spawn(async move {
            // The URL may contain a password.
            client.send_bytes(request).await.map_err(|error| {
                match error.downcast::<reqwest::Error>() {
                    Ok(error) => error.without_url().into(),
                    Err(error) => error,
                }
            })
        });
        sent.await?
    }
}

impl fmt::Debug for HttpClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HttpClient")
    }
}
