//! Single calls to the storage account. Every call waits for a permit, has a
//! timeout and is never retried here (safety rule 4).
//!
//! | File | Content |
//! |---|---|
//! | `blob.rs` | Calls on a lock's blob: its lease, its record, its content |
//! | `list.rs` | Listings of the container |
//! | `limiter.rs` | Limit on concurrent calls, their priority and their counters |
//! | `fault.rs` | Meaning of failures |
//! | `health.rs` | Availability of the account, as recent calls found it |
//! | `stats.rs` | Results and durations, for metrics |

pub(crate) mod blob;
pub(crate) mod fault;
pub(crate) mod health;
pub(crate) mod limiter;
pub(crate) mod list;
mod stats;

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering::Relaxed},
    },
    time::Duration,
};

use azure_core::http::{Response, headers::HeaderName};
use azure_storage_blob::BlobClient;
use leasehold_azure_account::CallSpan;

use self::{
    fault::Fault,
    health::Health,
    limiter::{CallLimiter, Kind, Purpose},
    stats::CallStats,
};
use crate::account::Account;
use leasehold_runtime::sleep;
use leasehold_store::stats::AccountStats;
use leasehold_time::{Moment, clock::unix_seconds};

/// Blobs of a container, called within the limit on concurrent calls.
pub(crate) struct Blobs {
    account: Arc<Account>,
    pub(crate) limiter: Arc<CallLimiter>,
    pub(crate) health: Health,
    stats: CallStats,
    /// Lead of the storage clock over this machine's clock, in seconds.
    ahead: AtomicI64,
}

/// Purpose and timeout of a storage call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallOptions {
    pub(crate) purpose: Purpose,
    /// Counts from when the call is sent.
    pub(crate) timeout: Duration,
}

impl Blobs {
    pub(crate) fn new(account: Arc<Account>, max_calls: usize) -> Self {
        let (limiter, health) = (CallLimiter::new(max_calls), Health::default());
        Self { account, limiter, health, stats: CallStats::default(), ahead: AtomicI64::new(0) }
    }

    /// Storage clock, as far as it is known. For display only.
    pub(crate) fn service_seconds(&self) -> u64 {
        unix_seconds().saturating_add_signed(self.ahead.load(Relaxed))
    }

    fn set_service_clock(&self, date: u64) {
        self.ahead.store(date as i64 - unix_seconds() as i64, Relaxed);
    }

    /// Measurements of all calls.
    pub(crate) fn stats(&self) -> AccountStats {
        let is_throttled = self.limiter.throttled_for().is_some();
        self.stats.read(is_throttled, self.ahead.load(Relaxed))
    }

    fn blob(&self, path: &str) -> BlobClient {
        self.account.container().blob_client(path)
    }

    /// Waits for a permit, then sends a call. Also returns when the call was sent,
    /// from when its timeout counts.
    async fn call<T>(
        &self,
        kind: Kind,
        options: CallOptions,
        call: impl Future<Output = Result<T, CallError>>,
    ) -> (Moment, Result<T, Fault>) {
        let span = CallSpan::start(kind.name(), options.purpose.name());
        let permit = self.limiter.enter(kind, options.purpose).await;
        span.event("sent");
        let sent = Moment::now();
        let answer = tokio::select! {
            biased;
            answer = span.run(call) => answer.map_err(Fault::from),
            () = sleep(options.timeout) => {
                let timeout = humantime::format_duration(options.timeout);
                Err(Fault::Unknown { why: format!("storage call timed out after {timeout}") })
            }
        };
        drop(permit);
        self.stats.record(kind, options.purpose, answer.as_ref().err(), Moment::now().since(sent));
        span.end(answer.as_ref().err().map(|fault| || fault.what()));
        if let Err(Fault::Busy { retry_after }) = &answer {
            self.limiter.throttle(*retry_after);
        }
        self.health.note(answer.as_ref().err());
        (sent, answer)
    }
}

/// Failure within a call.
enum CallError {
    Service(azure_core::Error),
    Fault(Fault),
}

impl From<azure_core::Error> for CallError {
    fn from(error: azure_core::Error) -> Self {
        Self::Service(error)
    }
}

impl From<CallError> for Fault {
    fn from(wrong: CallError) -> Self {
        match wrong {
            CallError::Service(error) => error.into(),
            CallError::Fault(fault) => fault,
        }
    }
}

/// Storage clock in an answer, in seconds since 1970.
fn date<T, F>(answer: &Response<T, F>) -> Option<u64> {
    let text = answer.headers().get_optional_str(&HeaderName::from_static("date"))?;
    let at = azure_core::time::parse_rfc7231(text).ok()?;
    u64::try_from(at.unix_timestamp()).ok()
}
