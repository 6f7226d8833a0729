//! Signs requests with the account's key, as Azure calls SharedKey.

use std::{collections::BTreeMap, sync::Arc};

use azure_core::{
    Error,
    credentials::Secret,
    error::ErrorKind,
    hmac::hmac_sha256,
    http::{
        Context, Request, Url,
        headers::{AUTHORIZATION, HeaderName},
        policies::{Policy, PolicyResult},
    },
    time::to_rfc7231,
};

use crate::clock;

/// The headers that have a place of their own in what is signed. `date` stays
/// empty, because `x-ms-date` is sent.
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

/// Signs each try, with the date of that try.
#[derive(Debug)]
pub(super) struct SharedKey {
    account: String,
    key: Secret,
}

impl SharedKey {
    pub(super) fn new(account: String, key: &str) -> Self {
        Self { account, key: Secret::new(key.to_owned()) }
    }

    fn sign(&self, request: &mut Request, date: String) -> azure_core::Result<()> {
        request.insert_header("x-ms-date", date);
        let signature = hmac_sha256(&self.text_to_sign(request), &self.key)?;
        request.insert_header(AUTHORIZATION, format!("SharedKey {}:{signature}", self.account));
        Ok(())
    }

    fn text_to_sign(&self, request: &Request) -> String {
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

/// A length of zero counts as none.
fn standard_header(request: &Request, name: &'static str) -> String {
    let given = request.headers().get_optional_str(&HeaderName::from_static(name));
    let length = || match name {
        "content-length" => request.body().len().map(|length| length.to_string()),
        _ => None,
    };
    let value = given.map(str::to_owned).or_else(length).unwrap_or_default();
    if name == "content-length" && value == "0" { String::new() } else { value }
}

/// The path as it is sent, also if it begins with the account itself, and the
/// query in order of its keys.
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
            return Err(Error::with_message(ErrorKind::Other, "nothing sends the request"));
        };
        self.sign(request, to_rfc7231(&clock::wall().into()))?;
        first.send(ctx, request, rest).await
    }
}
