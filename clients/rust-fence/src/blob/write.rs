//! Write conditional on a known version, applied at most once.

use std::time::Duration;

use leasehold_azure_account::Fault;

use super::{
    Blob, Error,
    record::Record,
    rest::{BlobState, Change, Expect, is_contended},
};
use crate::{ETag, Written, retry::Retries};

/// Parameters of a write.
pub(super) struct Write<'a> {
    /// Version that the write requires; `None` if the blob must not exist.
    pub(super) from: Option<&'a BlobState>,
    pub(super) change: Change<'a>,
    /// Record after the write: `write_id` is its last entry.
    pub(super) record: &'a Record,
    pub(super) write_id: &'a str,
    /// ID of the lease under which the write is made.
    pub(super) lease: Option<&'a str>,
}

/// Outcome of a write.
pub(super) enum Outcome {
    /// Applied. Contains the new version.
    Written(ETag),
    /// The blob has another version. The write was not applied and never will be,
    /// unless `written` is `Unknown`.
    Changed { state: Option<BlobState>, written: Written },
    /// Refused, or the outcome is unknown. If it is unknown, the storage may still
    /// apply the write later.
    Failed(Fault),
}

impl Write<'_> {
    /// Makes the write, with retries. Each attempt requires the same version, so
    /// at most one is applied, and none after the blob has changed.
    pub(super) async fn run(&self, blob: &Blob) -> Result<Outcome, Error> {
        let expect = match self.from {
            Some(state) => Expect::Version(&state.etag),
            None => Expect::Nothing,
        };
        let mut retries = Retries::for_service();
        // Set if an attempt may have been applied, or may still be.
        let mut unclear: Option<Fault> = None;
        loop {
            let put = blob.put(&self.change, Some(self.record), expect, self.lease).await;
            let fault = match put {
                Ok(etag) => return Ok(Outcome::Written(etag)),
                Err(fault) => fault,
            };
            if fault.is_unclear() {
                unclear = Some(fault.clone());
            }
            if fault.is_unclear() || is_contended(&fault) {
                // If the read fails, the next attempt resolves the outcome.
                if let Ok(state) = blob.try_read_state().await? {
                    if let Some(state) = &state
                        && state.record.has(self.write_id)
                    {
                        return Ok(Outcome::Written(state.etag.clone()));
                    }
                    if !self.starts_from(state.as_ref()) {
                        return Ok(self.changed(state, unclear.is_some()));
                    }
                }
            } else if matches!(fault, Fault::Refused { .. }) {
                return Ok(Outcome::Failed(unclear.unwrap_or(fault)));
            }
            let at_least = if fault.may_pass() { fault.retry_after() } else { Duration::ZERO };
            if !retries.next_attempt(at_least).await {
                return Ok(Outcome::Failed(unclear.unwrap_or(fault)));
            }
        }
    }

    fn starts_from(&self, state: Option<&BlobState>) -> bool {
        match (self.from, state) {
            (Some(from), Some(state)) => from.etag == state.etag,
            (None, None) => true,
            _ => false,
        }
    }

    fn changed(&self, state: Option<BlobState>, unclear: bool) -> Outcome {
        let from = self.from.map(|from| &from.record);
        let covered = state.as_ref().is_some_and(|state| state.record.covers(from));
        let written = if unclear && !covered { Written::Unknown } else { Written::No };
        Outcome::Changed { state, written }
    }
}
