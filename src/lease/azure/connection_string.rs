//! Connection strings, as Azure's portal and tools write them.

use std::collections::BTreeMap;

use crate::config::SecretText;

/// The account that Azurite and its predecessor serve unless told otherwise;
/// its key is published.
const EMULATOR: &str = "devstoreaccount1";
const EMULATOR_KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";
const EMULATOR_PORT: u16 = 10_000;

/// What a connection string says that matters for blobs.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ConnectionString {
    /// Where the blobs are. May have a signature as its query.
    pub(super) blob_endpoint: SecretText,
    /// The account, if it is named.
    pub(super) account: Option<String>,
    pub(super) key: Option<SecretText>,
    pub(super) sas: Option<SecretText>,
}

impl ConnectionString {
    /// Reads `name=value` pairs that are divided by semicolons. Names count
    /// whatever their case; those that do not matter here are left alone. No
    /// message quotes what was given.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut settings = Settings::parse(text)?;
        if let Some(word) = settings.take("UseDevelopmentStorage") {
            if !word.eq_ignore_ascii_case("true") {
                return Err("UseDevelopmentStorage can only be true".to_owned());
            }
            return Self::emulator(settings);
        }
        let account = settings.take("AccountName");
        let protocol = settings.take("DefaultEndpointsProtocol");
        let suffix = settings.take("EndpointSuffix");
        let blob_endpoint = match (settings.take("BlobEndpoint"), &account) {
            (Some(endpoint), _) => endpoint,
            (None, Some(account)) => endpoint_of(account, protocol, suffix)?,
            (None, None) => return Err("has neither AccountName nor BlobEndpoint".to_owned()),
        };
        let key = settings.take("AccountKey").map(SecretText::new);
        let sas = settings.take("SharedAccessSignature").map(SecretText::new);
        if key.is_some() && sas.is_some() {
            return Err("has both AccountKey and SharedAccessSignature; leave one out".to_owned());
        }
        Ok(Self { blob_endpoint: SecretText::new(blob_endpoint), account, key, sas })
    }

    fn emulator(mut settings: Settings) -> Result<Self, String> {
        for name in ["AccountName", "AccountKey", "BlobEndpoint", "SharedAccessSignature"] {
            if settings.take(name).is_some() {
                return Err(format!(
                    "has {name} beside UseDevelopmentStorage=true, which stands for an account \
                     of its own; leave one out"
                ));
            }
        }
        let proxy = settings.take("DevelopmentStorageProxyUri");
        let host = proxy.as_deref().unwrap_or("http://127.0.0.1").trim_end_matches('/');
        Ok(Self {
            blob_endpoint: SecretText::new(format!("{host}:{EMULATOR_PORT}/{EMULATOR}")),
            account: Some(EMULATOR.to_owned()),
            key: Some(SecretText::new(EMULATOR_KEY)),
            sas: None,
        })
    }
}

fn endpoint_of(
    account: &str,
    protocol: Option<String>,
    suffix: Option<String>,
) -> Result<String, String> {
    if !account.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') {
        return Err("has an AccountName that no account can have".to_owned());
    }
    let protocol = protocol.map_or_else(|| "https".to_owned(), |word| word.to_lowercase());
    if !["http", "https"].contains(&protocol.as_str()) {
        return Err("DefaultEndpointsProtocol can only be http or https".to_owned());
    }
    let suffix = suffix.unwrap_or_else(|| "core.windows.net".to_owned());
    Ok(format!("{protocol}://{account}.blob.{suffix}"))
}

/// The pairs, by name in small letters.
struct Settings(BTreeMap<String, String>);

impl Settings {
    fn parse(text: &str) -> Result<Self, String> {
        let mut settings = BTreeMap::new();
        let parts = text.split(';').map(str::trim).filter(|part| !part.is_empty());
        for (number, part) in parts.enumerate() {
            let Some((name, value)) = part.split_once('=') else {
                return Err(format!(
                    "its part {} is not of the form Name=value; parts are divided by semicolons",
                    number + 1
                ));
            };
            let (name, value) = (name.trim(), value.trim());
            if settings.insert(name.to_lowercase(), value.to_owned()).is_some() {
                // Not by its name: that may be a piece of a key.
                return Err(format!(
                    "its part {} has the name of a part before it; leave one out",
                    number + 1
                ));
            }
        }
        Ok(Self(settings))
    }

