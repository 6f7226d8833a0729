//! Signs requests to tables with the account's key, as Azure calls SharedKey.

use std::sync::Arc;

use azure_core::{
    Error,
    credentials::Secret,
    error::ErrorKind,
    hmac::hmac_sha256,
    http::{
        Context, Request,
        headers::{AUTHORIZATION, CONTENT_TYPE},
        policies::{Policy, PolicyResult},
    },
    time::to_rfc7231,
};

use crate::clock;

/// Signs each try, with the date of that try. Tables have a form of their own,
/// with fewer headers than blobs, queues and files.
#[derive(Debug)]
pub(super) struct TableKey {
    account: String,
    key: Secret,
}

impl TableKey {
    pub(super) fn new(account: String, key: &str) -> Self {
        Self { account, key: Secret::new(key.to_owned()) }
    }

    fn sign(&self, request: &mut Request, date: String) -> azure_core::Result<()> {
        let signature = hmac_sha256(&self.text_to_sign(request, &date), &self.key)?;
        request.insert_header("x-ms-date", date);
        request.insert_header(AUTHORIZATION, format!("SharedKey {}:{signature}", self.account));
        Ok(())
    }

    /// The path is as it is sent, also if it begins with the account itself; of
    /// the query only `comp` counts.
    fn text_to_sign(&self, request: &Request, date: &str) -> String {
        let method = request.method();
        let content_type = request.headers().get_optional_str(&CONTENT_TYPE).unwrap_or_default();
        let path = request.url().path();
        let mut text = format!("{method}\n\n{content_type}\n{date}\n/{}{path}", self.account);
        if let Some((_, comp)) = request.url().query_pairs().find(|(key, _)| key == "comp") {
            text.extend(["?comp=", &comp]);
        }
        text
    }
}

#[async_trait::async_trait]
impl Policy for TableKey {
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

#[cfg(test)]
mod tests {
    use azure_core::http::Method;

    use super::*;

    #[test]
    fn what_is_signed_is_as_documented() {
        let url = "https://acme.table.core.windows.net/orders(PartitionKey='a%20b',RowKey='c')\
                   ?$format=json&comp=acl&timeout=20";
        let mut request = Request::new(url.parse().unwrap(), Method::Put);
        request.insert_header(CONTENT_TYPE, "application/json");
        let key = TableKey::new("acme".to_owned(), "YW4gYWNjb3VudCdzIGtleQ==");
        let date = "Mon, 16 Nov 2026 05:00:00 GMT";
        assert_eq!(
            key.text_to_sign(&request, date),
            "PUT\n\napplication/json\nMon, 16 Nov 2026 05:00:00 GMT\n\
             /acme/orders(PartitionKey='a%20b',RowKey='c')?comp=acl"
        );
        key.sign(&mut request, date.to_owned()).unwrap();
        // Signed by another program.
        assert_eq!(
            request.headers().get_str(&AUTHORIZATION).unwrap(),
            "SharedKey acme:2vs4lQenVxLKtUxfbhNbUqVJaeHngcFyQMvgulWXUx4="
        );
    }

    #[test]
    fn the_key_is_not_shown() {
        let key = TableKey::new("acme".to_owned(), "aHVzaA==");
        assert!(!format!("{key:?}").contains("aHVzaA"));
    }
}
