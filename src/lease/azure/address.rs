//! Where the account is, and what gives access to it: found out from the
//! configuration alone, without asking anybody.

use azure_core::{base64, http::Url};

use super::{connection_string::ConnectionString, credentials::Way};
use crate::config::{Azure, Credential, SecretText};

/// What a configuration lacks, or where it contradicts itself.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key} {problem}")]
pub struct Problem {
    /// The setting that is to be changed.
    pub key: &'static str,
    /// What is wrong, and what to do.
    pub problem: String,
}

impl Problem {
    pub(super) fn new(key: &'static str, problem: impl Into<String>) -> Self {
        Self { key, problem: problem.into() }
    }
}

/// An account that can be called.
#[derive(Debug)]
pub(crate) struct Address {
    /// Without a query.
    pub(super) url: Url,
    pub(super) access: Access,
}

/// What requests are accompanied by.
#[derive(Debug)]
pub(super) enum Access {
    /// A signature with the account's key.
    Key { account: String, key: SecretText },
    /// A signature that somebody made before, in the query.
    Sas(SecretText),
    /// A token, got by the first of these ways that works.
    Token(Vec<Way>),
}

impl Address {
    /// Reads what was configured.
    pub(crate) fn of(azure: &Azure) -> Result<Self, Problem> {
        match (&azure.account_url, &azure.connection_string) {
            (Some(_), Some(_)) => Err(Problem::new(
                "azure_account_url",
                "must not be given together with azure_connection_string, which names an \
                 account too; leave one of them out",
            )),
            (None, None) => Err(Problem::new("store", NO_ACCOUNT)),
            (None, Some(text)) => match azure.credential {
                Credential::Auto | Credential::ConnectionString => {
                    Self::of_connection_string(text.expose())
                        .map_err(|problem| Problem::new("azure_connection_string", problem))
                }
                _ => Err(Problem::new(
                    "azure_credential",
                    "needs azure_account_url in place of azure_connection_string, which brings \
                     a credential of its own",
                )),
            },
            (Some(url), None) => Self::of_url(azure, url),
        }
    }

    fn of_url(azure: &Azure, url: &str) -> Result<Self, Problem> {
        let (url, _) =
            read_url(url).map_err(|problem| Problem::new("azure_account_url", problem))?;
        if azure.sas.is_some() && azure.url_sas.is_some() {
            return Err(Problem::new(
                "azure_sas",
                "must not be given if azure_account_url has a query, which is a shared access \
                 signature too; leave one of them out",
            ));
        }
        let sas = azure.sas.as_ref().or(azure.url_sas.as_ref());
        let access = match (azure.credential, &azure.account_key, sas) {
            (Credential::Auto | Credential::AccountKey, Some(key), _) => {
                let account = account_of(&url)
                    .ok_or_else(|| Problem::new("azure_account_url", NO_ACCOUNT_NAME))?;
                Access::Key { account, key: key.clone() }
            }
            (Credential::Auto | Credential::Sas, _, Some(sas)) => Access::Sas(sas.clone()),
            (Credential::ConnectionString, ..) => {
                return Err(lacks("azure_connection_string in place of azure_account_url"));
            }
            (Credential::AccountKey, None, _) => return Err(lacks("azure_account_key")),
            (Credential::Sas, _, None) => return Err(lacks("azure_sas")),
            (credential, ..) => Access::Token(Way::all(credential, &azure.identity)?),
        };
        if matches!(access, Access::Token(_)) && url.scheme() != "https" {
            return Err(Problem::new("azure_account_url", TOKEN_NEEDS_HTTPS));
        }
        Ok(Self { url, access })
    }

