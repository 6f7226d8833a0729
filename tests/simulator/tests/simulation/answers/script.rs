//! Storage account with scripted answers.

use std::{
    fmt,
    sync::{Arc, Mutex},
};

use azure_core::{
    error::{Error, ErrorKind},
    http::{
        AsyncRawResponse, HttpClient, Method, Request, StatusCode, Transport,
        headers::{HeaderName, Headers},
    },
};
use leasehold_fuzz::wire::{self, Field, Value};

/// Decodes an input: the number of the call, and its answers.
pub(crate) fn read(input: &[u8]) -> (u64, Arc<Answers>) {
    let mut which = 0;
    let mut answers = Vec::new();
    for Field { number, value } in wire::read(input).0 {
        match (number, value) {
            (1, Value::Varint(number)) => which = number,
            (2, Value::Bytes(answer)) => answers.push(Some(answer)),
            (3, Value::Varint(_)) => answers.push(None),
            _ => {}
        }
    }
    let answers = Mutex::new(answers.into_iter());
    (which, Arc::new(Answers { answers, token: Mutex::new(0), requests: Mutex::default() }))
}

/// Storage account that returns the scripted answers in order, for any request;
/// after the last, it refuses connections. An answer is a status, headers, an
/// empty line and a body, or no answer at all.
pub(crate) struct Answers {
    answers: Mutex<std::vec::IntoIter<Option<Vec<u8>>>>,
    /// Highest token returned by a read of the blob.
    token: Mutex<u64>,
    /// Requests, and whether each had a condition on the version.
    requests: Mutex<Vec<(Method, bool)>>,
}

impl Answers {
    pub(crate) fn transport(self: &Arc<Self>) -> Transport {
        Transport::new(Arc::clone(self) as _)
    }

    /// Returns the highest token returned by a read of the blob.
    pub(crate) fn token(&self) -> u64 {
        *self.token.lock().unwrap()
    }

    /// Returns the number of requests that change something.
    pub(crate) fn changes(&self) -> usize {
        let requests = self.requests.lock().unwrap();
        requests.iter().filter(|(method, _)| ![Method::Get, Method::Head].contains(method)).count()
    }

    /// Checks that every delete had a condition on the version.
    pub(crate) fn assert_conditional_deletes(&self) {
        let requests = self.requests.lock().unwrap();
        assert!(!requests.contains(&(Method::Delete, false)), "{requests:?}");
    }
}
impl fmt::Debug for Answers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Answers")
    }
}

#[async_trait::async_trait]
impl HttpClient for Answers {
    async fn execute_request(&self, request: &Request) -> azure_core::Result<AsyncRawResponse> {
        let named =
            |(name, _): &(&HeaderName, _)| ["if-match", "if-none-match"].contains(&name.as_str());
        let by_version = request.headers().iter().any(|header| named(&header));
        self.requests.lock().unwrap().push((request.method(), by_version));
        let next = self.answers.lock().unwrap().next();
        let answer = match next {
            Some(Some(answer)) => answer,
            Some(None) => return std::future::pending().await,
            None => return Err(Error::with_message(ErrorKind::Connection, "refused")),
        };
        let end = answer.windows(2).position(|two| two == b"\n\n");
        let (head, body) = match end {
            Some(end) => (&answer[..end], answer[end + 2..].to_vec()),
            None => (&*answer, Vec::new()),
        };
        let requests = request.headers().iter();
        let id = requests
            .filter(|(name, _)| {
                ["x-ms-proposed-lease-id", "x-ms-lease-id"].contains(&name.as_str())
            })
            .map(|(_, value)| value.as_str().to_owned())
            .next()
            .unwrap_or_default();
        let head = String::from_utf8_lossy(head).replace("{ID}", &id);
        let mut lines = head.lines();
        let status = lines.next().and_then(|line| line.trim().parse::<u16>().ok()).unwrap_or(200);
        let mut headers = Headers::new();
        // Skip headers that the HTTP client would reject.
        let token = |c: u8| c.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&c);
        let text = |c: u8| c == b'\t' || c == b' ' || c.is_ascii_graphic();
        for (name, value) in lines.filter_map(|line| line.split_once(": ")) {
            if !name.is_empty() && name.bytes().all(token) && value.bytes().all(text) {
                headers.insert(name.to_ascii_lowercase(), value.to_owned());
            }
        }
        if request.method() == Method::Head && status == 200 {
            let token_read = headers.iter().find(|(name, _)| name.as_str() == "x-ms-meta-token");
            let token_read =
                token_read.and_then(|(_, value)| value.as_str().parse().ok()).unwrap_or(0);
            let mut token = self.token.lock().unwrap();
            *token = token_read.max(*token);
        }
        Ok(AsyncRawResponse::from_bytes(StatusCode::from(status), headers, body))
    }
}
