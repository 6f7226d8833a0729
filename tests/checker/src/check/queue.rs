//! L3: the acquire that was queued first is granted first.
//!
//! An acquire is *passed over* if a later acquire at the same daemon, invoked after the
//! first one was queued, is granted the lock before it, all within one calm span. The
//! tokens decide which grant was first, because the responses may arrive in another order.
//! A refusal may be in flight when the other acquire is granted. An acquire without a grant
//! is therefore passed over only if it waits for longer than a local handoff after that.

use crate::{
    Kind, Nanos,
    format::Seconds,
    index::{Index, Point},
    report::Report,
};

/// Grant at a place in a calm span. Also names the acquire that was invoked last among
/// this grant and the earlier ones, in the same order and calm span.
#[derive(Clone, Copy)]
struct Latest {
    calm: usize,
    token: u64,
    granted: Point,
    invoked: Point,
    acquire: usize,
}

/// Grants at a place, in two orders: by token, which is the order of the daemon, and by the
/// time at which the client received them.
#[derive(Default)]
struct Orders {
    by_token: Vec<Latest>,
    by_time: Vec<Latest>,
}

pub(crate) fn check(index: &Index<'_>, report: &mut Report) {
    let mut orders = Orders::default();
    for place in &index.places {
        if place.acquires.iter().any(|&waiter| index.acquires[waiter].queued.is_some()) {
            orders.gather(index, &place.acquires);
            for &waiter in &place.acquires {
                passed_over(index, waiter, &orders, report);
            }
        }
    }
}

impl Orders {
    fn gather(&mut self, index: &Index<'_>, acquires: &[usize]) {
        self.by_token.clear();
        for &acquire in acquires {
            let invoked = index.acquires[acquire].invoked;
            let Some((granted, hold)) = index.acquires[acquire].granted() else { continue };
            let hold = &index.holds[hold];
            if let Some(calm) = calm_at(index, granted.at) {
                self.by_token.push(Latest { calm, token: hold.token, granted, invoked, acquire });
            }
        }
        self.by_time.clone_from(&self.by_token);
        self.by_token.sort_unstable_by_key(|latest| (latest.calm, latest.token));
        self.by_time.sort_unstable_by_key(|latest| (latest.calm, latest.granted));
        for order in [&mut self.by_token, &mut self.by_time] {
            for at in 1..order.len() {
                let before = order[at - 1];
                let now = &mut order[at];
                if before.calm == now.calm && before.invoked > now.invoked {
                    (now.invoked, now.acquire) = (before.invoked, before.acquire);
                }
            }
        }
    }

    /// Returns the acquire that was invoked last among the earlier grants of a calm span:
    /// those with a lower token, or without a token those received before `point`.
    fn before(&self, calm: usize, token: Option<u64>, point: Point) -> Option<Latest> {
        let (order, in_time) = match token {
            Some(token) => {
                let key = (calm, token);
                (&self.by_token, self.by_token.partition_point(|at| (at.calm, at.token) < key))
            }
            None => {
                let key = (calm, point);
                (&self.by_time, self.by_time.partition_point(|at| (at.calm, at.granted) < key))
            }
        };
        let latest = in_time.checked_sub(1).map(|at| order[at]);
        latest.filter(|latest| latest.calm == calm)
    }
}

fn calm_at(index: &Index<'_>, at: Nanos) -> Option<usize> {
    let next = index.calm.partition_point(|calm| calm.from <= at);
    next.checked_sub(1).filter(|&calm| at <= index.calm[calm].to)
}

fn passed_over(index: &Index<'_>, waiter: usize, orders: &Orders, report: &mut Report) {
    let acquire = &index.acquires[waiter];
    let Some(queued) = acquire.queued else { return };
    let Some(calm) = calm_at(index, queued.at) else { return };
    let grace = index.bounds.local_handoff.saturating_add(index.bounds.skew);
    let early = |point: Point| match grace {
        0 => point,
        _ => Point::deadline(point.at.saturating_sub(grace)),
    };
    let end = Point { at: index.end, pos: index.entries.len() };
    let own = acquire.hold().map(|hold| index.holds[hold].token);
    let latest = orders.before(calm, own, early(acquire.ended_at().unwrap_or(end)));
    let Some(latest) = latest else { return };
    if !queued.certainly_before(latest.invoked, index.bounds.skew) {
        return;
    }
    let other = &index.acquires[latest.acquire];
    let Some((granted, hold)) = other.granted() else { return };
    let hold = &index.holds[hold];
    let over = acquire.ended_at().map(|point| point.pos);
    let excerpt = [acquire.invoked.pos, queued.pos, other.invoked.pos, granted.pos];
    report.add(Kind::L3, granted.at, excerpt.into_iter().chain(over), || {
        format!(
            "client {} waited at daemon {} for lock {} since {}, but client {}, whose acquire \
             there began at {}, was granted token {} before it at {}",
            acquire.client,
            index.daemon_of(waiter).id,
            index.locks[acquire.lock].id,
            Seconds(queued.at),
            other.client,
            Seconds(other.invoked.at),
            hold.token,
            Seconds(granted.at),
        )
    });
}
