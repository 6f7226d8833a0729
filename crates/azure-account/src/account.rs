//! Account with all its services, described by users of the fences.

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
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Invalid description of an account. The message quotes no secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{subject} {problem}")]
pub struct InvalidAccount {
    subject: &'static str,
    problem: String,
}

impl InvalidAccount {
    fn new(subject: &'static str, problem: impl Into<String>) -> Self {
        Self { subject, problem: problem.into() }
    }
}

/// Storage account. Nothing is sent before its first use.
#[derive(Clone)]
pub struct Account {
    name: String,
    endpoints: Endpoints<Option<Url>>,
    auth: Auth,
    transport: Transport,
    call_timeout: Duration,
}

type Auth = AuthMethod<Arc<dyn TokenCredential>>;

/// Name, addresses and authentication method.
type Description = (String, Endpoints<Option<Url>>, Auth);

impl Account {
    /// Creates an account from a connection string with an account key or a shared
    /// access signature. `UseDevelopmentStorage=true` means Azurite on its default
    /// ports.
    ///
    /// # Errors
    /// If the connection string is invalid or incomplete.
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
                parsed.map_err(|why| format!("has a {} endpoint that {why}", kind.name()))
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

    /// Creates an account in the public cloud, with its key.
    ///
    /// # Errors
    /// If the name or the key is invalid.
    pub fn with_key(name: &str, key: &str) -> Result<Self, InvalidAccount> {
        check_key(key).map_err(|problem| InvalidAccount::new("the key", problem))?;
        let auth = AuthMethod::Key { account: name.to_owned(), key: SecretText::new(key) };
        Self::in_public_cloud(name, auth)
    }

    /// Creates an account in the public cloud, with a shared access signature.
    ///
    /// # Errors
    /// If the name or the signature is invalid.
    pub fn with_sas(name: &str, sas: &str) -> Result<Self, InvalidAccount> {
        let sas = parse_sas(sas).map_err(|problem| InvalidAccount::new("the SAS", problem))?;
        Self::in_public_cloud(name, AuthMethod::Sas(sas))
    }

    /// Creates an account in the public cloud, with a source of Entra ID access
    /// tokens. Its identity needs the role Storage Blob, Queue or Table Data
    /// Contributor, depending on the services used.
    ///
    /// # Errors
    /// If the name is invalid.
    pub fn with_token(
        name: &str,
        credential: Arc<dyn TokenCredential>,
    ) -> Result<Self, InvalidAccount> {
        Self::in_public_cloud(name, AuthMethod::Token(credential))
    }

    fn in_public_cloud(name: &str, auth: Auth) -> Result<Self, InvalidAccount> {
        let plain = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
        if name.is_empty() || !name.bytes().all(plain) {
            let problem = "is invalid: lowercase letters and digits only";
            return Err(InvalidAccount::new("the account name", problem));
        }
        let none = Endpoints { blob: (), queue: (), table: () };
        let endpoints = none.map(|kind, ()| {
            Url::parse(&format!("https://{name}.{}.core.windows.net", kind.name())).ok()
        });
        Ok(Self::new(name.to_owned(), endpoints, auth))
    }

    fn new(name: String, endpoints: Endpoints<Option<Url>>, auth: Auth) -> Self {
        Self { name, endpoints, auth, transport: transport(), call_timeout: CALL_TIMEOUT }
    }

    /// Sets the URL of the table service. Default:
    /// `https://NAME.table.core.windows.net`.
    ///
    /// # Errors
    /// If the URL is invalid, or would send an access token over http.
    pub fn table_endpoint(mut self, url: &str) -> Result<Self, InvalidAccount> {
        self.endpoints.table = Some(self.address("the table endpoint", url)?);
        Ok(self)
    }

    /// Sets the URL of the blob service. Default:
    /// `https://NAME.blob.core.windows.net`.
    ///
    /// # Errors
    /// As [`table_endpoint`](Self::table_endpoint).
    pub fn blob_endpoint(mut self, url: &str) -> Result<Self, InvalidAccount> {
        self.endpoints.blob = Some(self.address("the blob endpoint", url)?);
        Ok(self)
    }

