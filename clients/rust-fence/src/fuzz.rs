//! Fuzzed error responses of the storage services.

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

fn response(status: u16, head: &str, body: &[u8]) -> Response {
    let mut headers = Headers::new();
    // The HTTP client rejects other header names.
    let plain = |c: u8| c.is_ascii_lowercase() || c == b'-';
    for (name, value) in head.lines().filter_map(|line| line.split_once(": ")) {
        if !name.is_empty() && name.bytes().all(plain) {
            headers.insert(name.to_owned(), value.to_owned());
        }
    }
    Response { status, headers, body: Bytes::copy_from_slice(body) }
}

/// The blob and queue services respond in XML, tables in JSON: both parsers run.
#[test]
fn error_responses_become_faults_fuzzed() {
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
        let is_success = (200..300).contains(&status);
        let mut faults = Vec::new();
        match success(response(status, &head, &body)) {
            Ok(response) => assert!(is_success && *response.body == *body),
            Err(fault) => faults.push(fault),
        }
        if !is_success {
            assert_eq!(faults.len(), 1);
            faults.push(table::fuzz::refused(&response(status, &head, &body)));
        }
        for fault in &faults {
            let transient = status == 408 || status == 429 || status >= 500;
            assert_eq!((fault.is_unclear(), fault.may_pass()), (transient, transient), "{fault:?}");
        }
        format!("{faults:?}").chars().take(120).collect::<String>()
    });
}
