//! The port, and who may come in.

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

/// Hundreds of clients may come at once.
const BACKLOG: u32 = 1024;

/// Says that a command was carried out.
pub(super) type Done = SyncSender<()>;

pub(super) enum Command {
    Open(Done),
    Close(Done),
}

/// A port that stays ours also while nobody listens there: a socket that is
/// bound and nothing more makes the system refuse connections to it, and give
/// it to no other process.
pub(super) struct Door {
    _keeper: TcpSocket,
    address: SocketAddr,
}

impl Door {
    pub(super) fn new() -> io::Result<Self> {
        let keeper = bind((Ipv4Addr::LOCALHOST, 0).into())?;
        let address = keeper.local_addr()?;
        Ok(Self { _keeper: keeper, address })
    }

    pub(super) fn port(&self) -> u16 {
        self.address.port()
    }

    pub(super) fn open(&self) -> io::Result<TcpListener> {
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

/// Lets clients in until there are no more commands.
pub(super) async fn listen(
    door: Door,
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
                    listener.get_or_insert_with(|| door.open().unwrap());
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

/// The next client; none as long as nobody listens.
async fn accept(listener: Option<&TcpListener>) -> TcpStream {
    let Some(listener) = listener else { return std::future::pending().await };
    loop {
        match listener.accept().await {
            Ok((client, _)) => return client,
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => panic!("the proxy can't let clients in: {error}"),
        }
    }
}
