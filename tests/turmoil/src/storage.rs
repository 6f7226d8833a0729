//! The host with the storage account: HTTP/1 around the core simulation's blob
//! service. What it keeps survives a crash of the host.

use std::{
    net::Ipv4Addr,
    sync::{Arc, Mutex, PoisonError},
};

use http_body_util::{BodyExt as _, Full};
use hyper::{
    Request, Response,
    body::{Bytes, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use leasehold_simulated_storage::{
    http,
    storage::{Habits, Storage},
};
use turmoil::net::{TcpListener, TcpStream};

use crate::{record::Record, time};

/// The name of the host.
pub const HOST: &str = "storage";

/// Where it listens.
pub const PORT: u16 = 10000;

/// Which daemon calls, so that histories can tell.
pub(crate) const CALLER: &str = "x-simulated-daemon";

/// The account.
pub struct Account {
    storage: Mutex<Storage>,
    record: Arc<Record>,
}

impl Account {
    /// Without a blob.
    #[must_use]
    pub fn new(record: Arc<Record>) -> Arc<Self> {
        Arc::new(Self { storage: Mutex::new(Storage::new(Habits::default())), record })
    }

    /// Serves it until the host crashes.
    ///
    /// # Errors
    /// If it can't listen.
    pub async fn serve(self: Arc<Self>) -> turmoil::Result {
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT)).await?;
        loop {
            let (connection, _) = listener.accept().await?;
            tokio::spawn(Arc::clone(&self).attend(connection));
        }
    }

    async fn attend(self: Arc<Self>, connection: TcpStream) {
        let service = service_fn(|request| {
            let account = Arc::clone(&self);
            async move { account.answer(request).await }
        });
        let connection = http1::Builder::new().serve_connection(TokioIo::new(connection), service);
        // How it ended is the caller's business.
        _ = connection.await;
    }

    async fn answer(
        &self,
        request: Request<Incoming>,
    ) -> Result<Response<Full<Bytes>>, hyper::Error> {
        let (head, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let headers = head.headers.iter().map(|(name, value)| {
            (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned())
        });
        let call = http::Request {
            method: head.method.as_str(),
            path: head.uri.path(),
            query: head.uri.query().unwrap_or_default(),
            headers: headers.collect(),
            body: &body,
        }
        .call();
        let call = call.unwrap_or_else(|| panic!("not simulated: {} {}", head.method, head.uri));
        let caller = head.headers.get(CALLER).and_then(|value| value.to_str().ok()?.parse().ok());
        let answer = {
            let mut storage = self.storage.lock().unwrap_or_else(PoisonError::into_inner);
            let before = storage.blob(&call.path).map(|blob| blob.etag.clone());
            let answer = storage.answer(&call, time::nanos(), time::date());
            let after = storage.blob(&call.path);
            self.record.stored(caller, &call, before.as_deref(), after);
            answer.response()
        };
        let mut response = Response::builder().status(answer.status);
        for (name, value) in &answer.headers {
            response = response.header(name, value);
        }
        let body = if head.method == hyper::Method::HEAD {
            Vec::new()
        } else {
            answer.content.unwrap_or_else(|| answer.body.into_bytes())
        };
        Ok(response.body(Full::new(body.into())).expect("names and values of a real service"))
    }
}
