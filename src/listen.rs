//! Listeners on TCP and Unix sockets, and the limit of their connections. gRPC and
//! HTTP are both served on them.

use std::{
    fs, io,
    os::unix::fs::{FileTypeExt, PermissionsExt},
    path::{Path, PathBuf},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use futures_core::Stream;
use nix::sys::stat::{Mode, umask};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream, UnixListener, UnixStream},
    sync::{OwnedSemaphorePermit, Semaphore},
};
use tonic::transport::server::Connected;

use crate::config::Listen;
use leasehold_runtime::sleep;

/// How long nothing is accepted after a failure.
const PAUSE: Duration = Duration::from_millis(100);

/// A bound socket.
pub enum Listener {
    /// An address.
    Tcp(TcpListener),
    /// A path. The file goes first when this is dropped: whoever finds it can
    /// still connect.
    Unix(SocketFile, UnixListener),
    /// Made up, in a simulated network.
    #[cfg(feature = "simulation")]
    Simulated(Sockets),
}

/// Connections of a simulated network, as they come.
#[cfg(feature = "simulation")]
pub type Sockets = Pin<Box<dyn Stream<Item = io::Result<Box<dyn Duplex>>> + Send>>;

/// What can be read from and written to.
#[cfg(feature = "simulation")]
pub trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

#[cfg(feature = "simulation")]
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// The file of a Unix socket.
pub struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        _ = fs::remove_file(&self.0);
    }
}

impl Listener {
    /// Binds, with these permission bits if it is a file.
    pub async fn bind(listen: &Listen, socket_mode: u32) -> io::Result<Self> {
        match listen {
            Listen::Tcp(address) => TcpListener::bind(address).await.map(Self::Tcp),
            Listen::Unix(path) => {
                remove_stale(path)?;
                // No moment at which others could connect.
                let before = umask(Mode::from_bits_truncate(0o177));
                let bound = UnixListener::bind(path);
                umask(before);
                let listener = bound?;
                let file = SocketFile(path.clone());
                fs::set_permissions(path, fs::Permissions::from_mode(socket_mode))?;
                Ok(Self::Unix(file, listener))
            }
        }
    }

    /// Where it is bound, as clients are told.
    pub fn address(&self) -> String {
        match self {
            Self::Tcp(listener) => {
                listener.local_addr().map_or_else(|_| "unknown".to_owned(), |at| at.to_string())
            }
            Self::Unix(file, _) => format!("unix:{}", file.0.display()),
            #[cfg(feature = "simulation")]
            Self::Simulated(_) => "simulated".to_owned(),
        }
    }
}

/// A socket that nobody listens on is left over from a crash.
fn remove_stale(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(found) if !found.file_type().is_socket() => Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            "there is a file of that name that is not a socket",
        )),
        Ok(_) => match std::os::unix::net::UnixStream::connect(path) {
            Ok(_) => Err(io::Error::new(io::ErrorKind::AddrInUse, "another daemon listens there")),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
            Err(error) => Err(error),
        },
    }
}

/// Connections of one listener, each with a permit out of the common number.
pub struct Incoming {
    listener: Listener,
    permits: Arc<Semaphore>,
    /// Set after a failure: when to try again.
    pause: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl Incoming {
    /// Accepts as long as there are permits; beyond that, connections are
    /// closed at once.
    #[must_use]
    pub const fn new(listener: Listener, permits: Arc<Semaphore>) -> Self {
        Self { listener, permits, pause: None }
    }
}

impl Stream for Incoming {
    type Item = io::Result<Connection>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(pause) = &mut self.pause {
                ready!(pause.as_mut().poll(cx));
                self.pause = None;
            }
            let socket = match &mut self.listener {
                Listener::Tcp(listener) => ready!(listener.poll_accept(cx)).map(|(stream, _)| {
                    _ = stream.set_nodelay(true);
                    Socket::Tcp(stream)
                }),
                Listener::Unix(_, listener) => {
                    ready!(listener.poll_accept(cx)).map(|(stream, _)| Socket::Unix(stream))
                }
                #[cfg(feature = "simulation")]
                Listener::Simulated(sockets) => match ready!(sockets.as_mut().poll_next(cx)) {
                    Some(accepted) => accepted.map(Socket::Simulated),
                    None => return Poll::Ready(None),
                },
            };
            let socket = match socket {
                Ok(socket) => socket,
                Err(error) => {
                    // Often too many open files: the next try would fail as well.
                    tracing::warn!(%error, "a connection could not be accepted");
                    self.pause = Some(Box::pin(sleep(PAUSE)));
                    continue;
                }
            };
            match Arc::clone(&self.permits).try_acquire_owned() {
                Ok(permit) => return Poll::Ready(Some(Ok(Connection { socket, _permit: permit }))),
                Err(_) => tracing::warn!("a connection was refused: max_connections is reached"),
            }
        }
    }
}

enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
    #[cfg(feature = "simulation")]
    Simulated(Box<dyn Duplex>),
}

/// A connection of either kind.
pub struct Connection {
    socket: Socket,
    _permit: OwnedSemaphorePermit,
}

impl Connected for Connection {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}

/// Calls the same method of whichever socket it is.
macro_rules! either {
    ($self:ident.$method:ident($($argument:ident),*)) => {
        match &mut $self.get_mut().socket {
            Socket::Tcp(socket) => Pin::new(socket).$method($($argument),*),
            Socket::Unix(socket) => Pin::new(socket).$method($($argument),*),
            #[cfg(feature = "simulation")]
            Socket::Simulated(socket) => Pin::new(socket).$method($($argument),*),
        }
    };
}

impl AsyncRead for Connection {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        either!(self.poll_read(cx, buf))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        either!(self.poll_write(cx, buf))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        either!(self.poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        match &self.socket {
            Socket::Tcp(socket) => socket.is_write_vectored(),
            Socket::Unix(socket) => socket.is_write_vectored(),
            #[cfg(feature = "simulation")]
            Socket::Simulated(socket) => socket.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self.poll_shutdown(cx))
    }
}
