//! Leases under storage faults, with Azurite behind the fault proxy: lost
//! responses, refused, late and duplicated calls, and outages. Safety rule 7
//! defines the handling of unknown outcomes.

mod acquire;
mod daemon;
mod late;
mod outage;
mod publish;
mod release;
mod renew;
mod throttle;
mod write;

use std::sync::Arc;

use crate::fixture::{DURATION, Scenarios};
use leasehold_store::{Acquire, AcquireParams, Error, LeaseId, LeaseStore, Renew};
use leasehold_time::Moment;
use leasehold_types::{Holder, LockName, Token};

/// Runs scenarios that wait for deadlines, concurrently.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn slow_scenarios() {
    Scenarios::default()
        .start(acquire::acquire_of_unknown_outcome_is_freed_by_release)
        .start(acquire::late_abandoned_acquire_blocks_one_lease_duration_only)
        .start(write::unknown_write_is_not_granted_and_its_tokens_unused)
        .start(renew::unknown_renewal_keeps_deadline)
        .start(renew::late_response_counts_from_send_time)
        .start(daemon::unknown_acquisition_is_released_before_next_attempt)
        .start(daemon::release_is_retried_until_done)
        .start(daemon::holder_keeps_lock_while_renewals_fail)
        .start(daemon::expired_lease_is_not_granted_after_pause)
        .start(throttle::throttled_polls_slow_down_renewals_continue)
        .start(throttle::throttled_account_does_not_lose_locks)
        .start(outage::connection_cut_past_deadline)
        .start(outage::account_unresponsive_past_deadline)
        .start(outage::responses_lost_past_deadline)
        .start(outage::outage_ending_before_deadline_keeps_lock)
        .join()
        .await;
}

/// A store and the lock under test.
struct StoreLock {
    store: Arc<dyn LeaseStore>,
    lock: LockName,
}

/// A hold returned by the store.
#[derive(Clone, Copy, Debug)]
struct Hold {
    token: Token,
    deadline: Moment,
}

fn lock(store: Arc<dyn LeaseStore>, name: &str) -> StoreLock {
    StoreLock { store, lock: LockName::parse("", name).unwrap() }
}

fn id(number: u128) -> LeaseId {
    LeaseId::new(number << 64 | 0xabad_1dea)
}

impl StoreLock {
    fn params(&self, number: u128) -> AcquireParams {
        AcquireParams {
            name: self.lock.clone(),
            id: id(number),
            duration: DURATION,
            is_retry: false,
            value: None,
            holder: Arc::new(Holder::try_new("client", "host", 7, "", []).unwrap()),
        }
    }

    async fn try_acquire(&self, number: u128) -> Result<Acquire, Error> {
        self.store.acquire(self.params(number)).await
    }

    #[track_caller]
    fn acquire(&self, number: u128) -> impl Future<Output = Hold> {
        let answer = self.try_acquire(number);
        let caller = std::panic::Location::caller();
        async move {
            match answer.await {
                Ok(Acquire::Acquired(mut acquired)) => Hold {
                    token: acquired.tokens.take().unwrap(),
                    deadline: acquired.deadline.unwrap(),
                },
                other => panic!("{caller}: {other:?}"),
            }
        }
    }

    async fn renew(&self, number: u128) -> Renew {
        self.store.renew(&self.lock, id(number), DURATION).await.unwrap()
    }

    async fn is_held(&self, number: u128) -> bool {
        matches!(self.try_acquire(number).await, Ok(Acquire::Held { .. }))
    }

    /// Acquires and releases the lock. Afterwards its blob exists and is in the
    /// store's cache.
    async fn use_once(&self) -> Token {
        let hold = self.acquire(0xffff).await;
        self.store.release(&self.lock, id(0xffff)).await.unwrap();
        hold.token
    }
}
