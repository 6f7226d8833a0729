//! Settings of the Azure store.

use std::time::Duration;

use leasehold_azure_account::{AccountSettings, Credential, Identity, SecretText};
use leasehold_azure_store::Settings;

use super::REDACTED;

/// Account, credential and parameters of the Azure store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Azure {
    /// URL of the account's blob service, without a query.
    pub account_url: Option<String>,
    /// Query of that URL: a shared access signature.
    pub url_sas: Option<SecretText>,
    /// Connection string: account and credential.
    pub connection_string: Option<SecretText>,
    /// Key of the account.
    pub account_key: Option<SecretText>,
    /// Shared access signature, without the leading question mark.
    pub sas: Option<SecretText>,
    /// Container of the locks' blobs.
    pub container: String,
    /// Prefix of the blobs' paths; may be empty.
    pub prefix: String,
    /// Kind of credential.
    pub credential: Credential,
    /// Identity from the environment.
    pub identity: Identity,
    /// True if the daemon holds a lease on the container, so that it can't be
    /// deleted.
    pub protect_container: bool,
    /// Idle time after which a lock's blob is deleted; zero disables garbage
    /// collection.
    pub gc_after: Duration,
    /// Maximum number of concurrent storage calls.
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
    /// Returns the settings of the account.
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

    /// Account URL with its signature redacted.
    pub(super) fn redacted_account_url(&self) -> String {
        let url = self.account_url.clone().unwrap_or_default();
        if self.url_sas.is_some() { format!("{url}?{REDACTED}") } else { url }
    }
}

/// Valid account URLs, as text for messages.
pub(super) const ACCOUNT_ALLOWED: &str = "a URL such as \
    \"https://ACCOUNT.blob.core.windows.net\" or, for emulators, \"http://HOST:PORT/ACCOUNT\"; a \
    query counts as a shared access signature";

/// Redacts the parts of a supposed account URL that can be secret. The text may
/// be a connection string by mistake.
pub(super) fn redact(text: &str) -> String {
    let harmless = |c: char| c.is_ascii_alphanumeric() || "-._:/[]".contains(c);
    match text.split_once('?') {
        _ if text.chars().all(harmless) => text.to_owned(),
        Some((address, _)) if address.chars().all(harmless) => format!("{address}?{REDACTED}"),
        _ => REDACTED.to_owned(),
    }
}

/// Valid container names by Azure's rules, as text for messages.
pub(super) const CONTAINER_ALLOWED: &str = "3 to 63 lowercase letters, digits and single hyphens, \
    with a letter or digit first and last";

pub(super) fn container(text: &str) -> Option<String> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let good = (3..=63).contains(&text.len())
        && text.split('-').all(|part| !part.is_empty() && part.chars().all(plain));
    good.then(|| text.to_owned())
}

/// Valid prefixes, as text for messages. They need no escaping anywhere.
pub(super) const PREFIX_ALLOWED: &str = "at most 128 letters, digits, underscores and hyphens, \
    with single slashes between them; or nothing";

pub(super) fn prefix(text: &str) -> Option<String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let good = text.is_empty()
        || (text.len() <= 128
            && text.split('/').all(|part| !part.is_empty() && part.chars().all(plain)));
    good.then(|| text.to_owned())
}
