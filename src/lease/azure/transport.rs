//! The one connection pool that all calls share.

use std::{error::Error as _, sync::Arc};

use azure_core::{
    Error, Result,
    http::{AsyncRawResponse, HttpClient, HttpClientOptions, Request, Transport, new_http_client},
};

/// A transport whose errors do not name the URL: its query may hold a shared
/// access signature.
pub(super) fn transport() -> Transport {
    let options = HttpClientOptions { automatic_decompression: false };
    Transport::new(Arc::new(Discreet(new_http_client(Some(options)))))
}

#[derive(Debug)]
struct Discreet(Arc<dyn HttpClient>);

#[async_trait::async_trait]
impl HttpClient for Discreet {
    async fn execute_request(&self, request: &Request) -> Result<AsyncRawResponse> {
        self.0.execute_request(request).await.map_err(|error| {
            // The outermost cause is the HTTP client's, with the URL in it.
            // What happened is said by those below.
            let first = error.source().and_then(|client| client.source());
            let causes: Vec<_> = std::iter::successors(first, |cause| (*cause).source())
                .map(ToString::to_string)
                .collect();
            let host = request.url().host_str().unwrap_or_default();
            let why = if causes.is_empty() { error.to_string() } else { causes.join(": ") };
            Error::with_message(error.kind().clone(), format!("{host}: {why}"))
        })
    }
}
