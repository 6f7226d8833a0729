//! One write, from a version that is known, made once or not at all.

use std::time::Duration;

use leasehold_azure_account::Fault;

use super::{
    Blob, Error,
    record::Record,
    rest::{Change, Expect, Seen, is_contended},
};
use crate::{ETag, Written, retry::Retries};

/// What is to be written.
pub(super) struct Write<'a> {
    /// The version to start from; none if the blob is not there.
    pub(super) from: Option<&'a Seen>,
    pub(super) change: Change<'a>,
    /// With the write's number at the end.
    pub(super) record: &'a Record,
    pub(super) number: &'a str,
    /// The lease under which it is written.
    pub(super) lease: Option<&'a str>,
}

/// What became of it.
pub(super) enum Outcome {
    /// It was done, and this is the version.
    Written(ETag),
    /// The blob had another version before: it was not done and never will be,
    /// unless `written` says that this is not known.
    Moved { seen: Option<Seen>, written: Written },
    /// Nobody could say, or it was refused. If the fault is unclear, it may
    /// still be done later.
    Failed(Fault),
}

impl Write<'_> {
    /// Each attempt names the version that it starts from: so at most one of
    /// them is done, and none once the blob has moved on.
    pub(super) async fn run(&self, blob: &Blob) -> Result<Outcome, Error> {
        let expect = match self.from {
            Some(seen) => Expect::Version(&seen.etag),
            None => Expect::Nothing,
        };
        let mut retries = Retries::for_service();
        // An attempt that may have been done, or may yet be.
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
                // If it can't be seen, the next attempt tells more.
                if let Ok(seen) = blob.look_once().await? {
                    if let Some(seen) = &seen
                        && seen.record.has(self.number)
                    {
                        return Ok(Outcome::Written(seen.etag.clone()));
                    }
                    if !self.starts_from(seen.as_ref()) {
                        return Ok(self.moved(seen, unclear.is_some()));
                    }
                }
            } else if matches!(fault, Fault::Refused { .. }) {
                return Ok(Outcome::Failed(unclear.unwrap_or(fault)));
            }
            let at_least = if fault.may_pass() { fault.retry_after() } else { Duration::ZERO };
            if !retries.again(at_least).await {
                return Ok(Outcome::Failed(unclear.unwrap_or(fault)));
            }
        }
    }

    fn starts_from(&self, seen: Option<&Seen>) -> bool {
        match (self.from, seen) {
            (Some(from), Some(seen)) => from.etag == seen.etag,
            (None, None) => true,
            _ => false,
        }
    }

    fn moved(&self, seen: Option<Seen>, unclear: bool) -> Outcome {
        let from = self.from.map(|from| &from.record);
        let covered = seen.as_ref().is_some_and(|seen| seen.record.covers(from));
        let written = if unclear && !covered { Written::Unknown } else { Written::No };
        Outcome::Moved { seen, written }
    }
}
