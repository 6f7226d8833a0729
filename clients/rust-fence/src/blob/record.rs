//! Metadata that the fence keeps in a blob's metadata.

use std::collections::BTreeMap;

use azure_core::Uuid;
use leasehold_client::Token;

use super::{Error, Place};
use crate::{LockToken, escape::escape};

/// Names of metadata that begin so are the fence's own.
pub(super) const RESERVED: &str = "leasehold";

const TOKEN: &str = "leaseholdtoken";
const LOCK: &str = "leaseholdlock";
const WRITES: &str = "leaseholdwrites";
const GONE: &str = "leaseholdgone";

/// How many of the last writes are named.
const REMEMBERED: usize = 8;

/// A number that is given to one write only.
pub(super) fn new_number() -> String {
    Uuid::new_v4().simple().to_string()
}

/// The fence's own metadata.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Record {
    /// The highest token, and the lock that it is of.
    pub(super) fence: Option<(u64, String)>,
    /// The numbers of the last writes, the latest at the end. They outlast a
    /// change of holders, so that a stale holder can still find out.
    pub(super) writes: Vec<String>,
    /// Whether the blob stands for one that was deleted.
    pub(super) gone: bool,
}

impl Record {
    /// Takes the own metadata out of all.
    pub(super) fn take(
        metadata: &mut BTreeMap<String, String>,
        place: &Place,
    ) -> Result<Self, Error> {
        let kept = (metadata.remove(TOKEN), metadata.remove(LOCK));
        let guarded = kept.0.is_some() || kept.1.is_some();
        let fence = match kept {
            (Some(token), Some(lock)) => token.parse().ok().map(|token: Token| (token.get(), lock)),
            _ => None,
        };
        if guarded && fence.is_none() {
            let message = "the fence can't be read: the metadata leaseholdtoken and leaseholdlock \
                           must be a number and a lock's name. Find out who changed it. To begin \
                           again, remove both while nobody holds the lock";
            return Err(Error::needs_operator(place, message));
        }
        let writes = metadata.remove(WRITES).unwrap_or_default();
        let writes = writes.split('.').filter(|number| !number.is_empty());
        let writes = writes.map(str::to_owned).collect();
        Ok(Self { fence, writes, gone: metadata.remove(GONE).is_some() })
    }

    /// As metadata.
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

    /// The lock as it is kept: metadata is ASCII.
    pub(super) fn lock_of(fence: &LockToken) -> String {
        escape(&fence.qualified_lock(), b"/")
    }

    /// What it is after one more write.
    pub(super) fn after(&self, number: &str) -> Self {
        let forgotten = (self.writes.len() + 1).saturating_sub(REMEMBERED);
        let mut writes = self.writes[forgotten..].to_vec();
        writes.push(number.to_owned());
        Self { writes, fence: self.fence.clone(), gone: self.gone }
    }

    /// Whether this write was done.
    pub(super) fn has(&self, number: &str) -> bool {
        self.writes.iter().any(|write| write == number)
    }

    /// Whether all writes are remembered that came after `earlier`.
    pub(super) fn covers(&self, earlier: Option<&Self>) -> bool {
        let last = earlier.and_then(|earlier| earlier.writes.last());
        match last {
            Some(last) => self.has(last),
            None => self.writes.len() < REMEMBERED,
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
    fn it_is_read_as_it_was_written() {
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
    fn a_damaged_fence_is_not_taken_for_none() {
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
    fn it_is_known_what_may_have_been_forgotten() {
        let (first, ninth) = (written(1), written(9));
        assert!(!ninth.has("w1") && ninth.has("w2") && ninth.has("w9"));
        assert!(written(8).covers(Some(&first)));
        assert!(!ninth.covers(Some(&first)));
        assert!(written(7).covers(None) && !written(8).covers(None));
        // Somebody wrote past the guard.
        assert!(!Record::default().covers(Some(&first)));
    }
}

#[cfg(test)]
mod fuzz {
    use leasehold_fuzz::Fuzz;

    use super::*;

    const WORDS: &[&str] = &[TOKEN, LOCK, WRITES, GONE, "=", "\n", ".", "+7", "default/orders"];

    #[test]
    fn a_fence_is_read_exactly_or_needs_an_operator() {
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
                    assert!(after.has("n") && after.writes.len() <= REMEMBERED);
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
