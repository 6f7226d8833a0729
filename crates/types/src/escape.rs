//! Percent-encoding of names.

/// Percent-encodes the UTF-8 bytes of a text, except ASCII letters, digits and the
/// bytes in `unescaped`.
#[must_use]
pub fn percent_encode(text: &str, unescaped: &[u8]) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || unescaped.contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_bytes_are_encoded_in_uppercase() {
        assert_eq!(percent_encode("aZ9-._/~", b"-._/"), "aZ9-._/%7E");
        assert_eq!(percent_encode("a é%", b""), "a%20%C3%A9%25");
    }
}
