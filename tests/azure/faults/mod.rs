//! What becomes of leases when answers are lost, calls are refused, arrive late
//! or twice, and when the account is gone: Azurite behind the fault proxy. The
//! outcomes that are not clear are those of safety rule 7.

mod acquire;
mod daemon;
mod late;
mod outage;
mod release;
mod renew;
mod show;
mod throttle;
mod write;

use std::sync::Arc;

use crate::scene::{DURATION, Together};
use leasehold_store::{Acquire, AcquireParams, Error, LeaseId, LeaseStore, Renew};
use leasehold_time::Moment;
use leasehold_types::{Holder, LockName, Token};

/// All that waits for deadlines, at the same time.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_takes_a_while() {
    Together::default()
        .and(acquire::what_stays_unclear_is_unknown_and_once_released_locks_nobody_out)
        .and(acquire::an_acquire_that_arrives_after_it_was_given_up_locks_out_for_its_term_only)
        .and(write::what_stays_unclear_is_not_granted_and_its_tokens_are_never_used)
        .and(renew::an_unclear_answer_neither_extends_nor_loses)
        .and(renew::a_late_answer_counts_from_when_it_was_asked_for)
        .and(daemon::an_acquisition_that_stays_unclear_is_released_before_another_begins)
        .and(daemon::a_release_is_repeated_until_it_is_done)
        .and(daemon::a_holder_keeps_its_lock_while_renewals_fail)
        .and(daemon::a_grant_does_not_start_on_a_lease_that_ran_out_meanwhile)
        .and(throttle::polls_slow_down_and_renewals_go_on)
        .and(throttle::an_account_that_refuses_everything_for_a_while_costs_no_lock)
        .and(outage::a_connection_that_is_cut_for_longer_than_the_deadline)
        .and(outage::an_account_that_is_silent_for_longer_than_the_deadline)
        .and(outage::answers_that_are_lost_for_longer_than_the_deadline)
        .and(outage::an_outage_that_ends_before_the_deadline_costs_nothing)
        .end()
        .await;
}

/// A store, and the one lock that a test is about.
struct Locks {
    store: Arc<dyn LeaseStore>,
    lock: LockName,
}

/// A hold as the store gave it.
#[derive(Clone, Copy, Debug)]
struct Hold {
    token: Token,
    deadline: Moment,
}

/// The lock of this name.
fn lock(store: Arc<dyn LeaseStore>, name: &str) -> Locks {
    Locks { store, lock: LockName::parse("", name).unwrap() }
}

fn id(number: u128) -> LeaseId {
    LeaseId::new(number << 64 | 0xabad_1dea)
}

impl Locks {
    fn claim(&self, number: u128) -> AcquireParams {
        AcquireParams {
            name: self.lock.clone(),
            id: id(number),
            duration: DURATION,
            again: false,
            value: None,
            holder: Arc::new(Holder::try_new("client", "host", 7, "", []).unwrap()),
        }
    }

    async fn try_acquire(&self, number: u128) -> Result<Acquire, Error> {
        self.store.acquire(self.claim(number)).await
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

    /// A hold that was given up: the blob is there, and the store knows it.
    async fn used_before(&self) -> Token {
        let hold = self.acquire(0xffff).await;
        self.store.release(&self.lock, id(0xffff)).await.unwrap();
        hold.token
    }
}
