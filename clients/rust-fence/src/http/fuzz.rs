//! Fuzzed requests.

use std::{
    collections::HashMap,
    pin::pin,
    task::{Context, Poll, Waker},
};

use http::{HeaderName, Request, request::Parts};
use leasehold_fuzz::Fuzz;

use super::*;

const WORDS: &[&str] = &[
    "leasehold-lock: ",
    "leasehold-token: ",
    "default/orders",
    "default/a%2Fb",
    "%C3%BC",
    "%+1",
    "+5",
    "05",
    "9007199254740991",
    "9007199254740992",
    "content-type: application/grpc",
    "GET\n",
    "POST\n",
    "\n\n",
];

/// Parses a request: one line with the method, and one per header. Drops headers
/// that are not valid in HTTP.
fn request(text: &str) -> Parts {
    let mut lines = text.lines();
    let method = lines.next().unwrap_or_default();
    let mut request = Request::builder().method(method).body(()).unwrap_or_default();
    for (name, value) in lines.filter_map(|line| line.split_once(": ")) {
        if let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), value.parse::<HeaderValue>()) {
            request.headers_mut().append(name, value);
        }
    }
    request.into_parts().0
}

#[test]
fn gate_admits_only_current_tokens_fuzzed() {
    Fuzz::new("token-headers").words(WORDS).run(|input| {
        let gate = TokenGate::new().max_locks(3);
        let mut model = HashMap::new();
        let mut outcomes = Vec::new();
        let text = String::from_utf8_lossy(input);
        for request in text.split("\n\n").take(8).map(request) {
            let admitted = pin!(gate.admit(&request));
            let Poll::Ready(admitted) = admitted.poll(&mut Context::from_waker(Waker::noop()))
            else {
                panic!("the gate must not wait")
            };
            outcomes.push(match admitted {
                Ok(Some(lock_token)) => {
                    let token = lock_token.token();
                    assert!((1..1 << 53).contains(&token.get()), "{lock_token}");
                    assert_eq!(request.headers[TOKEN], token.to_string());
                    let highest = model.entry(lock_token.qualified_lock()).or_insert(token);
                    assert!(*highest <= token, "{lock_token} after {highest}");
                    *highest = token;
                    // Encoding and parsing it again gives the same value.
                    let again = headers(&lock_token).map(|(name, value)| {
                        (HeaderName::from_static(name), value.parse().expect("it is ASCII"))
                    });
                    assert_eq!(read(&again.into_iter().collect()), Ok(Some(lock_token)));
                    "admitted".to_owned()
                }
                Ok(None) => "unfenced".to_owned(),
                Err(refusal) => {
                    let response = refusal.response::<()>(&request.headers);
                    let grpc = refusal::is_grpc(&request.headers);
                    assert_eq!(response.status().is_success(), grpc);
                    assert_eq!(response.headers().contains_key("grpc-message"), grpc);
                    format!("{grpc} {refusal}")
                }
            });
            let seen = gate.seen();
            let known = seen.iter().map(|(lock, highest)| (lock.clone(), highest.get()));
            assert_eq!(known.collect::<HashMap<_, _>>(), model);
        }
        outcomes.sort();
        outcomes.dedup();
        outcomes.join("|")
    });
}
