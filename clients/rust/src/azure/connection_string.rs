//! Connection strings, as Azure's portal and tools write them.

use std::collections::BTreeMap;

use super::secret::SecretText;

/// The account that Azurite serves unless told otherwise; its key is published.
const EMULATOR: &str = "devstoreaccount1";
const EMULATOR_KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";
const EMULATOR_TABLE_PORT: u16 = 10_002;

/// What a connection string says that matters here.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ConnectionString {
    pub(super) table_endpoint: String,
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
                table_endpoint: format!("{host}:{EMULATOR_TABLE_PORT}/{EMULATOR}"),
                account: Some(EMULATOR.to_owned()),
                key: Some(SecretText::new(EMULATOR_KEY)),
                sas: None,
            });
        }
        let account = take("AccountName");
        let protocol = take("DefaultEndpointsProtocol").unwrap_or_else(|| "https".to_owned());
        let suffix = take("EndpointSuffix").unwrap_or_else(|| "core.windows.net".to_owned());
        let table_endpoint = match (take("TableEndpoint"), &account) {
            (Some(endpoint), _) => endpoint,
            (None, Some(account)) => {
                format!("{}://{account}.table.{suffix}", protocol.to_lowercase())
            }
            (None, None) => return Err("has neither AccountName nor TableEndpoint".to_owned()),
        };
        let key = take("AccountKey").map(SecretText::new);
        let sas = take("SharedAccessSignature").map(SecretText::new);
        if key.is_some() && sas.is_some() {
            return Err("has both AccountKey and SharedAccessSignature; leave one out".to_owned());
        }
        Ok(Self { table_endpoint, account, key, sas })
    }
}

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
            return Err(format!("has {name} twice"));
        }
    }
    Ok(settings)
}
