//! Blobs by plain REST, with none of the daemon's code and no SDK in between:
//! what the contract is checked with, and how a test plays the operator.
//!
//! ```ignore
//! let blob = Rest::new(azurite).container("leasehold").blob("locks/default/x");
//! blob.put().metadata("token", "5").if_none_match("*").await.ok();
//! assert_eq!(blob.renew(ID).await.is(), (409, "LeaseNotPresentWithLeaseOperation"));
//! ```

use std::{collections::BTreeMap, fmt, pin::Pin};

use azure_core::{credentials::Secret, hmac::hmac_sha256, time::to_rfc7231};
use http_body_util::{BodyExt, Full};
use hyper::{HeaderMap, Method, Request, body::Bytes};
use hyper_util::{
    client::legacy::{Client, Error, connect::HttpConnector},
    rt::TokioExecutor,
};
use leasehold::clock;

use super::azurite::{ACCOUNT, Azurite, KEY};

/// The version of the protocol that is spoken.
pub const VERSION: &str = "2025-11-05";

/// A way to the account.
#[derive(Clone)]
pub struct Rest {
    client: Client<HttpConnector, Full<Bytes>>,
    port: u16,
    key: String,
}

impl Rest {
    pub fn new(azurite: &Azurite) -> Self {
        Self::at(azurite.port())
    }

    /// Through another port, where a proxy listens.
    pub fn at(port: u16) -> Self {
        // A connection for each call: none that was closed meanwhile is used.
        let client = Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build_http();
        Self { client, port, key: KEY.to_owned() }
    }

    /// With another key than the account's.
    pub fn with_key(mut self, key: &str) -> Self {
        self.key = key.to_owned();
        self
    }

    pub fn container(&self, name: &str) -> Container {
        Container(Target { rest: self.clone(), path: name.to_owned(), container: true })
    }
}

/// What a call is about.
#[derive(Clone)]
struct Target {
    rest: Rest,
    path: String,
    container: bool,
}

impl Target {
    fn call(&self, method: Method) -> Call {
        let call = Call {
            target: self.clone(),
            method,
            query: BTreeMap::new(),
            headers: BTreeMap::new(),
            body: Bytes::new(),
        };
        if self.container { call.query("restype", "container") } else { call }
    }

    fn lease(&self, action: &str) -> Call {
        self.call(Method::PUT).query("comp", "lease").header("x-ms-lease-action", action)
    }
}

/// A container.
#[derive(Clone)]
pub struct Container(Target);

impl Container {
    pub fn create(&self) -> Call {
        self.0.call(Method::PUT)
    }

    pub fn head(&self) -> Call {
        self.0.call(Method::HEAD)
    }

    pub fn delete(&self) -> Call {
        self.0.call(Method::DELETE)
    }

    /// Blobs with their metadata; [`Reply::listed`] reads the answer. Narrow it
    /// with [`Call::query`]: `prefix`, `maxresults`, `marker`.
    pub fn list(&self) -> Call {
        self.0.call(Method::GET).query("comp", "list").query("include", "metadata")
    }

    pub fn blob(&self, path: &str) -> Blob {
        Blob(Target { path: format!("{}/{path}", self.0.path), container: false, ..self.0.clone() })
    }
}

/// A blob.
#[derive(Clone)]
pub struct Blob(Target);

impl Blob {
    /// Creates or replaces it, empty.
    pub fn put(&self) -> Call {
        self.0.call(Method::PUT).header("x-ms-blob-type", "BlockBlob")
    }

    pub fn head(&self) -> Call {
        self.0.call(Method::HEAD)
    }

    pub fn get(&self) -> Call {
        self.0.call(Method::GET)
    }

    pub fn delete(&self) -> Call {
        self.0.call(Method::DELETE)
    }

    /// Replaces all of its metadata by what [`Call::metadata`] adds.
    pub fn set_metadata(&self) -> Call {
        self.0.call(Method::PUT).query("comp", "metadata")
    }
}

/// Lease calls, which blobs and containers have in common.
macro_rules! leases {
    ($($target:ident)*) => {$(
        impl $target {
            /// `seconds` is 15 to 60, or -1 for one that never expires.
            pub fn acquire(&self, id: &str, seconds: i64) -> Call {
                self.0
                    .lease("acquire")
                    .header("x-ms-proposed-lease-id", id)
                    .header("x-ms-lease-duration", &seconds.to_string())
            }

            pub fn renew(&self, id: &str) -> Call {
                self.0.lease("renew").lease(id)
            }

            pub fn change(&self, id: &str, proposed: &str) -> Call {
                self.0.lease("change").lease(id).header("x-ms-proposed-lease-id", proposed)
            }

            pub fn release(&self, id: &str) -> Call {
                self.0.lease("release").lease(id)
            }

            /// Without a period the lease runs out by itself.
            pub fn break_lease(&self, period: Option<u32>) -> Call {
                let call = self.0.lease("break");
                match period {
                    Some(period) => call.header("x-ms-lease-break-period", &period.to_string()),
                    None => call,
                }
            }
        }
    )*};
}

leases!(Container Blob);

/// A call that is made when it is awaited.
#[derive(Clone)]
pub struct Call {
    target: Target,
    method: Method,
    query: BTreeMap<String, String>,
    headers: BTreeMap<String, String>,
    body: Bytes,
}

impl Call {
    /// A header in lower case; the last of a name counts.
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

    /// With this lease id.
    pub fn lease(self, id: &str) -> Self {
        self.header("x-ms-lease-id", id)
    }

