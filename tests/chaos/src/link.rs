//! Link from clients to a daemon. It can be closed, or stalled in one direction
//! or both.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
};

/// Current address of a daemon; changes with a restart.
pub(crate) type Target = Arc<Mutex<Option<SocketAddr>>>;

/// State of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passage {
    Open,
    /// Connections are closed immediately.
    Closed,
    /// No data passes, not even the end of a connection.
    Stalled,
    /// Only data from the daemon passes.
    ToClients,
    /// Only data from clients passes.
    ToDaemon,
}

impl Passage {
    fn to_daemon(self) -> bool {
        matches!(self, Self::Open | Self::ToDaemon)
    }

    fn to_clients(self) -> bool {
        matches!(self, Self::Open | Self::ToClients)
    }
}

/// Proxy that listens for clients until the runtime ends.
pub(crate) struct Link {
    /// URL for clients.
    pub(crate) endpoint: String,
    passage: watch::Sender<Passage>,
    /// Closes all connections when it changes.
    reset: watch::Sender<()>,
}

impl Link {
    pub(crate) async fn to(target: Target) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let (passage, reset) = (watch::Sender::new(Passage::Open), watch::Sender::new(()));
        let (passing, resetting) = (passage.clone(), reset.clone());
        tokio::spawn(async move {
            loop {
                let Ok((client, _)) = listener.accept().await else { continue };
                let (passage, mut reset) = (passing.subscribe(), resetting.subscribe());
                let target = Arc::clone(&target);
                tokio::spawn(async move {
                    tokio::select! {
                        () = forward(client, target, passage) => {}
                        _ = reset.changed() => {}
                    }
                });
            }
        });
        Self { endpoint, passage, reset }
    }

    pub(crate) fn set(&self, passage: Passage) {
        self.passage.send_replace(passage);
        if passage == Passage::Closed {
            self.reset();
        }
    }

    /// Closes all current connections. Data in flight is lost.
    pub(crate) fn reset(&self) {
        self.reset.send_replace(());
    }
}

async fn forward(client: TcpStream, target: Target, mut passage: watch::Receiver<Passage>) {
    if *passage.borrow_and_update() == Passage::Closed {
        return;
    }
    _ = passage.wait_for(|passage| passage.to_daemon()).await;
    let address = *target.lock().unwrap();
    let Some(address) = address else { return };
    let Ok(daemon) = TcpStream::connect(address).await else { return };
    _ = (client.set_nodelay(true), daemon.set_nodelay(true));
    let (from_client, to_client) = client.into_split();
    let (from_daemon, to_daemon) = daemon.into_split();
    // The end of one direction ends both: HTTP/2 does not use half-closed
    // connections.
    tokio::select! {
        () = copy(from_client, to_daemon, passage.clone(), Passage::to_daemon) => {}
        () = copy(from_daemon, to_client, passage, Passage::to_clients) => {}
    }
}

/// Copies one direction until the connection ends and its end may pass.
async fn copy(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut passage: watch::Receiver<Passage>,
    may_pass: fn(Passage) -> bool,
) {
    let mut buffer = vec![0; 16 << 10];
    loop {
        let length = from.read(&mut buffer).await.unwrap_or(0);
        _ = passage.wait_for(|passage| may_pass(*passage)).await;
        if length == 0 || to.write_all(&buffer[..length]).await.is_err() {
            return;
        }
    }
}
