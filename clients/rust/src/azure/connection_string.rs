//! Connection strings, as Azure's portal and tools write them.

use std::collections::BTreeMap;

use super::secret::SecretText;

/// The account that Azurite serves unless told otherwise; its key is published.
const EMULATOR: &str = "devstoreaccount1";
const EMULATOR_KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";
const EMULATOR_PORTS: Endpoints<u16> = Endpoints { blob: 10_000, queue: 10_001, table: 10_002 };

/// One thing for each service of an account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Endpoints<T> {
    pub(super) blob: T,
    pub(super) queue: T,
    pub(super) table: T,
}

impl<T> Endpoints<T> {
    /// Another thing for each. The service is named as in hosts.
    pub(super) fn map<U>(self, mut other: impl FnMut(&'static str, T) -> U) -> Endpoints<U> {
        Endpoints {
            blob: other("blob", self.blob),
            queue: other("queue", self.queue),
            table: other("table", self.table),
        }
    }
}

/// What a connection string says that matters here.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ConnectionString {
    /// Where the services are, as far as it says so.
    pub(super) endpoints: Endpoints<Option<String>>,
    /// The account, if it is named.
    pub(super) account: Option<String>,
    pub(super) key: Option<SecretText>,
    pub(super) sas: Option<SecretText>,
}

impl ConnectionString {
    /// Reads `name=value` pairs that are divided by semicolons. Names count
    /// whatever their case; those that do not matter here are left alone. No
    /// message quotes a value.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut settings = settings(text)?;
        let mut take =
            |name: &str| settings.remove(&name.to_lowercase()).filter(|value| !value.is_empty());
        if take("UseDevelopmentStorage").is_some_and(|word| word.eq_ignore_ascii_case("true")) {
            let proxy = take("DevelopmentStorageProxyUri");
            let host = proxy.as_deref().unwrap_or("http://127.0.0.1").trim_end_matches('/');
            return Ok(Self {
                endpoints: EMULATOR_PORTS.map(|_, port| Some(format!("{host}:{port}/{EMULATOR}"))),
                account: Some(EMULATOR.to_owned()),
                key: Some(SecretText::new(EMULATOR_KEY)),
                sas: None,
            });
        }
        let account = take("AccountName");
        let protocol = take("DefaultEndpointsProtocol").unwrap_or_else(|| "https".to_owned());
        let suffix = take("EndpointSuffix").unwrap_or_else(|| "core.windows.net".to_owned());
        let given = Endpoints {
            blob: take("BlobEndpoint"),
            queue: take("QueueEndpoint"),
            table: take("TableEndpoint"),
        };
        let mut known = false;
        let endpoints = given.map(|service, endpoint| {
            let usual = || {
                let (account, protocol) = (account.as_ref()?, protocol.to_lowercase());
                Some(format!("{protocol}://{account}.{service}.{suffix}"))
            };
            let endpoint = endpoint.or_else(usual);
            known |= endpoint.is_some();
            endpoint
        });
        if !known {
            let services = "BlobEndpoint, QueueEndpoint or TableEndpoint";
            return Err(format!("has neither AccountName nor any of {services}"));
        }
        let key = take("AccountKey").map(SecretText::new);
        let sas = take("SharedAccessSignature").map(SecretText::new);
        if key.is_some() && sas.is_some() {
            return Err("has both AccountKey and SharedAccessSignature; leave one out".to_owned());
        }
        Ok(Self { endpoints, account, key, sas })
    }
}

/// What has a meaning here.
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

/// The pairs, by name in small letters.
fn settings(text: &str) -> Result<BTreeMap<String, String>, String> {
    let mut settings = BTreeMap::new();
    let parts = text.split(';').map(str::trim).filter(|part| !part.is_empty());
    for (number, part) in parts.enumerate() {
        let Some((name, value)) = part.split_once('=') else {
            return Err(format!(
                "has a part {} that is not of the form Name=value; parts are divided by semicolons",
                number + 1
            ));
        };
        let (name, value) = (name.trim(), value.trim());
        if settings.insert(name.to_lowercase(), value.to_owned()).is_some() {
            // What stands in the place of a name may be a secret.
            let known = NAMES.iter().any(|known| known.eq_ignore_ascii_case(name));
            return Err(format!("has {} twice", if known { name } else { "a setting" }));
        }
    }
    Ok(settings)
}
