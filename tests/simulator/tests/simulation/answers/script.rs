//! A storage account that answers by a script.

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

/// Which call is made, and what it is answered with.
pub(crate) fn read(input: &[u8]) -> (u64, Arc<Answers>) {
    let mut which = 0;
    let mut left = Vec::new();
    for Field { number, value } in wire::read(input).0 {
        match (number, value) {
            (1, Value::Varint(number)) => which = number,
            (2, Value::Bytes(answer)) => left.push(Some(answer)),
            (3, Value::Varint(_)) => left.push(None),
            _ => {}
        }
    }
    let left = Mutex::new(left.into_iter());
    (which, Arc::new(Answers { left, token: Mutex::new(0), asked: Mutex::default() }))
}

/// Answers in turn, whatever is asked; after the last, connections are refused.
/// An answer: a status, headers, an empty line, a body. Or none at all.
pub(crate) struct Answers {
    left: Mutex<std::vec::IntoIter<Option<Vec<u8>>>>,
    /// The greatest token that was shown to who read the blob.
    token: Mutex<u64>,
    /// What was asked, and whether under the condition of a version or of none.
    asked: Mutex<Vec<(Method, bool)>>,
}

impl Answers {
    pub(crate) fn transport(self: &Arc<Self>) -> Transport {
        Transport::new(Arc::clone(self) as _)
    }

    /// The greatest token that was shown to who read the blob.
    pub(crate) fn token(&self) -> u64 {
        *self.token.lock().unwrap()
    }

    /// How often something was to be changed.
    pub(crate) fn changes(&self) -> usize {
        let asked = self.asked.lock().unwrap();
        asked.iter().filter(|(method, _)| ![Method::Get, Method::Head].contains(method)).count()
    }

    /// Nothing was to be deleted whatever its version.
    pub(crate) fn deletes_by_version(&self) {
        let asked = self.asked.lock().unwrap();
        assert!(!asked.contains(&(Method::Delete, false)), "{asked:?}");
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
        self.asked.lock().unwrap().push((request.method(), by_version));
        let next = self.left.lock().unwrap().next();
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
        let asked = request.headers().iter();
        let id = asked
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
        // What the HTTP client would not let through does not get here either.
        let token = |c: u8| c.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&c);
        let text = |c: u8| c == b'\t' || c == b' ' || c.is_ascii_graphic();
        for (name, value) in lines.filter_map(|line| line.split_once(": ")) {
            if !name.is_empty() && name.bytes().all(token) && value.bytes().all(text) {
                headers.insert(name.to_ascii_lowercase(), value.to_owned());
            }
        }
        if request.method() == Method::Head && status == 200 {
            let shown = headers.iter().find(|(name, _)| name.as_str() == "x-ms-meta-token");
            let shown = shown.and_then(|(_, value)| value.as_str().parse().ok()).unwrap_or(0);
            let mut token = self.token.lock().unwrap();
            *token = shown.max(*token);
        }
        Ok(AsyncRawResponse::from_bytes(StatusCode::from(status), headers, body))
    }
}
