//! Daemon configuration from a file, the environment and flags, in increasing
//! precedence.
//!
//! One table ([`SETTINGS`]) defines all settings. File keys, environment
//! variables, flags, help texts and validation are derived from it.

mod azure;
mod effective;
mod error;
mod layer;
mod listen;
mod settings;

use std::{path::PathBuf, time::Duration};

pub use azure::Azure;
pub use effective::{Effective, load};
pub use error::{ConfigError, ConfigErrors};
pub use layer::{Layer, RawValue, Source, unknown_variables};
pub use leasehold_azure_account::{Credential, Identity, SecretText};
pub use listen::Listen;
pub use settings::{Group, SETTINGS, Setting};

/// Placeholder that is printed instead of a secret.
const REDACTED: &str = "REDACTED";

/// Values of all settings. [`load`] returns only valid ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Listeners for clients.
    pub listen: Vec<Listen>,
    /// Listeners for HTTP; without any, HTTP is off.
    pub http_listen: Vec<Listen>,
    /// Address of this daemon that is stored with its leases, for peers and
    /// operators.
    pub advertise: Option<String>,
    /// True if other machines may connect.
    pub allow_remote: bool,
    /// Permission bits of Unix sockets.
    pub socket_mode: u32,
    /// Kind of store.
    pub store: Store,
    /// Directory of the embedded store.
    pub data_dir: PathBuf,
    /// Settings of the Azure store.
    pub azure: Azure,
    /// TTL of sessions that request none.
    pub default_ttl: Duration,
    /// Maximum TTL of a session.
    pub max_ttl: Duration,
    /// Time that holders have to release their locks at shutdown.
    pub drain_timeout: Duration,
    /// Duration of leases, in stores whose leases expire.
    pub lease_duration: Duration,
    /// Time for which such a lease is kept after its last local holder released
    /// the lock.
    pub linger: Duration,
    /// Maximum interval between polls of a lease that a peer holds.
    pub poll_interval: Duration,
    /// Number of threads that serve clients.
    pub threads: usize,
    /// True if gRPC reflection is served.
    pub reflection: bool,
    /// Maximum number of concurrent connections.
    pub max_connections: usize,
    /// Maximum number of concurrent sessions.
    pub max_sessions: usize,
    /// Maximum number of locks that have a holder or a waiter.
    pub max_locks: usize,
    /// Maximum number of acquires that wait for one lock.
    pub max_waiters_per_lock: usize,
    /// Maximum number of locks that one session holds or waits for.
    pub max_locks_per_session: usize,
    /// Maximum number of lock events that are kept.
    pub history: usize,
    /// True if the web console is served over HTTP.
    pub console: bool,
    /// Host names under which the console may be requested.
    pub console_hosts: Vec<String>,
    /// Maximum number of locks whose metrics have their names.
    pub metrics_lock_names: usize,
    /// Log filter directives.
    pub log: String,
    /// Format of log lines.
    pub log_format: LogFormat,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: vec![Listen::DEFAULT],
            http_listen: Vec::new(),
            advertise: None,
            allow_remote: false,
            socket_mode: 0o600,
            store: Store::Embedded,
            data_dir: PathBuf::from("leasehold-data"),
            azure: Azure::default(),
            default_ttl: Duration::from_secs(10),
            max_ttl: Duration::from_secs(60),
            drain_timeout: Duration::from_secs(10),
            lease_duration: Duration::from_secs(30),
            linger: Duration::ZERO,
            poll_interval: Duration::from_secs(2),
            threads: 1,
            reflection: false,
            max_connections: 10_000,
            max_sessions: 50_000,
            max_locks: 2_000_000,
            max_waiters_per_lock: 10_000,
            max_locks_per_session: 1_000_000,
            history: 10_000,
            console: false,
            console_hosts: Vec::new(),
            metrics_lock_names: 0,
            log: "info".to_owned(),
            log_format: LogFormat::Text,
        }
    }
}

/// Kind of store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Store {
    /// Leases in this process, tokens in its data directory.
    Embedded,
    /// Leases in a storage account, one blob per lock.
    Azure,
}

impl Store {
    /// Returns the name in the configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Embedded => "embedded",
            Self::Azure => "azure",
        }
    }
}

/// Format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// Human-readable.
    Text,
    /// One JSON object per line.
    Json,
}

impl LogFormat {
    const fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
        }
    }
}
