//! Connection strings, as Azure's portal and tools write them.

use std::collections::BTreeMap;

use crate::{
    SecretText,
    endpoint::{Endpoints, ServiceKind},
};

/// The account that Azurite and its predecessor serve by default; its key is
/// published.
const EMULATOR: &str = "devstoreaccount1";
const EMULATOR_KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";
const EMULATOR_PORTS: Endpoints<u16> = Endpoints { blob: 10_000, queue: 10_001, table: 10_002 };

/// Settings of a connection string that matter for blobs, queues and tables.
#[derive(Debug, PartialEq, Eq)]
pub struct ConnectionString {
    /// Addresses as given. May have a signature as their query.
    endpoints: Endpoints<Option<SecretText>>,
    /// Text in place of a protocol or suffix may be a secret put there by
    /// mistake.
    protocol: Option<SecretText>,
    suffix: Option<SecretText>,
    /// Name of the account, if given.
    pub account: Option<String>,
    /// Key of the account.
    pub key: Option<SecretText>,
    /// Shared access signature.
    pub sas: Option<SecretText>,
}

impl ConnectionString {
    /// Parses `Name=value` pairs that are divided by semicolons. Names are
    /// case-insensitive, and unknown ones are ignored.
    /// `UseDevelopmentStorage=true` replaces all other settings of the account.
    ///
    /// # Errors
    /// The problem, without quoting a value.
    pub fn parse(text: &str) -> Result<Self, String> {
        Self::from_settings(Settings::parse(text)?)
    }

    /// Parses like [`parse`](Self::parse), but refuses settings that
    /// `UseDevelopmentStorage` would replace.
    ///
    /// # Errors
    /// The problem, without quoting a value.
    pub fn parse_strict(text: &str) -> Result<Self, String> {
        let settings = Settings::parse(text)?;
        settings.check_emulator()?;
        Self::from_settings(settings)
    }

    fn from_settings(mut settings: Settings) -> Result<Self, String> {
        if settings.is_emulator() {
            return Ok(Self::emulator(settings.take("DevelopmentStorageProxyUri").as_deref()));
        }
        let key = settings.take("AccountKey").map(SecretText::new);
        let sas = settings.take("SharedAccessSignature").map(SecretText::new);
        if key.is_some() && sas.is_some() {
            return Err("has both AccountKey and SharedAccessSignature; leave one out".to_owned());
        }
        let endpoints = Endpoints {
            blob: settings.take("BlobEndpoint").map(SecretText::new),
            queue: settings.take("QueueEndpoint").map(SecretText::new),
            table: settings.take("TableEndpoint").map(SecretText::new),
        };
        Ok(Self {
            endpoints,
            protocol: settings.take("DefaultEndpointsProtocol").map(SecretText::new),
            suffix: settings.take("EndpointSuffix").map(SecretText::new),
            account: settings.take("AccountName"),
            key,
            sas,
        })
    }

    fn emulator(proxy: Option<&str>) -> Self {
        let host = proxy.unwrap_or("http://127.0.0.1").trim_end_matches('/');
        Self {
            endpoints: EMULATOR_PORTS
                .map(|_, port| Some(SecretText::new(format!("{host}:{port}/{EMULATOR}")))),
            protocol: None,
            suffix: None,
            account: Some(EMULATOR.to_owned()),
            key: Some(SecretText::new(EMULATOR_KEY)),
            sas: None,
        }
    }

    /// Returns the address of a service: the one that was given, or the usual
    /// one of the account. None if the string has neither. May have a signature
    /// as its query.
    ///
    /// # Errors
    /// The problem with the settings that make up the usual address, without
    /// quoting a value.
    pub fn endpoint(&self, kind: ServiceKind) -> Result<Option<SecretText>, String> {
        match (self.endpoints.get(kind), &self.account) {
            (Some(endpoint), _) => Ok(Some(endpoint.clone())),
            (None, Some(account)) => self.usual_endpoint(account, kind).map(Some),
            (None, None) => Ok(None),
        }
    }

    fn usual_endpoint(&self, account: &str, kind: ServiceKind) -> Result<SecretText, String> {
        if !account.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') {
            return Err("has an AccountName that no account can have".to_owned());
        }
        let protocol = self.protocol.as_ref().map_or("https", SecretText::expose).to_lowercase();
        if !["http", "https"].contains(&protocol.as_str()) {
            return Err("DefaultEndpointsProtocol can only be http or https".to_owned());
        }
        let suffix = self.suffix.as_ref().map_or("core.windows.net", SecretText::expose);
        Ok(SecretText::new(format!("{protocol}://{account}.{}.{suffix}", kind.name())))
    }
}

/// Names of the settings that are used.
const NAMES: [&str; 10] = [
    "AccountKey",
    "AccountName",
    "BlobEndpoint",
    "DefaultEndpointsProtocol",
    "DevelopmentStorageProxyUri",
    "EndpointSuffix",
    "QueueEndpoint",
    "SharedAccessSignature",
    "TableEndpoint",
    "UseDevelopmentStorage",
];

/// The pairs, by name in lowercase.
struct Settings(BTreeMap<String, String>);

