//! Where an account is, and what gives access to it.

use std::{fmt, sync::Arc, time::Duration};

use azure_core::{
    base64,
    credentials::TokenCredential,
    http::{Transport, Url, policies::auth::BearerTokenAuthorizationPolicy},
};

use super::{
    connection_string::{ConnectionString, Endpoints},
    secret::SecretText,
    service::{Access, Service},
    shared_key::{Form, SharedKey},
    transport::transport,
};

/// What tokens are for.
const SCOPE: &str = "https://storage.azure.com/.default";

/// How long one call may take.
const CALL_LIMIT: Duration = Duration::from_secs(10);

/// What was given does not describe an account. The message quotes no secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} {problem}")]
pub struct InvalidAccount {
    what: &'static str,
    problem: String,
}

impl InvalidAccount {
    fn new(what: &'static str, problem: impl Into<String>) -> Self {
        Self { what, problem: problem.into() }
    }
}

/// A storage account. Nothing is sent before something in it is used.
#[derive(Clone)]
pub struct Account {
    name: String,
    endpoints: Endpoints<Option<Url>>,
    credential: Credential,
    transport: Transport,
    call_limit: Duration,
}

#[derive(Clone)]
enum Credential {
    Key(SecretText),
    Sas(SecretText),
    Token(Arc<dyn TokenCredential>),
}

/// Its name, where it is, and what gives access to it.
type Description = (String, Endpoints<Option<Url>>, Credential);

impl Account {
    /// From a connection string, with a key or a shared access signature;
    /// `UseDevelopmentStorage=true` is Azurite on its usual port.
    ///
    /// # Errors
    /// If it can't be read, or lacks something.
    pub fn from_connection_string(text: &str) -> Result<Self, InvalidAccount> {
        let (name, endpoints, credential) = Self::read(text)?;
        Ok(Self::new(name, endpoints, credential))
    }

    fn read(text: &str) -> Result<Description, InvalidAccount> {
        let invalid = |problem: String| InvalidAccount::new("the connection string", problem);
        let read = ConnectionString::parse(text).map_err(invalid)?;
        let mut url_sas = None;
        let mut problem = None;
        let endpoints = read.endpoints.map(|service, text| {
            let (url, sas) =
                text.map(|text| read_url(&text)).transpose().unwrap_or_else(|why| {
                    problem = Some(format!("has an address for {service}s that {why}"));
                    None
                })?;
            url_sas = url_sas.take().or(sas);
            Some(url)
        });
        if let Some(problem) = problem {
            return Err(invalid(problem));
        }
        let Endpoints { blob, queue, table } = &endpoints;
        let found = || [blob, queue, table].into_iter().flatten().find_map(account_of);
        let name = read.account.or_else(found);
        let name = name.ok_or_else(|| invalid("has no AccountName".to_owned()))?;
        if !is_account(&name) {
            return Err(invalid(format!("has an AccountName that {NO_ACCOUNT}")));
        }
        let credential = match (read.key, read.sas.or(url_sas)) {
            (Some(key), _) => {
                check_key(&key)
                    .map_err(|problem| invalid(format!("has an AccountKey that {problem}")))?;
                Credential::Key(key)
            }
            (None, Some(sas)) => Credential::Sas(read_sas(sas.expose()).map_err(|problem| {
                invalid(format!("has a SharedAccessSignature that {problem}"))
            })?),
            (None, None) => {
                let problem = "has neither AccountKey nor SharedAccessSignature";
                return Err(invalid(problem.to_owned()));
            }
        };
        Ok((name, endpoints, credential))
    }

    /// An account of the public cloud, and its key.
    ///
    /// # Errors
    /// If there can be no such account, or the key is none.
    pub fn with_key(name: &str, key: &str) -> Result<Self, InvalidAccount> {
        let key = SecretText::new(key);
        check_key(&key).map_err(|problem| InvalidAccount::new("the key", problem))?;
        Self::in_public_cloud(name, Credential::Key(key))
    }

    /// An account of the public cloud, and a shared access signature.
    ///
    /// # Errors
    /// If there can be no such account, or the signature is none.
    pub fn with_sas(name: &str, sas: &str) -> Result<Self, InvalidAccount> {
        let sas = read_sas(sas).map_err(|problem| InvalidAccount::new("the SAS", problem))?;
        Self::in_public_cloud(name, Credential::Sas(sas))
    }