    /// One that is empty counts as not there.
    fn take(&mut self, name: &str) -> Option<String> {
        self.0.remove(&name.to_lowercase()).filter(|value| !value.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> ConnectionString {
        ConnectionString::parse(text).unwrap()
    }

    #[test]
    fn what_the_portal_writes_is_read() {
        let read = parse(
            "DefaultEndpointsProtocol=https;AccountName=acme;AccountKey=a2V5PT0=;\
             EndpointSuffix=core.windows.net",
        );
        assert_eq!(read.blob_endpoint.expose(), "https://acme.blob.core.windows.net");
        assert_eq!(read.account.as_deref(), Some("acme"));
        assert_eq!(read.key, Some(SecretText::new("a2V5PT0=")));
        assert_eq!(read.sas, None);
    }

    #[test]
    fn order_case_spaces_and_foreign_names_do_not_matter() {
        let read = parse(
            " accountkey = a2V5 ;\n ACCOUNTNAME=acme; QueueEndpoint=https://q.example/;;\
             endpointsuffix=core.chinacloudapi.cn ; Foo=bar;TableEndpoint=; ",
        );
        assert_eq!(read.blob_endpoint.expose(), "https://acme.blob.core.chinacloudapi.cn");
        assert_eq!(read.key, Some(SecretText::new("a2V5")));
    }

    #[test]
    fn an_endpoint_goes_before_the_name() {
        let read = parse(
            "AccountName=devstoreaccount1;AccountKey=a2V5;DefaultEndpointsProtocol=http;\
             BlobEndpoint=http://127.0.0.1:9/devstoreaccount1;",
        );
        assert_eq!(read.blob_endpoint.expose(), "http://127.0.0.1:9/devstoreaccount1");
        let read =
            parse("BlobEndpoint=https://acme.example/;SharedAccessSignature=sv=1&sig=a%2Bb%3D");
        assert_eq!(read.account, None);
        assert_eq!(read.sas, Some(SecretText::new("sv=1&sig=a%2Bb%3D")));
    }

    #[test]
    fn the_emulator_has_an_account_of_its_own() {
        let read = parse("UseDevelopmentStorage=True");
        assert_eq!(read.blob_endpoint.expose(), "http://127.0.0.1:10000/devstoreaccount1");
        assert_eq!(read.account.as_deref(), Some("devstoreaccount1"));
        assert!(read.key.is_some());
        let read = parse("UseDevelopmentStorage=true;DevelopmentStorageProxyUri=http://azurite/");
        assert_eq!(read.blob_endpoint.expose(), "http://azurite:10000/devstoreaccount1");
    }

    #[test]
    fn what_is_wrong_is_said_without_values() {
        for (text, hint) in [
            ("", "neither AccountName nor BlobEndpoint"),
            ("AccountKey=hush", "neither AccountName nor BlobEndpoint"),
            ("AccountName=acme;hush", "part 2 is not of the form"),
            ("AccountKey=hush;accountkey=hush2", "part 2 has the name of a part before it"),
            ("AccountName=acme;hush==;hush==", "part 3 has the name of a part before it"),
            ("AccountName=a/hush;AccountKey=hush", "no account can have"),
            ("AccountName=a;DefaultEndpointsProtocol=hush", "http or https"),
            ("AccountName=a;AccountKey=hush;SharedAccessSignature=hush", "leave one out"),
            ("UseDevelopmentStorage=hush", "can only be true"),
            ("UseDevelopmentStorage=true;AccountKey=hush", "has AccountKey beside"),
        ] {
            let problem = ConnectionString::parse(text).unwrap_err();
            assert!(problem.contains(hint), "{problem}");
            assert!(!problem.contains("hush"), "{problem}");
        }
    }
}