    /// Sets the URL of the queue service. Default:
    /// `https://NAME.queue.core.windows.net`.
    ///
    /// # Errors
    /// As [`table_endpoint`](Self::table_endpoint).
    pub fn queue_endpoint(mut self, url: &str) -> Result<Self, InvalidAccount> {
        self.endpoints.queue = Some(self.address("the queue endpoint", url)?);
        Ok(self)
    }

    fn address(&self, subject: &'static str, url: &str) -> Result<Url, InvalidAccount> {
        let parsed = parse_service_url(url);
        let url = parsed.map_err(|problem| InvalidAccount::new(subject, problem))?.0;
        let token = matches!(self.auth, AuthMethod::Token(_));
        if token && url.scheme() != "https" {
            let problem = "must begin with https://, because http would expose the access token";
            return Err(InvalidAccount::new(subject, problem));
        }
        Ok(url)
    }

    /// Sets the timeout of one call to the account. Default: 10 s.
    #[must_use]
    pub fn call_timeout(mut self, timeout: Duration) -> Self {
        self.call_timeout = timeout;
        self
    }

    /// Sets the HTTP client. Default: a new one.
    #[must_use]
    pub fn transport(mut self, transport: Transport) -> Self {
        self.transport = redacting(transport);
        self
    }

    /// Returns the name of the account.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns a service of the account, ready to be called.
    ///
    /// # Errors
    /// If the URL of the service is unknown.
    pub fn service(&self, kind: ServiceKind) -> Result<Service, InvalidAccount> {
        let url = self.endpoints.get(kind).clone().ok_or_else(|| {
            let setting = match kind {
                ServiceKind::Blob => "BlobEndpoint",
                ServiceKind::Queue => "QueueEndpoint",
                ServiceKind::Table => "TableEndpoint",
            };
            let problem = format!("has no address for this service: add AccountName or {setting}");
            InvalidAccount::new("the connection string", problem)
        })?;
        let form = match kind {
            ServiceKind::Table => Form::Table,
            ServiceKind::Blob | ServiceKind::Queue => Form::Other,
        };
        Ok(Service::new(url, &self.auth, form, self.transport.clone(), self.call_timeout))
    }
}

impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let credential = match &self.auth {
            AuthMethod::Key { .. } => "account key",
            AuthMethod::Sas(_) => "shared access signature",
            AuthMethod::Token(_) => "access token",
        };
        f.debug_struct("Account")
            .field("name", &self.name)
            .field("endpoints", &self.endpoints.clone().map(|_, url| url.map(String::from)))
            .field("credential", &credential)
            .finish_non_exhaustive()
    }
}

/// Parses the URL of a service, whose query may be a shared access signature. No
/// message quotes it.
fn parse_service_url(text: &str) -> Result<(Url, Option<SecretText>), String> {
    let (url, sas) = parse_endpoint(text)?;
    let path = url.path().trim_matches('/');
    // Emulators have the account name in the path. Any other path may be a secret
    // that was put there by mistake, and URLs are printed.
    if !path.is_empty() && !is_account_name(path) {
        return Err(format!("has a path that {NO_ACCOUNT}"));
    }
    Ok((url, sas))
}