    /// An account of the public cloud, and what gets tokens of Entra ID for it.
    /// Whoever it stands for needs the role Storage Blob, Queue or Table Data
    /// Contributor, for what is used.
    ///
    /// # Errors
    /// If there can be no such account.
    pub fn with_token(
        name: &str,
        credential: Arc<dyn TokenCredential>,
    ) -> Result<Self, InvalidAccount> {
        Self::in_public_cloud(name, Credential::Token(credential))
    }

    fn in_public_cloud(name: &str, credential: Credential) -> Result<Self, InvalidAccount> {
        let plain = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
        if name.is_empty() || !name.bytes().all(plain) {
            let problem = "is none that an account can have: small letters and digits only";
            return Err(InvalidAccount::new("the account's name", problem));
        }
        let none = Endpoints { blob: (), queue: (), table: () };
        let endpoints = none.map(|service, ()| {
            Url::parse(&format!("https://{name}.{service}.core.windows.net")).ok()
        });
        Ok(Self::new(name.to_owned(), endpoints, credential))
    }

    fn new(name: String, endpoints: Endpoints<Option<Url>>, credential: Credential) -> Self {
        let transport = transport(None);
        Self { name, endpoints, credential, transport, call_limit: CALL_LIMIT }
    }

    /// Where its tables are, if not at `https://NAME.table.core.windows.net`.
    ///
    /// # Errors
    /// If it is not an address, or would show a token to the network.
    pub fn table_endpoint(mut self, url: &str) -> Result<Self, InvalidAccount> {
        self.endpoints.table = Some(self.address("the address of the tables", url)?);
        Ok(self)
    }

    /// Where its blobs are, if not at `https://NAME.blob.core.windows.net`.
    ///
    /// # Errors
    /// As [`table_endpoint`](Self::table_endpoint).
    pub fn blob_endpoint(mut self, url: &str) -> Result<Self, InvalidAccount> {
        self.endpoints.blob = Some(self.address("the address of the blobs", url)?);
        Ok(self)
    }

    /// Where its queues are, if not at `https://NAME.queue.core.windows.net`.
    ///
    /// # Errors
    /// As [`table_endpoint`](Self::table_endpoint).
    pub fn queue_endpoint(mut self, url: &str) -> Result<Self, InvalidAccount> {
        self.endpoints.queue = Some(self.address("the address of the queues", url)?);
        Ok(self)
    }

    fn address(&self, what: &'static str, url: &str) -> Result<Url, InvalidAccount> {
        let url = read_url(url).map_err(|problem| InvalidAccount::new(what, problem))?.0;
        let token = matches!(self.credential, Credential::Token(_));
        if token && url.scheme() != "https" {
            let problem = "must begin with https:// because a token is sent";
            return Err(InvalidAccount::new(what, problem));
        }
        Ok(url)
    }

    /// How long one call to the account may take; 10 s if nothing is said.
    #[must_use]
    pub fn call_limit(mut self, limit: Duration) -> Self {
        self.call_limit = limit;
        self
    }

    /// What calls are sent by, if not by an HTTP client of its own.
    #[must_use]
    pub fn transport(mut self, transport: Transport) -> Self {
        self.transport = self::transport(Some(transport));
        self
    }

    /// The account's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its tables, ready to be called.
    pub(crate) fn tables(&self) -> Result<Service, InvalidAccount> {
        self.service("TableEndpoint", self.endpoints.table.as_ref(), Form::Table)
    }

    /// Its blobs.
    pub(crate) fn blobs(&self) -> Result<Service, InvalidAccount> {
        self.service("BlobEndpoint", self.endpoints.blob.as_ref(), Form::Other)
    }

    /// Its queues.
    pub(crate) fn queues(&self) -> Result<Service, InvalidAccount> {
        self.service("QueueEndpoint", self.endpoints.queue.as_ref(), Form::Other)
    }

