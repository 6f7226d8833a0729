//! HTTP client that all calls to an account share.

use std::{error::Error as StdError, sync::Arc};

use azure_core::{
    Error, Result,
    http::{
        AsyncRawResponse, ClientOptions, Context, HttpClient, HttpClientOptions, Request,
        RetryOptions, Transport, UserAgentOptions, new_http_client,
    },
};

/// Text in place of an error that has no cause without a URL.
const NO_ANSWER: &str = "no answer";

/// Creates a transport of its own, whose errors do not contain the URL.
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

/// Options of a client over this transport. Nothing is retried below the caller,
/// which knows its deadline and whether a call may be repeated.
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
        self.0.send(&Context::new(), &mut sent).await.map_err(|error| {
            // The outermost cause is the error of the HTTP client, with the URL
            // in its text. The causes below it say what happened.
            let first = error.source().and_then(StdError::source);
            let causes: Vec<_> = causes(first).filter(|text| !has_url(text)).collect();
            let host = request.url().host_str().unwrap_or_default();
            let why = if causes.is_empty() { NO_ANSWER.to_owned() } else { causes.join(": ") };
            Error::with_message(error.kind().clone(), format!("{host}: {why}"))
        })
    }
}

/// Text of the innermost cause that contains no URL: the error of the operating
/// system, usually.
pub(crate) fn root_cause(error: &Error) -> String {
    let texts: Vec<_> = causes(Some(error)).collect();
    texts.into_iter().rfind(|text| !has_url(text)).unwrap_or_else(|| NO_ANSWER.to_owned())
}

fn causes(first: Option<&(dyn StdError + 'static)>) -> impl Iterator<Item = String> {
    std::iter::successors(first, |cause| (*cause).source()).map(ToString::to_string)
}

/// Whether a text may contain a URL, or the signature from one.
fn has_url(text: &str) -> bool {
    text.contains("://") || text.contains("sig=")
}

#[cfg(test)]
mod tests {
    use azure_core::{error::ErrorKind, http::Method};

    use super::*;

    const URL: &str = "https://acme.blob.core.windows.net/c?sv=1&sig=hush";

    /// HTTP client that fails with an error over a chain of causes.
    #[derive(Debug)]
    struct Failing(&'static [&'static str]);

    /// One error of a chain, the outermost first.
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
    async fn errors_name_the_host_and_the_causes_but_no_url() {
        const OUTER: &str = "error sending request for url \
                             (https://acme.blob.core.windows.net/c?sv=1&sig=hush)";
        for (causes, expected) in [
            (&[][..], "no answer"),
            (&[OUTER][..], "no answer"),
            (&[OUTER, "client error", "reset"][..], "client error: reset"),
            (&[OUTER, "redirected to https://acme.example/?sig=hush", "loop"][..], "loop"),
            (&[OUTER, "query sv=1&sig=hush"][..], "no answer"),
        ] {
            let transport = redacting(Transport::new(Arc::new(Failing(causes))));
            let mut request = Request::new(URL.parse().unwrap(), Method::Get);
            let error = transport.send(&Context::new(), &mut request).await.unwrap_err();
            let shown = format!("{error} {error:?} {:#}", error);
            assert!(!shown.contains("hush") && !shown.contains("://"), "{shown}");
            let expected = format!("acme.blob.core.windows.net: {expected}");
            assert_eq!(error.to_string(), expected, "{causes:?}");
            // An error that did not pass through the client shows no URL either.
            let root = root_cause(&Failing(causes).error());
            assert!(!root.contains("hush") && !root.contains("://"), "{root}");
        }
    }
}
