//! Parsing of URLs, shared access signatures and keys. No message quotes them.

use azure_core::{base64, http::Url};

use crate::SecretText;

/// Storage service of an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceKind {
    /// Blobs.
    Blob,
    /// Queues.
    Queue,
    /// Tables.
    Table,
}

impl ServiceKind {
    /// Returns the name of the service in Azure's host names.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Blob => "blob",
            Self::Queue => "queue",
            Self::Table => "table",
        }
    }

    /// Returns whether the host is one of Azure, which begin with the account name.
    pub(crate) fn is_host_of_account(self, url: &Url) -> bool {
        url.host_str().is_some_and(|host| host.contains(&format!(".{}.", self.name())))
    }
}

/// One value for each service of an account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Endpoints<T> {
    pub(crate) blob: T,
    pub(crate) queue: T,
    pub(crate) table: T,
}

impl<T> Endpoints<T> {
    /// Converts the value of each service.
    pub(crate) fn map<U>(self, mut convert: impl FnMut(ServiceKind, T) -> U) -> Endpoints<U> {
        Endpoints {
            blob: convert(ServiceKind::Blob, self.blob),
            queue: convert(ServiceKind::Queue, self.queue),
            table: convert(ServiceKind::Table, self.table),
        }
    }

    pub(crate) const fn get(&self, kind: ServiceKind) -> &T {
        match kind {
            ServiceKind::Blob => &self.blob,
            ServiceKind::Queue => &self.queue,
            ServiceKind::Table => &self.table,
        }
    }
}

/// Parses the URL of a service, whose query may be a shared access signature. The
/// caller decides which paths are allowed.
pub(crate) fn parse_endpoint(text: &str) -> Result<(Url, Option<SecretText>), String> {
    let mut url = Url::parse(text.trim()).map_err(|error| format!("is not a URL: {error}"))?;
    if !["http", "https"].contains(&url.scheme()) {
        return Err("must begin with https:// or http://".to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("must not contain a user name or password".to_owned());
    }
    if url.fragment().is_some() {
        return Err("must not contain a fragment (#)".to_owned());
    }
    let sas = url.query().filter(|query| !query.is_empty()).map(parse_sas).transpose();
    let sas = sas.map_err(|problem| format!("has a query that {problem}"))?;
    url.set_query(None);
    let path = url.path().trim_matches('/').to_owned();
    url.set_path(&path);
    Ok((url, sas))
}

/// Returns the account name in a URL: the path (emulators), or the first label of
/// the host.
#[must_use]
pub fn account_name(url: &Url, kind: ServiceKind) -> Option<String> {
    let path = url.path().trim_matches('/');
    if !path.is_empty() {
        return Some(path.to_owned());
    }
    let (account, _) = url.host_str()?.split_once('.')?;
    kind.is_host_of_account(url).then(|| account.to_owned())
}

/// Returns whether a text is a valid account name. A secret in the place of a
/// name, by mistake, is almost never valid.
#[must_use]
pub fn is_account_name(name: &str) -> bool {
    (3..=24).contains(&name.len())
        && name.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit())
}

/// Parses a shared access signature.
///
/// # Errors
/// The problem, without quoting the text.
pub fn parse_sas(text: &str) -> Result<SecretText, String> {
    let text = text.trim().trim_start_matches('?');
    if text.split('&').any(|pair| pair.starts_with("sig=") && pair.len() > "sig=".len()) {
        Ok(SecretText::new(text))
    } else {
        Err("is not a shared access signature: it has no sig=".to_owned())
    }
}

/// Checks that a text can be an account key.
///
/// # Errors
/// The problem, without quoting the text.
pub fn check_key(text: &str) -> Result<(), String> {
    match base64::decode(text) {
        Ok(bytes) if !bytes.is_empty() => Ok(()),
        _ => Err("is not an account key in base64".to_owned()),
    }
}
