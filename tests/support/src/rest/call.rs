//! Requests.

use std::{collections::BTreeMap, fmt, pin::Pin};

use azure_core::time::to_rfc7231;
use http_body_util::{BodyExt, Full};
use hyper::{Method, Request, body::Bytes};
use hyper_util::client::legacy::Error;
use leasehold_time::clock;

use super::{
    Reply, Rest, Target, VERSION,
    sign::{authorization, encode},
};
use crate::azurite::ACCOUNT;

/// A call, sent when it is awaited.
#[derive(Clone)]
pub struct Call {
    target: Target,
    method: Method,
    query: BTreeMap<String, String>,
    headers: BTreeMap<String, String>,
    body: Bytes,
}

impl Call {
    pub(super) fn new(target: Target, method: Method) -> Self {
        let (query, headers) = (BTreeMap::new(), BTreeMap::new());
        Self { target, method, query, headers, body: Bytes::new() }
    }

    /// Sets a header. The name must be lowercase; the last value per name wins.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.insert(name.to_owned(), value.to_owned());
        self
    }

    pub fn query(mut self, name: &str, value: &str) -> Self {
        self.query.insert(name.to_owned(), value.to_owned());
        self
    }

    pub fn body(mut self, body: &str) -> Self {
        self.body = Bytes::copy_from_slice(body.as_bytes());
        self
    }

    pub fn metadata(self, key: &str, value: &str) -> Self {
        self.header(&format!("x-ms-meta-{key}"), value)
    }

    /// Sets the lease ID.
    pub fn lease(self, id: &str) -> Self {
        self.header("x-ms-lease-id", id)
    }

    pub fn if_match(self, etag: &str) -> Self {
        self.header("if-match", etag)
    }

    pub fn if_none_match(self, etag: &str) -> Self {
        self.header("if-none-match", etag)
    }

    /// Method, path with account and container, query, and headers.
    pub fn parts(&self) -> (String, String, String, Vec<(String, String)>) {
        let query: Vec<String> =
            self.query.iter().map(|(name, value)| format!("{name}={}", encode(value))).collect();
        let headers = self.headers.clone().into_iter().collect();
        let path = format!("/{ACCOUNT}/{}", self.target.path);
        (self.method.to_string(), path, query.join("&"), headers)
    }

    /// Sends the call. Fails if there is no response.
    pub async fn send(mut self) -> Result<Reply, Error> {
        let now = to_rfc7231(&clock::wall().into());
        for (name, value) in [("x-ms-version", VERSION), ("x-ms-date", &now)] {
            self.headers.entry(name.to_owned()).or_insert_with(|| value.to_owned());
        }
        if [Method::PUT, Method::POST].contains(&self.method) {
            self.headers.insert("content-length".to_owned(), self.body.len().to_string());
        }
        let Self { target, method, query, headers, body } = self;
        let Rest { client, port, key } = &target.rest;
        let parts: Vec<String> = target.path.split('/').map(encode).collect();
        let path = format!("/{ACCOUNT}/{}", parts.join("/"));
        let authorization = authorization(key, &method, &path, &query, &headers);
        let query: Vec<String> =
            query.iter().map(|(name, value)| format!("{name}={}", encode(value))).collect();
        let uri = format!("http://127.0.0.1:{port}{path}?{}", query.join("&"));
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in &headers {
            request = request.header(name, value);
        }
        let request = request.header("authorization", authorization).body(Full::new(body));
        let response = client.request(request.unwrap()).await?;
        let (head, body) = response.into_parts();
        // The headers decide the outcome, so a truncated body is not an error.
        let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
        Ok(Reply {
            status: head.status.as_u16(),
            headers: head.headers,
            body: String::from_utf8_lossy(&body).into_owned(),
        })
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { method, target, query, headers, .. } = self;
        write!(f, "{method} {} {query:?} {headers:?}", target.path)
    }
}

impl IntoFuture for Call {
    type Output = Reply;
    type IntoFuture = Pin<Box<dyn Future<Output = Reply> + Send>>;

    #[track_caller]
    fn into_future(self) -> Self::IntoFuture {
        let call = format!("{self:?}");
        Box::pin(async move {
            self.send().await.unwrap_or_else(|error| panic!("no response to {call}: {error:?}"))
        })
    }
}
