//! A storage account: its address, and how calls to it are signed and sent.
//!
//! No secret is shown by any error, log or `Debug` of this module.

pub use leasehold_azure_account::{Account, InvalidAccount, TokenCredential, Transport};
