//! How many calls are under way at a time, in which order they get their turn,
//! and how often each kind was made and why.

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

/// What is done.
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

/// Why it is done, most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To keep a lease.
    Renew,
    /// To give one up.
    Release,
    /// To get one that may be free.
    Grant,
    /// To show others who leads.
    Show,
    /// An operator's break.
    Break,
    /// To see whether one that another daemon holds is free.
    Poll,
    /// Somebody looks.
    Look,
    /// To see whether the account can be used.
    Check,
    /// To delete what is long idle.
    Collect,
}

const KINDS: [(Kind, &str); 9] = [
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

const PURPOSES: [(Purpose, &str); 9] = [
    (Purpose::Renew, "renew"),
    (Purpose::Release, "release"),
    (Purpose::Grant, "grant"),
    (Purpose::Show, "show"),
    (Purpose::Break, "break"),
    (Purpose::Poll, "poll"),
    (Purpose::Look, "look"),
    (Purpose::Check, "check"),
    (Purpose::Collect, "collect"),
];

/// Renewals first: a late one loses a lock. Then what ends or completes a hold:
/// its lease is running out meanwhile. Then what others wait for; then what can
/// wait.
const fn lane(kind: Kind, cause: Purpose) -> usize {
    match (cause, kind) {
        (Purpose::Renew, _) => 0,
        (Purpose::Release, _) | (Purpose::Grant, Kind::Write) => 1,
        (Purpose::Grant | Purpose::Show | Purpose::Break, _) => 2,
        (Purpose::Poll | Purpose::Look | Purpose::Check | Purpose::Collect, _) => 3,
    }
}

const LANES: usize = 4;
const LAST: usize = LANES - 1;

/// The longest that a service may ask to be left alone.
const MAX_THROTTLE: Duration = Duration::from_secs(60);

/// The budget of calls.
pub(crate) struct CallLimiter {
    lanes: Mutex<Queues>,
    counts: [[AtomicU64; PURPOSES.len()]; KINDS.len()],
}

struct Queues {
    free: usize,
    /// How many of those in the last lane may be under way at a time: never
    /// all, so that they don't stand in the way of others.
    spare: usize,
    waiting: [VecDeque<oneshot::Sender<Permit>>; LANES],
    /// The service asked to be left alone until then.
    rest_until: Option<Moment>,
    /// How many turns have ended.
    turns: u32,
}

/// A call's turn; ends when it is dropped.
pub(crate) struct Permit {
    budget: Arc<CallLimiter>,
    lane: usize,
}

impl CallLimiter {
    pub(crate) fn new(most: usize) -> Arc<Self> {
        let lanes = Queues {
            free: most,
            spare: (most / 2).max(1),
            waiting: [const { VecDeque::new() }; LANES],
            rest_until: None,
            turns: 0,
        };
        Arc::new(Self { lanes: Mutex::new(lanes), counts: Default::default() })
    }

    /// Waits for a turn, and counts the call.
    pub(crate) async fn enter(self: &Arc<Self>, kind: Kind, cause: Purpose) -> Permit {
        let lane = lane(kind, cause);
        let waits = {
            let mut lanes = self.lanes();
            if lanes.take(lane) {
                None
            } else {
                let (turn, waits) = oneshot::channel();
                lanes.waiting[lane].push_back(turn);
                Some(waits)
            }
        };
        let permit = match waits {
            None => Permit { budget: Arc::clone(self), lane },
            Some(waits) => match waits.await {
                Ok(permit) => permit,
                // Whoever waits is in the queue until it is given a permit.
                Err(_) => std::future::pending().await,
            },
        };
        self.counts[kind as usize][cause as usize].fetch_add(1, Relaxed);
        permit
    }

    /// The service is busy: what can wait should.
    pub(crate) fn rest(&self, length: Option<Duration>) {
        let length = length.unwrap_or(Duration::from_secs(1)).min(MAX_THROTTLE);
        let until = Moment::now() + length;
        let mut lanes = self.lanes();
        lanes.rest_until = Some(lanes.rest_until.map_or(until, |before| before.max(until)));
    }

    /// For how much longer what can wait should.
    pub(crate) fn throttled_for(&self) -> Option<Duration> {
        let mut lanes = self.lanes();
        let rest = lanes.rest_until?.remaining();
        if rest.is_zero() {
            lanes.rest_until = None;
            return None;
        }
        Some(rest)
    }

    /// How often each kind was called and why, where it was at all.
    pub(crate) fn counts(&self) -> Vec<CallCount> {
        let all = KINDS.iter().flat_map(|kind| PURPOSES.iter().map(move |cause| (kind, cause)));
        all.map(|((kind, kind_name), (cause, cause_name))| CallCount {
            kind: kind_name,
            cause: cause_name,
            count: self.counts[*kind as usize][*cause as usize].load(Relaxed),
        })
        .filter(|calls| calls.count > 0)
        .collect()
    }

    fn lanes(&self) -> MutexGuard<'_, Queues> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queues {
    /// In which order the lanes get what is free: the urgent ones first, but of
    /// eight turns two are for what completes or ends holds, one for new ones and
    /// one for the rest. So nobody waits for ever, and what was begun is
    /// completed, also if renewals alone could keep the account busy: they have
    /// time, two thirds of a lease.
    fn order(&mut self) -> [usize; LANES] {
        self.turns = self.turns.wrapping_add(1);
        let first = match self.turns % 8 {
            2 | 6 => 1,
            4 => 2,
            0 => 3,
            _ => 0,
        };
        let mut order = std::array::from_fn(|lane| lane);
        order[..=first].rotate_right(1);
        order
    }

    fn take(&mut self, lane: usize) -> bool {
        if self.free == 0 || (lane == LAST && self.spare == 0) {
            return false;
        }
        self.free -= 1;
        self.spare -= usize::from(lane == LAST);
        true
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut refused = Vec::new();
        let mut lanes = self.budget.lanes();
        lanes.free += 1;
        lanes.spare += usize::from(self.lane == LAST);
        for lane in lanes.order() {
            while let Some(turn) = lanes.waiting[lane].pop_front() {
                // Else those who have gone would be dropped one within another.
                if turn.is_closed() {
                    continue;
                }
                if !lanes.take(lane) {
                    lanes.waiting[lane].push_front(turn);
                    break;
                }
                let permit = Self { budget: Arc::clone(&self.budget), lane };
                // Nobody waits for this turn any more: it goes to the next,
                // once the lanes are unlocked.
                refused.extend(turn.send(permit).err());
            }
        }
        drop(lanes);
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
    async fn renewals_come_before_polls_and_polls_never_take_all() {
        let budget = CallLimiter::new(2);
        let poll_one = budget.enter(Kind::Read, Purpose::Poll).await;
        let mut poll_two = pin!(budget.enter(Kind::Read, Purpose::Poll));
        assert!(poll(&mut poll_two).is_pending(), "half is kept for others");
        let grant = budget.enter(Kind::Acquire, Purpose::Grant).await;
        let mut release = pin!(budget.enter(Kind::Release, Purpose::Release));
        assert!(poll(&mut release).is_pending());
        let mut renew = pin!(budget.enter(Kind::Renew, Purpose::Renew));
        assert!(poll(&mut renew).is_pending());
        drop(poll_one);
        assert!(poll(&mut release).is_pending(), "the renewal came later and is first");
        let Poll::Ready(renewing) = poll(&mut renew) else { panic!("no turn") };
        drop(grant);
        let Poll::Ready(releasing) = poll(&mut release) else { panic!("no turn") };
        assert!(poll(&mut poll_two).is_pending());
        drop(renewing);
        assert!(poll(&mut poll_two).is_ready());
        drop(releasing);
        assert_eq!(budget.lanes().free, 2);
    }

    #[tokio::test]
    async fn whoever_looks_is_served_in_the_end() {
        let budget = CallLimiter::new(1);
        let mut permit = budget.enter(Kind::Renew, Purpose::Renew).await;
        let mut look = pin!(budget.enter(Kind::Read, Purpose::Look));
        assert!(poll(&mut look).is_pending());
        for _ in 0..32 {
            let mut renew = Box::pin(budget.enter(Kind::Renew, Purpose::Renew));
            assert!(poll(&mut renew).is_pending());
            drop(permit);
            if poll(&mut look).is_ready() {
                return;
            }
            let Poll::Ready(next) = poll(&mut renew) else { panic!("no turn") };
            permit = next;
        }
        panic!("renewals never let it through");
    }

    #[tokio::test]
    async fn a_hold_is_completed_before_another_is_begun() {
        let budget = CallLimiter::new(1);
        let first = budget.enter(Kind::Renew, Purpose::Renew).await;
        let mut begun = pin!(budget.enter(Kind::Acquire, Purpose::Grant));
        assert!(poll(&mut begun).is_pending());
        let mut completed = pin!(budget.enter(Kind::Write, Purpose::Grant));
        assert!(poll(&mut completed).is_pending());
        drop(first);
        assert!(poll(&mut begun).is_pending());
        assert!(poll(&mut completed).is_ready());
        assert!(poll(&mut begun).is_ready());
    }

    #[tokio::test]
    async fn a_turn_that_nobody_waits_for_goes_to_the_next() {
        let budget = CallLimiter::new(1);
        let first = budget.enter(Kind::Renew, Purpose::Renew).await;
        {
            let mut gone = pin!(budget.enter(Kind::Renew, Purpose::Renew));
            assert!(poll(&mut gone).is_pending());
            let mut given = pin!(budget.enter(Kind::Renew, Purpose::Renew));
            assert!(poll(&mut given).is_pending());
        }
        let mut next = pin!(budget.enter(Kind::Read, Purpose::Poll));
        assert!(poll(&mut next).is_pending());
        drop(first);
        assert!(poll(&mut next).is_ready());
        assert_eq!(budget.lanes().free, 1);
    }

    #[test]
    fn calls_are_counted_by_kind_and_cause() {
        for (at, (kind, _)) in KINDS.iter().enumerate() {
            assert_eq!(*kind as usize, at);
        }
        for (at, (cause, _)) in PURPOSES.iter().enumerate() {
            assert_eq!(*cause as usize, at);
        }
    }

    #[test]
    fn many_who_have_gone_do_not_overflow_the_stack() {
        for many in [2_000, 10_000, 50_000] {
            let budget = CallLimiter::new(2);
            {
                let first = pin!(budget.enter(Kind::Read, Purpose::Look));
                let mut first = first;
                let Poll::Ready(first) = poll(&mut first) else { panic!() };
                let mut gone: Vec<_> =
                    (0..many).map(|_| Box::pin(budget.enter(Kind::Read, Purpose::Look))).collect();
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
