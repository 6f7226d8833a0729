//! Request signatures (SharedKey) and shared access signatures.
//!
//! Deliberately independent of `leasehold-azure-account`: a test oracle must not
//! share code with the signatures that the tests check.

use std::collections::BTreeMap;

use azure_core::{credentials::Secret, hmac::hmac_sha256};
use hyper::Method;

use crate::azurite::{ACCOUNT, KEY};

/// Creates a shared access signature for all blobs of the account, with
/// permissions such as `rwdlac` and an expiry such as `2099-01-01T00:00:00Z`.
pub fn sas(permissions: &str, until: &str) -> String {
    let (version, services, types) = ("2022-11-02", "b", "sco");
    let text =
        format!("{ACCOUNT}\n{permissions}\n{services}\n{types}\n\n{until}\n\n\n{version}\n\n");
    let signature = encode(&hmac_sha256(&text, &Secret::new(KEY)).unwrap());
    format!("sv={version}&ss={services}&srt={types}&sp={permissions}&se={until}&sig={signature}")
}

/// Authorization header of a request. The path is the escaped path of the URL.
pub(super) fn authorization(
    key: &str,
    method: &Method,
    path: &str,
    query: &BTreeMap<String, String>,
    headers: &BTreeMap<String, String>,
) -> String {
    const STANDARD: [&str; 11] = [
        "content-encoding",
        "content-language",
        "content-length",
        "content-md5",
        "content-type",
        "date",
        "if-modified-since",
        "if-match",
        "if-none-match",
        "if-unmodified-since",
        "range",
    ];
    let mut text = format!("{method}\n");
    for name in STANDARD {
        let value = headers.get(name).map_or("", String::as_str);
        text += if name == "content-length" && value == "0" { "" } else { value };
        text.push('\n');
    }
    for (name, value) in headers.range("x-ms-".to_owned().."x-ms.".to_owned()) {
        text += &format!("{name}:{}\n", value.trim());
    }
    text += &format!("/{ACCOUNT}{path}");
    for (name, value) in query {
        text += &format!("\n{name}:{value}");
    }
    let signature = hmac_sha256(&text, &Secret::new(key.to_owned())).unwrap();
    format!("SharedKey {ACCOUNT}:{signature}")
}

/// Escapes all characters except letters, digits and `-._~`.
pub(super) fn encode(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                char::from(byte).to_string()
            }
            _ => format!("%{byte:02X}"),
        })
        .collect()
}
