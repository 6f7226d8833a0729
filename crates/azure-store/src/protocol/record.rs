//! Record of a lock, which is stored as the metadata of its blob.

use std::{borrow::Cow, collections::BTreeMap, collections::HashMap, sync::Arc};

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};
use serde::{Deserialize, Serialize};

use leasehold_rules::TOKENS_PER_HOLD;
use leasehold_store::{Breaker, Endpoint};
use leasehold_types::{Holder, TokenRange};

/// Maximum size of all metadata of a blob, in bytes.
const MAX_METADATA_BYTES: usize = 8 * 1024;

/// Maximum length of a human-readable text that is read, in escaped form: a
/// breaker's name or reason, with each byte escaped.
const MAX_TEXT_BYTES: usize = 3 * 256;

/// Maximum length of a daemon's name in escaped form. With these limits, every
/// record can be written again after it was read.
const MAX_DAEMON_BYTES: usize = 200;

/// Maximum length in escaped form of a daemon's address, and of the host on which it
/// can be used.
const MAX_ENDPOINT_BYTES: usize = 400;

/// Characters that are escaped in a header. Spaces are among them, because signatures
/// contract spaces.
const ESCAPED: &AsciiSet = &CONTROLS.add(b' ').add(b'%');

/// Record of a lock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Record {
    /// The first token of the latest hold; 0 if there was none since the blob
    /// was created.
    pub(crate) token: u64,
    /// Identifies a write: drawn for each change. Not the lease ID.
    pub(crate) nonce: u128,
    /// Client for which the lease was acquired; in an election, the leader.
    pub(crate) holder: Option<Arc<Holder>>,
    /// In an election: the leader's token.
    pub(crate) leader: Option<u64>,
    /// Length of the leader's value, which is the blob's content.
    pub(crate) bytes: usize,
    /// Start of the hold by the storage clock, in seconds since 1970; 0 if unknown. Not
    /// used in decisions.
    pub(crate) since: u64,
    /// Name of the daemon that wrote the record.
    pub(crate) daemon: String,
    /// Address of that daemon, if it has one that peers can use.
    pub(crate) endpoint: Option<Endpoint>,
    /// Operator of the latest break, if there was one.
    pub(crate) broken: Option<Breaker>,
}

/// Reason why metadata is not a valid record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InvalidRecord(pub(crate) String);

/// Holder as it is stored.
#[derive(Serialize, Deserialize)]
struct StoredHolder<'a> {
    #[serde(default, borrow)]
    client: Cow<'a, str>,
    #[serde(default, borrow)]
    host: Cow<'a, str>,
    #[serde(default)]
    pid: u32,
    #[serde(default, borrow)]
    pod: Cow<'a, str>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

impl Record {
    /// Tokens of the latest hold.
    pub(crate) fn tokens(&self) -> Option<TokenRange> {
        (self.token > 0).then(|| TokenRange::from(self.token, TOKENS_PER_HOLD))
    }

    /// Returns the metadata. Always within the service's limits, because the sizes of a
    /// holder's description and a breaker's texts are limited.
    pub(crate) fn to_metadata(&self) -> HashMap<String, String> {
        let mut metadata = HashMap::from([
            ("token".to_owned(), self.token.to_string()),
            ("nonce".to_owned(), format!("{:032x}", self.nonce)),
            ("daemon".to_owned(), escape(&self.daemon)),
        ]);
        let numbers = [
            ("leader", self.leader),
            ("bytes", Some(self.bytes as u64).filter(|bytes| *bytes > 0)),
            ("since", Some(self.since).filter(|since| *since > 0)),
        ];
        for (key, number) in numbers {
            metadata.extend(number.map(|number| (key.to_owned(), number.to_string())));
        }
        if let Some(holder) = &self.holder {
            let labels = holder.labels().map(|(key, value)| (key.to_owned(), value.to_owned()));
            let stored = StoredHolder {
                client: holder.client().into(),
                host: holder.host().into(),
                pid: holder.pid(),
                pod: holder.pod().into(),
                labels: labels.collect(),
            };
            // Strings and numbers always have a JSON form.
            let text = serde_json::to_string(&stored).unwrap_or_default();
            metadata.insert("holder".to_owned(), escape(&text));
        }
        if let Some(Breaker { by, reason }) = &self.broken {
            metadata.insert("brokenby".to_owned(), escape(by));
            metadata.insert("brokenwhy".to_owned(), escape(reason));
        }
        if let Some(Endpoint { address, host }) = &self.endpoint {
            metadata.insert("endpoint".to_owned(), escape(address));
            let host = host.as_ref().map(|host| ("endpointhost".to_owned(), escape(host)));
            metadata.extend(host);
        }
        debug_assert!(size(&metadata) <= MAX_METADATA_BYTES);
        metadata
    }

