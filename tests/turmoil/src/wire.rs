//! Link from a daemon's storage client to the storage account: HTTP/1 over
//! pooled connections.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use azure_core::{
    error::{Error, ErrorKind},
    http::{AsyncRawResponse, Body, HttpClient, StatusCode, Transport, headers::Headers},
};
use http_body_util::{BodyExt as _, Full};
use hyper::{
    Request, Response,
    body::Bytes,
    client::conn::http1::{self, SendRequest},
};
use hyper_util::rt::TokioIo;
use leasehold_simulator::broken_transport;
use turmoil::net::TcpStream;

use crate::storage::{CALLER, HOST, PORT};

/// Returns the transport of a daemon's storage client.
#[must_use]
pub fn transport(daemon: u32) -> Transport {
    broken_transport::wrap(Arc::new(Wire { daemon, idle: Mutex::default() }))
}

struct Wire {
    daemon: u32,
    /// Idle connections.
    idle: Mutex<Vec<SendRequest<Full<Bytes>>>>,
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Wire")
    }
}

impl Wire {
    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<SendRequest<Full<Bytes>>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn connection(&self) -> azure_core::Result<SendRequest<Full<Bytes>>> {
        let pooled = {
            let mut idle = self.idle();
            idle.retain(|connection| !connection.is_closed());
            idle.pop()
        };
        if let Some(connection) = pooled {
            return Ok(connection);
        }
        let refused = |error: &dyn fmt::Display| {
            Error::with_message(ErrorKind::Connection, format!("{HOST}: {error}"))
        };
        let stream = TcpStream::connect((HOST, PORT)).await.map_err(|error| refused(&error))?;
        let (requests, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| refused(&error))?;
        tokio::spawn(async move { _ = connection.await });
        Ok(requests)
    }

    async fn exchange(
        &self,
        connection: &mut SendRequest<Full<Bytes>>,
        request: Request<Full<Bytes>>,
    ) -> hyper::Result<Response<Bytes>> {
        connection.ready().await?;
        let (head, body) = connection.send_request(request).await?.into_parts();
        Ok(Response::from_parts(head, body.collect().await?.to_bytes()))
    }
}

#[async_trait::async_trait]
impl HttpClient for Wire {
    async fn execute_request(
        &self,
        request: &azure_core::http::Request,
    ) -> azure_core::Result<AsyncRawResponse> {
        let request = over_http(request, self.daemon)?;
        let mut connection = self.connection().await?;
        let response = self.exchange(&mut connection, request).await;
        let response = response
            .map_err(|error| Error::with_message(ErrorKind::Io, format!("{HOST}: {error}")))?;
        // A connection is not reused if its exchange was canceled.
        self.idle().push(connection);
        let mut headers = Headers::new();
        for (name, value) in response.headers() {
            let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
            headers.insert(name.as_str().to_owned(), value);
        }
        let status = StatusCode::from(response.status().as_u16());
        Ok(AsyncRawResponse::from_bytes(status, headers, response.into_body()))
    }
}

fn over_http(
    request: &azure_core::http::Request,
    daemon: u32,
) -> azure_core::Result<Request<Full<Bytes>>> {
    let url = request.url();
    let target = match url.query() {
        Some(query) => format!("{}?{query}", url.path()),
        None => url.path().to_owned(),
    };
    let mut built = Request::builder()
        .method(request.method().as_str())
        .uri(target)
        .header("host", HOST)
        .header(CALLER, daemon);
    for (name, value) in request.headers().iter() {
        // The length follows from the body.
        if !name.as_str().eq_ignore_ascii_case("content-length") {
            built = built.header(name.as_str(), value.as_str());
        }
    }
    let body = match request.body() {
        Body::Bytes(bytes) => bytes.clone(),
        Body::SeekableStream(_) => Bytes::new(),
    };
    built
        .body(Full::new(body))
        .map_err(|error| Error::with_message(ErrorKind::Other, error.to_string()))
}
