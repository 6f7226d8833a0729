//! Escapes of names in addresses, headers and metadata.

use leasehold_types::percent_encode;

/// Percent-encodes all bytes except ASCII letters, digits, `-._~` and those in
/// `unescaped`.
pub(crate) fn escape(text: &str, unescaped: &[u8]) -> String {
    percent_encode(text, &[b"-._~", unescaped].concat())
}

/// Decodes percent-encoded text. Returns `None` if the encoding is invalid.
#[cfg(feature = "http")]
pub(crate) fn unescape(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first == b'%' {
            let digits = rest.get(..2).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit))?;
            let digits = std::str::from_utf8(digits).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &rest[2..];
        } else {
            bytes.push(*first);
        }
    }
    String::from_utf8(bytes).ok()
}
