//! HTTP client of all calls to an account.

use std::{error::Error as StdError, sync::Arc};

use azure_core::{
    Error, Result,
    http::{
        AsyncRawResponse, ClientOptions, Context, HttpClient, HttpClientOptions, Request,
        RetryOptions, Transport, UserAgentOptions, new_http_client,
    },
};

use crate::call_span;

/// Replacement for an error whose causes all contain a URL.
const NO_RESPONSE: &str = "no response";

/// Creates a transport with a new HTTP client. Its errors do not contain the URL.
#[must_use]
pub fn transport() -> Transport {
    let options = HttpClientOptions { automatic_decompression: false };
    redacting(Transport::new(new_http_client(Some(options))))
}

/// Wraps a transport so that its errors do not contain the URL: the query may be
/// a shared access signature.
#[must_use]
pub fn redacting(inner: Transport) -> Transport {
    Transport::new(Arc::new(RedactingClient(inner)))
}

/// Returns the options of a client with this transport. The client never retries:
/// the caller knows its deadline and whether a call may be repeated.
#[must_use]
pub fn client_options(transport: Transport) -> ClientOptions {
    ClientOptions {
        retry: RetryOptions::none(),
        transport: Some(transport),
        user_agent: UserAgentOptions { application_id: Some("leasehold".to_owned()) },
        ..ClientOptions::default()
    }
}

/// HTTP client whose errors name the host and the causes, but never the URL.
#[derive(Debug)]
struct RedactingClient(Transport);

#[async_trait::async_trait]
impl HttpClient for RedactingClient {
    async fn execute_request(&self, request: &Request) -> Result<AsyncRawResponse> {
        let mut sent = request.clone();
        call_span::on_request(&mut sent);
        let answer = self.0.send(&Context::new(), &mut sent).await;
        call_span::on_response(answer.as_ref().ok().map(|answer| u16::from(answer.status())));
        answer.map_err(|error| {
            // The outermost cause is the error of the HTTP client, whose text
            // contains the URL. The causes below it have the details.
            let first = error.source().and_then(StdError::source);
            let causes: Vec<_> = causes(first).filter(|text| !has_url(text)).collect();
            let host = request.url().host_str().unwrap_or_default();
            let why = if causes.is_empty() { NO_RESPONSE.to_owned() } else { causes.join(": ") };
            Error::with_message(error.kind().clone(), format!("{host}: {why}"))
        })
    }
}

/// Returns the text of the innermost cause without a URL: usually the error of
/// the operating system.
pub(crate) fn root_cause(error: &Error) -> String {
    let texts: Vec<_> = causes(Some(error)).collect();
    texts.into_iter().rfind(|text| !has_url(text)).unwrap_or_else(|| NO_RESPONSE.to_owned())
}

fn causes(first: Option<&(dyn StdError + 'static)>) -> impl Iterator<Item = String> {
    std::iter::successors(first, |cause| (*cause).source()).map(ToString::to_string)
}

/// Returns whether a text may contain a URL, or the signature from one.
fn has_url(text: &str) -> bool {
    text.contains("://") || text.contains("sig=")
}

#[cfg(test)]
mod tests {
    use azure_core::{error::ErrorKind, http::Method};

    use super::*;

    const URL: &str = "https://acme.blob.core.windows.net/c?sv=1&sig=mysecret";

    /// HTTP client that fails with an error and a chain of causes.
    #[derive(Debug)]
    struct Failing(&'static [&'static str]);

    /// Error in a chain, from the outermost.
    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Cause {
        text: &'static str,
        source: Option<Box<Self>>,
    }

    impl Failing {
        fn error(&self) -> Error {
            let chain = self
                .0
                .iter()
                .rev()
                .fold(None, |source, text| Some(Box::new(Cause { text, source })));
            match chain {
                Some(cause) => Error::new(ErrorKind::Io, cause),
                None => Error::with_message(ErrorKind::Io, format!("can't send to {URL}")),
            }
        }
    }

    #[async_trait::async_trait]
    impl HttpClient for Failing {
        async fn execute_request(&self, _: &Request) -> Result<AsyncRawResponse> {
            Err(self.error())
        }
    }

    #[tokio::test]
    async fn errors_contain_host_and_causes_but_no_url() {
        const OUTER: &str = "error sending request for url \
                             (https://acme.blob.core.windows.net/c?sv=1&sig=mysecret)";
        for (causes, expected) in [
            (&[][..], "no response"),
            (&[OUTER][..], "no response"),
            (&[OUTER, "client error", "reset"][..], "client error: reset"),
            (&[OUTER, "redirected to https://acme.example/?sig=mysecret", "loop"][..], "loop"),
            (&[OUTER, "query sv=1&sig=mysecret"][..], "no response"),
        ] {
            let transport = redacting(Transport::new(Arc::new(Failing(causes))));
            let mut request = Request::new(URL.parse().unwrap(), Method::Get);
            let error = transport.send(&Context::new(), &mut request).await.unwrap_err();
            let text = format!("{error} {error:?} {:#}", error);
            assert!(!text.contains("mysecret") && !text.contains("://"), "{text}");
            let expected = format!("acme.blob.core.windows.net: {expected}");
            assert_eq!(error.to_string(), expected, "{causes:?}");
            // An error that bypassed the client contains no URL either.
            let root = root_cause(&Failing(causes).error());
            assert!(!root.contains("mysecret") && !root.contains("://"), "{root}");
        }
    }
}
