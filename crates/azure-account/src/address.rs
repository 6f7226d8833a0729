//! URL and authentication method of the daemon's account, determined from the
//! settings without a storage call.

use azure_core::http::Url;

use crate::{
    AuthMethod, SecretText,
    connection_string::ConnectionString,
    credentials::{Credential, CredentialSource, Identity},
    endpoint::{ServiceKind, account_name, check_key, parse_endpoint, parse_sas},
};

/// Settings of the daemon that describe an account.
#[derive(Debug, Clone)]
pub struct AccountSettings {
    /// URL of the account's blob service, without a query.
    pub account_url: Option<String>,
    /// Query of that URL: a shared access signature.
    pub url_sas: Option<SecretText>,
    /// Connection string: account and credential.
    pub connection_string: Option<SecretText>,
    /// Key of the account.
    pub account_key: Option<SecretText>,
    /// Shared access signature, without a leading question mark.
    pub sas: Option<SecretText>,
    /// Configured credential.
    pub credential: Credential,
    /// Identity in the environment.
    pub identity: Identity,
}

/// Missing or contradictory setting.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key} {problem}")]
pub struct InvalidSetting {
    /// Key of the setting.
    pub key: &'static str,
    /// Problem and fix.
    pub problem: String,
}

impl InvalidSetting {
    pub(crate) fn new(key: &'static str, problem: impl Into<String>) -> Self {
        Self { key, problem: problem.into() }
    }
}

/// URL and authentication method of an account.
#[derive(Debug)]
pub struct Address {
    /// URL of the blob service, without a query.
    pub url: Url,
    /// Authentication method. Access tokens come from the first source that
    /// works.
    pub auth: AuthMethod<Vec<CredentialSource>>,
}

impl Address {
    /// Determines the address from the settings.
    ///
    /// # Errors
    /// If a setting is missing, invalid or contradicts another.
    pub fn of(settings: &AccountSettings) -> Result<Self, InvalidSetting> {
        match (&settings.account_url, &settings.connection_string) {
            (Some(_), Some(_)) => Err(InvalidSetting::new(
                "azure_account_url",
                "must not be set together with azure_connection_string, which also names an \
                 account; leave one of them out",
            )),
            (None, None) => Err(InvalidSetting::new("store", NO_ACCOUNT)),
            (None, Some(text)) => match settings.credential {
                Credential::Auto | Credential::ConnectionString => {
                    Self::from_connection_string(text.expose())
                        .map_err(|problem| InvalidSetting::new("azure_connection_string", problem))
                }
                _ => Err(InvalidSetting::new(
                    "azure_credential",
                    "requires azure_account_url instead of azure_connection_string, which contains \
                     its own credential",
                )),
            },
            (Some(url), None) => Self::from_url(settings, url),
        }
    }

    fn from_url(settings: &AccountSettings, url: &str) -> Result<Self, InvalidSetting> {
        let (url, _) = parse_account_url(url)
            .map_err(|problem| InvalidSetting::new("azure_account_url", problem))?;
        if settings.sas.is_some() && settings.url_sas.is_some() {
            return Err(InvalidSetting::new(
                "azure_sas",
                "must not be set if azure_account_url has a query, which is also a shared access \
                 signature; leave one of them out",
            ));
        }
        let sas = settings.sas.as_ref().or(settings.url_sas.as_ref());
        let auth = match (settings.credential, &settings.account_key, sas) {
            (Credential::Auto | Credential::AccountKey, Some(key), _) => {
                let account = account_name(&url, ServiceKind::Blob)
                    .ok_or_else(|| InvalidSetting::new("azure_account_url", NO_ACCOUNT_NAME))?;
                AuthMethod::Key { account, key: key.clone() }
            }
            (Credential::Auto | Credential::Sas, _, Some(sas)) => AuthMethod::Sas(sas.clone()),
            (Credential::ConnectionString, ..) => {
                return Err(lacks("azure_connection_string in place of azure_account_url"));
            }
            (Credential::AccountKey, None, _) => return Err(lacks("azure_account_key")),
            (Credential::Sas, _, None) => return Err(lacks("azure_sas")),
            (credential, ..) => {
                AuthMethod::Token(CredentialSource::all(credential, &settings.identity)?)
            }
        };
        if matches!(auth, AuthMethod::Token(_)) && url.scheme() != "https" {
            return Err(InvalidSetting::new("azure_account_url", TOKEN_NEEDS_HTTPS));
        }
        Ok(Self { url, auth })
    }

