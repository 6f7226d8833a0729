//! Connections: how many, how large a request, how slow a client.

use std::{io, pin::pin, time::Duration};

use axum::Router;
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

use super::Http;
use leasehold_runtime::sleep;

/// How many connections a listener has at a time; the next ones wait for their
/// turn. They do not count among those of sessions, so that a daemon that is
/// full can still be asked how it is.
pub const MOST_CONNECTIONS: usize = 128;

/// The largest request line with its headers, in bytes.
const LARGEST_HEAD: usize = 16 * 1024;

/// The most headers of a request.
const MOST_HEADERS: usize = 64;

/// A client that has not sent a whole request by then is given up.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);

/// The longest life of a connection, so that one that does not read its answer
/// can't keep its place either.
const LONGEST_LIFE: Duration = Duration::from_secs(15);

/// How long a connection that is to end is given for the answer under way.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Serves connections until `stopped` turns true; then ends once the answers
/// under way are given.
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
            Some(accepted) = incoming.next(), if connections.len() < MOST_CONNECTIONS => {
                if let Ok(connection) = accepted {
                    connections.spawn(attend(connection, router.clone(), stopped.clone()));
                }
            }
        }
    }
    // Nobody is to connect from now on.
    drop(incoming);
    while connections.join_next().await.is_some() {}
}

/// One connection, to its end.
async fn attend<C>(connection: C, router: Router, mut stopped: watch::Receiver<bool>)
where
    C: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut connection = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            // One answer for each, which fits into the socket's buffer: so
            // nobody keeps a place by not reading.
            .keep_alive(false)
            // Who has asked may close its half, and still wants the answer.
            .half_close(true)
            .header_read_timeout(HEADER_TIMEOUT)
            .max_header_size(LARGEST_HEAD)
            .max_buf_size(2 * LARGEST_HEAD)
            .max_headers(MOST_HEADERS)
            .serve_connection(TokioIo::new(connection), TowerToHyperService::new(router))
    );
    tokio::select! {
        // How it ended is the client's business.
        _ = connection.as_mut() => return,
        () = end_of(&mut stopped) => {}
        () = sleep(LONGEST_LIFE) => {}
    }
    connection.as_mut().graceful_shutdown();
    tokio::select! {
        _ = connection => {}
        () = sleep(CLOSE_TIMEOUT) => {}
    }
}

/// Also if nobody is left to say so.
async fn end_of(stopped: &mut watch::Receiver<bool>) {
    _ = stopped.wait_for(|stopped| *stopped).await;
}
