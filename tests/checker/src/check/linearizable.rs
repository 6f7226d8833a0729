//! Linearizability: the grants of a lock must be possible for one mutex.
//!
//! The model is a mutex that is free or held by a client under a token, and that knows the
//! highest token. An acquire succeeds if the mutex is free, with a token above the highest.
//! The client that holds it waits like any other. A release frees the mutex if the client
//! holds it under that token, and does nothing otherwise. The mutex may also become free
//! without a release, but not before the end of the holder's validity: its release, loss or
//! death, the last `until`, or the start of a clock fault.
//!
//! An acquire takes effect at an instant between `Acquire` and `Granted`. Such instants must
//! exist for all grants of a lock. Acquires without a grant can be left out of any order,
//! and a release never has to take effect later than the end of validity. The check
//! therefore ignores both.
//!
//! In general such a search is exponential. Here one order suffices, because tokens increase
//! in the order in which grants take effect. In this order each grant takes effect as early
//! as possible: when it was invoked or when its predecessor may have ended, at the later of
//! the two. If that leaves no instant for a later grant, no other choice does. The check is
//! therefore exact and needs no limit on the work.
//!
//! In addition to I1 to I4 it finds a grant that is received late and has a lower token than
//! a hold that was granted and ended in between.

use crate::{
    Kind,
    format::Seconds,
    index::{Index, Point},
    report::Report,
};

/// Latest instant that the grants so far need.
struct Needed {
    point: Point,
    hold: usize,
    /// True if it is the end of the hold's validity, false if it is the hold's acquire.
    by_end: bool,
}

pub(crate) fn check(index: &Index<'_>, lock: usize, report: &mut Report) {
    let mut order = index.locks[lock].holds.clone();
    order.sort_by_key(|&hold| index.holds[hold].token);
    let mut needed: Option<Needed> = None;
    for at in order {
        let hold = &index.holds[at];
        // Grants to a client with a clock fault are not checked.
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
                return report_violation(index, before, at, report);
            }
        }
        // A hold that expired before the client received it may have ended earlier.
        let ended = hold.segments.last().map_or(Point::deadline(0), |last| last.to);
        let ended = ended.min(hold.broken.unwrap_or(Point::NEVER));
        let invoked = hold.invoked;
        let by_end = ended > invoked;
        let own = Needed { point: ended.max(invoked), hold: at, by_end };
        needed = match needed {
            Some(before) if before.point >= own.point => Some(before),
            _ => Some(own),
        };
    }
}

fn report_violation(index: &Index<'_>, before: &Needed, late: usize, report: &mut Report) {
    let (first, late) = (&index.holds[before.hold], &index.holds[late]);
    let invoked = |acquire: usize| index.acquires[acquire].invoked.pos;
    let mut excerpt = vec![invoked(late.acquire), late.granted.pos];
    excerpt.extend([invoked(first.acquire), first.granted.pos]);
    if before.by_end {
        excerpt.extend(first.valid.last().map(|valid| valid.point.pos));
        excerpt.extend(first.ended_by().map(|end| end.point.pos));
    }
    let at = late.granted.at.max(first.granted.at);
    report.add(Kind::Linearizable, at, excerpt, || {
        let last = match before.by_end {
            _ if before.point == Point::NEVER => "has no end".to_owned(),
            true => format!("lasted until {}", Seconds(before.point.at)),
            false => format!("was only requested at {}", Seconds(before.point.at)),
        };
        format!(
            "lock {} is not a mutex: token {} of client {} was granted at {}, but token {} of \
             client {}, which precedes it, {last}",
            index.locks[late.lock].id,
            late.token,
            late.client,
            Seconds(late.granted.at),
            first.token,
            first.client,
        )
    });
}