impl Settings {
    fn parse(text: &str) -> Result<Self, String> {
        let mut settings = BTreeMap::new();
        let parts = text.split(';').map(str::trim).filter(|part| !part.is_empty());
        for (number, part) in parts.enumerate() {
            let Some((name, value)) = part.split_once('=') else {
                return Err(format!(
                    "has a part {} that is not of the form Name=value; parts are divided by \
                     semicolons",
                    number + 1
                ));
            };
            let (name, value) = (name.trim(), value.trim());
            if settings.insert(name.to_lowercase(), value.to_owned()).is_some() {
                // Any other text in the place of a name may be a piece of a key.
                let known = NAMES.iter().any(|known| known.eq_ignore_ascii_case(name));
                let name = if known { name } else { "a setting" };
                return Err(format!(
                    "has {name} twice: its part {} has the name of a part before it; leave one out",
                    number + 1
                ));
            }
        }
        Ok(Self(settings))
    }

    /// Removes a setting. An empty value counts as absent.
    fn take(&mut self, name: &str) -> Option<String> {
        self.0.remove(&name.to_lowercase()).filter(|value| !value.is_empty())
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.0.get(&name.to_lowercase()).map(String::as_str).filter(|value| !value.is_empty())
    }

    fn is_emulator(&self) -> bool {
        self.get("UseDevelopmentStorage").is_some_and(|word| word.eq_ignore_ascii_case("true"))
    }

    fn check_emulator(&self) -> Result<(), String> {
        if self.get("UseDevelopmentStorage").is_none() {
            return Ok(());
        }
        if !self.is_emulator() {
            return Err("UseDevelopmentStorage can only be true".to_owned());
        }
        for name in ["AccountName", "AccountKey", "BlobEndpoint", "SharedAccessSignature"] {
            if self.get(name).is_some() {
                return Err(format!(
                    "has {name} beside UseDevelopmentStorage=true, which stands for an account \
                     of its own; leave one out"
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> ConnectionString {
        ConnectionString::parse_strict(text).unwrap()
    }

    fn blob_endpoint(read: &ConnectionString) -> String {
        read.endpoint(ServiceKind::Blob).unwrap().unwrap().expose().to_owned()
    }

    #[test]
    fn what_the_portal_writes_is_read() {
        let read = parse(
            "DefaultEndpointsProtocol=https;AccountName=acme;AccountKey=a2V5PT0=;\
             EndpointSuffix=core.windows.net",
        );
        assert_eq!(blob_endpoint(&read), "https://acme.blob.core.windows.net");
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
        assert_eq!(blob_endpoint(&read), "https://acme.blob.core.chinacloudapi.cn");
        assert_eq!(read.key, Some(SecretText::new("a2V5")));
    }

    #[test]
    fn an_endpoint_goes_before_the_name() {
        let read = parse(
            "AccountName=devstoreaccount1;AccountKey=a2V5;DefaultEndpointsProtocol=http;\
             BlobEndpoint=http://127.0.0.1:9/devstoreaccount1;",
        );
        assert_eq!(blob_endpoint(&read), "http://127.0.0.1:9/devstoreaccount1");
        let read =
            parse("BlobEndpoint=https://acme.example/;SharedAccessSignature=sv=1&sig=a%2Bb%3D");
        assert_eq!(read.account, None);
        assert_eq!(read.sas, Some(SecretText::new("sv=1&sig=a%2Bb%3D")));
    }

    #[test]
    fn the_emulator_has_an_account_of_its_own() {
        let read = parse("UseDevelopmentStorage=True");
        assert_eq!(blob_endpoint(&read), "http://127.0.0.1:10000/devstoreaccount1");
        assert_eq!(read.account.as_deref(), Some("devstoreaccount1"));
        assert!(read.key.is_some());
        let read = parse("UseDevelopmentStorage=true;DevelopmentStorageProxyUri=http://azurite/");
        assert_eq!(blob_endpoint(&read), "http://azurite:10000/devstoreaccount1");
    }

    #[test]
    fn what_is_wrong_is_said_without_values() {
        for (text, hint) in [
            ("AccountName=acme;hush", "a part 2 that is not of the form"),
            ("AccountKey=hush;accountkey=hush2", "part 2 has the name of a part before it"),
            ("AccountName=acme;hush==;hush==", "part 3 has the name of a part before it"),
            ("AccountName=a/hush;AccountKey=hush", "no account can have"),
            ("AccountName=a;DefaultEndpointsProtocol=hush", "http or https"),
            ("AccountName=a;AccountKey=hush;SharedAccessSignature=hush", "leave one out"),
            ("UseDevelopmentStorage=hush", "can only be true"),
            ("UseDevelopmentStorage=true;AccountKey=hush", "has AccountKey beside"),
        ] {
            let read = ConnectionString::parse_strict(text);
            let problem = read.and_then(|read| read.endpoint(ServiceKind::Blob)).unwrap_err();
            assert!(problem.contains(hint), "{problem}");
            assert!(!problem.contains("hush"), "{problem}");
        }
    }
}
