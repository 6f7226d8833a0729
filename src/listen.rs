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

/// Delay before the next attempt after a failed accept.
const PAUSE: Duration = Duration::from_millis(100);

/// Bound socket.
pub enum Listener {
    /// TCP address.
    Tcp(TcpListener),
    /// Unix socket. Its file is removed before the socket is closed, because a client
    /// that finds the file must be able to connect.
    Unix(SocketFile, UnixListener),
    /// Simulated network.
    #[cfg(feature = "simulation")]
    Simulated(Sockets),
}

/// Incoming connections of a simulated network.
#[cfg(feature = "simulation")]
pub type Sockets = Pin<Box<dyn Stream<Item = io::Result<Box<dyn Duplex>>> + Send>>;

/// Connection of a simulated network.
#[cfg(feature = "simulation")]
pub trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

#[cfg(feature = "simulation")]
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// File of a Unix socket, which is removed on drop.
pub struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        _ = fs::remove_file(&self.0);
    }
}

impl Listener {
    /// Binds a listener. The file of a Unix socket gets these permission bits.
    pub async fn bind(listen: &Listen, socket_mode: u32) -> io::Result<Self> {
        match listen {
            Listen::Tcp(address) => TcpListener::bind(address).await.map(Self::Tcp),
            Listen::Unix(path) => {
                remove_stale(path)?;
                // Without the mask, other users could connect until the mode is set.
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

    /// Returns the address in the form that clients use.
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

/// Removes a socket on which no process listens: it is left over from a crash.
fn remove_stale(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(found) if !found.file_type().is_socket() => Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            "a file with that name exists and is not a socket",
        )),
        Ok(_) => match std::os::unix::net::UnixStream::connect(path) {
            Ok(_) => {
                Err(io::Error::new(io::ErrorKind::AddrInUse, "another daemon listens on this path"))
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
            Err(error) => Err(error),
        },
    }
}

/// Incoming connections of one listener, each with a permit of the shared limit.
pub struct Incoming {
    listener: Listener,
    permits: Arc<Semaphore>,
    /// Set after a failure, until the next attempt.
    pause: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl Incoming {
    /// Accepts connections while permits are available. Further connections are closed
    /// immediately.
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
                    // The usual cause is too many open files, so that an immediate retry
                    // would fail too.
                    tracing::warn!(%error, "failed to accept a connection");
                    self.pause = Some(Box::pin(sleep(PAUSE)));
                    continue;
                }
            };
            match Arc::clone(&self.permits).try_acquire_owned() {
                Ok(permit) => return Poll::Ready(Some(Ok(Connection { socket, _permit: permit }))),
                Err(_) => {
                    tracing::warn!("connection refused: the daemon has reached max_connections")
                }
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

/// Connection on a TCP or Unix socket.
pub struct Connection {
    socket: Socket,
    _permit: OwnedSemaphorePermit,
}

impl Connected for Connection {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}

/// Calls the same method of either kind of socket.
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