    /// Parses a connection string.
    ///
    /// # Errors
    /// The problem, without quoting a value.
    pub fn from_connection_string(text: &str) -> Result<Self, String> {
        let read = ConnectionString::parse_strict(text)?;
        let endpoint = read.endpoint(ServiceKind::Blob)?;
        let endpoint = endpoint.ok_or("has neither AccountName nor BlobEndpoint")?;
        let (url, url_sas) = parse_account_url(endpoint.expose())
            .map_err(|problem| format!("has a BlobEndpoint that {problem}"))?;
        let auth = if let Some(key) = read.key {
            check_key(key.expose())
                .map_err(|problem| format!("has an AccountKey that {problem}"))?;
            let account = read.account.or_else(|| account_name(&url, ServiceKind::Blob));
            AuthMethod::Key { account: account.ok_or("has no AccountName")?, key }
        } else if let Some(sas) = read.sas {
            let sas = parse_sas(sas.expose())
                .map_err(|problem| format!("has a SharedAccessSignature that {problem}"))?;
            AuthMethod::Sas(sas)
        } else if let Some(sas) = url_sas {
            AuthMethod::Sas(sas)
        } else {
            return Err("has no AccountKey and no SharedAccessSignature; to use Entra ID, set \
                        azure_account_url instead"
                .to_owned());
        };
        Ok(Self { url, auth })
    }
}

const NO_ACCOUNT: &str = "requires an account: set azure_account_url, such as \
    \"https://ACCOUNT.blob.core.windows.net\" (environment variable LEASEHOLD_AZURE_ACCOUNT_URL), \
    or azure_connection_string (environment variable LEASEHOLD_AZURE_CONNECTION_STRING), which for \
    Azurite on its default port is \"UseDevelopmentStorage=true\"";

const NO_ACCOUNT_NAME: &str = "does not contain the account name, which azure_account_key \
    requires. Use \"https://ACCOUNT.blob.core.windows.net\" or \"http://HOST:PORT/ACCOUNT\"; for \
    any other URL, set azure_connection_string with AccountName, AccountKey and BlobEndpoint";

const TOKEN_NEEDS_HTTPS: &str = "must begin with https://, because http would expose the access \
    token. For an emulator, set azure_connection_string or azure_account_key";

fn lacks(key: &str) -> InvalidSetting {
    let variable = key.split(' ').next().unwrap_or(key).to_uppercase();
    InvalidSetting::new(
        "azure_credential",
        format!("requires {key} (environment variable LEASEHOLD_{variable})"),
    )
}

/// Parses the URL of an account's blob service, whose query may be a shared
/// access signature.
///
/// # Errors
/// The problem, without quoting the text.
pub fn parse_account_url(text: &str) -> Result<(Url, Option<SecretText>), String> {
    let (url, sas) = parse_endpoint(text)?;
    let path = url.path().trim_matches('/');
    let has_account_in_host = ServiceKind::Blob.is_host_of_account(&url);
    if path.contains('/') || (!path.is_empty() && has_account_in_host) {
        return Err("must name the account only; set the container with azure_container and the \
                    prefix of the blobs with azure_prefix"
            .to_owned());
    }
    // The URL is printed. It must not contain a part of a key or of a connection
    // string that was put here by mistake.
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._:/[]".contains(c);
    if !url.as_str().chars().all(plain) {
        return Err("has an invalid character; use \
                    \"https://ACCOUNT.blob.core.windows.net\" or \"http://HOST:PORT/ACCOUNT\""
            .to_owned());
    }
    Ok((url, sas))
}

