//! Limits concurrent storage calls, orders them by priority (renewals first) and
//! counts them by operation and purpose.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::sync::oneshot;

use leasehold_store::CallCount;
use leasehold_time::Moment;

/// Operation of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Acquire,
    Renew,
    Release,
    Break,
    Read,
    Write,
    Create,
    Delete,
    List,
}

/// Purpose of a call, most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Renewal of a lease.
    Renew,
    /// Release of a lease.
    Release,
    /// Acquisition of a lease that may be free.
    Grant,
    /// Publication of a leader and its value.
    Publish,
    /// Break by an operator.
    Break,
    /// Poll of a lease that a peer holds.
    Poll,
    /// Read for a client or an operator.
    Inspect,
    /// Check that the account is usable.
    Check,
    /// Garbage collection of idle blobs.
    Gc,
}

pub(super) const KINDS: [(Kind, &str); 9] = [
    (Kind::Acquire, "acquire"),
    (Kind::Renew, "renew"),
    (Kind::Release, "release"),
    (Kind::Break, "break"),
    (Kind::Read, "read"),
    (Kind::Write, "write"),
    (Kind::Create, "create"),
    (Kind::Delete, "delete"),
    (Kind::List, "list"),
];

pub(super) const PURPOSES: [(Purpose, &str); 9] = [
    (Purpose::Renew, "renew"),
    (Purpose::Release, "release"),
    (Purpose::Grant, "grant"),
    (Purpose::Publish, "publish"),
    (Purpose::Break, "break"),
    (Purpose::Poll, "poll"),
    (Purpose::Inspect, "inspect"),
    (Purpose::Check, "check"),
    (Purpose::Gc, "gc"),
];

impl Kind {
    /// Returns the name of the operation.
    pub(crate) const fn name(self) -> &'static str {
        KINDS[self as usize].1
    }
}

impl Purpose {
    /// Returns the name of the purpose.
    pub(crate) const fn name(self) -> &'static str {
        PURPOSES[self as usize].1
    }
}

/// Priority of a call. Renewals first, because a late one loses a lock. Then calls
/// that end or complete a hold, because its lease is running. Then calls that
/// clients wait for, then all others.
const fn priority_of(kind: Kind, purpose: Purpose) -> usize {
    match (purpose, kind) {
        (Purpose::Renew, _) => 0,
        (Purpose::Release, _) | (Purpose::Grant, Kind::Write) => 1,
        (Purpose::Grant | Purpose::Publish | Purpose::Break, _) => 2,
        (Purpose::Poll | Purpose::Inspect | Purpose::Check | Purpose::Gc, _) => 3,
    }
}

const PRIORITIES: usize = 4;
const LOWEST: usize = PRIORITIES - 1;

/// Maximum time for which the storage can throttle calls.
const MAX_THROTTLE: Duration = Duration::from_secs(60);

/// Limiter of concurrent calls.
pub(crate) struct CallLimiter {
    queues: Mutex<Queues>,
    counts: [[AtomicU64; PURPOSES.len()]; KINDS.len()],
}

struct Queues {
    free: usize,
    /// Free permits that calls of the lowest priority may use: never all, so that
    /// these calls do not block others.
    spare: usize,
    waiting: [VecDeque<oneshot::Sender<Permit>>; PRIORITIES],
    /// End of the time for which the storage throttles calls.
    throttled_until: Option<Moment>,
    /// Number of permits that have ended.
    turns: u32,
}

/// Permit of one call, which ends when it is dropped.
pub(crate) struct Permit {
    limiter: Arc<CallLimiter>,
    priority: usize,
}

impl CallLimiter {
    pub(crate) fn new(max_calls: usize) -> Arc<Self> {
        let queues = Queues {
            free: max_calls,
            spare: (max_calls / 2).max(1),
            waiting: [const { VecDeque::new() }; PRIORITIES],
            throttled_until: None,
            turns: 0,
        };
        Arc::new(Self { queues: Mutex::new(queues), counts: Default::default() })
    }

