//! Listeners of the daemon.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
};

/// Maximum length of a socket's path on all supported systems, without the final
/// zero byte.
const MAX_SOCKET_PATH_BYTES: usize = 103;

/// Valid listeners, as text for messages.
pub(super) const ALLOWED: &str =
    "IP:PORT or localhost:PORT, such as \"127.0.0.1:7420\" or \"[::1]:7420\", or \"unix:/PATH\"";

/// Address on which the daemon listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listen {
    /// TCP address; port 0 selects a free port.
    Tcp(SocketAddr),
    /// Path of a Unix socket.
    Unix(PathBuf),
}

impl Listen {
    /// Loopback, on the default port of the clients.
    pub(super) const DEFAULT: Self =
        Self::Tcp(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7420));

    /// Parses `HOST:PORT` or `unix:/PATH`.
    pub fn parse(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return Self::parse_path(path);
        }
        // No other name is accepted: its address would depend on DNS.
        let address = text
            .strip_prefix("localhost:")
            .map_or_else(|| text.to_owned(), |port| format!("127.0.0.1:{port}"));
        address.parse().map(Self::Tcp).map_err(|_| format!("must be {ALLOWED}"))
    }

    fn parse_path(path: &str) -> Result<Self, String> {
        if path.is_empty() || path.contains('\0') {
            return Err("has no path; use \"unix:/PATH\"".to_owned());
        }
        // A relative path would depend on the working directory of the daemon, and
        // clients accept only absolute paths.
        if !path.starts_with('/') {
            return Err("has a relative path; use \"unix:/PATH\"".to_owned());
        }
        if path.len() > MAX_SOCKET_PATH_BYTES {
            return Err(format!(
                "has a path of {} bytes; the maximum for a socket is {MAX_SOCKET_PATH_BYTES}",
                path.len()
            ));
        }
        Ok(Self::Unix(PathBuf::from(path)))
    }

    /// Returns whether one of `others` has the same address. Port 0 never clashes,
    /// because it selects another port each time.
    pub(super) fn clashes_with(&self, others: &[Self]) -> bool {
        let any_port = matches!(self, Self::Tcp(address) if address.port() == 0);
        !any_port && others.contains(self)
    }

    /// Returns whether only this machine can connect.
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
    fn listener_text_round_trips() {
        for text in ["127.0.0.1:0", "0.0.0.0:7420", "[::1]:7420", "unix:/run/leasehold.sock"] {
            assert_eq!(Listen::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(Listen::parse("localhost:7420").unwrap(), Listen::DEFAULT);
    }

    #[test]
    fn invalid_listeners_are_refused() {
        let long = format!("unix:/{}", "x".repeat(200));
        for text in [
            "",
            ":7420",
            "7420",
            "127.0.0.1",
            "127.0.0.1:x",
            "1.2.3.4:70000",
            "unix:",
            "unix:relative",
            "unix:./relative",
            &long,
        ] {
            assert!(Listen::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn only_loopback_and_unix_sockets_are_local() {
        for text in ["127.9.9.9:1", "[::1]:1", "[::ffff:127.0.0.1]:1", "unix:/s"] {
            assert!(Listen::parse(text).unwrap().is_local(), "{text}");
        }
        for text in ["0.0.0.0:1", "[::]:1", "10.0.0.1:1", "[::ffff:10.0.0.1]:1"] {
            assert!(!Listen::parse(text).unwrap().is_local(), "{text}");
        }
    }
}
