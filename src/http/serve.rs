//! Connections, with limits on their number, the size of requests and slow clients.

use std::{io, pin::pin, time::Duration};

use axum::{Extension, Router};
use futures_core::Stream;
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::watch,
    task::JoinSet,
};
use tokio_stream::StreamExt;

use super::{Http, console::Lifetime};
use leasehold_runtime::sleep;

/// Maximum number of concurrent connections of a listener; further connections
/// wait. They are not counted in `max_connections`, so that a daemon without free
/// connections still answers probes.
pub const MAX_CONNECTIONS: usize = 128;

/// Maximum size of a request line with its headers, in bytes.
const MAX_HEAD_BYTES: usize = 16 * 1024;

/// Maximum number of headers of a request.
const MAX_HEADERS: usize = 64;

/// Timeout for the request line and the headers of a client.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum lifetime of a connection, unless it is an event stream of the console. A
/// client that does not read its answer then frees its place too.
const MAX_LIFETIME: Duration = Duration::from_secs(15);

/// Time that a closing connection has for its pending answer.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Serves connections until `stopped` becomes true, and completes the pending answers.
pub async fn serve<C>(
    mut incoming: impl Stream<Item = io::Result<C>> + Unpin,
    http: Http,
    mut stopped: watch::Receiver<bool>,
) where
    C: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let router = http.router();
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = end_of(&mut stopped) => break,
            Some(_) = connections.join_next() => {}
            Some(accepted) = incoming.next(), if connections.len() < MAX_CONNECTIONS => {
                if let Ok(connection) = accepted {
                    connections.spawn(attend(connection, router.clone(), stopped.clone()));
                }
            }
        }
    }
    // Refuses new connections from now on.
    drop(incoming);
    while connections.join_next().await.is_some() {}
}

/// Serves one connection until it ends.
async fn attend<C>(connection: C, router: Router, mut stopped: watch::Receiver<bool>)
where
    C: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let lifetime = Lifetime::default();
    let router = router.layer(Extension(lifetime.clone()));
    let mut connection = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            // One answer per connection, which fits into the socket's buffer: a client that
            // does not read keeps no place.
            .keep_alive(false)
            // A client may close its sending half and still read the answer.
            .half_close(true)
            .header_read_timeout(HEADER_TIMEOUT)
            .max_header_size(MAX_HEAD_BYTES)
            .max_buf_size(2 * MAX_HEAD_BYTES)
            .max_headers(MAX_HEADERS)
            .serve_connection(TokioIo::new(connection), TowerToHyperService::new(router))
    );
    tokio::select! {
        // Errors of a connection concern its client only.
        _ = connection.as_mut() => return,
        () = end_of(&mut stopped) => {}
        () = lifetime.over(MAX_LIFETIME) => {}
    }
    lifetime.end();
    connection.as_mut().graceful_shutdown();
    tokio::select! {
        _ = connection => {}
        () = sleep(CLOSE_TIMEOUT) => {}
    }
}

/// Waits until `stopped` is true or its sender is dropped.
async fn end_of(stopped: &mut watch::Receiver<bool>) {
    _ = stopped.wait_for(|stopped| *stopped).await;
}