const NO_ACCOUNT: &str = "is not an account name: 3 to 24 lowercase letters and digits";

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests {
    use super::*;

    fn endpoints(account: &Account) -> Endpoints<String> {
        account.endpoints.clone().map(|_, url| url.map(String::from).unwrap_or_default())
    }

    #[test]
    fn missing_endpoint_is_reported_on_use() {
        let text = "BlobEndpoint=https://acme.blob.core.windows.net/?sv=1&sig=mysecret";
        let account = Account::from_connection_string(text).unwrap();
        assert_eq!(account.name(), "acme");
        assert!(account.service(ServiceKind::Blob).is_ok());
        let problem = account.service(ServiceKind::Queue).unwrap_err().to_string();
        assert!(problem.contains("add AccountName or QueueEndpoint"), "{problem}");
    }

    #[test]
    fn connection_string_of_portal_and_emulator_is_parsed() {
        let account = Account::from_connection_string(
            "DefaultEndpointsProtocol=https;AccountName=acme;AccountKey=a2V5PT0=;\
             EndpointSuffix=core.chinacloudapi.cn",
        )
        .unwrap();
        assert_eq!(account.name(), "acme");
        let Endpoints { blob, queue, table } = endpoints(&account);
        assert_eq!(blob, "https://acme.blob.core.chinacloudapi.cn/");
        assert_eq!(queue, "https://acme.queue.core.chinacloudapi.cn/");
        assert_eq!(table, "https://acme.table.core.chinacloudapi.cn/");
        let account = Account::from_connection_string(" usedevelopmentstorage=TRUE ; ").unwrap();
        assert_eq!(account.name(), "devstoreaccount1");
        let Endpoints { blob, queue, table } = endpoints(&account);
        assert_eq!(blob, "http://127.0.0.1:10000/devstoreaccount1");
        assert_eq!(queue, "http://127.0.0.1:10001/devstoreaccount1");
        assert_eq!(table, "http://127.0.0.1:10002/devstoreaccount1");
    }

    #[test]
    fn account_name_is_parsed_from_endpoint() {
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
    fn errors_do_not_contain_values() {
        for (text, hint) in [
            ("", "neither AccountName nor any of"),
            ("AccountName=acme;mysecret", "a part 2 that is not"),
            ("AccountName=acme;accountname=mysecret", "accountname twice"),
            ("AccountName=acme;AccountKey=mysecret!", "has an AccountKey that is not"),
            (
                "AccountName=acme;AccountKey=aHVzaA==;SharedAccessSignature=mysecret",
                "leave one out",
            ),
            ("AccountName=acme;SharedAccessSignature=mysecret", "has no sig="),
            ("AccountName=acme", "neither AccountKey nor SharedAccessSignature"),
            ("TableEndpoint=https://10.0.0.1;AccountKey=aHVzaA==", "no AccountName"),
            ("TableEndpoint=ftp://mysecret;AccountKey=aHVzaA==", "must begin with https"),
            (
                "TableEndpoint=https://u:mysecret@acme.table.x;AccountKey=aHVzaA==",
                "must not contain",
            ),
            (
                "TableEndpoint=http://127.0.0.1:1/AccountKey=mysecret;AccountKey=aHVzaA==",
                "a path that",
            ),
            ("TableEndpoint=https://acme.table.x/a/mysecret;AccountKey=aHVzaA==", "a path that"),
            (
                "TableEndpoint=https://x;AccountName=Mysecret-mysecret;AccountKey=aHVzaA==",
                "AccountName that",
            ),
        ] {
            let problem = Account::from_connection_string(text).unwrap_err().to_string();
            assert!(problem.contains(hint), "{text}: {problem}");
            assert!(!problem.contains("mysecret"), "{problem}");
        }
        let account = Account::with_key("acme", "aHVzaA==").unwrap();
        for url in ["https://acme.table.x/AccountKey=mysecret", "https://u:mysecret@acme.table.x"] {
            let problem = account.clone().table_endpoint(url).unwrap_err().to_string();
            assert!(!problem.contains("mysecret"), "{problem}");
        }
        assert!(Account::with_key("acme", "mysecret!").is_err());
        assert!(Account::with_key("a.b/", "aHVzaA==").is_err());
        assert!(Account::with_sas("acme", "mysecret").is_err());
    }

    #[test]
    fn debug_contains_no_secret() {
        let key = Account::with_key("acme", "aHVzaA==").unwrap();
        let sas = Account::with_sas("acme", "?sv=1&sig=mysecret").unwrap();
        for account in [key, sas] {
            let text = format!(
                "{account:?} {:?} {:?}",
                account.service(ServiceKind::Table),
                account.service(ServiceKind::Blob)
            );
            assert!(!text.contains("mysecret") && !text.contains("aHVzaA"), "{text}");
        }
    }
}
