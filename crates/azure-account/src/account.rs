//! Account with all of its services, as the users of the fences describe it.

use std::{fmt, sync::Arc, time::Duration};

use azure_core::{
    credentials::TokenCredential,
    http::{Transport, Url},
};

use crate::{
    AuthMethod, ConnectionString, Form, SecretText, Service, ServiceKind, check_key,
    endpoint::{Endpoints, account_name, is_account_name, parse_endpoint, parse_sas},
    redacting, transport,
};

/// Default timeout of one call.
const CALL_LIMIT: Duration = Duration::from_secs(10);

/// Invalid description of an account. The message quotes no secret.
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
    auth: Auth,
    transport: Transport,
    call_limit: Duration,
}

type Auth = AuthMethod<Arc<dyn TokenCredential>>;

/// Name, addresses and authentication method.
type Description = (String, Endpoints<Option<Url>>, Auth);

impl Account {
    /// From a connection string, with a key or a shared access signature;
    /// `UseDevelopmentStorage=true` is Azurite on its usual port.
    ///
    /// # Errors
    /// If it can't be read, or lacks something.
    pub fn from_connection_string(text: &str) -> Result<Self, InvalidAccount> {
        let (name, endpoints, auth) = Self::read(text)?;
        Ok(Self::new(name, endpoints, auth))
    }

    fn read(text: &str) -> Result<Description, InvalidAccount> {
        let invalid = |problem: String| InvalidAccount::new("the connection string", problem);
        let read = ConnectionString::parse(text).map_err(invalid)?;
        let (mut url_sas, mut name, mut problem) = (None, read.account.clone(), None);
        let none = Endpoints { blob: (), queue: (), table: () };
        let endpoints = none.map(|kind, ()| {
            let parsed = read.endpoint(kind).and_then(|text| {
                let parsed = text.map(|text| parse_service_url(text.expose())).transpose();
                parsed.map_err(|why| format!("has an address for {}s that {why}", kind.name()))
            });
            let (url, sas) = parsed.unwrap_or_else(|why| {
                problem = Some(why);
                None
            })?;
            url_sas = url_sas.take().or(sas);
            name = name.take().or_else(|| account_name(&url, kind));
            Some(url)
        });
        if let Some(problem) = problem {
            return Err(invalid(problem));
        }
        let Endpoints { blob: None, queue: None, table: None } = &endpoints else {
            let name = name.ok_or_else(|| invalid("has no AccountName".to_owned()))?;
            if !is_account_name(&name) {
                return Err(invalid(format!("has an AccountName that {NO_ACCOUNT}")));
            }
            let auth = Self::auth_method(&name, read, url_sas).map_err(invalid)?;
            return Ok((name, endpoints, auth));
        };
        let services = "BlobEndpoint, QueueEndpoint or TableEndpoint";
        Err(invalid(format!("has neither AccountName nor any of {services}")))
    }

    fn auth_method(
        name: &str,
        read: ConnectionString,
        url_sas: Option<SecretText>,
    ) -> Result<Auth, String> {
        match (read.key, read.sas.or(url_sas)) {
            (Some(key), _) => {
                check_key(key.expose())
                    .map_err(|problem| format!("has an AccountKey that {problem}"))?;
                Ok(AuthMethod::Key { account: name.to_owned(), key })
            }
            (None, Some(sas)) => {
                let sas = parse_sas(sas.expose());
                sas.map(AuthMethod::Sas)
                    .map_err(|problem| format!("has a SharedAccessSignature that {problem}"))
            }
            (None, None) => Err("has neither AccountKey nor SharedAccessSignature".to_owned()),
        }
    }

    /// An account of the public cloud, and its key.
    ///
    /// # Errors
    /// If there can be no such account, or the key is none.
    pub fn with_key(name: &str, key: &str) -> Result<Self, InvalidAccount> {
        check_key(key).map_err(|problem| InvalidAccount::new("the key", problem))?;
        let auth = AuthMethod::Key { account: name.to_owned(), key: SecretText::new(key) };
        Self::in_public_cloud(name, auth)
    }

