//! Entity group transactions: requests within a multipart/mixed request, and their
//! responses.

use azure_core::Uuid;
use leasehold_azure_account::Fault;

use super::{
    ETag,
    fault::code_and_message,
    place::entity_path,
    transaction::{Change, Kind},
};

/// Maximum size of the request body.
pub(super) const MAX_BATCH_BYTES: usize = 4 << 20;

/// Encoded request.
pub(super) struct Batch {
    pub(super) content_type: String,
    pub(super) body: String,
}

/// Failure of a batch, as a whole or because of one change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failed {
    /// Index of the refused change, from 0, if the response names it.
    pub(super) index: Option<usize>,
    pub(super) fault: Fault,
}

/// Returns the HTTP method and the path of a change.
pub(super) fn method_and_path(
    table: &str,
    partition: &str,
    change: &Change,
) -> (&'static str, String) {
    let method = match change.kind {
        Kind::Insert => return ("POST", table.to_owned()),
        Kind::Replace | Kind::Upsert => "PUT",
        Kind::Merge | Kind::UpsertMerge => "PATCH",
        Kind::Delete => "DELETE",
    };
    (method, entity_path(table, partition, &change.row))
}

impl Batch {
    /// Encodes the changes. `base` is the URL of the service, with a slash at its end
    /// and without a signature. The error is a change whose value can't be stored, and
    /// the reason.
    pub(super) fn new<'a>(
        base: &str,
        table: &str,
        partition: &str,
        changes: &'a [Change],
    ) -> Result<Self, (&'a Change, &'a str)> {
        let (batch, set) = (Uuid::new_v4(), Uuid::new_v4());
        let mut body = format!(
            "--batch_{batch}\r\nContent-Type: multipart/mixed; boundary=changeset_{set}\r\n\r\n"
        );
        for (index, change) in changes.iter().enumerate() {
            let (method, path) = method_and_path(table, partition, change);
            body.push_str(&format!(
                "--changeset_{set}\r\nContent-Type: application/http\r\n\
                 Content-Transfer-Encoding: binary\r\nContent-ID: {}\r\n\r\n\
                 {method} {base}{path} HTTP/1.1\r\n\
                 Accept: application/json;odata=minimalmetadata\r\nDataServiceVersion: 3.0\r\n",
                index + 1
            ));
            if change.kind == Kind::Insert {
                body.push_str("Prefer: return-no-content\r\n");
            }
            if let Some(etag) = change.if_match() {
                body.extend(["If-Match: ", etag, "\r\n"]);
            }
            match change.body(partition).map_err(|why| (change, why))? {
                Some(entity) => {
                    body.push_str("Content-Type: application/json\r\n\r\n");
                    body.extend([&entity, "\r\n"]);
                }
                None => body.push_str("\r\n\r\n"),
            }
        }
        body.push_str(&format!("--changeset_{set}--\r\n--batch_{batch}--\r\n"));
        let content_type = format!("multipart/mixed; boundary=batch_{batch}");
        Ok(Self { content_type, body })
    }
}

/// Parses the response to a batch of `count` changes. Returns the new version of each
/// row, or the failure. An invalid response is an unclear fault.
pub(super) fn read(
    content_type: &str,
    body: &[u8],
    count: usize,
) -> Result<Vec<Option<ETag>>, Failed> {
    let unclear = |why: &str| Failed {
        index: None,
        fault: Fault::Unclear { why: format!("invalid response to a batch: {why}") },
    };
    let body = std::str::from_utf8(body).map_err(|_| unclear("it is not UTF-8"))?;
    let boundary = boundary(content_type).ok_or_else(|| unclear("it has no boundary"))?;
    let mut responses = Vec::new();
    for part in parts(body, boundary) {
        let (headers, content) = divide(part).ok_or_else(|| unclear("a part has no headers"))?;
        match header(headers, "Content-Type").and_then(self::boundary) {
            Some(inner) => responses.extend(parts(content, inner)),
            // An error response may have no change set around it.
            None => responses.push(part),
        }
    }
    let mut etags = Vec::with_capacity(count);
    for response in responses {
        let inner =
            Inner::read(response).ok_or_else(|| unclear("an inner response has no status"))?;
        if !(200..300).contains(&inner.status) {
            return Err(inner.failed());
        }
        etags.push(header(inner.headers, "ETag").map(ETag::new));
    }
    if etags.len() == count {
        Ok(etags)
    } else {
        Err(unclear(&format!("{} inner responses to {count} changes", etags.len())))
    }
}

/// Response to one change.
struct Inner<'a> {
    status: u16,
    headers: &'a str,
    body: &'a str,
}

impl<'a> Inner<'a> {
    fn read(part: &'a str) -> Option<Self> {
        let (_, http) = divide(part)?;
        let (line, rest) = http.split_once("\r\n")?;
        let status = line.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
        // A response without a body may end after its headers.
        let (headers, body) = divide(rest).unwrap_or((rest, ""));
        Some(Self { status, headers, body })
    }

    /// Converts an error response. The index of the change precedes the message; if
    /// not, the content ID, which counts from 1, identifies the change.
    fn failed(&self) -> Failed {
        let (code, message) = code_and_message(self.body.trim().as_bytes());
        let (index, message) = match message.split_once(':') {
            Some((number, rest)) if number.parse::<usize>().is_ok() => {
                (number.parse().ok(), rest.to_owned())
            }
            _ => {
                let id = header(self.headers, "Content-ID").and_then(|id| id.parse().ok());
                (id.and_then(|id: usize| id.checked_sub(1)), message)
            }
        };
        let fault = Fault::answered(self.status, code.unwrap_or_default(), message, None);
        Failed { index, fault }
    }
}

/// Splits a part into its headers and its content.
fn divide(part: &str) -> Option<(&str, &str)> {
    part.split_once("\r\n\r\n")
}

fn header<'a>(headers: &'a str, name: &str) -> Option<&'a str> {
    headers.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        key.trim().eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

fn boundary(content_type: &str) -> Option<&str> {
    let (kind, rest) = content_type.split_once("boundary=")?;
    let boundary = rest.split(';').next()?.trim().trim_matches('"');
    (kind.trim_start().starts_with("multipart/") && !boundary.is_empty()).then_some(boundary)
}

/// Returns the parts between the boundary lines.
fn parts<'a>(body: &'a str, boundary: &str) -> Vec<&'a str> {
    let mark = format!("--{boundary}");
    let mut found = Vec::new();
    // Text before the first boundary is ignored.
    let mut rest = body.find(&mark).map_or("", |at| &body[at + mark.len()..]);
    while let Some(part) = rest.strip_prefix("\r\n") {
        let Some(end) = part.find(&format!("\r\n{mark}")) else { break };
        found.push(&part[..end]);
        rest = &part[end + 2 + mark.len()..];
    }
    found
}

#[cfg(test)]
mod tests;
