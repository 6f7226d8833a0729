//! Encoding of batches and parsing of their responses.

use serde_json::json;

use super::*;
use crate::table::Transaction;

/// Error response as in the documentation of the service, with the index before the
/// message.
const REFUSED: &str = "--batchresponse_a\r\n\
    Content-Type: multipart/mixed; boundary=changesetresponse_b\r\n\r\n\
    --changesetresponse_b\r\n\
    Content-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\n\
    HTTP/1.1 412 Precondition Failed\r\nContent-ID: 4\r\nDataServiceVersion: 3.0;\r\n\
    Content-Type: application/json;odata=minimalmetadata;streaming=true;charset=utf-8\r\n\r\n\
    {\"odata.error\":{\"code\":\"UpdateConditionNotSatisfied\",\"message\":{\"lang\":\"en-US\",\
    \"value\":\"3:The update condition specified in the request was not satisfied.\\nRequestId:1\"}}}\r\n\
    --changesetresponse_b--\r\n--batchresponse_a--\r\n";

const DONE: &str = "--batchresponse_a\r\n\
    Content-Type: multipart/mixed; boundary=changesetresponse_b\r\n\r\n\
    --changesetresponse_b\r\n\
    Content-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\n\
    HTTP/1.1 204 No Content\r\nContent-ID: 1\r\nETag: W/\"datetime'1'\"\r\n\r\n\r\n\
    --changesetresponse_b\r\n\
    Content-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\n\
    HTTP/1.1 204 No Content\r\nContent-ID: 2\r\n\r\n\r\n\
    --changesetresponse_b--\r\n--batchresponse_a--\r\n";

const TYPE: &str = "multipart/mixed; boundary=batchresponse_a";

fn read(body: &str, count: usize) -> Result<Vec<Option<ETag>>, Failed> {
    super::read(TYPE, body.as_bytes(), count)
}

#[test]
fn inner_status_determines_outcome() {
    let failed = read(REFUSED, 5).unwrap_err();
    assert_eq!(failed.index, Some(3));
    let Fault::Refused { status, code, message } = failed.fault else { panic!("{failed:?}") };
    assert_eq!((status, code.as_str()), (412, "UpdateConditionNotSatisfied"));
    assert_eq!(message, "The update condition specified in the request was not satisfied.");
}

#[test]
fn content_id_identifies_change_without_index() {
    let failed = read(&REFUSED.replace("3:The", "The"), 5).unwrap_err();
    assert_eq!(failed.index, Some(3));
    let failed = read(&REFUSED.replace("3:The", "The").replace("Content-ID: 4\r\n", ""), 5);
    assert_eq!(failed.unwrap_err().index, None);
}

#[test]
fn etags_are_in_order_of_changes() {
    assert_eq!(read(DONE, 2).unwrap(), [Some(ETag::new("W/\"datetime'1'\"")), None]);
}

#[test]
fn inner_server_error_is_unclear() {
    let body = REFUSED.replace("412 Precondition Failed", "500 Internal Server Error");
    assert!(read(&body, 5).unwrap_err().fault.is_unclear());
}

#[test]
fn invalid_response_is_unclear() {
    let cut = &DONE[..DONE.len() - 60];
    for (body, count) in [(DONE, 3), (DONE, 1), ("", 1), ("hello", 1), (cut, 2)] {
        let failed = read(body, count).unwrap_err();
        assert!(failed.fault.is_unclear(), "{failed:?}");
        assert_eq!(failed.index, None);
    }
    for content_type in ["", "text/html", "multipart/mixed", "multipart/mixed; boundary="] {
        let failed = super::read(content_type, DONE.as_bytes(), 2).unwrap_err();
        assert!(failed.fault.is_unclear(), "{failed:?}");
    }
    assert!(super::read(TYPE, b"\xff\xfe", 1).unwrap_err().fault.is_unclear());
}

/// The parser's input comes from the network.
#[test]
fn parser_does_not_panic() {
    use proptest::prelude::*;
    proptest!(|(cut in 0..DONE.len(), insert in "\\PC{0,5}|\r\n|--changesetresponse_b", drop in 0..40_usize)| {
        let rest = DONE.get(cut + drop..).unwrap_or_default();
        let body = format!("{}{insert}{rest}", &DONE[..cut]);
        if let Ok(etags) = read(&body, 2) {
            prop_assert_eq!(etags.len(), 2);
        }
        let _ = read(&REFUSED.replacen("odata", &insert, cut % 3), 2);
    });
}

#[test]
fn batch_encodes_each_change_kind() {
    let etag = ETag::new("W/\"x\"");
    let value = json!({ "Amount": 5 });
    let transaction = Transaction::new()
        .insert("i", &value)
        .replace_if("r", &value, &etag)
        .merge("m", &value)
        .upsert("u", &value)
        .upsert_merge("v", &value)
        .delete("d'd");
    let base = "https://acme.table.core.windows.net/";
    let batch = Batch::new(base, "orders", "p p", &transaction.changes).ok().unwrap();
    let outer = boundary(&batch.content_type).unwrap();
    let sets = parts(&batch.body, outer);
    let (headers, content) = divide(sets[0]).unwrap();
    let inner = parts(content, boundary(header(headers, "Content-Type").unwrap()).unwrap());
    let read = |part: &str| {
        let (outer, http) = divide(part).unwrap();
        let (line, rest) = http.split_once("\r\n").unwrap();
        let (headers, body) = divide(rest).unwrap();
        let text = |text: Option<&str>| text.unwrap_or("-").to_owned();
        let id = text(header(outer, "Content-ID"));
        (id, line.to_owned(), text(header(headers, "If-Match")), body.to_owned())
    };
    let key = |row: &str| format!("{base}orders(PartitionKey='p%20p',RowKey='{row}')");
    let body = |row: &str| {
        let body = json!({
            "PartitionKey": "p p", "RowKey": row, "Amount": "5", "Amount@odata.type": "Edm.Int64",
        });
        body.to_string()
    };
    let expected = [
        (format!("POST {base}orders"), "-", body("i")),
        (format!("PUT {}", key("r")), "W/\"x\"", body("r")),
        (format!("PATCH {}", key("m")), "*", body("m")),
        (format!("PUT {}", key("u")), "-", body("u")),
        (format!("PATCH {}", key("v")), "-", body("v")),
        (format!("DELETE {}", key("d''d")), "*", String::new()),
    ];
    assert_eq!(inner.len(), expected.len());
    for (index, (part, (line, if_match, body))) in inner.iter().zip(expected).enumerate() {
        let (id, sent_line, sent_if_match, sent_body) = read(part);
        assert_eq!(id, (index + 1).to_string());
        assert_eq!(sent_line, format!("{line} HTTP/1.1"));
        assert_eq!(sent_if_match, if_match);
        assert_eq!(sent_body, body);
    }
}