    /// Reads metadata. The token and the nonce must be valid. The rest is
    /// human-readable, and its invalid parts are left out.
    pub(crate) fn from_metadata(metadata: &HashMap<String, String>) -> Result<Self, InvalidRecord> {
        let get = |key: &str| entry(metadata, key);
        let needed = |key: &'static str| {
            // The choice between duplicates must not depend on chance.
            if entries(metadata, key).count() > 1 {
                return Err(InvalidRecord(format!("it has more than one {key}")));
            }
            entry(metadata, key).ok_or_else(|| InvalidRecord(format!("it has no {key}")))
        };
        let token = needed("token")?;
        let token = decimal(token)
            .filter(|token| *token == 0 || !TokenRange::from(*token, TOKENS_PER_HOLD).is_empty())
            .ok_or_else(|| {
                InvalidRecord(format!("its token is {:?}, which is not a token", clip(token)))
            })?;
        let nonce = needed("nonce")?;
        let nonce = u128::from_str_radix(nonce, 16)
            .map_err(|_| InvalidRecord("its nonce is not a number".to_owned()))?;
        let text = |key: &str, max_bytes: usize| {
            let text = get(key).and_then(unescape)?;
            (escape(&text).len() <= max_bytes).then_some(text)
        };
        // Without a readable host, the address could be used on a wrong host.
        let endpoint = || {
            let host = get("endpointhost").map(|_| text("endpointhost", MAX_ENDPOINT_BYTES));
            let host = host.map_or(Some(None), |host| host.map(|host| Some(host.into())))?;
            let address = text("endpoint", MAX_ENDPOINT_BYTES)?.into();
            Some(Endpoint { address, host })
        };
        let broken = text("brokenby", MAX_TEXT_BYTES).zip(text("brokenwhy", MAX_TEXT_BYTES));
        Ok(Self {
            token,
            nonce,
            holder: get("holder").and_then(unescape).as_deref().and_then(holder),
            leader: get("leader").and_then(decimal),
            bytes: get("bytes").and_then(decimal).and_then(|n| n.try_into().ok()).unwrap_or(0),
            since: get("since").and_then(decimal).unwrap_or(0),
            daemon: text("daemon", MAX_DAEMON_BYTES).unwrap_or_default(),
            endpoint: endpoint(),
            broken: broken.map(|(by, reason)| Breaker { by: by.into(), reason: reason.into() }),
        })
    }
}

/// Names are compared without regard to case.
fn entries<'a>(
    metadata: &'a HashMap<String, String>,
    key: &str,
) -> impl Iterator<Item = (&'a str, &'a str)> {
    let all = metadata.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    all.filter(move |(name, _)| name.eq_ignore_ascii_case(key))
}

fn entry<'a>(metadata: &'a HashMap<String, String>, key: &str) -> Option<&'a str> {
    entries(metadata, key).min().map(|(_, value)| value)
}

