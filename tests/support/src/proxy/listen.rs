//! The proxy's port and its connections.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, mpsc::SyncSender},
};

use tokio::{
    net::{TcpListener, TcpSocket, TcpStream},
    sync::{mpsc, watch},
    task::JoinSet,
};

use super::{Shared, serve::serve};

/// Listen backlog: hundreds of clients may connect at once.
const BACKLOG: u32 = 1024;

/// Receives a message when a command is done.
pub(super) type Done = SyncSender<()>;

pub(super) enum Command {
    Open(Done),
    Close(Done),
}

/// A port that stays reserved while the proxy does not listen: because of the
/// bound socket that never listens, the system refuses connections to the port
/// and does not assign it to another process.
pub(super) struct ReservedPort {
    _reservation: TcpSocket,
    address: SocketAddr,
}

impl ReservedPort {
    pub(super) fn new() -> io::Result<Self> {
        let reservation = bind((Ipv4Addr::LOCALHOST, 0).into())?;
        let address = reservation.local_addr()?;
        Ok(Self { _reservation: reservation, address })
    }

    pub(super) fn number(&self) -> u16 {
        self.address.port()
    }

    pub(super) fn listen(&self) -> io::Result<TcpListener> {
        bind(self.address)?.listen(BACKLOG)
    }
}

fn bind(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.set_reuseport(true)?;
    socket.bind(address)?;
    Ok(socket)
}

/// Accepts clients until the command channel is closed.
pub(super) async fn listen(
    port: ReservedPort,
    listener: TcpListener,
    shared: Arc<Shared>,
    mut commands: mpsc::UnboundedReceiver<Command>,
) {
    let mut listener = Some(listener);
    let mut connections = JoinSet::new();
    let reset = watch::Sender::new(());
    loop {
        tokio::select! {
            biased;
            command = commands.recv() => match command {
                None => return,
                Some(Command::Open(done)) => {
                    listener.get_or_insert_with(|| port.listen().unwrap());
                    _ = done.send(());
                }
                Some(Command::Close(done)) => {
                    listener = None;
                    reset.send_replace(());
                    while connections.join_next().await.is_some() {}
                    _ = done.send(());
                }
            },
            Some(_) = connections.join_next() => {}
            client = accept(listener.as_ref()) => {
                connections.spawn(serve(client, Arc::clone(&shared), reset.subscribe()));
            }
        }
    }
}

/// Accepts the next client; pends without a listener.
async fn accept(listener: Option<&TcpListener>) -> TcpStream {
    let Some(listener) = listener else { return std::future::pending().await };
    loop {
        match listener.accept().await {
            Ok((client, _)) => return client,
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => panic!("the proxy can't accept clients: {error}"),
        }
    }
}
