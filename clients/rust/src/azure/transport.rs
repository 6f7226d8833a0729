//! The HTTP client that all calls to an account share.

use std::{error::Error as _, sync::Arc};

use azure_core::{
    Error, Result,
    http::{
        AsyncRawResponse, Context, HttpClient, HttpClientOptions, Request, Transport,
        new_http_client,
    },
};

/// A transport whose errors do not name the URL: its query may hold a shared
/// access signature.
pub(super) fn transport(own: Option<Transport>) -> Transport {
    let inner = own.unwrap_or_else(|| {
        let options = HttpClientOptions { automatic_decompression: false };
        Transport::new(new_http_client(Some(options)))
    });
    Transport::new(Arc::new(Discreet(inner)))
}

#[derive(Debug)]
struct Discreet(Transport);

#[async_trait::async_trait]
impl HttpClient for Discreet {
    async fn execute_request(&self, request: &Request) -> Result<AsyncRawResponse> {
        let mut sent = request.clone();
        self.0.send(&Context::new(), &mut sent).await.map_err(|error| {
            // The outermost cause is the HTTP client's, with the URL in it.
            // What happened is said by those below.
            let first = error.source().and_then(|client| client.source());
            let causes: Vec<_> = std::iter::successors(first, |cause| (*cause).source())
                .map(ToString::to_string)
                .collect();
            let host = request.url().host_str().unwrap_or_default();
            let why = if causes.is_empty() { "no answer".to_owned() } else { causes.join(": ") };
            Error::with_message(error.kind().clone(), format!("{host}: {why}"))
        })
    }
}