    /// Waits for a permit, and counts the call.
    pub(crate) async fn enter(self: &Arc<Self>, kind: Kind, purpose: Purpose) -> Permit {
        let priority = priority_of(kind, purpose);
        let waits = {
            let mut queues = self.queues();
            if queues.take(priority) {
                None
            } else {
                let (turn, waits) = oneshot::channel();
                queues.waiting[priority].push_back(turn);
                Some(waits)
            }
        };
        let permit = match waits {
            None => Permit { limiter: Arc::clone(self), priority },
            Some(waits) => match waits.await {
                Ok(permit) => permit,
                // A waiting call stays in the queue until it receives a permit.
                Err(_) => std::future::pending().await,
            },
        };
        self.counts[kind as usize][purpose as usize].fetch_add(1, Relaxed);
        permit
    }

    /// Records that the storage throttles calls.
    pub(crate) fn throttle(&self, length: Option<Duration>) {
        let length = length.unwrap_or(Duration::from_secs(1)).min(MAX_THROTTLE);
        let until = Moment::now() + length;
        let mut queues = self.queues();
        queues.throttled_until =
            Some(queues.throttled_until.map_or(until, |before| before.max(until)));
    }

    /// Remaining time for which the storage throttles calls.
    pub(crate) fn throttled_for(&self) -> Option<Duration> {
        let mut queues = self.queues();
        let rest = queues.throttled_until?.remaining();
        if rest.is_zero() {
            queues.throttled_until = None;
            return None;
        }
        Some(rest)
    }

    /// Number of calls by operation and purpose, without zeros.
    pub(crate) fn counts(&self) -> Vec<CallCount> {
        let all = KINDS.iter().flat_map(|kind| PURPOSES.iter().map(move |purpose| (kind, purpose)));
        all.map(|((kind, kind_name), (purpose, purpose_name))| CallCount {
            operation: kind_name,
            purpose: purpose_name,
            count: self.counts[*kind as usize][*purpose as usize].load(Relaxed),
        })
        .filter(|calls| calls.count > 0)
        .collect()
    }