    pub fn if_match(self, etag: &str) -> Self {
        self.header("if-match", etag)
    }

    pub fn if_none_match(self, etag: &str) -> Self {
        self.header("if-none-match", etag)
    }

    /// Makes the call; an error if no answer came.
    pub async fn send(mut self) -> Result<Reply, Error> {
        self.headers.insert("x-ms-version".to_owned(), VERSION.to_owned());
        self.headers.insert("x-ms-date".to_owned(), to_rfc7231(&clock::wall().into()));
        if self.method == Method::PUT {
            self.headers.insert("content-length".to_owned(), self.body.len().to_string());
        }
        let Rest { client, port, key } = &self.target.rest;
        let signature = hmac_sha256(&self.string_to_sign(), &Secret::new(key.clone())).unwrap();
        let query: Vec<String> =
            self.query.iter().map(|(name, value)| format!("{name}={}", encode(value))).collect();
        let uri = format!("http://127.0.0.1:{port}{}?{}", self.path(), query.join("&"));
        let mut request = Request::builder().method(self.method.clone()).uri(uri);
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let request = request.header("authorization", format!("SharedKey {ACCOUNT}:{signature}"));
        let answer = client.request(request.body(Full::new(self.body)).unwrap()).await?;
        let (head, body) = answer.into_parts();
        // What comes after the headers changes nothing about the outcome.
        let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
        Ok(Reply {
            status: head.status.as_u16(),
            headers: head.headers,
            body: String::from_utf8_lossy(&body).into_owned(),
        })
    }

    /// As it is in the address.
    fn path(&self) -> String {
        let parts: Vec<String> = self.target.path.split('/').map(encode).collect();
        format!("/{ACCOUNT}/{}", parts.join("/"))
    }

    /// What SharedKey signs.
    fn string_to_sign(&self) -> String {
        const STANDARD: [&str; 11] = [
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
        let mut text = format!("{}\n", self.method);
        for name in STANDARD {
            let value = self.headers.get(name).map_or("", String::as_str);
            text += if name == "content-length" && value == "0" { "" } else { value };
            text.push('\n');
        }
        for (name, value) in self.headers.range("x-ms-".to_owned().."x-ms.".to_owned()) {
            text += &format!("{name}:{}\n", value.trim());
        }
        text += &format!("/{ACCOUNT}{}", self.path());
        for (name, value) in &self.query {
            text += &format!("\n{name}:{value}");
        }
        text
    }
}

impl IntoFuture for Call {
    type Output = Reply;
    type IntoFuture = Pin<Box<dyn Future<Output = Reply> + Send>>;

    #[track_caller]
    fn into_future(self) -> Self::IntoFuture {
        let what = format!("{} {}", self.method, self.target.path);
        Box::pin(async move {
            self.send().await.unwrap_or_else(|error| panic!("{what} got no answer: {error:?}"))
        })
    }
}

/// Everything but letters, digits and `-._~` is escaped.
fn encode(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                char::from(byte).to_string()
            }
            _ => format!("%{byte:02X}"),
        })
        .collect()
}

/// An answer.
#[derive(Clone)]
pub struct Reply {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: String,
}

impl Reply {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// The storage's error code; empty if there is none.
    pub fn code(&self) -> &str {
        self.header("x-ms-error-code").unwrap_or_default()
    }

    /// Status and error code, to compare with.
    pub fn is(&self) -> (u16, &str) {
        (self.status, self.code())
    }

    /// This answer, if the call succeeded.
    #[track_caller]
    pub fn ok(self) -> Self {
        assert!((200..300).contains(&self.status), "{self:?}");
        self
    }

    #[track_caller]
    pub fn etag(&self) -> &str {
        self.header("etag").unwrap_or_else(|| panic!("no ETag in {self:?}"))
    }

    pub fn lease_id(&self) -> Option<&str> {
        self.header("x-ms-lease-id")
    }

    /// available, leased, expired, breaking, broken.
    pub fn lease_state(&self) -> &str {
        self.header("x-ms-lease-state").unwrap_or_default()
    }

    pub fn metadata(&self) -> BTreeMap<String, String> {
        let entries = self.headers.iter().filter_map(|(name, value)| {
            let key = name.as_str().strip_prefix("x-ms-meta-")?;
            Some((key.to_owned(), value.to_str().unwrap().to_owned()))
        });
        entries.collect()
    }

    /// What a listing says. Escaped characters are left as they are.
    pub fn listed(&self) -> Vec<Listed> {
        let blobs = self.body.split("<Blob>").skip(1);
        blobs.map(|blob| Listed(blob.split("</Blob>").next().unwrap().to_owned())).collect()
    }

    /// Where the next page of a listing begins; None after the last.
    pub fn next_marker(&self) -> Option<&str> {
        element(&self.body, "NextMarker").filter(|marker| !marker.is_empty())
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {:#?}\n{}", self.status, self.code(), self.headers, self.body)
    }
}

/// A blob as a listing shows it.
#[derive(Clone, Debug)]
pub struct Listed(String);

impl Listed {
    pub fn name(&self) -> &str {
        self.element("Name").unwrap()
    }

    /// Any other element: `Etag`, `LeaseState`, `LeaseStatus`.
    pub fn element(&self, name: &str) -> Option<&str> {
        element(&self.0, name)
    }

    pub fn metadata(&self, key: &str) -> Option<&str> {
        element(self.element("Metadata")?, key)
    }
}

fn element<'a>(xml: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = xml.split_once(&format!("<{name}>"))?;
    Some(rest.split_once(&format!("</{name}>"))?.0)
}
