//! L5: in a calm that has lasted for long enough, nobody is refused for want of
//! service.
//!
//! A blob that an operator changed may be frozen, and rightly: until it is
//! deleted, or was granted on again. From then on the time counts anew.

use crate::{
    Event, Kind,
    format::Seconds,
    index::{About, Answer, Index, Pos},
    report::Report,
};

/// What was done to a lock's blob.
#[derive(Clone, Copy)]
enum Blob {
    /// Nothing that matters.
    Sound,
    Tampered,
    /// It was, and then it was all right again.
    Mended(Pos),
}

pub(crate) fn check(index: &Index<'_>, report: &mut Report) {
    if index.bounds.recovery == 0 {
        return;
    }
    let mut blobs = vec![Blob::Sound; index.locks.len()];
    for (pos, entry) in index.entries.iter().enumerate() {
        match (&entry.event, index.about[pos]) {
            (Event::Tampered { .. }, About::Lock(lock)) => blobs[lock] = Blob::Tampered,
            (Event::Deleted { .. }, About::Lock(lock)) => blobs[lock].mend(pos),
            (Event::Granted { .. }, About::Acquire(acquire)) => {
                blobs[index.acquires[acquire].lock].mend(pos);
            }
            (Event::Refused { .. }, About::Acquire(acquire)) => {
                refused(index, acquire, blobs[index.acquires[acquire].lock], report);
            }
            _ => {}
        }
    }
}

impl Blob {
    fn mend(&mut self, pos: Pos) {
        if matches!(self, Self::Tampered) {
            *self = Self::Mended(pos);
        }
    }
}

fn refused(index: &Index<'_>, acquire: usize, blob: Blob, report: &mut Report) {
    let (of, acquire) = (index.daemon_of(acquire), &index.acquires[acquire]);
    let Some(Answer::Refused { point, faulty: true, .. }) = acquire.answer else { return };
    let mended = match blob {
        Blob::Sound => None,
        Blob::Tampered => return,
        Blob::Mended(pos) => Some(pos),
    };
    let mut from = index.calm_since(point.at);
    let mut since = index.calmed_at(from);
    if let Some(pos) = mended.filter(|&pos| index.entries[pos].at > from) {
        (from, since) = (index.entries[pos].at, Some(pos));
    }
    let limit = index.bounds.recovery;
    // What a dead daemon can't do is not held against it; nor that the wait of one who
    // asked before ends later at a daemon that stood still than at its client.
    if acquire.gone.is_some()
        || acquire.invoked.at < from
        || point.at - from <= limit.saturating_add(index.bounds.skew)
    {
        return;
    }
    report.add(Kind::L5, point.at, since.into_iter().chain([acquire.invoked.pos, point.pos]), || {
        format!(
            "daemon {} could not serve client {}, which asked for lock {}, at {}, although nothing \
             had been wrong since {}: for longer than {}",
            of.id,
            acquire.client,
            index.locks[acquire.lock].id,
            Seconds(point.at),
            Seconds(from),
            Seconds(limit),
        )
    });
}