    /// An account of the public cloud, and a shared access signature.
    ///
    /// # Errors
    /// If there can be no such account, or the signature is none.
    pub fn with_sas(name: &str, sas: &str) -> Result<Self, InvalidAccount> {
        let sas = parse_sas(sas).map_err(|problem| InvalidAccount::new("the SAS", problem))?;
        Self::in_public_cloud(name, AuthMethod::Sas(sas))
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
        Self::in_public_cloud(name, AuthMethod::Token(credential))
    }

    fn in_public_cloud(name: &str, auth: Auth) -> Result<Self, InvalidAccount> {
        let plain = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
        if name.is_empty() || !name.bytes().all(plain) {
            let problem = "is none that an account can have: small letters and digits only";
            return Err(InvalidAccount::new("the account's name", problem));
        }
        let none = Endpoints { blob: (), queue: (), table: () };
        let endpoints = none.map(|kind, ()| {
            Url::parse(&format!("https://{name}.{}.core.windows.net", kind.name())).ok()
        });
        Ok(Self::new(name.to_owned(), endpoints, auth))
    }

    fn new(name: String, endpoints: Endpoints<Option<Url>>, auth: Auth) -> Self {
        Self { name, endpoints, auth, transport: transport(), call_limit: CALL_LIMIT }
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
        let url = parse_service_url(url).map_err(|problem| InvalidAccount::new(what, problem))?.0;
        let token = matches!(self.auth, AuthMethod::Token(_));
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
        self.transport = redacting(transport);
        self
    }

    /// The account's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns a service of the account, ready to be called.
    ///
    /// # Errors
    /// If the address of the service is not known.
    pub fn service(&self, kind: ServiceKind) -> Result<Service, InvalidAccount> {
        let url = self.endpoints.get(kind).clone().ok_or_else(|| {
            let setting = match kind {
                ServiceKind::Blob => "BlobEndpoint",
                ServiceKind::Queue => "QueueEndpoint",
                ServiceKind::Table => "TableEndpoint",
            };
            let problem = format!("does not say where this is: add AccountName or {setting} to it");
            InvalidAccount::new("the connection string", problem)
        })?;
        let form = match kind {
            ServiceKind::Table => Form::Table,
            ServiceKind::Blob | ServiceKind::Queue => Form::Other,
        };
        Ok(Service::new(url, &self.auth, form, self.transport.clone(), self.call_limit))
    }
}

impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let credential = match &self.auth {
            AuthMethod::Key { .. } => "account key",
            AuthMethod::Sas(_) => "shared access signature",
            AuthMethod::Token(_) => "token",
        };
        f.debug_struct("Account")
            .field("name", &self.name)
            .field("endpoints", &self.endpoints.clone().map(|_, url| url.map(String::from)))
            .field("credential", &credential)
            .finish_non_exhaustive()
    }
}

/// Parses the address of a service, and the signature that may be its query. No
/// message quotes it.
fn parse_service_url(text: &str) -> Result<(Url, Option<SecretText>), String> {
    let (url, sas) = parse_endpoint(text)?;
    let path = url.path().trim_matches('/');
    // As emulators have it. Anything else may be a secret that was put there by
    // mistake, and addresses are printed.
    if !path.is_empty() && !is_account_name(path) {
        return Err(format!("has a path that {NO_ACCOUNT}"));
    }
    Ok((url, sas))
}

const NO_ACCOUNT: &str = "is no account's name: 3 to 24 small letters and digits";

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
        assert!(account.service(ServiceKind::Blob).is_ok());
        let problem = account.service(ServiceKind::Queue).unwrap_err().to_string();
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
            let shown = format!(
                "{account:?} {:?} {:?}",
                account.service(ServiceKind::Table),
                account.service(ServiceKind::Blob)
            );
            assert!(!shown.contains("hush") && !shown.contains("aHVzaA"), "{shown}");
        }
    }
}
