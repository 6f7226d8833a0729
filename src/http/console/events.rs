//! Server-sent events: a stream sends a snapshot of its view at once, after changes, and
//! at an interval.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    body::Body,
    http::{
        StatusCode,
        header::{CACHE_CONTROL, CONTENT_TYPE},
    },
    response::{IntoResponse, Response},
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio_stream::{StreamExt, wrappers::ReceiverStream};

use super::{request::View, snapshot::Reader};
use crate::driver::Watch;
use leasehold_core::watch::Target;
use leasehold_runtime::{sleep, spawn};
use leasehold_time::Moment;

/// Maximum number of concurrent streams. Fewer than the connections of a listener, so
/// that probes are still answered.
pub(super) const MAX_STREAMS: usize = 32;

/// Maximum lifetime of a stream. The browser then connects again.
const MAX_LIFETIME: Duration = Duration::from_secs(600);

/// Interval of checks for changes, and minimum interval of snapshots.
const MIN_INTERVAL: Duration = Duration::from_millis(250);

/// Maximum interval of snapshots: validities are extended without a change.
const MAX_INTERVAL: Duration = Duration::from_secs(2);

/// Multiple of the time to read a snapshot that passes before the next one.
const MAX_COST: u32 = 20;

/// Time in which a client must accept a snapshot.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// Phase of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Answering,
    Streaming,
    Ended,
}

/// Lifetime of a connection. A stream extends it until the stream ends.
#[derive(Clone, Debug)]
pub(in crate::http) struct Lifetime(Arc<watch::Sender<Phase>>);

impl Default for Lifetime {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(Phase::Answering)))
    }
}

impl Lifetime {
    /// Waits until the connection has lived for `length`, or until its stream has
    /// ended.
    pub(in crate::http) async fn over(&self, length: Duration) {
        sleep(length).await;
        let mut phase = self.0.subscribe();
        _ = phase.wait_for(|phase| *phase != Phase::Streaming).await;
    }

    /// Ends the stream.
    pub(in crate::http) fn end(&self) {
        self.0.send_replace(Phase::Ended);
    }

    async fn ended(&self) {
        _ = self.0.subscribe().wait_for(|phase| *phase == Phase::Ended).await;
    }
}

/// Starts a stream. Answers 503 if there are too many.
pub(super) fn start(
    reader: Reader,
    view: View,
    streams: &Arc<Semaphore>,
    lifetime: Lifetime,
) -> Option<Response> {
    let permit = Arc::clone(streams).try_acquire_owned().ok()?;
    let (sender, snapshots) = mpsc::channel(1);
    lifetime.0.send_replace(Phase::Streaming);
    let stream = Stream { reader, view, sender, lifetime, _permit: permit };
    spawn(stream.run());
    let body = Body::from_stream(ReceiverStream::new(snapshots).map(Ok::<String, Infallible>));
    let headers = [(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-store")];
    Some((StatusCode::OK, headers, body).into_response())
}

struct Stream {
    reader: Reader,
    view: View,
    sender: mpsc::Sender<String>,
    lifetime: Lifetime,
    _permit: OwnedSemaphorePermit,
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.lifetime.end();
    }
}

impl Stream {
    async fn run(self) {
        tokio::select! {
            () = self.send_all() => {}
            () = self.sender.closed() => {}
            () = self.lifetime.ended() => {}
            () = sleep(MAX_LIFETIME) => {}
        }
    }

    /// Sends snapshots until the client stops reading them.
    async fn send_all(&self) {
        // A watched lock is polled, so that its holder at a peer is known.
        let _watch: Option<Watch> = match &self.view {
            View::Lock(name) => self.reader.driver.watch(Target::Name(name.clone())).ok(),
            _ => None,
        };
        let mut is_first = true;
        loop {
            let start = Moment::now();
            let changes = self.reader.driver.changes();
            let snapshot = self.reader.read(&self.view, is_first).await;
            // The wait for the store is no work of this daemon.
            let cost = if is_first { Duration::ZERO } else { Moment::now().since(start) };
            let event = format!("retry: 300\nevent: view\ndata: {snapshot}\n\n");
            is_first = false;
            tokio::select! {
                sent = self.sender.send(event) => if sent.is_err() { return },
                () = sleep(READ_TIMEOUT) => return,
            }
            self.wait_for_changes(
                start,
                changes,
                (cost * MAX_COST).clamp(MIN_INTERVAL, MAX_INTERVAL),
            )
            .await;
        }
    }

    /// Waits until a snapshot is due: `min` after the last one if a lock has changed
    /// since, else at the maximum interval.
    async fn wait_for_changes(&self, start: Moment, changes: u64, min: Duration) {
        loop {
            sleep(MIN_INTERVAL).await;
            let elapsed = Moment::now().since(start);
            let has_changed = || self.reader.driver.changes() != changes;
            if elapsed >= MAX_INTERVAL || (elapsed >= min && has_changed()) {
                return;
            }
        }
    }
}
