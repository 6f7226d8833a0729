//! L4: no lease without anybody who wants it.

use crate::{
    Kind, Nanos,
    index::{Answer, Index, Lease, Place, Pos, Span},
    report::Report,
    words::Seconds,
};

pub(crate) fn check(index: &Index<'_>, report: &mut Report) {
    if index.bounds.orphan == 0 {
        return;
    }
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

/// Nobody at a daemon held or wanted a lock, or the daemon was dead.
struct Idle {
    span: Span,
    /// What it began with, if that is an entry.
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
        let (to, by) = match (acquire.answer, acquire.over()) {
            (Some(Answer::Granted { hold, .. }), _) => {
                let hold = &index.holds[hold];
                (hold.over.at, hold.ended_by().map(|end| end.point.pos))
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

fn orphan(index: &Index<'_>, place: &Place, lease: &Lease, idle: &Idle, report: &mut Report) {
    let limit = index.bounds.orphan;
    let long = |calm: &Span| calm.length() > limit.saturating_add(index.bounds.skew);
    let Some(alone) = index.calm_in(lease.span.and(idle.span)).find(long) else { return };
    let excerpt = [idle.since, Some(lease.leased), lease.unleased];
    report.add(Kind::L4, alone.from.saturating_add(limit), excerpt.into_iter().flatten(), || {
        let daemon = &index.daemons[place.daemon];
        let why = match daemon.died {
            Some(died) if died.at <= alone.from => "which was dead",
            _ => "where nobody held or wanted it",
        };
        format!(
            "lock {} was leased for daemon {}, {why}, from {} to {}: longer than {}",
            index.locks[place.lock].id,
            daemon.id,
            Seconds(alone.from),
            Seconds(alone.to),
            Seconds(limit)
        )
    });
}
