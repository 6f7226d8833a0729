//! L3: who was queued first is served first.
//!
//! An acquire is passed over if one that was invoked after it was queued, at the
//! same daemon, was granted the lock before it, all in one calm: with a lower
//! token, whenever either of them heard of it. A refusal may have been on its way
//! when the other was granted: so an acquire that was not granted itself counts as
//! passed over only if it waited on for longer than a local hand-over takes.

use crate::{
    Kind, Nanos,
    format::Seconds,
    index::{Index, Point},
    report::Report,
};

/// A grant at a place in a calm, and of those before it in the same order and
/// calm, itself included, the acquire that was invoked last.
#[derive(Clone, Copy)]
struct Latest {
    calm: usize,
    token: u64,
    granted: Point,
    invoked: Point,
    acquire: usize,
}

/// The grants at a place: by token, in which order they were given, and by when
/// they were heard of.
#[derive(Default)]
struct Orders {
    given: Vec<Latest>,
    heard: Vec<Latest>,
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
        self.given.clear();
        for &acquire in acquires {
            let invoked = index.acquires[acquire].invoked;
            let Some((granted, hold)) = index.acquires[acquire].granted() else { continue };
            let hold = &index.holds[hold];
            if let Some(calm) = calm_at(index, granted.at) {
                self.given.push(Latest { calm, token: hold.token, granted, invoked, acquire });
            }
        }
        self.heard.clone_from(&self.given);
        self.given.sort_unstable_by_key(|latest| (latest.calm, latest.token));
        self.heard.sort_unstable_by_key(|latest| (latest.calm, latest.granted));
        for order in [&mut self.given, &mut self.heard] {
            for at in 1..order.len() {
                let before = order[at - 1];
                let now = &mut order[at];
                if before.calm == now.calm && before.invoked > now.invoked {
                    (now.invoked, now.acquire) = (before.invoked, before.acquire);
                }
            }
        }
    }

    /// Of the grants in this calm that were given before this one, or heard of
    /// before this moment, the one that was asked for last.
    fn before(&self, calm: usize, token: Option<u64>, point: Point) -> Option<Latest> {
        let (order, in_time) = match token {
            Some(token) => {
                let key = (calm, token);
                (&self.given, self.given.partition_point(|at| (at.calm, at.token) < key))
            }
            None => {
                let key = (calm, point);
                (&self.heard, self.heard.partition_point(|at| (at.calm, at.granted) < key))
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
    let grace = index.bounds.local_handover.saturating_add(index.bounds.skew);
    let early = |point: Point| match grace {
        0 => point,
        _ => Point::deadline(point.at.saturating_sub(grace)),
    };
    let end = Point { at: index.end, pos: index.entries.len() };
    let own = acquire.hold().map(|hold| index.holds[hold].token);
    let latest = orders.before(calm, own, early(acquire.over().unwrap_or(end)));
    let Some(latest) = latest else { return };
    if !queued.certainly_before(latest.invoked, index.bounds.skew) {
        return;
    }
    let other = &index.acquires[latest.acquire];
    let Some((granted, hold)) = other.granted() else { return };
    let hold = &index.holds[hold];
    let over = acquire.over().map(|point| point.pos);
    let shown = [acquire.invoked.pos, queued.pos, other.invoked.pos, granted.pos];
    report.add(Kind::L3, granted.at, shown.into_iter().chain(over), || {
        format!(
            "client {} waited at daemon {} for lock {} since {}, but client {}, which asked there \
             at {}, was granted token {} before it at {}",
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
