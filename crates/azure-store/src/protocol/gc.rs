//! Deletes the blobs of locks that nobody has used for long (safety rule 14).

use std::time::Duration;

use super::path;
use crate::{
    AzureStore, LOOK,
    calls::{
        blob::{CallOptions, ListedBlob},
        limiter::Purpose,
    },
};
use leasehold_rules::mutant::{self, Mutant};
use leasehold_runtime::sleep;
use leasehold_time::clock::unix_seconds;
use leasehold_types::token::SEQ_BITS;

/// A token's epoch must be this far behind the service's clock, so that a blob
/// that is created anew begins with greater tokens whatever clock it asks.
const MIN_EPOCH_AGE: u64 = 60 * 60;

/// The longest time between two rounds.
const LONGEST_PAUSE: Duration = Duration::from_secs(60 * 60);

impl AzureStore {
    /// Collects again and again. Never ends.
    pub(crate) async fn collect(self, idle: Duration) {
        loop {
            match self.collect_once(idle).await {
                Ok(0) => {}
                Ok(deleted) => tracing::info!(deleted, "deleted the blobs of idle locks"),
                Err(why) => tracing::warn!("collecting idle locks: {why}"),
            }
            let pause = self.shared.entropy().jitter((idle / 2).min(LONGEST_PAUSE));
            sleep(pause).await;
        }
    }

    /// One round; says how many blobs it deleted.
    async fn collect_once(&self, idle: Duration) -> Result<u64, String> {
        let why = CallOptions { cause: Purpose::Collect, limit: LOOK };
        let root = path::root(&self.shared.prefix);
        let (mut deleted, mut marker) = (0, None);
        loop {
            let page = self.shared.blobs.list(&root, marker, why).await;
            let (page, next) = page.map_err(|fault| fault.why())?;
            for listed in page {
                if path::is_break_note(&self.shared.prefix, &listed.path) {
                    if is_idle(&listed, idle) {
                        _ = self.shared.blobs.delete(&listed.path, &listed.seen.etag, why).await;
                    }
                    continue;
                }
                let Some(name) = path::lock(&self.shared.prefix, &listed.path) else { continue };
                if !is_idle(&listed, idle) {
                    continue;
                }
                // Whoever leased it or wrote to it since keeps it.
                if self.shared.blobs.delete(&listed.path, &listed.seen.etag, why).await.is_ok() {
                    self.shared.memory.invalidate(&name);
                    deleted += 1;
                }
            }
            match next {
                Some(next) => marker = Some(next),
                None => return Ok(deleted),
            }
        }
    }
}

/// By the service's clock and by ours: one that is ahead for a while must not
/// have what has tokens of that while deleted. And never what can't be read:
/// that is for an operator to look at.
fn is_idle(listed: &ListedBlob, idle: Duration) -> bool {
    let one_clock = mutant::is(Mutant::CollectByOneClock);
    let ours = if one_clock { u64::MAX } else { unix_seconds() };
    let now = listed.seen.date.map(|date| date.min(ours));
    let (Some(now), Some(written_at), Ok(record)) = (now, listed.written_at, &listed.seen.record)
    else {
        return false;
    };
    !listed.seen.leased
        && now.saturating_sub(written_at) >= idle.as_secs()
        && ((record.token >> SEQ_BITS) + MIN_EPOCH_AGE < now || mutant::is(Mutant::CollectAnyEpoch))
}

#[cfg(test)]
mod tests {
    use azure_core::http::Etag;

    use super::*;
    use crate::{
        calls::blob::BlobState,
        protocol::record::{InvalidRecord, Record},
    };

    const NOW: u64 = 1_700_000_000;

    fn listed(leased: bool, age: u64, epoch: u64) -> ListedBlob {
        let record = Record { token: epoch << 20, nonce: 1, ..Record::default() };
        ListedBlob {
            path: "locks/default/a".to_owned(),
            seen: BlobState {
                etag: Etag::from("\"1\""),
                record: Ok(record),
                leased,
                date: Some(NOW),
            },
            written_at: Some(NOW - age),
        }
    }

    #[test]
    fn only_what_is_unleased_long_idle_and_far_behind_is_deleted() {
        let day = 24 * 3600;
        let idle = |listed| is_idle(&listed, Duration::from_secs(day));
        assert!(idle(listed(false, day, NOW - day)));
        assert!(!idle(listed(true, day, NOW - day)), "leased");
        assert!(!idle(listed(false, day - 1, NOW - day)), "used of late");
        assert!(!idle(listed(false, day, NOW - MIN_EPOCH_AGE)), "its epoch is near");
        let mut unknown = listed(false, day, NOW - day);
        unknown.seen.record = Err(InvalidRecord(String::new()));
        assert!(!idle(unknown), "it can't be read");
        let mut undated = listed(false, day, NOW - day);
        undated.seen.date = None;
        assert!(!idle(undated), "nobody knows the time");
        let now = unix_seconds();
        let mut ahead = listed(false, day, now + 1);
        ahead.seen.date = Some(now + day);
        assert!(!idle(ahead), "by our clock its epoch is still to come");
        let mut ahead = listed(false, day, NOW - day);
        (ahead.seen.date, ahead.written_at) = (Some(now + day), Some(now - day + 9));
        assert!(!idle(ahead), "by our clock it was used of late");
    }
}
