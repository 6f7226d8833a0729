//! What belongs to the Azure store.

use std::time::Duration;

use leasehold_azure_account::{AccountSettings, Credential, Identity, SecretText};
use leasehold_azure_store::Settings;

use super::REDACTED;

/// How the Azure store is reached, and how it goes about its work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Azure {
    /// The address of the account's blobs, without a query.
    pub account_url: Option<String>,
    /// What came as the query of that address: a shared access signature.
    pub url_sas: Option<SecretText>,
    /// The account and a credential for it, in one.
    pub connection_string: Option<SecretText>,
    /// The account's key.
    pub account_key: Option<SecretText>,
    /// A shared access signature, without a question mark in front.
    pub sas: Option<SecretText>,
    /// The container of the locks' blobs.
    pub container: String,
    /// What their paths begin with; may be empty.
    pub prefix: String,
    /// Which credential is used.
    pub credential: Credential,
    /// What the environment says about an identity.
    pub identity: Identity,
    /// Whether the container is kept from being deleted, by a lease on it.
    pub protect_container: bool,
    /// How long a lock must have been idle for its blob to be deleted; zero if
    /// never.
    pub gc_after: Duration,
    /// The most calls to the storage at a time.
    pub max_storage_calls: usize,
}

impl Default for Azure {
    fn default() -> Self {
        Self {
            account_url: None,
            url_sas: None,
            connection_string: None,
            account_key: None,
            sas: None,
            container: "leasehold".to_owned(),
            prefix: String::new(),
            credential: Credential::Auto,
            identity: Identity::default(),
            protect_container: false,
            gc_after: Duration::ZERO,
            max_storage_calls: 64,
        }
    }
}

impl Azure {
    /// The settings that describe the account.
    #[must_use]
    pub fn account(&self) -> AccountSettings {
        AccountSettings {
            account_url: self.account_url.clone(),
            url_sas: self.url_sas.clone(),
            connection_string: self.connection_string.clone(),
            account_key: self.account_key.clone(),
            sas: self.sas.clone(),
            credential: self.credential,
            identity: self.identity.clone(),
        }
    }

    /// Returns the settings of the Azure store.
    #[must_use]
    pub fn settings(&self) -> Settings {
        Settings {
            account: self.account(),
            container: self.container.clone(),
            prefix: self.prefix.clone(),
            protect_container: self.protect_container,
            gc_after: self.gc_after,
            max_storage_calls: self.max_storage_calls,
        }
    }

    /// The account's address, without the signature that came with it.
    pub(super) fn show_account(&self) -> String {
        let url = self.account_url.clone().unwrap_or_default();
        if self.url_sas.is_some() { format!("{url}?{REDACTED}") } else { url }
    }
}

/// What an account's address may be.
pub(super) const ACCOUNT_ALLOWED: &str = "an address such as \
    \"https://ACCOUNT.blob.core.windows.net\" or, for emulators, \"http://HOST:PORT/ACCOUNT\"; a \
    query counts as a shared access signature";

/// What may be shown of what was given as an account's address. Somebody may
/// have put a connection string there.
pub(super) fn conceal(text: &str) -> String {
    let harmless = |c: char| c.is_ascii_alphanumeric() || "-._:/[]".contains(c);
    match text.split_once('?') {
        _ if text.chars().all(harmless) => text.to_owned(),
        Some((address, _)) if address.chars().all(harmless) => format!("{address}?{REDACTED}"),
        _ => REDACTED.to_owned(),
    }
}

/// What a container's name may be, by Azure's rules.
pub(super) const CONTAINER_ALLOWED: &str = "3 to 63 lowercase letters, digits and single hyphens, \
    with a letter or digit first and last";

pub(super) fn container(text: &str) -> Option<String> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let good = (3..=63).contains(&text.len())
        && text.split('-').all(|part| !part.is_empty() && part.chars().all(plain));
    good.then(|| text.to_owned())
}

/// What a prefix may be: what needs no escape anywhere.
pub(super) const PREFIX_ALLOWED: &str = "at most 128 letters, digits, underscores and hyphens, \
    with single slashes between them; or nothing";

pub(super) fn prefix(text: &str) -> Option<String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let good = text.is_empty()
        || (text.len() <= 128
            && text.split('/').all(|part| !part.is_empty() && part.chars().all(plain)));
    good.then(|| text.to_owned())
}
