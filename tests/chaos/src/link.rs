//! The way from clients to a daemon: it can be cut, and frozen in one direction
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

/// Where a daemon is now: a restarted one has another port.
pub(crate) type Target = Arc<Mutex<Option<SocketAddr>>>;

/// What passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passage {
    Open,
    /// Connections end at once.
    Closed,
    /// Nothing passes, not even the end of a connection.
    Frozen,
    /// Only what the daemon says passes.
    ToClients,
    /// Only what clients say passes.
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

/// Listens for clients as long as the runtime lives.
pub(crate) struct Link {
    /// Where clients connect.
    pub(crate) endpoint: String,
    passage: watch::Sender<Passage>,
    /// Ends all connections when it changes.
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
                        () = carry(client, target, passage) => {}
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

    /// Ends all present connections. What was on its way is gone.
    pub(crate) fn reset(&self) {
        self.reset.send_replace(());
    }
}

async fn carry(client: TcpStream, target: Target, mut passage: watch::Receiver<Passage>) {
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
    // Either end is the end of both: HTTP/2 has no use for half a connection.
    tokio::select! {
        () = copy(from_client, to_daemon, passage.clone(), Passage::to_daemon) => {}
        () = copy(from_daemon, to_client, passage, Passage::to_clients) => {}
    }
}

/// Ends when the connection does, and only when that may pass.
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
