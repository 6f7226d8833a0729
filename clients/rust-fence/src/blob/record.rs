//! Metadata that the fence keeps in a blob's metadata.

use std::collections::BTreeMap;

use azure_core::Uuid;
use leasehold_client::Token;

use super::{Error, Place};
use crate::{LockToken, escape::escape};

/// Prefix of the metadata names that are reserved for the fence.
pub(super) const RESERVED: &str = "leasehold";

const TOKEN: &str = "leaseholdtoken";
const LOCK: &str = "leaseholdlock";
const WRITES: &str = "leaseholdwrites";
const GONE: &str = "leaseholdgone";

/// Maximum number of write IDs in the metadata.
const MAX_RECORDED_WRITES: usize = 8;

/// Creates a unique write ID.
pub(super) fn new_write_id() -> String {
    Uuid::new_v4().simple().to_string()
}

/// Metadata of the fence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Record {
    /// Highest token, and the lock that it belongs to.
    pub(super) fence: Option<(u64, String)>,
    /// IDs of the last writes, the latest at the end. A takeover keeps them, so
    /// that a stale holder can still determine the outcome of its last write.
    pub(super) writes: Vec<String>,
    /// True if the blob stands for a deleted one.
    pub(super) gone: bool,
}

impl Record {
    /// Removes the metadata of the fence from all metadata, and parses it.
    pub(super) fn take(
        metadata: &mut BTreeMap<String, String>,
        place: &Place,
    ) -> Result<Self, Error> {
        let stored = (metadata.remove(TOKEN), metadata.remove(LOCK));
        let is_fenced = stored.0.is_some() || stored.1.is_some();
        let fence = match stored {
            (Some(token), Some(lock)) => token.parse().ok().map(|token: Token| (token.get(), lock)),
            _ => None,
        };
        if is_fenced && fence.is_none() {
            let message = "invalid fence: the metadata leaseholdtoken and leaseholdlock must be a \
                           number and the name of a lock. Find the program that changed them. To \
                           reset the fence, remove both while no client holds the lock";
            return Err(Error::needs_operator(place, message));
        }
        let writes = metadata.remove(WRITES).unwrap_or_default();
        let writes = writes.split('.').filter(|write_id| !write_id.is_empty());
        let writes = writes.map(str::to_owned).collect();
        Ok(Self { fence, writes, gone: metadata.remove(GONE).is_some() })
    }

    /// Returns the record as metadata.
    pub(super) fn pairs(&self) -> Vec<(&'static str, String)> {
        let mut pairs = vec![(WRITES, self.writes.join("."))];
        if let Some((token, lock)) = &self.fence {
            pairs.extend([(TOKEN, token.to_string()), (LOCK, lock.clone())]);
        }
        if self.gone {
            pairs.push((GONE, "true".to_owned()));
        }
        pairs
    }

    /// Returns the name of the lock as stored: escaped, because metadata is ASCII.
    pub(super) fn lock_of(lock_token: &LockToken) -> String {
        escape(&lock_token.qualified_lock(), b"/")
    }

    /// Returns the record after one more write.
    pub(super) fn after(&self, write_id: &str) -> Self {
        let dropped = (self.writes.len() + 1).saturating_sub(MAX_RECORDED_WRITES);
        let mut writes = self.writes[dropped..].to_vec();
        writes.push(write_id.to_owned());
        Self { writes, fence: self.fence.clone(), gone: self.gone }
    }

    /// Returns true if this write was applied.
    pub(super) fn has(&self, write_id: &str) -> bool {
        self.writes.iter().any(|write| write == write_id)
    }

    /// Returns true if the record contains every write since `earlier`. Then a
    /// missing write was not applied.
    pub(super) fn covers(&self, earlier: Option<&Self>) -> bool {
        let last = earlier.and_then(|earlier| earlier.writes.last());
        match last {
            Some(last) => self.has(last),
            None => self.writes.len() < MAX_RECORDED_WRITES,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(count: usize) -> Record {
        (1..=count).fold(Record::default(), |record, n| record.after(&format!("w{n}")))
    }

    #[test]
    fn record_round_trips_through_metadata() {
        let fence = Some((7, Record::lock_of(&LockToken::new("", "a b/é", Token::new(7)))));
        let record = Record { fence, gone: true, ..written(3) };
        let mut metadata: BTreeMap<_, _> =
            record.pairs().into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        metadata.insert("mine".to_owned(), "stays".to_owned());
        assert!(metadata.values().all(|value| value.is_ascii()), "{metadata:?}");
        assert_eq!(Record::take(&mut metadata, &Place::default()).unwrap(), record);
        assert_eq!(metadata.into_keys().collect::<Vec<_>>(), ["mine"]);
    }

    #[test]
    fn invalid_fence_is_not_treated_as_missing() {
        for (token, lock) in [(Some("x"), Some("default/a")), (Some("1"), None), (None, Some("a"))]
        {
            let pairs = [(TOKEN, token), (LOCK, lock)];
            let mut metadata = pairs
                .into_iter()
                .filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned())))
                .collect();
            let error = Record::take(&mut metadata, &Place::default()).unwrap_err();
            assert!(matches!(error, Error::NeedsOperator { .. }), "{error}");
        }
    }

    #[test]
    fn dropped_write_ids_are_detected() {
        let (first, ninth) = (written(1), written(9));
        assert!(!ninth.has("w1") && ninth.has("w2") && ninth.has("w9"));
        assert!(written(8).covers(Some(&first)));
        assert!(!ninth.covers(Some(&first)));
        assert!(written(7).covers(None) && !written(8).covers(None));
        // A write bypassed the fence.
        assert!(!Record::default().covers(Some(&first)));
    }
}

#[cfg(test)]
mod fuzz {
    use leasehold_fuzz::Fuzz;

    use super::*;

    const WORDS: &[&str] = &[TOKEN, LOCK, WRITES, GONE, "=", "\n", ".", "+7", "default/orders"];

    #[test]
    fn blob_fence_is_parsed_exactly_fuzzed() {
        Fuzz::new("blob-fence").words(WORDS).run(|input| {
            let text = String::from_utf8_lossy(input);
            let pairs = text.lines().filter_map(|line| line.split_once('='));
            let sent: BTreeMap<_, _> =
                pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
            let mut left = sent.clone();
            match Record::take(&mut left, &Place::default()) {
                Ok(record) => {
                    let fence = record.fence.as_ref();
                    assert_eq!(sent.get(TOKEN), fence.map(|(token, _)| token.to_string()).as_ref());
                    assert_eq!(sent.get(LOCK), fence.map(|(_, lock)| lock));
                    let own = |name: &String| [TOKEN, LOCK, WRITES, GONE].contains(&name.as_str());
                    assert!(!left.keys().any(own), "{left:?}");
                    let pairs = record.pairs().into_iter();
                    let mut again = pairs.map(|(name, value)| (name.to_owned(), value)).collect();
                    assert_eq!(
                        Record::take(&mut again, &Place::default()).ok(),
                        Some(record.clone())
                    );
                    let after = record.after("n");
                    assert!(after.has("n") && after.writes.len() <= MAX_RECORDED_WRITES);
                    format!("{} {} {}", fence.is_some(), record.gone, record.writes.len().min(9))
                }
                Err(error) => {
                    assert!(matches!(error, Error::NeedsOperator { .. }), "{error}");
                    assert!(sent.contains_key(TOKEN) || sent.contains_key(LOCK));
                    "operator".to_owned()
                }
            }
        });
    }
}
