//! Fuzzed responses of the table service.

use leasehold_fuzz::{
    Fuzz,
    wire::{self, Value as Sent},
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{
    batch::{self, Failed},
    entity::Raw,
    fence::Properties,
    place::{fence_row, fence_token},
    property::Property,
    *,
};
use leasehold_azure_account::{Fault, Response};

/// Converts an error response, for the comparison with those of blobs and queues.
pub(crate) fn refused(response: &Response) -> Fault {
    fault::fault(response)
}

const BATCH_WORDS: &[&str] = &[
    "--batch_1",
    "--changeset_1",
    "--\r\n",
    "\r\n\r\n",
    "Content-Type: multipart/mixed; boundary=changeset_1\r\n",
    "HTTP/1.1 204 No Content\r\n",
    "HTTP/1.1 409 Conflict\r\n",
    "HTTP/1.1 503 Busy\r\n",
    "ETag: W/\"1\"\r\n",
    "Content-ID: 1\r\n",
    "{\"odata.error\":{\"code\":\"EntityAlreadyExists\",\"message\":{\"value\":\"1:there\"}}}",
];

/// A batch is reported as applied only if each of its changes has a success response.
#[test]
fn batch_is_applied_only_if_all_changes_are_fuzzed() {
    Fuzz::new("table-batch").nested().words(BATCH_WORDS).run(|input| {
        let (mut count, mut content_type, mut body) = (0, String::new(), Vec::new());
        for field in wire::read(input).0 {
            match (field.number, field.value) {
                (1, Sent::Varint(number)) => count = number as usize % 101,
                (2, Sent::Bytes(text)) => content_type = String::from_utf8_lossy(&text).into(),
                (3, Sent::Bytes(bytes)) => body = bytes,
                _ => {}
            }
        }
        match batch::read(&content_type, &body, count) {
            Ok(etags) => {
                assert_eq!(etags.len(), count);
                let successes = String::from_utf8_lossy(&body).matches("HTTP/1.1 2").count();
                assert!(successes >= count, "{successes} of {count}");
                format!("done {}", etags.iter().all(Option::is_some))
            }
            Err(failed) => {
                let Failed { index, fault } = &failed;
                let error = failed.error(&Place::table("orders"), &[]);
                if let Error::Unavailable { written, .. } = &error {
                    assert_eq!(*written == Written::Unknown, fault.is_unclear(), "{fault:?}");
                }
                format!("{} {error}", index.is_some())
            }
        }
    });
}

const ROW_WORDS: &[&str] = &[
    "\"odata.etag\":\"W/1\",",
    "\"PartitionKey\":\"p\",",
    "\"RowKey\":\"~leasehold.fence.00000000000000000007\",",
    "\"Timestamp\":\"2026-11-16T16:11:56.8464493Z\",",
    "@odata.type\":\"",
    "Edm.Int64",
    "Edm.Double",
    "Edm.Guid",
    "Edm.DateTime",
    "Edm.Binary",
    "\"Infinity\"",
    "\"NaN\"",
    "1e400",
    "-0.0",
    "null",
    "true",
];

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Row {
    small: Option<i32>,
    large: Option<i64>,
    unsigned: Option<u64>,
    float: Option<f64>,
    text: Option<String>,
    letter: Option<char>,
    yes: Option<bool>,
    id: Option<Guid>,
    at: Option<DateTime>,
    bytes: Option<Binary>,
}

/// A row that was read can be written, and the written row reads the same.
#[test]
fn row_round_trips_fuzzed() {
    Fuzz::new("table-row").words(ROW_WORDS).run(|input| {
        let Ok(value) = serde_json::from_slice::<Value>(input) else { return "no JSON".to_owned() };
        let Value::Object(row) = value.clone() else { return "no row".to_owned() };
        let mut outcomes = Vec::new();
        for (name, value) in &row {
            let kind = row.get(&format!("{name}@odata.type")).and_then(Value::as_str);
            let read = Property::read(value.clone(), kind);
            if let Ok(Some(property)) = &read {
                let mut again = Map::new();
                property.write(name, &mut again);
                let kind = again.get(&format!("{name}@odata.type")).and_then(Value::as_str);
                let again = Property::read(again[name].clone(), kind);
                assert_eq!(format!("{again:?}"), format!("{read:?}"));
            }
            let text = format!("{read:?}");
            outcomes.push(text.split(['(', '"']).take(3).collect::<Vec<_>>().join(" "));
        }
        let raw = Raw::new(value).expect("it is an object");
        if let Some(token) = fence_token(raw.row()) {
            assert_eq!(fence_row(token), raw.row());
        }
        outcomes.push(format!("{}", raw.read::<Properties>("orders").is_ok()));
        match raw.read::<Row>("orders") {
            Ok(entity) => {
                if let Ok(properties) = encode::properties(&entity.value) {
                    let mut again = Map::new();
                    for (name, property) in properties {
                        property.write(&name, &mut again);
                    }
                    let again: Row = decode::value(&again).expect("it was written");
                    assert_eq!(format!("{again:?}"), format!("{:?}", entity.value));
                }
                outcomes.push("a row".to_owned());
            }
            // The end of the message is without the property's name, which comes from
            // the input.
            Err(error) => outcomes.push(error.to_string().chars().rev().take(20).collect()),
        }
        outcomes.sort();
        outcomes.dedup();
        outcomes.join("|")
    });
}
