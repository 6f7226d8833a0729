//! Address of the daemon's account and its authentication method, determined
//! from the settings alone, without any call.

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
    /// Address of the account's blobs, without a query.
    pub account_url: Option<String>,
    /// Query of that address: a shared access signature.
    pub url_sas: Option<SecretText>,
    /// Account and a credential for it, in one.
    pub connection_string: Option<SecretText>,
    /// Key of the account.
    pub account_key: Option<SecretText>,
    /// Shared access signature, without a question mark in front.
    pub sas: Option<SecretText>,
    /// Choice of the credential.
    pub credential: Credential,
    /// Identity that the environment describes.
    pub identity: Identity,
}

/// Missing or contradictory setting.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key} {problem}")]
pub struct InvalidSetting {
    /// The setting that is to be changed.
    pub key: &'static str,
    /// The problem, and the fix.
    pub problem: String,
}

impl InvalidSetting {
    pub(crate) fn new(key: &'static str, problem: impl Into<String>) -> Self {
        Self { key, problem: problem.into() }
    }
}

/// An account that can be called.
#[derive(Debug)]
pub struct Address {
    /// Address of the blobs, without a query.
    pub url: Url,
    /// Authentication method. The first source that works provides the access
    /// tokens.
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
                "must not be given together with azure_connection_string, which names an \
                 account too; leave one of them out",
            )),
            (None, None) => Err(InvalidSetting::new("store", NO_ACCOUNT)),
            (None, Some(text)) => match settings.credential {
                Credential::Auto | Credential::ConnectionString => {
                    Self::of_connection_string(text.expose())
                        .map_err(|problem| InvalidSetting::new("azure_connection_string", problem))
                }
                _ => Err(InvalidSetting::new(
                    "azure_credential",
                    "needs azure_account_url in place of azure_connection_string, which brings \
                     a credential of its own",
                )),
            },
            (Some(url), None) => Self::of_url(settings, url),
        }
    }

    fn of_url(settings: &AccountSettings, url: &str) -> Result<Self, InvalidSetting> {
        let (url, _) = parse_account_url(url)
            .map_err(|problem| InvalidSetting::new("azure_account_url", problem))?;
        if settings.sas.is_some() && settings.url_sas.is_some() {
            return Err(InvalidSetting::new(
                "azure_sas",
                "must not be given if azure_account_url has a query, which is a shared access \
                 signature too; leave one of them out",
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
    pub fn of_connection_string(text: &str) -> Result<Self, String> {
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
            return Err("has no AccountKey and no SharedAccessSignature; to use a token of Entra \
                        ID, give azure_account_url instead"
                .to_owned());
        };
        Ok(Self { url, auth })
    }
}

const NO_ACCOUNT: &str = "needs an account: give azure_account_url, such as \
    \"https://ACCOUNT.blob.core.windows.net\" (environment variable LEASEHOLD_AZURE_ACCOUNT_URL), \
    or azure_connection_string (environment variable LEASEHOLD_AZURE_CONNECTION_STRING), which for \
    Azurite on its usual port is \"UseDevelopmentStorage=true\"";

const NO_ACCOUNT_NAME: &str = "does not tell the name of the account, which azure_account_key \
    needs. Write \"https://ACCOUNT.blob.core.windows.net\" or \"http://HOST:PORT/ACCOUNT\"; for \
    any other address give azure_connection_string, with AccountName, AccountKey and BlobEndpoint";

const TOKEN_NEEDS_HTTPS: &str = "must begin with https:// because a token is sent, which http \
    would show to the network. For an emulator give azure_connection_string, or azure_account_key";

fn lacks(key: &str) -> InvalidSetting {
    let variable = key.split(' ').next().unwrap_or(key).to_uppercase();
    InvalidSetting::new(
        "azure_credential",
        format!("needs {key} (environment variable LEASEHOLD_{variable})"),
    )
}

/// Parses the address of an account's blobs, and the signature that may be its
/// query.
///
/// # Errors
/// The problem, without quoting the text.
pub fn parse_account_url(text: &str) -> Result<(Url, Option<SecretText>), String> {
    let (url, sas) = parse_endpoint(text)?;
    let path = url.path().trim_matches('/');
    let has_account_in_host = ServiceKind::Blob.is_host_of_account(&url);
    if path.contains('/') || (!path.is_empty() && has_account_in_host) {
        return Err("must name the account only; the container is given by azure_container, and \
                    what comes before the locks' names by azure_prefix"
            .to_owned());
    }
    // The rest is printed. A piece of a key or of a connection string that was
    // put here by mistake must not be.
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._:/[]".contains(c);
    if !url.as_str().chars().all(plain) {
        return Err("has a character that no account's address has; write it as \
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
    fn the_account_is_found_in_the_address() {
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
    fn what_no_account_s_address_has_is_refused() {
        for text in ["https://acme.example/AccountKey=hush", "https://sig=hush", "http://h/a;hush"]
        {
            let problem = parse_account_url(text).unwrap_err();
            assert!(problem.contains("a character that no"), "{problem}");
            assert!(!problem.contains("hush"), "{problem}");
        }
    }

    #[test]
    fn a_query_is_a_signature() {
        let (url, sas) = parse_account_url("https://acme.example/?sv=1&sig=a%2Bb").unwrap();
        assert_eq!(url.as_str(), "https://acme.example/");
        assert_eq!(sas, Some(SecretText::new("sv=1&sig=a%2Bb")));
        assert_eq!(parse_sas(" ?sig=x ").unwrap(), SecretText::new("sig=x"));
    }

    #[test]
    fn without_a_word_the_strongest_that_is_given_is_taken() {
        let (url, _) = parse_account_url("https://acme.blob.core.windows.net").unwrap();
        let mut azure = settings(&url, None);
        let access = |settings: &AccountSettings| Address::of(settings).unwrap().auth;
        assert!(matches!(access(&azure), AuthMethod::Token(_)));
        azure.sas = Some(SecretText::new("sig=x"));
        assert!(matches!(access(&azure), AuthMethod::Sas(_)));
        azure.account_key = Some(SecretText::new("a2V5"));
        assert!(matches!(access(&azure), AuthMethod::Key { account, .. } if account == "acme"));
        azure.credential = Credential::Sas;
        assert!(matches!(access(&azure), AuthMethod::Sas(_)));
        azure.credential = Credential::AzureCli;
        assert!(
            matches!(access(&azure), AuthMethod::Token(ways) if ways == [CredentialSource::AzureCli])
        );
    }

    #[test]
    fn a_connection_string_says_what_gives_access() {
        let key = "AccountKey=a2V5;BlobEndpoint=http://127.0.0.1:9/acme/";
        let Address { url, auth } = Address::of_connection_string(key).unwrap();
        assert_eq!(url.as_str(), "http://127.0.0.1:9/acme");
        assert!(matches!(auth, AuthMethod::Key { account, .. } if account == "acme"));
        for sas in [
            "BlobEndpoint=https://acme.example;SharedAccessSignature=?sv=1&sig=x",
            "BlobEndpoint=https://acme.example/?sv=1&sig=x",
        ] {
            let Address { url, auth } = Address::of_connection_string(sas).unwrap();
            assert_eq!(url.as_str(), "https://acme.example/");
            assert!(matches!(auth, AuthMethod::Sas(sas) if sas.expose() == "sv=1&sig=x"));
        }
        let nameless = "AccountKey=a2V5;BlobEndpoint=https://locks.example";
        assert_eq!(Address::of_connection_string(nameless).unwrap_err(), "has no AccountName");
        for text in ["", "AccountKey=hush"] {
            let problem = Address::of_connection_string(text).unwrap_err();
            assert_eq!(problem, "has neither AccountName nor BlobEndpoint");
        }
    }

    /// Stands for a secret wherever it is put.
    const HUSH: &str = "aHVzaGh1c2g";

    const WORDS: &[&str] = &[
        HUSH,
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
    fn whatever_is_given_as_an_account_no_secret_is_shown_fuzzed() {
        Fuzz::new("account").words(WORDS).run(|input| {
            let text = String::from_utf8_lossy(input);
            let mut said = Vec::new();
            let mut tell = |outcome: Result<String, String>| {
                if let Err(problem) = &outcome {
                    assert!(!problem.contains(HUSH), "{problem}");
                }
                said.push(outcome.unwrap_or_else(|problem| problem));
            };
            tell(ConnectionString::parse(&text).map(|read| {
                // What the account is called is no secret.
                let named = read.account.as_ref().is_some_and(|account| account.contains(HUSH));
                assert!(named || !format!("{read:?}").contains(HUSH), "{read:?}");
                format!("{} {}", read.key.is_some(), read.sas.is_some())
            }));
            tell(Address::of_connection_string(&text).map(|address| shown(&address)));
            tell(parse_account_url(&text).map(|(url, sas)| {
                assert_eq!((url.query(), url.fragment(), url.password()), (None, None, None));
                // What was read reads back.
                assert_eq!(parse_account_url(url.as_str()), Ok((url.clone(), None)), "{url}");
                let azure = AccountSettings {
                    account_key: Some(SecretText::new("a2V5")),
                    ..settings(&url, sas)
                };
                Address::of(&azure).map_or_else(|problem| problem.problem, |found| shown(&found))
            }));
            tell(parse_sas(&text).map(|sas| format!("{sas:?}")));
            tell(check_key(&text).map(|()| "a key".to_owned()));
            said.join("|")
        });
    }

    /// The kind of access, once it is sure that nothing else is told.
    fn shown(address: &Address) -> String {
        let Address { url, auth } = address;
        let shown = format!("{address:?}");
        let account = matches!(auth, AuthMethod::Key { account, .. } if account.contains(HUSH));
        assert!(!shown.contains(HUSH) || account || url.as_str().contains(HUSH), "{shown}");
        assert!(url.query().is_none() && url.username().is_empty(), "{url}");
        match auth {
            AuthMethod::Key { .. } => format!("{} key", url.scheme()),
            AuthMethod::Sas(_) => format!("{} sas", url.scheme()),
            AuthMethod::Token(_) => format!("{} token", url.scheme()),
        }
    }
}