    fn queues(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queues {
    /// Order in which the queues get a free permit. Urgent calls first, but of eight
    /// permits two are for calls that end or complete holds, one for new holds and
    /// one for the rest. No call starves therefore, even if renewals alone could
    /// keep the account busy: a renewal has two thirds of a lease to succeed.
    fn order(&mut self) -> [usize; PRIORITIES] {
        self.turns = self.turns.wrapping_add(1);
        let first = match self.turns % 8 {
            2 | 6 => 1,
            4 => 2,
            0 => 3,
            _ => 0,
        };
        let mut order = std::array::from_fn(|priority| priority);
        order[..=first].rotate_right(1);
        order
    }

    fn take(&mut self, priority: usize) -> bool {
        if self.free == 0 || (priority == LOWEST && self.spare == 0) {
            return false;
        }
        self.free -= 1;
        self.spare -= usize::from(priority == LOWEST);
        true
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut refused = Vec::new();
        let mut queues = self.limiter.queues();
        queues.free += 1;
        queues.spare += usize::from(self.priority == LOWEST);
        for priority in queues.order() {
            while let Some(turn) = queues.waiting[priority].pop_front() {
                // Skip canceled waiters: dropping their permits recursively could overflow the
                // stack.
                if turn.is_closed() {
                    continue;
                }
                if !queues.take(priority) {
                    queues.waiting[priority].push_front(turn);
                    break;
                }
                let permit = Self { limiter: Arc::clone(&self.limiter), priority };
                // If the waiter is canceled by now, the permit goes to the next one,
                // once the queues are unlocked.
                refused.extend(turn.send(permit).err());
            }
        }
        drop(queues);
        drop(refused);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        pin::pin,
        task::{Context, Poll, Waker},
    };

    use super::*;

    fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
        std::pin::Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
    }

    #[tokio::test]
    async fn renewals_precede_polls_and_polls_leave_permits() {
        let limiter = CallLimiter::new(2);
        let poll_one = limiter.enter(Kind::Read, Purpose::Poll).await;
        let mut poll_two = pin!(limiter.enter(Kind::Read, Purpose::Poll));
        assert!(poll(&mut poll_two).is_pending(), "half of the permits are for other calls");
        let grant = limiter.enter(Kind::Acquire, Purpose::Grant).await;
        let mut release = pin!(limiter.enter(Kind::Release, Purpose::Release));
        assert!(poll(&mut release).is_pending());
        let mut renew = pin!(limiter.enter(Kind::Renew, Purpose::Renew));
        assert!(poll(&mut renew).is_pending());
        drop(poll_one);
        assert!(poll(&mut release).is_pending(), "the later renewal precedes the release");
        let Poll::Ready(renewing) = poll(&mut renew) else { panic!("no turn") };
        drop(grant);
        let Poll::Ready(releasing) = poll(&mut release) else { panic!("no turn") };
        assert!(poll(&mut poll_two).is_pending());
        drop(renewing);
        assert!(poll(&mut poll_two).is_ready());
        drop(releasing);
        assert_eq!(limiter.queues().free, 2);
    }

    #[tokio::test]
    async fn reads_are_not_starved_by_renewals() {
        let limiter = CallLimiter::new(1);
        let mut permit = limiter.enter(Kind::Renew, Purpose::Renew).await;
        let mut read = pin!(limiter.enter(Kind::Read, Purpose::Inspect));
        assert!(poll(&mut read).is_pending());
        for _ in 0..32 {
            let mut renew = Box::pin(limiter.enter(Kind::Renew, Purpose::Renew));
            assert!(poll(&mut renew).is_pending());
            drop(permit);
            if poll(&mut read).is_ready() {
                return;
            }
            let Poll::Ready(next) = poll(&mut renew) else { panic!("no turn") };
            permit = next;
        }
        panic!("renewals starve the read");
    }

    #[tokio::test]
    async fn hold_is_completed_before_the_next_begins() {
        let limiter = CallLimiter::new(1);
        let first = limiter.enter(Kind::Renew, Purpose::Renew).await;
        let mut begun = pin!(limiter.enter(Kind::Acquire, Purpose::Grant));
        assert!(poll(&mut begun).is_pending());
        let mut completed = pin!(limiter.enter(Kind::Write, Purpose::Grant));
        assert!(poll(&mut completed).is_pending());
        drop(first);
        assert!(poll(&mut begun).is_pending());
        assert!(poll(&mut completed).is_ready());
        assert!(poll(&mut begun).is_ready());
    }

    #[tokio::test]
    async fn permit_of_canceled_waiter_goes_to_the_next() {
        let limiter = CallLimiter::new(1);
        let first = limiter.enter(Kind::Renew, Purpose::Renew).await;
        {
            let mut gone = pin!(limiter.enter(Kind::Renew, Purpose::Renew));
            assert!(poll(&mut gone).is_pending());
            let mut given = pin!(limiter.enter(Kind::Renew, Purpose::Renew));
            assert!(poll(&mut given).is_pending());
        }
        let mut next = pin!(limiter.enter(Kind::Read, Purpose::Poll));
        assert!(poll(&mut next).is_pending());
        drop(first);
        assert!(poll(&mut next).is_ready());
        assert_eq!(limiter.queues().free, 1);
    }

    #[test]
    fn calls_are_counted_by_kind_and_purpose() {
        for (at, (kind, _)) in KINDS.iter().enumerate() {
            assert_eq!(*kind as usize, at);
        }
        for (at, (purpose, _)) in PURPOSES.iter().enumerate() {
            assert_eq!(*purpose as usize, at);
        }
    }

    #[test]
    fn canceled_waiters_do_not_overflow_the_stack() {
        for many in [2_000, 10_000, 50_000] {
            let limiter = CallLimiter::new(2);
            {
                let first = pin!(limiter.enter(Kind::Read, Purpose::Inspect));
                let mut first = first;
                let Poll::Ready(first) = poll(&mut first) else { panic!() };
                let mut gone: Vec<_> = (0..many)
                    .map(|_| Box::pin(limiter.enter(Kind::Read, Purpose::Inspect)))
                    .collect();
                for one in &mut gone {
                    assert!(poll(one).is_pending());
                }
                drop(gone);
                drop(first);
            }
            eprintln!("{many} survived");
        }
    }
}
