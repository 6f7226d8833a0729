//! Connection strings in the format of Azure's portal and tools.

use std::collections::BTreeMap;

use crate::{
    SecretText,
    endpoint::{Endpoints, ServiceKind},
};

/// Default account of Azurite and its predecessor; its key is public.
const EMULATOR: &str = "devstoreaccount1";
const EMULATOR_KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";
const EMULATOR_PORTS: Endpoints<u16> = Endpoints { blob: 10_000, queue: 10_001, table: 10_002 };

/// Settings of a connection string for blobs, queues and tables.
#[derive(Debug, PartialEq, Eq)]
pub struct ConnectionString {
    /// Endpoints as given. The query may be a shared access signature.
    endpoints: Endpoints<Option<SecretText>>,
    /// Secret, because a text in its place may be a secret by mistake.
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
    /// Parses `Name=value` pairs separated by semicolons. Names are
    /// case-insensitive; unknown ones are ignored.
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

    /// Returns the endpoint of a service: the explicit one, or the default of the
    /// account. `None` if the string has neither. The query may be a shared access
    /// signature.
    ///
    /// # Errors
    /// The problem with the settings of the default endpoint, without quoting a
    /// value.
    pub fn endpoint(&self, kind: ServiceKind) -> Result<Option<SecretText>, String> {
        match (self.endpoints.get(kind), &self.account) {
            (Some(endpoint), _) => Ok(Some(endpoint.clone())),
            (None, Some(account)) => self.default_endpoint(account, kind).map(Some),
            (None, None) => Ok(None),
        }
    }

    fn default_endpoint(&self, account: &str, kind: ServiceKind) -> Result<SecretText, String> {
        if !account.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') {
            return Err("has an invalid AccountName".to_owned());
        }
        let protocol = self.protocol.as_ref().map_or("https", SecretText::expose).to_lowercase();
        if !["http", "https"].contains(&protocol.as_str()) {
            return Err("DefaultEndpointsProtocol must be http or https".to_owned());
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

/// Values by lowercase name.
struct Settings(BTreeMap<String, String>);

impl Settings {
    fn parse(text: &str) -> Result<Self, String> {
        let mut settings = BTreeMap::new();
        let parts = text.split(';').map(str::trim).filter(|part| !part.is_empty());
        for (number, part) in parts.enumerate() {
            let Some((name, value)) = part.split_once('=') else {
                return Err(format!(
                    "has a part {} that is not of the form Name=value; parts are separated by \
                     semicolons",
                    number + 1
                ));
            };
            let (name, value) = (name.trim(), value.trim());
            if settings.insert(name.to_lowercase(), value.to_owned()).is_some() {
                // An unknown name may be a part of a key, so it is not quoted.
                let known = NAMES.iter().any(|known| known.eq_ignore_ascii_case(name));
                let name = if known { name } else { "a setting" };
                return Err(format!(
                    "has {name} twice: part {} has the name of an earlier part; leave one out",
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
            return Err("UseDevelopmentStorage must be true or absent".to_owned());
        }
        for name in ["AccountName", "AccountKey", "BlobEndpoint", "SharedAccessSignature"] {
            if self.get(name).is_some() {
                return Err(format!(
                    "has both {name} and UseDevelopmentStorage=true, which selects the emulator's \
                     account; leave one out"
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
    fn connection_string_of_portal_is_parsed() {
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
    fn order_case_spaces_and_unknown_names_are_ignored() {
        let read = parse(
            " accountkey = a2V5 ;\n ACCOUNTNAME=acme; QueueEndpoint=https://q.example/;;\
             endpointsuffix=core.chinacloudapi.cn ; Foo=bar;TableEndpoint=; ",
        );
        assert_eq!(blob_endpoint(&read), "https://acme.blob.core.chinacloudapi.cn");
        assert_eq!(read.key, Some(SecretText::new("a2V5")));
    }

    #[test]
    fn explicit_endpoint_precedes_account_name() {
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
    fn emulator_selects_its_default_account() {
        let read = parse("UseDevelopmentStorage=True");
        assert_eq!(blob_endpoint(&read), "http://127.0.0.1:10000/devstoreaccount1");
        assert_eq!(read.account.as_deref(), Some("devstoreaccount1"));
        assert!(read.key.is_some());
        let read = parse("UseDevelopmentStorage=true;DevelopmentStorageProxyUri=http://azurite/");
        assert_eq!(blob_endpoint(&read), "http://azurite:10000/devstoreaccount1");
    }

    #[test]
    fn errors_do_not_contain_values() {
        for (text, hint) in [
            ("AccountName=acme;mysecret", "a part 2 that is not of the form"),
            ("AccountKey=mysecret;accountkey=mysecret2", "part 2 has the name of an earlier part"),
            ("AccountName=acme;mysecret==;mysecret==", "part 3 has the name of an earlier part"),
            ("AccountName=a/mysecret;AccountKey=mysecret", "an invalid AccountName"),
            ("AccountName=a;DefaultEndpointsProtocol=mysecret", "http or https"),
            ("AccountName=a;AccountKey=mysecret;SharedAccessSignature=mysecret", "leave one out"),
            ("UseDevelopmentStorage=mysecret", "must be true"),
            ("UseDevelopmentStorage=true;AccountKey=mysecret", "has both AccountKey and"),
        ] {
            let read = ConnectionString::parse_strict(text);
            let problem = read.and_then(|read| read.endpoint(ServiceKind::Blob)).unwrap_err();
            assert!(problem.contains(hint), "{problem}");
            assert!(!problem.contains("mysecret"), "{problem}");
        }
    }
}
