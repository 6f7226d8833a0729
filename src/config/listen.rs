//! Where the daemon listens.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
};

/// The shortest limit among the systems that we build for, without the final
/// zero byte.
const LONGEST_SOCKET_PATH: usize = 103;

/// What a listener may be.
pub(super) const ALLOWED: &str =
    "IP:PORT or localhost:PORT, such as \"127.0.0.1:7420\" or \"[::1]:7420\", or \"unix:/PATH\"";

/// Where clients connect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listen {
    /// An address; port 0 means any free one.
    Tcp(SocketAddr),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

impl Listen {
    /// Only this machine, on the port that clients try first.
    pub(super) const DEFAULT: Self =
        Self::Tcp(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7420));

    /// Reads "host:port" or "unix:/path".
    pub fn parse(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return Self::parse_path(path);
        }
        // A name would have to be looked up, and might be another address
        // tomorrow; this one is safe to know.
        let address = text
            .strip_prefix("localhost:")
            .map_or_else(|| text.to_owned(), |port| format!("127.0.0.1:{port}"));
        address.parse().map(Self::Tcp).map_err(|_| format!("must be {ALLOWED}"))
    }

    fn parse_path(path: &str) -> Result<Self, String> {
        if path.is_empty() || path.contains('\0') {
            return Err("names no path; write \"unix:/PATH\"".to_owned());
        }
        if path.len() > LONGEST_SOCKET_PATH {
            return Err(format!(
                "has a path of {} bytes; a socket's path has at most {LONGEST_SOCKET_PATH}",
                path.len()
            ));
        }
        Ok(Self::Unix(PathBuf::from(path)))
    }

    /// Whether it is taken by one of the others. Port 0 is another port each
    /// time.
    pub(super) fn clashes_with(&self, others: &[Self]) -> bool {
        let any_port = matches!(self, Self::Tcp(address) if address.port() == 0);
        !any_port && others.contains(self)
    }

    /// Whether only this machine can connect.
    #[must_use]
    pub fn is_local(&self) -> bool {
        match self {
            Self::Tcp(address) => address.ip().to_canonical().is_loopback(),
            Self::Unix(_) => true,
        }
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners_are_read_and_shown_alike() {
        for text in ["127.0.0.1:0", "0.0.0.0:7420", "[::1]:7420", "unix:/run/leasehold.sock"] {
            assert_eq!(Listen::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(Listen::parse("localhost:7420").unwrap(), Listen::DEFAULT);
    }

    #[test]
    fn what_is_no_listener_is_refused() {
        let long = format!("unix:/{}", "x".repeat(200));
        for text in
            ["", ":7420", "7420", "127.0.0.1", "127.0.0.1:x", "1.2.3.4:70000", "unix:", &long]
        {
            assert!(Listen::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn only_loopback_and_sockets_are_local() {
        for text in ["127.9.9.9:1", "[::1]:1", "[::ffff:127.0.0.1]:1", "unix:/s"] {
            assert!(Listen::parse(text).unwrap().is_local(), "{text}");
        }
        for text in ["0.0.0.0:1", "[::]:1", "10.0.0.1:1", "[::ffff:10.0.0.1]:1"] {
            assert!(!Listen::parse(text).unwrap().is_local(), "{text}");
        }
    }
}
