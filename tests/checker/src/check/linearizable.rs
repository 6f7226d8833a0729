//! Whether the grants of a lock can be those of one mutex.
//!
//! The model: a mutex that is free or held by a client under a token, and that
//! knows the highest token. An acquire succeeds if it is free, with a token
//! above the highest. The client that holds it waits like any other. A
//! release frees it if the client holds it under that token, and does nothing
//! otherwise. It may become free by itself, but not before the holder's validity
//! is over: its release, loss or death, the end of the last `until`, or the
//! moment from which its clock is not to be trusted.
//!
//! An acquire takes effect at some moment between `Acquire` and `Granted`. Such
//! moments must exist for all grants of a lock. Acquires that were not granted
//! may be left out of any order that exists, and a release never has to take
//! effect later than the end of validity, so neither needs to be placed.
//!
//! In general such a search is exponential. Here it is not: tokens rise in the
//! order in which grants take effect, so they give the only order that is
//! possible. In this order each grant takes effect as early as it can, when it
//! was invoked or when the one before may be over, whichever is later: if that
//! leaves no moment for a later grant, nothing does. So this is exact, and
//! needs no limit on the work.
//!
//! What it finds and I1 to I4 do not: a grant that comes late with a token
//! below that of a hold which was granted and over in the meantime.

use crate::{
    Kind,
    format::Seconds,
    index::{Index, Point},
    report::Report,
};

/// The latest moment that the grants so far need.
struct Needed {
    point: Point,
    hold: usize,
    /// By the end of its validity; otherwise by when it was asked for.
    by_end: bool,
}

pub(crate) fn check(index: &Index<'_>, lock: usize, report: &mut Report) {
    let mut order = index.locks[lock].holds.clone();
    order.sort_by_key(|&hold| index.holds[hold].token);
    let mut needed: Option<Needed> = None;
    for at in order {
        let hold = &index.holds[at];
        // Nothing is expected of what was granted on a wrong clock.
        if hold.broken.is_some_and(|broken| broken < hold.granted) {
            continue;
        }
        let lower = needed.as_ref().map_or(0, |before| index.holds[before.hold].token);
        if index.locks[lock].is_overruled(lower, hold.token, hold.granted.at) {
            needed = None;
        }
        if let Some(before) = needed.as_ref() {
            let equal = index.holds[before.hold].token == hold.token;
            if equal || hold.granted.certainly_before(before.point, index.bounds.skew) {
                return tell(index, before, at, report);
            }
        }
        // What was over before the client heard of it need not last until then.
        let over = hold.segments.last().map_or(Point::deadline(0), |last| last.to);
        let over = over.min(hold.broken.unwrap_or(Point::NEVER));
        let asked = hold.invoked;
        let by_end = over > asked;
        let own = Needed { point: over.max(asked), hold: at, by_end };
        needed = match needed {
            Some(before) if before.point >= own.point => Some(before),
            _ => Some(own),
        };
    }
}

fn tell(index: &Index<'_>, before: &Needed, late: usize, report: &mut Report) {
    let (first, late) = (&index.holds[before.hold], &index.holds[late]);
    let asked = |acquire: usize| index.acquires[acquire].invoked.pos;
    let mut excerpt = vec![asked(late.acquire), late.granted.pos];
    excerpt.extend([asked(first.acquire), first.granted.pos]);
    if before.by_end {
        excerpt.extend(first.valid.last().map(|valid| valid.point.pos));
        excerpt.extend(first.ended_by().map(|end| end.point.pos));
    }
    let at = late.granted.at.max(first.granted.at);
    report.add(Kind::Linearizable, at, excerpt, || {
        let last = match before.by_end {
            _ if before.point == Point::NEVER => "has no end".to_owned(),
            true => format!("lasted until {}", Seconds(before.point.at)),
            false => format!("was only asked for at {}", Seconds(before.point.at)),
        };
        format!(
            "lock {} is no mutex: token {} of client {} was granted at {}, but token {} of \
             client {}, which comes before it, {last}",
            index.locks[late.lock].id,
            late.token,
            late.client,
            Seconds(late.granted.at),
            first.token,
            first.client,
        )
    });
}