#[cfg(test)]
mod tests {
    use leasehold_fuzz::Fuzz;

    use super::*;

    fn settings(url: &Url, url_sas: Option<SecretText>) -> AccountSettings {
        AccountSettings {
            account_url: Some(url.to_string()),
            url_sas,
            connection_string: None,
            account_key: None,
            sas: None,
            credential: Credential::Auto,
            identity: Identity::default(),
        }
    }

    #[test]
    fn account_name_is_parsed_from_url() {
        for (text, account) in [
            ("https://acme.blob.core.windows.net", Some("acme")),
            ("https://acme.blob.core.windows.net/", Some("acme")),
            ("https://acme.z7.blob.storage.azure.net", Some("acme")),
            ("https://acme.privatelink.blob.core.usgovcloudapi.net", Some("acme")),
            ("http://127.0.0.1:10000/devstoreaccount1", Some("devstoreaccount1")),
            ("http://[::1]:10000/devstoreaccount1//", Some("devstoreaccount1")),
            ("http://localhost:10000/devstoreaccount1", Some("devstoreaccount1")),
            ("http://azurite:10000/acme", Some("acme")),
            ("http://acme.blob.localhost:10000", Some("acme")),
            ("https://locks.example", None),
            ("http://127.0.0.1:10000", None),
        ] {
            let (url, sas) = parse_account_url(text).unwrap();
            assert_eq!(account_name(&url, ServiceKind::Blob).as_deref(), account, "{text}");
            assert_eq!(sas, None);
        }
    }

    #[test]
    fn invalid_characters_in_url_are_refused() {
        for text in [
            "https://acme.example/AccountKey=mysecret",
            "https://sig=mysecret",
            "http://h/a;mysecret",
        ] {
            let problem = parse_account_url(text).unwrap_err();
            assert!(problem.contains("an invalid character"), "{problem}");
            assert!(!problem.contains("mysecret"), "{problem}");
        }
    }

    #[test]
    fn query_of_url_is_sas() {
        let (url, sas) = parse_account_url("https://acme.example/?sv=1&sig=a%2Bb").unwrap();
        assert_eq!(url.as_str(), "https://acme.example/");
        assert_eq!(sas, Some(SecretText::new("sv=1&sig=a%2Bb")));
        assert_eq!(parse_sas(" ?sig=x ").unwrap(), SecretText::new("sig=x"));
    }

    #[test]
    fn auto_credential_prefers_key_then_sas_then_token() {
        let (url, _) = parse_account_url("https://acme.blob.core.windows.net").unwrap();
        let mut azure = settings(&url, None);
        let auth = |settings: &AccountSettings| Address::of(settings).unwrap().auth;
        assert!(matches!(auth(&azure), AuthMethod::Token(_)));
        azure.sas = Some(SecretText::new("sig=x"));
        assert!(matches!(auth(&azure), AuthMethod::Sas(_)));
        azure.account_key = Some(SecretText::new("a2V5"));
        assert!(matches!(auth(&azure), AuthMethod::Key { account, .. } if account == "acme"));
        azure.credential = Credential::Sas;
        assert!(matches!(auth(&azure), AuthMethod::Sas(_)));
        azure.credential = Credential::AzureCli;
        assert!(
            matches!(auth(&azure), AuthMethod::Token(sources) if sources == [CredentialSource::AzureCli])
        );
    }

