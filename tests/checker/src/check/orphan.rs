//! L4: a lease without a holder or a waiter ends in time.

use crate::{
    Kind, Nanos,
    format::Seconds,
    index::{Answer, Index, Lease, Place, Pos, Span},
    report::Report,
};

pub(crate) fn check(index: &Index<'_>, report: &mut Report) {
    for place in index.places.iter().filter(|place| !place.leases.is_empty()) {
        let idle = idle(index, place);
        let mut idle = idle.as_slice();
        for lease in &place.leases {
            let passed = idle.partition_point(|idle| idle.span.to <= lease.span.from);
            idle = &idle[passed..];
            for idle in idle.iter().take_while(|idle| idle.span.from < lease.span.to) {
                orphan(index, place, lease, idle, report);
            }
        }
    }
}

/// Span in which a daemon had no holder and no waiter of a lock, or was dead.
struct Idle {
    span: Span,
    /// Entry that began it, if there is one.
    since: Option<Pos>,
}

fn idle(index: &Index<'_>, place: &Place) -> Vec<Idle> {
    let died = index.daemons[place.daemon].died;
    let dead = died.map_or(Nanos::MAX, |died| died.at);
    let mut idle = Vec::new();
    let (mut from, mut since): (Nanos, Option<Pos>) = (0, None);
    for acquire in place.acquires.iter().map(|&acquire| &index.acquires[acquire]) {
        if acquire.invoked.at > from {
            idle.push(Idle { span: Span { from, to: acquire.invoked.at.min(dead) }, since });
        }
        let (to, by) = match (acquire.answer, acquire.ended_at()) {
            (Some(Answer::Granted { hold, .. }), _) => {
                let hold = &index.holds[hold];
                (hold.valid_to.at, hold.ended_by().map(|end| end.point.pos))
            }
            (_, Some(over)) => (over.at, Some(over.pos)),
            (_, None) => (Nanos::MAX, None),
        };
        if to >= from {
            (from, since) = (to, by);
        }
    }
    if from < dead {
        idle.push(Idle { span: Span { from, to: dead }, since });
    }
    idle.retain(|idle| idle.span.length() > 0);
    if let Some(died) = died {
        idle.push(Idle { span: Span { from: died.at, to: Nanos::MAX }, since: Some(died.pos) });
    }
    idle
}

/// Returns true if the daemon acquired the lease without a holder or a waiter. A client
/// that died shortly before counts as present, and so does an acquire that ended during a
/// fault, because the daemon may not have known.
fn is_unwanted(index: &Index<'_>, place: &Place, lease: &Lease, idle: &Idle) -> bool {
    let from = lease.span.from;
    let calm_since = index.calm_since(from);
    let dead = index.daemons[place.daemon].died.is_some_and(|died| died.at <= idle.span.from);
    let mut acquires = place.acquires.iter().map(|&acquire| &index.acquires[acquire]);
    index.bounds.unwanted > 0
        && idle.span.from < from
        && (calm_since == 0 || calm_since.saturating_add(index.bounds.expiry) <= from)
        && !dead
        && !acquires.any(|acquire| {
            let hold = acquire.hold().map(|hold| &index.holds[hold]);
            let died = hold.and_then(|hold| hold.died).into_iter();
            let gone = acquire.gone.map(|gone| gone.point);
            died.chain(gone).any(|at| at.at <= from && from - at.at < index.bounds.expiry)
        })
}

fn orphan(index: &Index<'_>, place: &Place, lease: &Lease, idle: &Idle, report: &mut Report) {
    let unwanted = is_unwanted(index, place, lease, idle);
    let limit = if unwanted { index.bounds.unwanted } else { index.bounds.orphan };
    if limit == 0 {
        return;
    }
    let long = |calm: &Span| calm.length() > limit.saturating_add(index.bounds.skew);
    let Some(unused) = index.calm_in(lease.span.and(idle.span)).find(long) else { return };
    let excerpt = [idle.since, Some(lease.leased), lease.unleased];
    report.add(Kind::L4, unused.from.saturating_add(limit), excerpt.into_iter().flatten(), || {
        let daemon = &index.daemons[place.daemon];
        let why = match daemon.died {
            Some(died) if died.at <= unused.from => "which was dead",
            _ if unwanted => "which acquired the lease without a holder or a waiter",
            _ => "which had no holder and no waiter",
        };
        format!(
            "lock {} was leased for daemon {}, {why}, from {} to {}: longer than {}",
            index.locks[place.lock].id,
            daemon.id,
            Seconds(unused.from),
            Seconds(unused.to),
            Seconds(limit)
        )
    });
}
