//! The daemon's configuration: from a file, the environment and flags, in
//! rising precedence.
//!
//! One table ([`SETTINGS`]) says what can be set. The file's keys, the
//! environment's variables, the flags, their help and the checks all follow
//! from it.

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
pub use layer::{Layer, RawValue, Source};
pub use leasehold_azure_account::{Credential, Identity, SecretText};
pub use listen::Listen;
pub use settings::{Group, SETTINGS, Setting};

/// What is shown in place of a secret.
const REDACTED: &str = "REDACTED";

/// What the daemon is told. Every value that comes out of [`load`] is within
/// its limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Where clients connect.
    pub listen: Vec<Listen>,
    /// Where HTTP is served; nowhere if there are none.
    pub http_listen: Vec<Listen>,
    /// Address that peers and operators are given for this daemon.
    pub advertise: Option<String>,
    /// Whether it was said that other machines may connect.
    pub allow_remote: bool,
    /// The permission bits of Unix sockets.
    pub socket_mode: u32,
    /// Where leases are kept.
    pub store: Store,
    /// Where the embedded store keeps its files.
    pub data_dir: PathBuf,
    /// What belongs to the Azure store.
    pub azure: Azure,
    /// The ttl of sessions that ask for none.
    pub default_ttl: Duration,
    /// The longest ttl that a session may ask for.
    pub max_ttl: Duration,
    /// How long holders are waited for at shutdown.
    pub drain_timeout: Duration,
    /// The duration of leases in stores whose leases expire.
    pub lease_duration: Duration,
    /// How long such a lease is kept after its last local holder let go.
    pub linger: Duration,
    /// The longest wait between two looks at a lease that another daemon holds.
    pub poll_interval: Duration,
    /// How many threads serve clients.
    pub threads: usize,
    /// Whether gRPC reflection is served.
    pub reflection: bool,
    /// The most connections at a time.
    pub max_connections: usize,
    /// The most sessions at a time.
    pub max_sessions: usize,
    /// The most locks that are held or waited for at a time.
    pub max_locks: usize,
    /// The most acquires that wait for one lock.
    pub max_waiters_per_lock: usize,
    /// The most locks that one session holds or waits for.
    pub max_locks_per_session: usize,
    /// What is logged, as a filter directive.
    pub log: String,
    /// How it is logged.
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
            log: "info".to_owned(),
            log_format: LogFormat::Text,
        }
    }
}

/// Where leases are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Store {
    /// In this process, with the tokens in its data directory.
    Embedded,
    /// In a storage account, one blob for each lock.
    Azure,
}

impl Store {
    /// Name in the configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Embedded => "embedded",
            Self::Azure => "azure",
        }
    }
}

/// How log lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
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
