//! Access to an Azure Storage account: its address, its credentials, and how
//! calls to it are signed and sent.
//!
//! The daemon reads its [`AccountSettings`] and calls the blob service through
//! Microsoft's SDK. The fences describe an [`Account`] and call its services by
//! [`Service`]. Both share everything else in this crate. Internal to the
//! project, except for what the fences re-export.
//!
//! No error, log or `Debug` of this crate shows a secret.
#![forbid(unsafe_code)]

#[cfg(feature = "entra")]
pub mod access_tokens;
mod account;
mod address;
mod auth_method;
mod connection_string;
mod credentials;
mod endpoint;
mod fault;
mod secret;
mod service;
mod shared_key;
mod transport;

pub use account::{Account, InvalidAccount};
pub use address::{AccountSettings, Address, InvalidSetting, parse_account_url};
pub use auth_method::AuthMethod;
/// Source of access tokens from Entra ID. Each credential of the crate
/// `azure_identity` is one.
pub use azure_core::credentials::TokenCredential;
/// HTTP client by which calls are sent. For programs that need their own
/// certificates or proxy.
pub use azure_core::http::Transport;
pub use connection_string::ConnectionString;
pub use credentials::{Credential, CredentialSource, Identity};
pub use endpoint::{ServiceKind, account_name, check_key, is_account_name, parse_sas};
pub use fault::{Fault, NoResponse, credential_remedy, retry_after, unreachable_remedy};
pub use secret::SecretText;
pub use service::{Response, Service};
pub use shared_key::{Form, SharedKey};
pub use transport::{client_options, redacting, transport};

/// Version of the storage protocol. Older than the SDK's own, so that emulators
/// know it too.
pub const API_VERSION: &str = "2025-11-05";

/// Scope of access tokens for storage.
pub const SCOPE: &str = "https://storage.azure.com/.default";
