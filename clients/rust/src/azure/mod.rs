//! A storage account: where it is, and how calls to it are signed and sent.
//!
//! Only what the [guards](crate::guard_azure) need. No secret is shown by any
//! error, log or `Debug` of this module.

mod account;
mod connection_string;
mod fault;
mod secret;
mod service;
mod shared_key;
mod transport;

pub use account::{Account, InvalidAccount};
/// What gets tokens of Entra ID: each credential of the crate `azure_identity`
/// is one.
pub use azure_core::credentials::TokenCredential;
/// What calls are sent by. For those who need their own certificates or proxy.
pub use azure_core::http::Transport;

pub(crate) use fault::Fault;
pub(crate) use service::{Answer, Service};
