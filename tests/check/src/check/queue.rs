//! L3: who was queued first is served first.
//!
//! An acquire is passed over if one that was invoked after it was queued, at the
//! same daemon, was granted the lock before it, all in one calm. A refusal may
//! have been on its way when the other was granted: so an acquire that was not
//! granted itself counts as passed over only if it waited on for longer than a
//! local hand-over takes.

use crate::{
    Kind, Nanos,
    index::{Index, Point},
    report::Report,
    words::Seconds,
};

/// After a grant at a place: of the grants there in the same calm, the one whose
/// acquire was invoked last.
#[derive(Clone, Copy)]
struct Latest {
    granted: Point,
    calm: usize,
    invoked: Point,
    acquire: usize,
}

pub(crate) fn check(index: &Index<'_>, report: &mut Report) {
    let mut order = Vec::new();
    for place in &index.places {
        if place.acquires.iter().any(|&waiter| index.acquires[waiter].queued.is_some()) {
            latest(index, &place.acquires, &mut order);
            for &waiter in &place.acquires {
                passed_over(index, waiter, &order, report);
            }
        }
    }
}

fn latest(index: &Index<'_>, acquires: &[usize], order: &mut Vec<Latest>) {
    order.clear();
    for &acquire in acquires {
        let invoked = index.acquires[acquire].invoked;
        let Some((granted, hold)) = index.acquires[acquire].granted() else { continue };
        // A client that shares its own grant passes nobody over.
        if index.holds[hold].acquire == acquire
            && let Some(calm) = calm_at(index, granted.at)
        {
            order.push(Latest { granted, calm, invoked, acquire });
        }
    }
    order.sort_unstable_by_key(|latest| latest.granted);
    for at in 1..order.len() {
        let before = order[at - 1];
        let now = &mut order[at];
        if before.calm == now.calm && before.invoked > now.invoked {
            (now.invoked, now.acquire) = (before.invoked, before.acquire);
        }
    }
}

fn calm_at(index: &Index<'_>, at: Nanos) -> Option<usize> {
    let next = index.calm.partition_point(|calm| calm.from <= at);
    next.checked_sub(1).filter(|&calm| at <= index.calm[calm].to)
}

fn passed_over(index: &Index<'_>, waiter: usize, order: &[Latest], report: &mut Report) {
    let acquire = &index.acquires[waiter];
    let Some(queued) = acquire.queued else { return };
    let Some(calm) = calm_at(index, queued.at) else { return };
    let grace = index.bounds.local_handover.saturating_add(index.bounds.skew);
    let early = |point: Point| match grace {
        0 => point,
        _ => Point::deadline(point.at.saturating_sub(grace)),
    };
    let end = Point { at: index.end, pos: index.entries.len() };
    let before = match acquire.granted() {
        Some((granted, _)) => granted,
        None => early(acquire.over().unwrap_or(end)),
    };
    let in_time = order.partition_point(|latest| latest.granted < before && latest.calm <= calm);
    let Some(latest) = in_time.checked_sub(1).map(|at| order[at]) else { return };
    if !queued.certainly_before(latest.invoked, index.bounds.skew) {
        return;
    }
    let other = &index.acquires[latest.acquire];
    let Some((granted, hold)) = other.granted() else { return };
    let hold = &index.holds[hold];
    // With the lower token it was granted first, and only heard of it later.
    if acquire.hold().is_some_and(|own| index.holds[own].token < hold.token) {
        return;
    }
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
