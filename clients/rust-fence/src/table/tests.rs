//! Encoding and decoding of values, and limits, without a service.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Map, Value, json};

use super::{place::HEAD, transaction::Kind, *};

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
enum Color {
    Red,
    #[serde(rename = "light blue")]
    Blue,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Everything {
    small: i32,
    large: i64,
    unsigned: u64,
    byte: u8,
    float: f64,
    odd: f64,
    text: String,
    letter: char,
    yes: bool,
    id: Guid,
    at: DateTime,
    bytes: Binary,
    there: Option<i64>,
    not_there: Option<String>,
    color: Color,
    #[serde(rename = "Other Name")]
    renamed: Wrapped,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Wrapped(String);

fn everything() -> Everything {
    Everything {
        small: -7,
        large: i64::MIN,
        unsigned: (1 << 53) + 1,
        byte: 255,
        float: 1.0,
        odd: f64::NEG_INFINITY,
        text: "Zürich\n\"quoted\" \u{1F512}".to_owned(),
        letter: 'ß',
        yes: true,
        id: Guid(Uuid::from_u128(7)),
        at: DateTime::new(
            OffsetDateTime::from_unix_timestamp_nanos(1_763_000_000_123_456_789).unwrap(),
        ),
        bytes: Binary(vec![0, 255, 7]),
        there: Some(5),
        not_there: None,
        color: Color::Blue,
        renamed: Wrapped("w".to_owned()),
    }
}

fn sent(value: &impl Serialize) -> Map<String, Value> {
    let change = transaction::Change::new("r", Kind::Insert, None, Some(value));
    serde_json::from_str(&change.body("p").unwrap().unwrap()).unwrap()
}

fn received<T: DeserializeOwned>(mut entity: Map<String, Value>) -> Result<Entity<T>, Error> {
    entity.insert("odata.etag".to_owned(), "W/\"1\"".into());
    entity.insert("Timestamp".to_owned(), "2026-11-16T16:11:56.8464493Z".into());
    entity::Raw::new(Value::Object(entity)).unwrap().read("orders")
}

#[test]
fn values_round_trip() {
    let entity = received::<Everything>(sent(&everything())).unwrap();
    assert_eq!(entity.value, everything());
    assert_eq!((entity.partition.as_str(), entity.row.as_str()), ("p", "r"));
    assert_eq!(entity.etag.as_str(), "W/\"1\"");
    assert_eq!(entity.changed.unwrap().nanosecond(), 846_449_300);
}

#[test]
fn non_json_types_are_annotated() {
    let sent = sent(&everything());
    for (name, value, kind) in [
        ("small", json!(-7), None),
        ("large", json!("-9223372036854775808"), Some("Edm.Int64")),
        ("unsigned", json!("9007199254740993"), Some("Edm.Int64")),
        ("float", json!(1.0), Some("Edm.Double")),
        ("odd", json!("-Infinity"), Some("Edm.Double")),
        ("id", json!("00000000-0000-0000-0000-000000000007"), Some("Edm.Guid")),
        ("at", json!("2025-11-13T02:13:20.1234567Z"), Some("Edm.DateTime")),
        ("bytes", json!("AP8H"), Some("Edm.Binary")),
        ("color", json!("light blue"), None),
        ("yes", json!(true), None),
    ] {
        assert_eq!(sent[name], value, "{name}");
        let annotation = sent.get(&format!("{name}@odata.type")).and_then(Value::as_str);
        assert_eq!(annotation, kind, "{name}");
    }
    assert!(!sent.contains_key("not_there"));
}

#[test]
fn nested_or_too_large_value_error_names_property() {
    #[derive(Serialize)]
    struct Bad<T> {
        amount: T,
    }
    fn refused(value: &impl Serialize) -> String {
        let place = Place::table("orders").partition("p");
        let error = Transaction::new().insert("r", value).check(&place).unwrap_err();
        assert!(matches!(error, Error::Invalid { .. }), "{error:?}");
        error.to_string()
    }
    let start = "table \"orders\", partition \"p\", row \"r\": ";
    for (text, hint) in [
        (refused(&Bad { amount: vec![1, 2] }), "amount: a table stores plain values only"),
        (refused(&Bad { amount: Bad { amount: 1 } }), "amount: a table stores plain values only"),
        (refused(&Bad { amount: u64::MAX }), "amount: 18446744073709551615 does not fit"),
        (refused(&7), "an entity is a struct, or a map"),
        (refused(&[1, 2]), "an entity is a struct, or a map"),
        (refused(&BTreeMap::from([(1, 2)])), "an entity is a struct, or a map"),
        (refused(&json!({ "RowKey": "x" })), "the property RowKey is reserved for the service"),
        (refused(&json!({ "x@odata.type": "x" })), "is reserved for the service"),
        (refused(&Bad { amount: "x".repeat(32_769) }), "amount has 65538 bytes"),
        (refused(&Bad { amount: Binary(vec![0; 65_537]) }), "amount has 65537 bytes"),
        (refused(&many(17, 32_768)), "the maximum is 1 MiB"),
        (refused(&many(253, 1)), "253 properties are too many"),
    ] {
        assert!(text.starts_with(start) && text.contains(hint), "{text}");
    }
    let place = Place::table("orders").partition("p");
    let fits = Transaction::new().insert("a", &many(15, 32_768)).insert("b", &many(252, 1));
    fits.insert("c", &Bad { amount: Binary(vec![0; 65_536]) }).check(&place).unwrap();
}

fn many(count: usize, length: usize) -> BTreeMap<String, String> {
    (0..count).map(|number| (format!("p{number}"), "x".repeat(length))).collect()
}

#[test]
fn type_mismatch_error_names_property() {
    #[derive(Debug, Deserialize)]
    struct Stock {
        #[allow(dead_code, reason = "only the type is relevant")]
        amount: i64,
    }
    let read = |entity: Value| {
        let Value::Object(entity) = entity else { panic!() };
        received::<Stock>(entity).unwrap_err().to_string()
    };
    let text = read(json!({ "PartitionKey": "p", "RowKey": "r", "amount": "x" }));
    assert!(text.contains("row \"r\"") && text.contains("expected i64"), "{text}");
    let text = read(json!({ "PartitionKey": "p", "RowKey": "r" }));
    assert!(text.contains("missing field `amount`"), "{text}");
    let entity = json!({ "RowKey": "r", "amount": "x", "amount@odata.type": "Edm.Int64" });
    assert!(read(entity).contains("the property amount is not a 64-bit integer"));
}

#[test]
fn transaction_limits_are_checked() {
    let place = Place::table("orders").partition("p").token(7);
    let value = json!({ "x": 1 });
    let of = |count: usize| {
        (0..count).fold(Transaction::new(), |all, number| all.upsert(number.to_string(), &value))
    };
    of(98).check(&place).unwrap();
    for (transaction, hint) in [
        (of(99), "99 changes are too many"),
        (of(101), "101 changes are too many"),
        (Transaction::new(), "the transaction is empty"),
        (of(2).delete("1"), "row \"1\", token 7: the row is changed twice"),
        (of(2).delete(HEAD), "reserved for the fence"),
        (of(2).delete("a/b"), "it contains '/'"),
    ] {
        let error = transaction.check(&place).unwrap_err();
        assert!(matches!(error, Error::Invalid { .. }), "{error:?}");
        assert!(error.to_string().contains(hint), "{error}");
    }
}

/// A row is not sent without its value.
#[test]
fn unstorable_value_is_not_sent_empty() {
    let good = transaction::Change::new("a", Kind::Insert, None, Some(&json!({ "x": 1 })));
    let bad = transaction::Change::new(HEAD, Kind::Insert, None, Some(&json!({ "x": [1] })));
    assert!(bad.body("p").is_err());
    let changes = [good, bad];
    let refused = batch::Batch::new("http://x/", "orders", "p", &changes).err().unwrap();
    assert_eq!(refused.0.row, HEAD);
    assert!(refused.1.contains("plain values only"), "{}", refused.1);
}

#[test]
fn date_out_of_range_is_refused() {
    #[derive(Serialize)]
    struct At {
        at: DateTime,
    }
    let place = Place::table("orders").partition("p");
    let check = |at| Transaction::new().insert("r", &At { at }).check(&place);
    let unix = |seconds| DateTime::new(OffsetDateTime::from_unix_timestamp(seconds).unwrap());
    let parsed = |text| DateTime::new(azure_core::time::parse_rfc3339(text).unwrap());
    for at in [unix(-11_644_473_600), unix(253_402_300_799), parsed("1600-12-31T23:00:00-01:00")] {
        check(at).unwrap();
    }
    let first = OffsetDateTime::from_unix_timestamp(-377_705_116_800).unwrap();
    assert_eq!(first.year(), -9999);
    for at in [
        unix(-11_644_473_601),
        DateTime::new(first),
        parsed("1601-01-01T00:00:00+01:00"),
        parsed("9999-12-31T23:59:59-01:00"),
    ] {
        let error = check(at).unwrap_err();
        assert!(matches!(error, Error::Invalid { .. }), "{error:?}");
        assert!(error.to_string().contains("the years 1601 to 9999"), "{error}");
        assert!(!format!("{at}{at:?}").is_empty());
    }
}
