//! Access to an Azure Storage account: address, credentials, signing and
//! transport.
//!
//! The daemon has [`AccountSettings`] and calls the blob service through
//! Microsoft's SDK. The fences have an [`Account`] and call its services through
//! [`Service`]. Both share the other modules. Internal to the project, except for
//! the items that the fences re-export.
//!
//! Errors, logs and `Debug` output of this crate contain no secrets.
#![forbid(unsafe_code)]

#[cfg(feature = "entra")]
pub mod access_tokens;
mod account;
mod address;
mod auth_method;
mod call_span;
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
/// Source of Entra ID access tokens. The credentials of the crate
/// `azure_identity` implement it.
pub use azure_core::credentials::TokenCredential;
/// HTTP client for the calls. A program can supply one with its own certificates or
/// proxy.
pub use azure_core::http::Transport;
pub use call_span::CallSpan;
pub use connection_string::ConnectionString;
pub use credentials::{Credential, CredentialSource, Identity};
pub use endpoint::{ServiceKind, account_name, check_key, is_account_name, parse_sas};
pub use fault::{Fault, NoResponse, credential_fix, retry_after, unreachable_fix};
pub use secret::SecretText;
pub use service::{Response, Service};
pub use shared_key::{Form, SharedKey};
pub use transport::{client_options, redacting, transport};

/// Version of the storage protocol. Older than the SDK's default, so that
/// emulators support it.
pub const API_VERSION: &str = "2025-11-05";

/// Scope of access tokens for storage.
pub const SCOPE: &str = "https://storage.azure.com/.default";