    fn service(
        &self,
        setting: &str,
        url: Option<&Url>,
        form: Form,
    ) -> Result<Service, InvalidAccount> {
        let url = url.ok_or_else(|| {
            let problem = format!("does not say where this is: add AccountName or {setting} to it");
            InvalidAccount::new("the connection string", problem)
        })?;
        let access = match &self.credential {
            Credential::Key(key) => {
                Access::Policy(Arc::new(SharedKey::new(self.name.clone(), key.expose(), form)))
            }
            Credential::Sas(sas) => Access::Query(sas.clone()),
            Credential::Token(credential) => Access::Policy(Arc::new(
                BearerTokenAuthorizationPolicy::new(Arc::clone(credential), [SCOPE]),
            )),
        };
        Ok(Service::new(url.clone(), access, self.transport.clone(), self.call_limit))
    }
}

impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let credential = match &self.credential {
            Credential::Key(_) => "account key",
            Credential::Sas(_) => "shared access signature",
            Credential::Token(_) => "token",
        };
        f.debug_struct("Account")
            .field("name", &self.name)
            .field("endpoints", &self.endpoints.clone().map(|_, url| url.map(String::from)))
            .field("credential", &credential)
            .finish_non_exhaustive()
    }
}

/// Reads an address, and the signature that may be its query. No message
/// quotes it.
fn read_url(text: &str) -> Result<(Url, Option<SecretText>), String> {
    let mut url = Url::parse(text.trim()).map_err(|error| format!("is not a URL: {error}"))?;
    if !["http", "https"].contains(&url.scheme()) {
        return Err("must begin with https:// or http://".to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() || url.fragment().is_some() {
        return Err("must not have a user, a password or a # in it".to_owned());
    }
    let sas = url.query().filter(|query| !query.is_empty()).map(read_sas).transpose();
    let sas = sas.map_err(|problem| format!("has a query that {problem}"))?;
    url.set_query(None);
    let path = url.path().trim_end_matches('/').to_owned();
    // As emulators have it. Anything else may be a secret that got there by
    // mistake, and addresses are shown.
    if !path.is_empty() && !path.strip_prefix('/').is_some_and(is_account) {
        return Err(format!("has a path that {NO_ACCOUNT}"));
    }
    url.set_path(&path);
    Ok((url, sas))
}

const NO_ACCOUNT: &str = "is no account's name: 3 to 24 small letters and digits";

fn is_account(name: &str) -> bool {
    (3..=24).contains(&name.len())
        && name.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit())
}

/// The account is the path, as with emulators, or the first part of the host.
fn account_of(url: &Url) -> Option<String> {
    let path = url.path().trim_matches('/');
    if !path.is_empty() {
        return Some(path.to_owned());
    }
    let (account, rest) = url.host_str()?.split_once('.')?;
    let named = ["blob.", "queue.", "table."].iter().any(|service| rest.contains(service));
    named.then(|| account.to_owned())
}

/// No message quotes it.
fn read_sas(text: &str) -> Result<SecretText, String> {
    let text = text.trim().trim_start_matches('?');
    if text.split('&').any(|pair| pair.starts_with("sig=") && pair.len() > "sig=".len()) {
        Ok(SecretText::new(text))
    } else {
        Err("is not a shared access signature: it has no sig=".to_owned())
    }
}

/// No message quotes it.
fn check_key(key: &SecretText) -> Result<(), String> {
    match base64::decode(key.expose()) {
        Ok(bytes) if !bytes.is_empty() => Ok(()),
        _ => Err("is not an account's key, which is written in base64".to_owned()),
    }
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests {
    use super::*;

    fn shown(account: &Account) -> Endpoints<String> {
        account.endpoints.clone().map(|_, url| url.map(String::from).unwrap_or_default())
    }

    #[test]
    fn what_is_not_known_is_said_when_it_is_needed() {
        let text = "BlobEndpoint=https://acme.blob.core.windows.net/?sv=1&sig=hush";
        let account = Account::from_connection_string(text).unwrap();
        assert_eq!(account.name(), "acme");
        assert!(account.blobs().is_ok());
        let problem = account.queues().unwrap_err().to_string();
        assert!(problem.contains("add AccountName or QueueEndpoint"), "{problem}");
    }

    #[test]
    fn what_the_portal_writes_is_read() {
        let account = Account::from_connection_string(
            "DefaultEndpointsProtocol=https;AccountName=acme;AccountKey=a2V5PT0=;\
             EndpointSuffix=core.chinacloudapi.cn",
        )
        .unwrap();
        assert_eq!(account.name(), "acme");
        let Endpoints { blob, queue, table } = shown(&account);
        assert_eq!(blob, "https://acme.blob.core.chinacloudapi.cn/");
        assert_eq!(queue, "https://acme.queue.core.chinacloudapi.cn/");
        assert_eq!(table, "https://acme.table.core.chinacloudapi.cn/");
        let account = Account::from_connection_string(" usedevelopmentstorage=TRUE ; ").unwrap();
        assert_eq!(account.name(), "devstoreaccount1");
        let Endpoints { blob, queue, table } = shown(&account);
        assert_eq!(blob, "http://127.0.0.1:10000/devstoreaccount1");
        assert_eq!(queue, "http://127.0.0.1:10001/devstoreaccount1");
        assert_eq!(table, "http://127.0.0.1:10002/devstoreaccount1");
    }

    #[test]
    fn the_account_is_found_in_the_address() {
        for (endpoint, name) in [
            ("https://acme.table.core.windows.net", "acme"),
            ("https://acme.privatelink.table.core.windows.net/", "acme"),
            ("http://[::1]:10002/devstoreaccount1/", "devstoreaccount1"),
        ] {
            let text = format!("TableEndpoint={endpoint};SharedAccessSignature=sv=1&sig=a%2Bb");
            let account = Account::from_connection_string(&text).unwrap();
            assert_eq!(account.name(), name, "{endpoint}");
        }
    }

    #[test]
    fn what_is_wrong_is_said_without_values() {
        for (text, hint) in [
            ("", "neither AccountName nor any of"),
            ("AccountName=acme;hush", "a part 2 that is not"),
            ("AccountName=acme;accountname=hush", "accountname twice"),
            ("AccountName=acme;AccountKey=hush!", "has an AccountKey that is not"),
            ("AccountName=acme;AccountKey=aHVzaA==;SharedAccessSignature=hush", "leave one out"),
            ("AccountName=acme;SharedAccessSignature=hush", "has no sig="),
            ("AccountName=acme", "neither AccountKey nor SharedAccessSignature"),
            ("TableEndpoint=https://10.0.0.1;AccountKey=aHVzaA==", "no AccountName"),
            ("TableEndpoint=ftp://hush;AccountKey=aHVzaA==", "must begin with https"),
            ("TableEndpoint=https://u:hush@acme.table.x;AccountKey=aHVzaA==", "must not have"),
            ("TableEndpoint=http://127.0.0.1:1/AccountKey=hush;AccountKey=aHVzaA==", "a path that"),
            ("TableEndpoint=https://acme.table.x/a/hush;AccountKey=aHVzaA==", "a path that"),
            (
                "TableEndpoint=https://x;AccountName=Hush-hush;AccountKey=aHVzaA==",
                "AccountName that",
            ),
        ] {
            let problem = Account::from_connection_string(text).unwrap_err().to_string();
            assert!(problem.contains(hint), "{text}: {problem}");
            assert!(!problem.contains("hush"), "{problem}");
        }
        let account = Account::with_key("acme", "aHVzaA==").unwrap();
        for url in ["https://acme.table.x/AccountKey=hush", "https://u:hush@acme.table.x"] {
            let problem = account.clone().table_endpoint(url).unwrap_err().to_string();
            assert!(!problem.contains("hush"), "{problem}");
        }
        assert!(Account::with_key("acme", "hush!").is_err());
        assert!(Account::with_key("a.b/", "aHVzaA==").is_err());
        assert!(Account::with_sas("acme", "hush").is_err());
    }

    #[test]
    fn no_secret_is_shown() {
        let key = Account::with_key("acme", "aHVzaA==").unwrap();
        let sas = Account::with_sas("acme", "?sv=1&sig=hush").unwrap();
        for account in [key, sas] {
            let shown = format!("{account:?} {:?} {:?}", account.tables(), account.blobs());
            assert!(!shown.contains("hush") && !shown.contains("aHVzaA"), "{shown}");
        }
    }
}
