//! Signatures with the account key (Azure's SharedKey scheme).

use std::{collections::BTreeMap, sync::Arc};

use azure_core::{
    Error,
    credentials::Secret,
    error::ErrorKind,
    hmac::hmac_sha256,
    http::{
        Context, Request, Url,
        headers::{AUTHORIZATION, CONTENT_TYPE, HeaderName},
        policies::{Policy, PolicyResult},
    },
    time::to_rfc7231,
};
use leasehold_time::clock;

/// Standard headers in the signed text of blobs and queues. `date` stays empty,
/// because `x-ms-date` is sent.
const SIGNED: [&str; 11] = [
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

/// Form of the signed text.
#[derive(Clone, Copy, Debug)]
pub enum Form {
    /// Tables: fewer headers.
    Table,
    /// Blobs and queues.
    Other,
}

/// Policy that signs each attempt, with the date of the attempt.
#[derive(Debug)]
pub struct SharedKey {
    account: String,
    key: Secret,
    form: Form,
}

impl SharedKey {
    /// Creates a policy for an account and its key in base64.
    #[must_use]
    pub fn new(account: String, key: &str, form: Form) -> Self {
        Self { account, key: Secret::new(key.to_owned()), form }
    }

    fn sign(&self, request: &mut Request, date: String) -> azure_core::Result<()> {
        request.insert_header("x-ms-date", date.clone());
        let text = match self.form {
            Form::Table => self.text_of_table(request, &date),
            Form::Other => self.text_of_other(request),
        };
        let signature = hmac_sha256(&text, &self.key)?;
        request.insert_header(AUTHORIZATION, format!("SharedKey {}:{signature}", self.account));
        Ok(())
    }

    /// Returns the signed text. It contains the path as sent, even if that begins with
    /// the account name, and only the parameter `comp` of the query.
    fn text_of_table(&self, request: &Request, date: &str) -> String {
        let method = request.method();
        let content_type = request.headers().get_optional_str(&CONTENT_TYPE).unwrap_or_default();
        let path = request.url().path();
        let mut text = format!("{method}\n\n{content_type}\n{date}\n/{}{path}", self.account);
        if let Some((_, comp)) = request.url().query_pairs().find(|(key, _)| key == "comp") {
            text.extend(["?comp=", &comp]);
        }
        text
    }

    fn text_of_other(&self, request: &Request) -> String {
        let mut text = request.method().to_string();
        for name in SIGNED {
            text.push('\n');
            text.push_str(&standard_header(request, name));
        }
        text.push('\n');
        let own: BTreeMap<&str, &str> = request
            .headers()
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str().trim()))
            .filter(|(name, _)| name.starts_with("x-ms-"))
            .collect();
        for (name, value) in own {
            text.extend([name, ":", value, "\n"]);
        }
        text.push_str(&resource(&self.account, request.url()));
        text
    }
}

/// Returns the value of a standard header. A content length of zero is empty.
fn standard_header(request: &Request, name: &'static str) -> String {
    let given = request.headers().get_optional_str(&HeaderName::from_static(name));
    let length = || match name {
        "content-length" => request.body().len().map(|length| length.to_string()),
        _ => None,
    };
    let value = given.map(str::to_owned).or_else(length).unwrap_or_default();
    if name == "content-length" && value == "0" { String::new() } else { value }
}

/// Returns the signed resource: the path as sent, even if it begins with the
/// account name, and the query sorted by key.
fn resource(account: &str, url: &Url) -> String {
    let mut query: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (key, value) in url.query_pairs() {
        query.entry(key.to_lowercase()).or_default().push(value.into_owned());
    }
    let mut text = format!("/{account}{}", url.path());
    for (key, mut values) in query {
        values.sort();
        text.extend(["\n", &key, ":", &values.join(",")]);
    }
    text
}

#[async_trait::async_trait]
impl Policy for SharedKey {
    async fn send(
        &self,
        ctx: &Context,
        request: &mut Request,
        next: &[Arc<dyn Policy>],
    ) -> PolicyResult {
        let Some((first, rest)) = next.split_first() else {
            return Err(Error::with_message(ErrorKind::Other, "no policy sends the request"));
        };
        self.sign(request, to_rfc7231(&clock::wall().into()))?;
        first.send(ctx, request, rest).await
    }
}

#[cfg(test)]
mod tests {
    use azure_core::http::Method;

    use super::*;