    /// Reads a connection string. No message quotes it.
    pub(crate) fn of_connection_string(text: &str) -> Result<Self, String> {
        let read = ConnectionString::parse(text)?;
        let (url, url_sas) = read_url(read.blob_endpoint.expose())
            .map_err(|problem| format!("has a BlobEndpoint that {problem}"))?;
        let access = if let Some(key) = read.key {
            check_key(key.expose())
                .map_err(|problem| format!("has an AccountKey that {problem}"))?;
            let account = read.account.or_else(|| account_of(&url)).ok_or("has no AccountName")?;
            Access::Key { account, key }
        } else if let Some(sas) = read.sas {
            let sas = read_sas(sas.expose())
                .map_err(|problem| format!("has a SharedAccessSignature that {problem}"))?;
            Access::Sas(sas)
        } else if let Some(sas) = url_sas {
            Access::Sas(sas)
        } else {
            return Err("has no AccountKey and no SharedAccessSignature; to use a token of Entra \
                        ID, give azure_account_url instead"
                .to_owned());
        };
        Ok(Self { url, access })
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

fn lacks(key: &str) -> Problem {
    let variable = key.split(' ').next().unwrap_or(key).to_uppercase();
    Problem::new(
        "azure_credential",
        format!("needs {key} (environment variable LEASEHOLD_{variable})"),
    )
}

/// Reads the address of an account, and the signature that may be its query.
/// No message quotes it.
pub(crate) fn read_url(text: &str) -> Result<(Url, Option<SecretText>), String> {
    let mut url = Url::parse(text.trim()).map_err(|error| format!("is not a URL: {error}"))?;
    if !["http", "https"].contains(&url.scheme()) {
        return Err("must begin with https:// or http://".to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("must not have a user or a password in it".to_owned());
    }
    if url.fragment().is_some() {
        return Err("must not have a # in it".to_owned());
    }
    let sas = url.query().filter(|query| !query.is_empty()).map(read_sas).transpose();
    let sas = sas.map_err(|problem| format!("has a query that {problem}"))?;
    url.set_query(None);
    let path = url.path().trim_matches('/').to_owned();
    if path.contains('/') || (!path.is_empty() && names_account(&url)) {
        return Err("must name the account only; the container is given by azure_container, and \
                    what comes before the locks' names by azure_prefix"
            .to_owned());
    }
    url.set_path(&path);
    // What is left is shown to people. A piece of a key or of a connection
    // string that slipped in must not be.
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._:/[]".contains(c);
    if !url.as_str().chars().all(plain) {
        return Err("has a character that no account's address has; write it as \
                    \"https://ACCOUNT.blob.core.windows.net\" or \"http://HOST:PORT/ACCOUNT\""
            .to_owned());
    }
    Ok((url, sas))
}

/// Whether the host is one of Azure's own, which begin with the account.
fn names_account(url: &Url) -> bool {
    url.host_str().is_some_and(|host| host.contains(".blob."))
}

/// The account is the only part of the path, as with emulators, or the first of
/// the host.
fn account_of(url: &Url) -> Option<String> {
    let path = url.path().trim_matches('/');
    if !path.is_empty() {
        return Some(path.to_owned());
    }
    let (account, _) = url.host_str()?.split_once('.')?;
    names_account(url).then(|| account.to_owned())
}

/// Reads a shared access signature. No message quotes it.
pub(crate) fn read_sas(text: &str) -> Result<SecretText, String> {
    let text = text.trim().trim_start_matches('?');
    if text.split('&').any(|pair| pair.starts_with("sig=") && pair.len() > "sig=".len()) {
        Ok(SecretText::new(text))
    } else {
        Err("is not a shared access signature: it has no sig=".to_owned())
    }
}

/// Whether it can be an account's key. No message quotes it.
pub(crate) fn check_key(text: &str) -> Result<(), String> {
    match base64::decode(text) {
        Ok(bytes) if !bytes.is_empty() => Ok(()),
        _ => Err("is not an account's key, which is written in base64".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use leasehold_fuzz::Fuzz;

    use super::*;

    fn url(text: &str) -> Azure {
        let (url, url_sas) = read_url(text).unwrap();
        Azure { account_url: Some(url.to_string()), url_sas, ..Azure::default() }
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
            let (url, sas) = read_url(text).unwrap();
            assert_eq!(account_of(&url).as_deref(), account, "{text}");
            assert_eq!(sas, None);
        }
    }

    #[test]
    fn what_no_account_s_address_has_is_refused() {
        for text in ["https://acme.example/AccountKey=hush", "https://sig=hush", "http://h/a;hush"]
        {
            let problem = read_url(text).unwrap_err();
            assert!(problem.contains("a character that no"), "{problem}");
            assert!(!problem.contains("hush"), "{problem}");
        }
    }

    #[test]
    fn a_query_is_a_signature() {
        let (url, sas) = read_url("https://acme.example/?sv=1&sig=a%2Bb").unwrap();
        assert_eq!(url.as_str(), "https://acme.example/");
        assert_eq!(sas, Some(SecretText::new("sv=1&sig=a%2Bb")));
        assert_eq!(read_sas(" ?sig=x ").unwrap(), SecretText::new("sig=x"));
    }

    #[test]
    fn without_a_word_the_strongest_that_is_given_is_taken() {
        let mut azure = url("https://acme.blob.core.windows.net");
        let access = |azure: &Azure| Address::of(azure).unwrap().access;
        assert!(matches!(access(&azure), Access::Token(_)));
        azure.sas = Some(SecretText::new("sig=x"));
        assert!(matches!(access(&azure), Access::Sas(_)));
        azure.account_key = Some(SecretText::new("a2V5"));
        assert!(matches!(access(&azure), Access::Key { account, .. } if account == "acme"));
        azure.credential = Credential::Sas;
        assert!(matches!(access(&azure), Access::Sas(_)));
        azure.credential = Credential::AzureCli;
        assert!(matches!(access(&azure), Access::Token(ways) if ways == [Way::AzureCli]));
    }

    #[test]
    fn a_connection_string_says_what_gives_access() {
        let key = "AccountKey=a2V5;BlobEndpoint=http://127.0.0.1:9/acme/";
        let Address { url, access } = Address::of_connection_string(key).unwrap();
        assert_eq!(url.as_str(), "http://127.0.0.1:9/acme");
        assert!(matches!(access, Access::Key { account, .. } if account == "acme"));
        for sas in [
            "BlobEndpoint=https://acme.example;SharedAccessSignature=?sv=1&sig=x",
            "BlobEndpoint=https://acme.example/?sv=1&sig=x",
        ] {
            let Address { url, access } = Address::of_connection_string(sas).unwrap();
            assert_eq!(url.as_str(), "https://acme.example/");
            assert!(matches!(access, Access::Sas(sas) if sas.expose() == "sv=1&sig=x"));
        }
        let nameless = "AccountKey=a2V5;BlobEndpoint=https://locks.example";
        assert_eq!(Address::of_connection_string(nameless).unwrap_err(), "has no AccountName");
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
            tell(read_url(&text).map(|(url, sas)| {
                assert_eq!((url.query(), url.fragment(), url.password()), (None, None, None));
                // What was read reads back.
                assert_eq!(read_url(url.as_str()), Ok((url.clone(), None)), "{url}");
                let azure = Azure {
                    account_url: Some(url.to_string()),
                    account_key: Some(SecretText::new("a2V5")),
                    url_sas: sas,
                    ..Azure::default()
                };
                Address::of(&azure).map_or_else(|problem| problem.problem, |found| shown(&found))
            }));
            tell(read_sas(&text).map(|sas| format!("{sas:?}")));
            tell(check_key(&text).map(|()| "a key".to_owned()));
            said.join("|")
        });
    }

    /// The kind of access, once it is sure that nothing else is told.
    fn shown(address: &Address) -> String {
        let Address { url, access } = address;
        let shown = format!("{address:?}");
        let account = matches!(access, Access::Key { account, .. } if account.contains(HUSH));
        assert!(!shown.contains(HUSH) || account || url.as_str().contains(HUSH), "{shown}");
        assert!(url.query().is_none() && url.username().is_empty(), "{url}");
        match access {
            Access::Key { .. } => format!("{} key", url.scheme()),
            Access::Sas(_) => format!("{} sas", url.scheme()),
            Access::Token(_) => format!("{} token", url.scheme()),
        }
    }
}
