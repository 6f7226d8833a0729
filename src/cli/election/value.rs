//! What a leader shows: bytes, shown to people and programs.

use base64::prelude::{BASE64_STANDARD, Engine};
use serde_json::{Map, Value, json};

/// For people, on one line: the text if it is printable, else base64, with a
/// mark.
pub(in crate::cli) fn shown(value: &[u8]) -> String {
    match std::str::from_utf8(value) {
        Ok(text) if !text.chars().any(char::is_control) => text.to_owned(),
        _ => format!("base64:{}", BASE64_STANDARD.encode(value)),
    }
}

/// For programs: as text, if it is that, and as base64 always.
pub(super) fn insert_into(object: &mut Map<String, Value>, value: &[u8]) {
    object.insert("value".to_owned(), json!(std::str::from_utf8(value).ok()));
    object.insert("value_base64".to_owned(), json!(BASE64_STANDARD.encode(value)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_printable_is_marked() {
        assert_eq!(shown("10.0.0.7:80, Köln".as_bytes()), "10.0.0.7:80, Köln");
        assert_eq!(shown(b"a\nb"), "base64:YQpi");
        assert_eq!(shown(&[0xff]), "base64:/w==");
        assert_eq!(shown(b""), "");
    }

    #[test]
    fn programs_get_the_bytes_whatever_they_are() {
        let object = |value: &[u8]| {
            let mut object = Map::new();
            insert_into(&mut object, value);
            Value::from(object)
        };
        assert_eq!(object(b"a\n"), json!({ "value": "a\n", "value_base64": "YQo=" }));
        assert_eq!(object(&[0xff]), json!({ "value": null, "value_base64": "/w==" }));
    }
}
