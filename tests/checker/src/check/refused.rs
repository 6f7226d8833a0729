//! L5: after a long enough time without a fault, the service refuses no acquire because of
//! a fault.
//!
//! A lock whose blob an operator changed may be frozen until the blob is deleted or a grant
//! succeeds again. The time restarts at that entry.

use crate::{
    Event, Kind,
    format::Seconds,
    index::{About, Answer, Index, Pos},
    report::Report,
};

/// State of a lock's blob.
#[derive(Clone, Copy)]
enum Blob {
    /// Not changed by an operator.
    Intact,
    Tampered,
    /// Usable again since this entry.
    Repaired(Pos),
}

pub(crate) fn check(index: &Index<'_>, report: &mut Report) {
    if index.bounds.recovery == 0 {
        return;
    }
    let mut blobs = vec![Blob::Intact; index.locks.len()];
    for (pos, entry) in index.entries.iter().enumerate() {
        match (&entry.event, index.about[pos]) {
            (Event::Tampered { .. }, About::Lock(lock)) => blobs[lock] = Blob::Tampered,
            (Event::Deleted { .. }, About::Lock(lock)) => blobs[lock].repair(pos),
            (Event::Granted { .. }, About::Acquire(acquire)) => {
                blobs[index.acquires[acquire].lock].repair(pos);
            }
            (Event::Refused { .. }, About::Acquire(acquire)) => {
                refused(index, acquire, blobs[index.acquires[acquire].lock], report);
            }
            _ => {}
        }
    }
}

impl Blob {
    fn repair(&mut self, pos: Pos) {
        if matches!(self, Self::Tampered) {
            *self = Self::Repaired(pos);
        }
    }
}

fn refused(index: &Index<'_>, acquire: usize, blob: Blob, report: &mut Report) {
    let (of, acquire) = (index.daemon_of(acquire), &index.acquires[acquire]);
    let Some(Answer::Refused { point, faulty: true, .. }) = acquire.answer else { return };
    let repaired = match blob {
        Blob::Intact => None,
        Blob::Tampered => return,
        Blob::Repaired(pos) => Some(pos),
    };
    let mut from = index.calm_since(point.at);
    let mut since = index.calmed_at(from);
    if let Some(pos) = repaired.filter(|&pos| index.entries[pos].at > from) {
        (from, since) = (index.entries[pos].at, Some(pos));
    }
    let limit = index.bounds.recovery;
    // A dead daemon can't serve. An acquire from before the calm span may be refused late
    // too: after a pause, its timeout in the daemon ends later than at the client.
    if acquire.gone.is_some()
        || acquire.invoked.at < from
        || point.at - from <= limit.saturating_add(index.bounds.skew)
    {
        return;
    }
    report.add(
        Kind::L5,
        point.at,
        since.into_iter().chain([acquire.invoked.pos, point.pos]),
        || {
            format!(
                "daemon {} could not serve the acquire of client {} for lock {} at {}, although no \
             fault had been active since {}: for longer than {}",
                of.id,
                acquire.client,
                index.locks[acquire.lock].id,
                Seconds(point.at),
                Seconds(from),
                Seconds(limit),
            )
        },
    );
}