    #[test]
    fn table_signature_matches_documentation() {
        let url = "https://acme.table.core.windows.net/orders(PartitionKey='a%20b',RowKey='c')\
                   ?$format=json&comp=acl&timeout=20";
        let mut request = Request::new(url.parse().unwrap(), Method::Put);
        request.insert_header(CONTENT_TYPE, "application/json");
        let key = SharedKey::new("acme".to_owned(), "YW4gYWNjb3VudCdzIGtleQ==", Form::Table);
        let date = "Mon, 16 Nov 2026 05:00:00 GMT";
        assert_eq!(
            key.text_of_table(&request, date),
            "PUT\n\napplication/json\nMon, 16 Nov 2026 05:00:00 GMT\n\
             /acme/orders(PartitionKey='a%20b',RowKey='c')?comp=acl"
        );
        key.sign(&mut request, date.to_owned()).unwrap();
        // Computed by another implementation.
        assert_eq!(
            request.headers().get_str(&AUTHORIZATION).unwrap(),
            "SharedKey acme:2vs4lQenVxLKtUxfbhNbUqVJaeHngcFyQMvgulWXUx4="
        );
    }

    /// The expected signatures were computed by another implementation.
    #[test]
    fn blob_and_queue_signatures_match_documentation() {
        let key = "YW4gYWNjb3VudCdzIGtleQ==";
        let url = "https://myaccount.blob.core.windows.net/mycontainer\
                   ?restype=container&comp=metadata&timeout=20";
        let mut request = Request::new(url.parse().unwrap(), Method::Get);
        request.insert_header("x-ms-version", "2015-02-21");
        let shared = SharedKey::new("myaccount".to_owned(), key, Form::Other);
        shared.sign(&mut request, "Fri, 26 Jun 2015 23:39:12 GMT".to_owned()).unwrap();
        let mut signed = request.clone();
        signed.headers_mut().remove(AUTHORIZATION);
        assert_eq!(
            shared.text_of_other(&signed),
            "GET\n\n\n\n\n\n\n\n\n\n\n\n\
             x-ms-date:Fri, 26 Jun 2015 23:39:12 GMT\nx-ms-version:2015-02-21\n\
             /myaccount/mycontainer\ncomp:metadata\nrestype:container\ntimeout:20"
        );
        assert_eq!(
            request.headers().get_str(&AUTHORIZATION).unwrap(),
            "SharedKey myaccount:sxQ1e2uYXjW+5s8u4gJZRROn1ft9oAn/yZuZBckzKyo="
        );
        let url = "http://127.0.0.1:10000/devstoreaccount1/c/locks%2Fdefault%2Fx?comp=metadata";
        let mut request = Request::new(url.parse().unwrap(), Method::Put);
        request.set_body("hello");
        for (name, value) in [
            ("x-ms-version", "2025-11-05"),
            ("x-ms-meta-token", "5"),
            ("x-ms-meta-holder", " a  b+c=%20 "),
            ("x-ms-lease-id", "mysecret"),
            ("if-match", "\"0x8D\""),
            ("content-type", "text/plain"),
            ("user-agent", "not signed"),
        ] {
            request.insert_header(name, value);
        }
        let shared = SharedKey::new("devstoreaccount1".to_owned(), key, Form::Other);
        shared.sign(&mut request, "Mon, 16 Nov 2026 05:00:00 GMT".to_owned()).unwrap();
        assert_eq!(
            request.headers().get_str(&AUTHORIZATION).unwrap(),
            "SharedKey devstoreaccount1:2+kxmHPJIEJTmKHM6wgatu52TocLNmvZquRrAoLx3cU="
        );
    }

    #[test]
    fn query_is_sorted_decoded_and_joined() {
        let url = "https://a.example/c?prefix=locks%2Fa+b&Include=snapshots&include=metadata&comp";
        assert_eq!(
            resource("a", &url.parse().unwrap()),
            "/a/c\ncomp:\ninclude:metadata,snapshots\nprefix:locks/a b"
        );
    }

    #[test]
    fn empty_body_has_no_length() {
        let mut request = Request::new("https://a.example/c".parse().unwrap(), Method::Put);
        for length in [None, Some("0")] {
            if let Some(length) = length {
                request.insert_header("content-length", length);
            }
            let key = SharedKey::new("a".to_owned(), "aHVzaA==", Form::Other);
            let text = key.text_of_other(&request);
            assert!(text.starts_with("PUT\n\n\n\n"), "{text}");
        }
    }

    #[test]
    fn debug_does_not_contain_key() {
        let key = SharedKey::new("acme".to_owned(), "aHVzaA==", Form::Other);
        assert!(!format!("{key:?}").contains("aHVzaA"));
    }
}
