//! Validity: I3, a lock never has two holders at once; I4, a grant is never valid again
//! after its end.

use crate::{
    Event, Kind, Nanos,
    format::Seconds,
    index::{About, EndCause, Hold, Index, Point, Segment},
    report::Report,
};

pub(crate) fn check(index: &Index<'_>, report: &mut Report) {
    let mut segments = Vec::new();
    for lock in 0..index.locks.len() {
        disjoint(index, lock, &mut segments, report);
    }
    ended(index, report);
    expired(index, report);
    late_notifications(index, report);
}

/// Checks I3. The sweep keeps the earlier segment that ends last, and the one that ends
/// last among those with another token.
fn disjoint(
    index: &Index<'_>,
    lock: usize,
    segments: &mut Vec<(Segment, usize)>,
    report: &mut Report,
) {
    segments.clear();
    for &hold in &index.locks[lock].holds {
        let broken = index.holds[hold].broken.unwrap_or(Point::NEVER);
        let all = index.holds[hold].segments.iter();
        let cut = all.map(|segment| Segment { to: segment.to.min(broken), ..*segment });
        segments.extend(cut.filter(|segment| segment.from < segment.to).map(|cut| (cut, hold)));
    }
    segments.sort_unstable_by_key(|(segment, _)| segment.from);
    let token = |hold: usize| index.holds[hold].token;
    let mut latest: Option<(Point, usize)> = None;
    let mut other = None;
    for &(segment, hold) in segments.iter() {
        for (until, before) in latest.into_iter().chain(other) {
            let to = until.min(segment.to);
            let (one, two) = (token(before).min(token(hold)), token(before).max(token(hold)));
            if one != two
                && segment.from.certainly_before(to, index.bounds.skew)
                && !index.locks[lock].is_overruled(one, two, to.at)
            {
                report.distrust(lock);
                two_holders(index, before, hold, segment.from, to, report);
                break;
            }
        }
        let new = (segment.to, hold);
        match latest {
            Some((until, before)) if token(before) == token(hold) => {
                latest = Some((until.max(segment.to), hold));
            }
            Some((until, _)) if until < segment.to => (latest, other) = (Some(new), latest),
            Some(_) => other = other.filter(|(until, _)| *until > segment.to).or(Some(new)),
            None => latest = Some(new),
        }
    }
}

fn two_holders(
    index: &Index<'_>,
    first: usize,
    second: usize,
    from: Point,
    to: Point,
    report: &mut Report,
) {
    // The deadline at that time, or the grant and the first deadline if that follows later.
    let evidence = |hold: &Hold| match hold.valid_at(from) {
        Some(valid) if valid.point <= from => vec![valid.point.pos],
        Some(valid) => vec![hold.granted.pos, valid.point.pos],
        None => vec![index.acquires[hold.acquire].invoked.pos, hold.granted.pos],
    };
    let (first, second) = (&index.holds[first], &index.holds[second]);
    report.add(Kind::I3, from.at, [evidence(first), evidence(second)].concat(), || {
        format!(
            "lock {} was held by client {} with token {} and by client {} with token {} at once, \
             from {} to {}",
            index.locks[first.lock].id,
            first.client,
            first.token,
            second.client,
            second.token,
            Seconds(from.at),
            Seconds(if to == Point::NEVER { index.end } else { to.at })
        )
    });
}

/// Checks I4 after a release or a loss. An entry of a dead client is malformed instead.
fn ended(index: &Index<'_>, report: &mut Report) {
    for (pos, entry) in index.entries.iter().enumerate() {
        let point = Point { at: entry.at, pos };
        let (hold, skew) = match (&entry.event, index.about[pos]) {
            (Event::Valid { .. }, About::Hold(hold)) => (Some(hold), 0),
            // The resource may have recorded it, not the client.
            (Event::Used { fenced: false, .. }, About::Used { hold, .. }) => {
                (hold, index.bounds.skew)
            }
            _ => continue,
        };
        let Some(hold) = hold.map(|hold| &index.holds[hold]) else { continue };
        let Some(end) = hold.end.filter(|end| end.point.certainly_before(point, skew)) else {
            continue;
        };
        let ended = match end.cause {
            EndCause::Released => "released",
            EndCause::Lost => "lost",
            EndCause::Died | EndCause::Freed => continue,
        };
        let what = match entry.event {
            Event::Valid { .. } => "relied on it again",
            _ => "still acted without sending it",
        };
        report.distrust(hold.lock);
        report.add(Kind::I4, entry.at, [end.point.pos, pos], || {
            format!(
                "token {} of lock {} was {ended} at {}, but client {} {what} at {}",
                hold.token,
                index.locks[hold.lock].id,
                Seconds(end.point.at),
                hold.client,
                Seconds(entry.at)
            )
        });
    }
}

/// Maximum delay of a timer relative to its clock: rounding errors below one nanosecond
/// accumulate.
const ROUNDING: Nanos = 1_000;

/// Checks I4 for notifications: a client that waits for the loss is notified by the
/// deadline. Skipped if several processes record, because their entries are late.
fn late_notifications(index: &Index<'_>, report: &mut Report) {
    if index.bounds.skew > 0 {
        return;
    }
    for (pos, entry) in index.entries.iter().enumerate() {
        let (Event::LossNotified { .. }, About::Hold(hold)) = (&entry.event, index.about[pos])
        else {
            continue;
        };
        let hold = &index.holds[hold];
        let known = hold.valid.partition_point(|valid| valid.point.pos < pos);
        let Some(known) = known.checked_sub(1).map(|at| hold.valid[at]) else { continue };
        if hold.is_freed(pos) || known.until.saturating_add(ROUNDING) >= entry.at {
            continue;
        }
        report.add(Kind::I4, entry.at, [known.point.pos, pos], || {
            format!(
                "token {} of lock {} expired at {}, but client {}, which waited for the loss, was \
                 notified at {}",
                hold.token,
                index.locks[hold.lock].id,
                Seconds(known.until),
                hold.client,
                Seconds(entry.at)
            )
        });
    }
}

/// Checks I4 for deadlines: a grant whose deadline has passed is lost. Skipped if several
/// processes record: they poll, and may record a timely extension late.
fn expired(index: &Index<'_>, report: &mut Report) {
    if index.bounds.skew > 0 {
        return;
    }
    for (pos, entry) in index.entries.iter().enumerate() {
        let hold = match (&entry.event, index.about[pos]) {
            (&Event::Valid { until, .. }, About::Hold(hold)) if until > entry.at => hold,
            _ => continue,
        };
        let hold = &index.holds[hold];
        let before = hold.valid.partition_point(|valid| valid.point.pos < pos);
        let Some(before) = before.checked_sub(1).map(|at| hold.valid[at]) else { continue };
        let broken = hold.broken.is_some_and(|broken| broken.pos < pos);
        // Another end is reported by `ended`.
        let ended = hold.end.is_some_and(|end| end.point.pos < pos);
        if before.until > entry.at || broken || ended {
            continue;
        }
        report.distrust(hold.lock);
        report.add(Kind::I4, entry.at, [before.point.pos, pos], || {
            format!(
                "token {} of lock {} expired at {}, but client {} relied on it again at {}",
                hold.token,
                index.locks[hold.lock].id,
                Seconds(before.until),
                hold.client,
                Seconds(entry.at)
            )
        });
    }
}