    #[test]
    fn connection_string_determines_auth_method() {
        let key = "AccountKey=a2V5;BlobEndpoint=http://127.0.0.1:9/acme/";
        let Address { url, auth } = Address::from_connection_string(key).unwrap();
        assert_eq!(url.as_str(), "http://127.0.0.1:9/acme");
        assert!(matches!(auth, AuthMethod::Key { account, .. } if account == "acme"));
        for sas in [
            "BlobEndpoint=https://acme.example;SharedAccessSignature=?sv=1&sig=x",
            "BlobEndpoint=https://acme.example/?sv=1&sig=x",
        ] {
            let Address { url, auth } = Address::from_connection_string(sas).unwrap();
            assert_eq!(url.as_str(), "https://acme.example/");
            assert!(matches!(auth, AuthMethod::Sas(sas) if sas.expose() == "sv=1&sig=x"));
        }
        let nameless = "AccountKey=a2V5;BlobEndpoint=https://locks.example";
        assert_eq!(Address::from_connection_string(nameless).unwrap_err(), "has no AccountName");
        for text in ["", "AccountKey=mysecret"] {
            let problem = Address::from_connection_string(text).unwrap_err();
            assert_eq!(problem, "has neither AccountName nor BlobEndpoint");
        }
    }

    /// Secret, regardless of its place in the input.
    const SECRET: &str = "aHVzaGh1c2g";

    const WORDS: &[&str] = &[
        SECRET,
        "AccountName=",
        "AccountKey=",
        "BlobEndpoint=",
        "SharedAccessSignature=",
        "EndpointSuffix=",
        "DefaultEndpointsProtocol=",
        "UseDevelopmentStorage=true",
        "DevelopmentStorageProxyUri=",
        "https://",
        "http://127.0.0.1:10000/",
        ".blob.core.windows.net",
        "sig=",
        "sv=1&sig=",
        "?",
        "#",
        "@",
        ":",
        "[::1]",
    ];

    #[test]
    fn account_settings_never_leak_secrets_fuzzed() {
        Fuzz::new("account").words(WORDS).run(|input| {
            let text = String::from_utf8_lossy(input);
            let mut outcomes = Vec::new();
            let mut record = |outcome: Result<String, String>| {
                if let Err(problem) = &outcome {
                    assert!(!problem.contains(SECRET), "{problem}");
                }
                outcomes.push(outcome.unwrap_or_else(|problem| problem));
            };
            record(ConnectionString::parse(&text).map(|read| {
                // The account name is not secret.
                let named = read.account.as_ref().is_some_and(|account| account.contains(SECRET));
                assert!(named || !format!("{read:?}").contains(SECRET), "{read:?}");
                format!("{} {}", read.key.is_some(), read.sas.is_some())
            }));
            record(Address::from_connection_string(&text).map(|address| check(&address)));
            record(parse_account_url(&text).map(|(url, sas)| {
                assert_eq!((url.query(), url.fragment(), url.password()), (None, None, None));
                // A parsed URL parses to itself.
                assert_eq!(parse_account_url(url.as_str()), Ok((url.clone(), None)), "{url}");
                let azure = AccountSettings {
                    account_key: Some(SecretText::new("a2V5")),
                    ..settings(&url, sas)
                };
                Address::of(&azure).map_or_else(|problem| problem.problem, |found| check(&found))
            }));
            record(parse_sas(&text).map(|sas| format!("{sas:?}")));
            record(check_key(&text).map(|()| "a key".to_owned()));
            outcomes.join("|")
        });
    }

    /// Checks that no output contains the secret. Returns the kind of access.
    fn check(address: &Address) -> String {
        let Address { url, auth } = address;
        let text = format!("{address:?}");
        let account = matches!(auth, AuthMethod::Key { account, .. } if account.contains(SECRET));
        assert!(!text.contains(SECRET) || account || url.as_str().contains(SECRET), "{text}");
        assert!(url.query().is_none() && url.username().is_empty(), "{url}");
        match auth {
            AuthMethod::Key { .. } => format!("{} key", url.scheme()),
            AuthMethod::Sas(_) => format!("{} sas", url.scheme()),
            AuthMethod::Token(_) => format!("{} token", url.scheme()),
        }
    }
}
