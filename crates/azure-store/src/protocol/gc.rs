//! Garbage collection: deletes the blobs of locks that were not used for long
//! (safety rule 14).

use std::time::Duration;

use super::path;
use crate::{
    AzureStore, READ_TIMEOUT,
    calls::{CallOptions, limiter::Purpose, list::ListedBlob},
};
use leasehold_rules::{UnusedBlob, may_collect};
use leasehold_runtime::sleep;
use leasehold_time::clock::unix_seconds;

/// Maximum time between two rounds.
const MAX_INTERVAL: Duration = Duration::from_secs(60 * 60);

impl AzureStore {
    /// Collects in rounds. Never ends.
    pub(crate) async fn collect(self, min_idle: Duration) {
        loop {
            match self.collect_once(min_idle).await {
                Ok(0) => {}
                Ok(deleted) => tracing::info!(deleted, "deleted the blobs of idle locks"),
                Err(why) => tracing::warn!("collecting idle locks: {why}"),
            }
            let pause = self.shared.entropy().jitter((min_idle / 2).min(MAX_INTERVAL));
            sleep(pause).await;
        }
    }

    /// Collects one round. Returns the number of locks whose blobs it deleted.
    async fn collect_once(&self, min_idle: Duration) -> Result<u64, String> {
        let options = CallOptions { purpose: Purpose::Gc, timeout: READ_TIMEOUT };
        let (blobs, root) = (&self.shared.blobs, path::root(&self.shared.prefix));
        let (mut deleted, mut marker) = (0, None);
        loop {
            let page = blobs.list(&root, marker, options).await;
            let (page, next) = page.map_err(|fault| fault.why())?;
            for listed in page {
                if path::is_break_note(&self.shared.prefix, &listed.path) {
                    if is_collectable(&listed, min_idle) {
                        _ = blobs.delete(&listed.path, &listed.state.etag, options).await;
                    }
                    continue;
                }
                let Some(name) = path::lock(&self.shared.prefix, &listed.path) else { continue };
                if !is_collectable(&listed, min_idle) {
                    continue;
                }
                // A blob leased or written since then stays.
                if blobs.delete(&listed.path, &listed.state.etag, options).await.is_ok() {
                    self.shared.cache.invalidate(&name);
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

/// Reports whether a blob may be deleted. A leased blob never may, and neither may
/// an invalid record, which an operator must examine.
fn is_collectable(listed: &ListedBlob, min_idle: Duration) -> bool {
    let (Some(storage_date), Some(written_at), Ok(record)) =
        (listed.state.date, listed.written_at, &listed.state.record)
    else {
        return false;
    };
    let blob = UnusedBlob { token: record.token, written_at, storage_date, wall: unix_seconds() };
    !listed.state.leased && may_collect(&blob, min_idle)
}

#[cfg(test)]
mod tests {
    use azure_core::http::Etag;

    use leasehold_rules::MIN_EPOCH_AGE;

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
            state: BlobState {
                etag: Etag::from("\"1\""),
                record: Ok(record),
                leased,
                date: Some(NOW),
            },
            written_at: Some(NOW - age),
        }
    }

    #[test]
    fn only_unleased_idle_and_old_blobs_are_collected() {
        let day = 24 * 3600;
        let idle = |listed| is_collectable(&listed, Duration::from_secs(day));
        assert!(idle(listed(false, day, NOW - day)));
        assert!(!idle(listed(true, day, NOW - day)), "leased");
        assert!(!idle(listed(false, day - 1, NOW - day)), "used recently");
        assert!(!idle(listed(false, day, NOW - MIN_EPOCH_AGE)), "its epoch is near");
        let mut unknown = listed(false, day, NOW - day);
        unknown.state.record = Err(InvalidRecord(String::new()));
        assert!(!idle(unknown), "it can't be read");
        let mut undated = listed(false, day, NOW - day);
        undated.state.date = None;
        assert!(!idle(undated), "its last use is unknown");
        let now = unix_seconds();
        let mut ahead = listed(false, day, now + 1);
        ahead.state.date = Some(now + day);
        assert!(!idle(ahead), "by our clock its epoch is still to come");
        let mut ahead = listed(false, day, NOW - day);
        (ahead.state.date, ahead.written_at) = (Some(now + day), Some(now - day + 9));
        assert!(!idle(ahead), "used recently by our clock");
    }
}
