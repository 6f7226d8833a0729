//! Whatever a storage account, or something in its place, answers.

use std::{
    fmt,
    sync::{Arc, Mutex},
    time::Duration,
};

use azure_core::{
    error::{Error, ErrorKind},
    http::{
        AsyncRawResponse, HttpClient, Method, Request, StatusCode, Transport, headers::Headers,
    },
};
use leasehold::{
    clock::{Entropy, sleep},
    config::{self, SecretText},
    lease::{
        Acquire, Breaker, Claim, LeaseId, LeaseStore,
        azure::{Azure, account::Account},
    },
    name::LockName,
};
use leasehold_fuzz::{
    Fuzz,
    wire::{self, Field, Value},
};
use tokio::runtime::Builder;

use super::HUSH;

const WORDS: &[&str] = &[
    HUSH,
    "{ID}",
    "x-ms-lease-id: {ID}",
    "x-ms-lease-state: leased",
    "x-ms-lease-time: 15",
    "x-ms-meta-token: 5242880",
    "x-ms-meta-nonce: 1",
    "x-ms-meta-bytes: 3",
    "x-ms-meta-leader: 5",
    "x-ms-error-code: LeaseAlreadyPresent",
    "x-ms-error-code: ServerBusy",
    "retry-after: 1",
    "etag: \"0x1\"",
    "date: Sun, 17 Mar 2030 17:46:40 GMT",
    "content-range: bytes 0-2/3",
    "content-length: 3",
    "last-modified: Sun, 17 Mar 2030 17:46:40 GMT",
    "200\n",
    "201\n",
    "202\n",
    "206\n",
    "304\n",
    "403\n",
    "404\n",
    "409\n",
    "412\n",
    "503\n",
    "<Blob>",
    "</Blob>",
    "<Name>locks/default/a</Name>",
    "<Properties>",
    "</Properties>",
    "<Metadata>",
    "</Metadata>",
    "<Etag>0x1</Etag>",
    "<LeaseState>leased</LeaseState>",
    "&lt;",
    "&#x0;",
    "&bad;",
    "<![CDATA[",
    "<!DOCTYPE x [<!ENTITY y \"z\">]>",
    "<NextMarker>more</NextMarker>",
];

/// Answers in turn, whatever is asked; after the last, connections are refused.
/// An answer: a status, headers, an empty line, a body.
struct Answers {
    left: Mutex<std::vec::IntoIter<Vec<u8>>>,
    /// The greatest token that was shown to who read the blob.
    token: Mutex<u64>,
}

impl fmt::Debug for Answers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Answers")
    }
}

#[async_trait::async_trait]
impl HttpClient for Answers {
    async fn execute_request(&self, request: &Request) -> azure_core::Result<AsyncRawResponse> {
        let Some(answer) = self.left.lock().unwrap().next() else {
            return Err(Error::with_message(ErrorKind::Connection, "refused"));
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

/// What comes of a call within a moment: some are tried again for long.
async fn soon<T: fmt::Debug>(call: impl IntoFuture<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        done = call.into_future() => {
            let shown = format!("{done:?}");
            assert!(!shown.contains("c2VjcmV0LWtleQ"), "{shown}");
            Some(done)
        }
        () = sleep(Duration::from_millis(20)) => None,
    }
}

fn kind<T: fmt::Debug, E: fmt::Display>(done: Option<Result<T, E>>) -> String {
    match done {
        None => "later".to_owned(),
        Some(Ok(answer)) => {
            let shown = format!("{answer:?}");
            shown.split([' ', '(']).take(2).collect::<Vec<_>>().join(" ")
        }
        Some(Err(error)) => error.to_string().chars().take(80).collect(),
    }
}

async fn ask(which: u64, answers: Vec<Vec<u8>>) -> String {
    let answers = Arc::new(Answers { left: Mutex::new(answers.into_iter()), token: Mutex::new(0) });
    let azure = config::Azure {
        account_url: Some("http://127.0.0.1:1/acme".to_owned()),
        account_key: Some(SecretText::new("c2VjcmV0LWtleQ==")),
        ..config::Azure::default()
    };
    let account = Account::over(Transport::new(Arc::clone(&answers) as _), &azure).unwrap();
    let store = Azure::new(account, &azure, "test".to_owned(), Entropy::seeded(7));
    let name = LockName::parse("", "a").unwrap();
    let id = LeaseId::new(0x0123_4567);
    let breaker = Breaker { by: "ops".into(), reason: "fuzz".into() };
    match which % 6 {
        0 => {
            let claim = Claim {
                name,
                id,
                duration: Duration::from_secs(15),
                holder: Arc::default(),
                value: None,
                again: which > 5,
            };
            let done = soon(store.acquire(claim)).await;
            if let Some(Ok(Acquire::Acquired(acquired))) = &done {
                let (first, last) = acquired.tokens.bounds();
                let seen = *answers.token.lock().unwrap();
                assert!(first > seen && last < 1 << 53, "{acquired:?} after {seen}");
            }
            kind(done)
        }
        1 => kind(soon(store.inspect(&name)).await),
        2 => kind(soon(store.list("default", "", None, 10)).await),
        3 => kind(soon(store.renew(&name, id, Duration::from_secs(15))).await),
        4 => kind(soon(store.release(&name, id)).await),
        _ => kind(soon(store.break_lease(&name, breaker)).await),
    }
}

#[test]
fn whatever_the_storage_answers_is_understood_or_refused() {
    Fuzz::new("storage-answer").nested().words(WORDS).run(|input| {
        let mut which = 0;
        let mut answers = Vec::new();
        for Field { number, value } in wire::read(input).0 {
            match (number, value) {
                (1, Value::Varint(number)) => which = number,
                (2, Value::Bytes(answer)) => answers.push(answer),
                _ => {}
            }
        }
        // A runtime of its own: what the store goes on with ends here.
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let said = runtime.block_on(ask(which, answers));
        format!("{} {said}", which % 6)
    });
}
