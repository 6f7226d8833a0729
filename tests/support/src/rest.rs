//! Blob operations over plain REST, without the daemon's code or the SDK, for
//! contract tests and for tests that act as an operator.
//!
//! ```ignore
//! let blob = Rest::new(azurite).container("leasehold").blob("locks/default/x");
//! blob.put().metadata("token", "5").if_none_match("*").await.ok();
//! assert_eq!(blob.renew(ID).await.is(), (409, "LeaseIdMismatchWithLeaseOperation"));
//! ```

mod call;
mod reply;
pub mod sign;

use http_body_util::Full;
use hyper::{Method, body::Bytes};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};

pub use call::Call;
pub use reply::Reply;

use super::azurite::{Azurite, KEY};

/// Protocol version of the requests.
pub const VERSION: &str = "2025-11-05";

/// REST client for the account.
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

    /// Connects through another port, that of a proxy.
    pub fn at(port: u16) -> Self {
        // One connection per call, so that no closed connection is reused.
        let client = Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build_http();
        Self { client, port, key: KEY.to_owned() }
    }

    /// Signs with another key than that of the account.
    pub fn with_key(mut self, key: &str) -> Self {
        self.key = key.to_owned();
        self
    }

    /// Any other call on a path, for example of a queue.
    pub fn call(&self, method: Method, path: &str) -> Call {
        Target { rest: self.clone(), path: path.to_owned(), container: false }.call(method)
    }

    pub fn container(&self, name: &str) -> Container {
        Container(Target { rest: self.clone(), path: name.to_owned(), container: true })
    }
}

/// Target of a call.
#[derive(Clone)]
struct Target {
    rest: Rest,
    path: String,
    container: bool,
}

impl Target {
    fn call(&self, method: Method) -> Call {
        let call = Call::new(self.clone(), method);
        if self.container { call.query("restype", "container") } else { call }
    }

    fn lease(&self, action: &str) -> Call {
        self.call(Method::PUT).query("comp", "lease").header("x-ms-lease-action", action)
    }
}

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

    /// Lists blobs with their metadata; [`Reply::listed`] parses the response.
    /// [`Call::query`] adds `prefix`, `maxresults` and `marker`.
    pub fn list(&self) -> Call {
        self.0.call(Method::GET).query("comp", "list").query("include", "metadata")
    }

    pub fn blob(&self, path: &str) -> Blob {
        Blob(Target { path: format!("{}/{path}", self.0.path), container: false, ..self.0.clone() })
    }
}

#[derive(Clone)]
pub struct Blob(Target);

impl Blob {
    /// Creates or replaces the blob, empty by default.
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

    /// Replaces all metadata by the entries added with [`Call::metadata`].
    pub fn set_metadata(&self) -> Call {
        self.0.call(Method::PUT).query("comp", "metadata")
    }
}

/// Lease calls of blobs and containers.
macro_rules! leases {
    ($($target:ident)*) => {$(
        impl $target {
            /// `seconds` is 15 to 60, or -1 for an infinite lease.
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

            /// Without a period the lease lasts until its expiry.
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