/// Parses digits only: no sign, no spaces.
fn decimal(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

fn holder(text: &str) -> Option<Arc<Holder>> {
    let StoredHolder { client, host, pid, pod, labels } = serde_json::from_str(text).ok()?;
    Holder::try_new(&client, &host, pid, &pod, labels).ok().map(Arc::new)
}

fn escape(text: &str) -> String {
    utf8_percent_encode(text, ESCAPED).to_string()
}

/// Returns none if the text has characters that must not be printed.
fn unescape(text: &str) -> Option<String> {
    let text = percent_decode_str(text).decode_utf8().ok()?;
    (!text.chars().any(char::is_control)).then(|| text.into_owned())
}

fn clip(text: &str) -> String {
    text.chars().take(40).collect()
}

/// Size of metadata as the service computes it.
fn size(metadata: &HashMap<String, String>) -> usize {
    metadata.iter().map(|(key, value)| key.len() + value.len()).sum()
}

#[cfg(test)]
mod tests {
    use leasehold_fuzz::Fuzz;
    use proptest::prelude::*;

    use super::*;

    fn record() -> Record {
        Record {
            token: 5 << 20,
            nonce: 0xabcd,
            holder: Some(Arc::new(
                Holder::try_new("billing 2.3", "ünïx", 7, "", [("a b".into(), "100 %".into())])
                    .unwrap(),
            )),
            leader: Some(5 << 20 | 3),
            bytes: 12,
            since: 1_800_000_000,
            daemon: "web-1 (pid 9)".to_owned(),
            endpoint: Some(Endpoint {
                address: "http://127.0.0.1:7420".into(),
                host: Some("web-1".into()),
            }),
            broken: Some(Breaker { by: "ops".into(), reason: "stuck, see #4711".into() }),
        }
    }

    #[test]
    fn record_reads_back() {
        let metadata = record().to_metadata();
        assert_eq!(metadata["token"], "5242880");
        assert_eq!(Record::from_metadata(&metadata), Ok(record()));
        let never_held = Record { nonce: 1, daemon: "d".to_owned(), ..Record::default() };
        assert_eq!(Record::from_metadata(&never_held.to_metadata()), Ok(never_held));
    }

    #[test]
    fn invalid_record_has_a_reason() {
        let problem = |change: &dyn Fn(&mut HashMap<String, String>)| {
            let mut metadata = record().to_metadata();
            change(&mut metadata);
            Record::from_metadata(&metadata).unwrap_err().0
        };
        assert_eq!(problem(&HashMap::clear), "it has no token");
        for garbage in ["", "x", "-1", "+1", " 1", "1.5", "9007199254740992"] {
            let why = problem(&|metadata| _ = metadata.insert("token".into(), garbage.into()));
            assert!(why.contains("which is not a token"), "{garbage}: {why}");
        }
        assert!(problem(&|metadata| _ = metadata.remove("nonce")).contains("nonce"));
        assert!(
            problem(&|metadata| _ = metadata.insert("nonce".into(), "?".into())).contains("nonce")
        );
    }

    #[test]
    fn invalid_text_is_left_out() {
        let mut metadata = record().to_metadata();
        metadata.insert("holder".into(), "{".into());
        metadata.insert("brokenby".into(), "%1b%5b2J".into());
        let read = Record::from_metadata(&metadata).unwrap();
        assert_eq!((read.holder, read.broken), (None, None));
    }

    proptest! {
        #[test]
        fn maximum_record_fits_into_headers(
            texts in prop::collection::vec("\\PC{1,40}", 1..60),
            by in "\\PC{0,64}",
            reason in "\\PC{0,64}",
        ) {
            let mut kept: Vec<(String, String)> = Vec::new();
            for text in texts {
                let mut longer = kept.clone();
                longer.push((text.clone(), text));
                if Holder::try_new("c", "h", 1, "p", longer.clone()).is_err() {
                    break;
                }
                kept = longer;
            }
            let holder = Holder::try_new("c", "h", 1, "p", kept).unwrap();
            let record = Record {
                holder: Some(Arc::new(holder)),
                broken: Some(Breaker { by: by.into(), reason: reason.into() }),
                ..record()
            };
            let metadata = record.to_metadata();
            prop_assert!(size(&metadata) <= MAX_METADATA_BYTES);
            for (key, value) in &metadata {
                prop_assert!(key.bytes().all(|b| b.is_ascii_lowercase()));
                prop_assert!(value.bytes().all(|b| b.is_ascii_graphic()));
            }
            prop_assert_eq!(Record::from_metadata(&metadata), Ok(record));
        }

    }

    /// Metadata as lines: a name, a colon, a value.
    fn lines(text: &str) -> HashMap<String, String> {
        let pairs = text.lines().filter_map(|line| line.split_once(':'));
        pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    #[test]
    fn any_metadata_read_can_be_written_again_fuzzed() {
        Fuzz::new("blob-metadata").max_bytes(MAX_METADATA_BYTES).run(|input| {
            let text = String::from_utf8_lossy(input);
            let (metadata, again) = (lines(&text), lines(&text));
            let read = Record::from_metadata(&metadata);
            assert_eq!(read, Record::from_metadata(&again), "it depends on the order");
            let record = match read {
                Err(InvalidRecord(why)) => {
                    assert!(why.len() < 200 && !why.chars().any(char::is_control), "{why:?}");
                    return why;
                }
                Ok(record) => record,
            };
            if let Some(tokens) = record.tokens() {
                assert_eq!(tokens.len(), TOKENS_PER_HOLD);
                assert!(tokens.bounds().1 < 1 << 53, "{record:?}");
            }
            let written = record.to_metadata();
            assert!(size(&written) <= MAX_METADATA_BYTES, "{record:?}");
            assert!(written.values().all(|value| value.bytes().all(|b| b.is_ascii_graphic())));
            assert_eq!(Record::from_metadata(&written).as_ref(), Ok(&record));
            let Record { token, holder, leader, bytes, since, daemon, broken, .. } = record;
            format!(
                "{} {} {} {} {} {} {}",
                token > 0,
                holder.is_some_and(|holder| holder.labels().count() > 0),
                leader.is_some(),
                bytes > 0,
                since > 0,
                daemon.is_empty(),
                broken.is_some()
            )
        });
    }
}
