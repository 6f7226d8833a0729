//! What a storage account says when it refuses something.

use azure_core::{Bytes, http::headers::Headers};
use leasehold_azure_account::Response;
use leasehold_fuzz::{
    Fuzz,
    wire::{self, Value},
};

use super::{fault::success, table};

const WORDS: &[&str] = &[
    "x-ms-error-code: ",
    "retry-after: 1",
    "retry-after: 18446744073709551615",
    "BlobNotFound",
    "ConditionNotMet",
    "AuthenticationFailed",
    "<Code>",
    "</Code>",
    "<Message>",
    "</Message>",
    "{\"odata.error\":{\"code\":\"TableNotFound\",\"message\":{\"value\":\"none\"}}}",
];

fn answer(status: u16, head: &str, body: &[u8]) -> Response {
    let mut headers = Headers::new();
    // What the HTTP client would not let through does not get here either.
    let plain = |c: u8| c.is_ascii_lowercase() || c == b'-';
    for (name, value) in head.lines().filter_map(|line| line.split_once(": ")) {
        if !name.is_empty() && name.bytes().all(plain) {
            headers.insert(name.to_owned(), value.to_owned());
        }
    }
    Response { status, headers, body: Bytes::copy_from_slice(body) }
}

/// Blobs and queues say it in XML, tables in JSON: both are asked.
#[test]
fn what_is_no_success_is_a_fault_and_what_is_busy_may_have_been_done() {
    Fuzz::new("azure-refusal").nested().words(WORDS).run(|input| {
        let (mut status, mut head, mut body) = (409, String::new(), Vec::new());
        for field in wire::read(input).0 {
            match (field.number, field.value) {
                (1, Value::Varint(number)) => status = number as u16,
                (2, Value::Bytes(text)) => head = String::from_utf8_lossy(&text).into_owned(),
                (3, Value::Bytes(bytes)) => body = bytes,
                _ => {}
            }
        }
        let fine = (200..300).contains(&status);
        let mut said = Vec::new();
        match success(answer(status, &head, &body)) {
            Ok(answer) => assert!(fine && *answer.body == *body),
            Err(fault) => said.push(fault),
        }
        if !fine {
            assert_eq!(said.len(), 1);
            said.push(table::fuzz::refused(&answer(status, &head, &body)));
        }
        for fault in &said {
            let later = status == 408 || status == 429 || status >= 500;
            assert_eq!((fault.is_unclear(), fault.may_pass()), (later, later), "{fault:?}");
        }
        format!("{said:?}").chars().take(120).collect::<String>()
    });
}
