//! Entity group transactions: requests within a request (multipart/mixed), and
//! their answers.

use azure_core::Uuid;
use leasehold_azure_account::Fault;

use super::{
    ETag,
    fault::code_and_message,
    place::entity_path,
    transaction::{Change, Kind},
};

/// The longest body that the service takes.
pub(super) const LARGEST: usize = 4 << 20;

/// A request that is ready to be sent.
pub(super) struct Batch {
    pub(super) content_type: String,
    pub(super) body: String,
}

/// Why a batch was not done. As a whole, or because of one change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failed {
    /// The change that was refused, counted from 0, if the service said which.
    pub(super) index: Option<usize>,
    pub(super) fault: Fault,
}

/// The method of a change, and where it is sent.
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
    /// `base` is the service's address, with a slash at its end and without a
    /// signature. The error is a change whose value can't be stored, and why.
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

/// Reads the answer to a batch of so many changes: the new version of each, or
/// why nothing was done. What can't be understood leaves it unclear.
pub(super) fn read(
    content_type: &str,
    body: &[u8],
    count: usize,
) -> Result<Vec<Option<ETag>>, Failed> {
    let unclear = |why: &str| Failed {
        index: None,
        fault: Fault::Unclear { why: format!("the answer to a batch can't be understood: {why}") },
    };
    let body = std::str::from_utf8(body).map_err(|_| unclear("it is not UTF-8"))?;
    let boundary = boundary(content_type).ok_or_else(|| unclear("it has no boundary"))?;
    let mut answers = Vec::new();
    for part in parts(body, boundary) {
        let (headers, content) = divide(part).ok_or_else(|| unclear("a part has no end"))?;
        match header(headers, "Content-Type").and_then(self::boundary) {
            Some(inner) => answers.extend(parts(content, inner)),
            // An error may stand alone.
            None => answers.push(part),
        }
    }
    let mut etags = Vec::with_capacity(count);
    for answer in answers {
        let inner = Inner::read(answer).ok_or_else(|| unclear("an inner answer has no status"))?;
        if !(200..300).contains(&inner.status) {
            return Err(inner.failed());
        }
        etags.push(header(inner.headers, "ETag").map(ETag::new));
    }
    if etags.len() == count {
        Ok(etags)
    } else {
        Err(unclear(&format!("{} inner answers to {count} changes", etags.len())))
    }
}

/// One answer within the answer.
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
        // One without a body may end after its headers.
        let (headers, body) = divide(rest).unwrap_or((rest, ""));
        Some(Self { status, headers, body })
    }

    /// The message begins with the number of the change; so does the content
    /// id, which counts from 1.
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

/// Headers and what comes after the empty line.
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

/// What lies between the lines that are the boundary.
fn parts<'a>(body: &'a str, boundary: &str) -> Vec<&'a str> {
    let mark = format!("--{boundary}");
    let mut found = Vec::new();
    // What comes before the first is not part of it.
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
