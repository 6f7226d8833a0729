//! A storage account: its address, its credentials and the transport of calls.
//!
//! No error, log or `Debug` output of this module contains a secret.

pub use leasehold_azure_account::{Account, InvalidAccount, TokenCredential, Transport};
