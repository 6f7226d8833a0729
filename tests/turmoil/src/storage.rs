//! Host of the storage account: HTTP/1 around the simulated blob service. Its
//! data survives a crash of the host.

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
    storage::{Behavior, Call, Operation, Storage},
};
use leasehold_simulator::broken::{self, Wrapped};
use turmoil::net::{TcpListener, TcpStream};

use crate::{record::Record, time};

/// Name of the host.
pub const HOST: &str = "storage";

/// Port of the service.
pub const PORT: u16 = 10000;

/// Header with the number of the calling daemon, for histories.
pub(crate) const CALLER: &str = "x-simulated-daemon";

/// Storage account.
pub struct Account {
    storage: Mutex<Storage>,
    record: Arc<Record>,
}

impl Account {
    /// Creates an account without blobs.
    #[must_use]
    pub fn new(record: Arc<Record>) -> Arc<Self> {
        Arc::new(Self { storage: Mutex::new(Storage::new(Behavior::default())), record })
    }

    /// Serves requests until the host crashes.
    ///
    /// # Errors
    /// If it can't listen.
    pub async fn serve(self: Arc<Self>) -> turmoil::Result {
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT)).await?;
        loop {
            let (connection, _) = listener.accept().await?;
            tokio::spawn(Arc::clone(&self).serve_connection(connection));
        }
    }

    async fn serve_connection(self: Arc<Self>, connection: TcpStream) {
        let service = service_fn(|request| {
            let account = Arc::clone(&self);
            async move { account.answer(request).await }
        });
        let connection = http1::Builder::new().serve_connection(TokioIo::new(connection), service);
        // The caller handles errors of the connection.
        _ = connection.await;
    }

    /// Mutant 13a: breaks the lease that a daemon is about to acquire, if an
    /// earlier daemon of the same place holds it.
    fn break_predecessors_lease(&self, storage: &mut Storage, caller: Option<u32>, call: &Call) {
        let (Some(caller), Operation::Acquire { .. }) = (caller, &call.operation) else { return };
        let blob = storage.blob(&call.path);
        let leased = blob.filter(|blob| blob.leased_until(time::nanos()).is_some());
        let id = leased.and_then(|blob| blob.lease_id());
        if id.is_some_and(|id| self.record.is_of_predecessor(id, caller)) {
            let operation = Operation::Break { within: Some(0) };
            let path = call.path.clone();
            let call = Call { path, operation, if_match: None, if_absent: false, lease: None };
            storage.answer(&call, time::nanos(), time::date());
        }
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
            if broken::is(Wrapped::TakeoverAfterCrash) {
                self.break_predecessors_lease(&mut storage, caller, &call);
            }
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
