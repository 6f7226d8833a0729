//! Who may count on what: I3 never two holders at once; I4 never again after
//! the end.

use crate::{
    Event, Kind, Nanos,
    format::Seconds,
    index::{About, Hold, How, Index, Point, Segment},
    report::Report,
};

pub(crate) fn check(index: &Index<'_>, report: &mut Report) {
    let mut segments = Vec::new();
    for lock in 0..index.locks.len() {
        disjoint(index, lock, &mut segments, report);
    }
    ended(index, report);
    ran_out(index, report);
    told_late(index, report);
}

/// I3. A sweep that remembers, of all that began before, what lasts longest,
/// and what lasts longest of the other tokens.
fn disjoint(
    index: &Index<'_>,
    lock: usize,
    segments: &mut Vec<(Segment, usize)>,
    report: &mut Report,
) {
    segments.clear();
    for &hold in &index.locks[lock].holds {
        let broken = index.holds[hold].broken.unwrap_or(Point::NEVER);
        let there = index.holds[hold].segments.iter();
        let cut = there.map(|segment| Segment { to: segment.to.min(broken), ..*segment });
        segments.extend(cut.filter(|segment| segment.from < segment.to).map(|cut| (cut, hold)));
    }
    segments.sort_unstable_by_key(|(segment, _)| segment.from);
    let token = |hold: usize| index.holds[hold].token;
    let mut longest: Option<(Point, usize)> = None;
    let mut other = None;
    for &(segment, hold) in segments.iter() {
        for (until, before) in longest.into_iter().chain(other) {
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
        match longest {
            Some((until, before)) if token(before) == token(hold) => {
                longest = Some((until.max(segment.to), hold));
            }
            Some((until, _)) if until < segment.to => (longest, other) = (Some(new), longest),
            Some(_) => other = other.filter(|(until, _)| *until > segment.to).or(Some(new)),
            None => longest = Some(new),
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
    // What it counted on then; from its grant on, if it said so only afterwards.
    let shows = |hold: &Hold| match hold.valid_at(from) {
        Some(valid) if valid.point <= from => vec![valid.point.pos],
        Some(valid) => vec![hold.granted.pos, valid.point.pos],
        None => vec![index.acquires[hold.acquire].invoked.pos, hold.granted.pos],
    };
    let (first, second) = (&index.holds[first], &index.holds[second]);
    report.add(Kind::I3, from.at, [shows(first), shows(second)].concat(), || {
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

/// I4. That a dead client says something is malformed instead.
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
        let ended = match end.how {
            How::Released => "released",
            How::Lost => "lost",
            How::Died | How::Freed => continue,
        };
        let what = match entry.event {
            Event::Valid { .. } => "counted on it again",
            _ => "still acted without showing it",
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

/// How much later a timer may be than the clock that it is to follow, for want of
/// fractions of a nanosecond.
const ROUNDING: Nanos = 1_000;

/// I4: whoever waits for the loss is told by the deadline. Where several processes
/// record, what they record comes later.
fn told_late(index: &Index<'_>, report: &mut Report) {
    if index.bounds.skew > 0 {
        return;
    }
    for (pos, entry) in index.entries.iter().enumerate() {
        let (Event::Told { .. }, About::Hold(hold)) = (&entry.event, index.about[pos]) else {
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
                "token {} of lock {} ran out at {}, but client {}, who waited for that, was told \
                 at {}",
                hold.token,
                index.locks[hold.lock].id,
                Seconds(known.until),
                hold.client,
                Seconds(entry.at)
            )
        });
    }
}

/// I4: a deadline that has passed is a loss. Where several processes record, they
/// look only now and then, and may see too late that it was moved in time.
fn ran_out(index: &Index<'_>, report: &mut Report) {
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
        // What ended otherwise is told already.
        let ended = hold.end.is_some_and(|end| end.point.pos < pos);
        if before.until > entry.at || broken || ended {
            continue;
        }
        report.distrust(hold.lock);
        report.add(Kind::I4, entry.at, [before.point.pos, pos], || {
            format!(
                "token {} of lock {} ran out at {}, but client {} counted on it again at {}",
                hold.token,
                index.locks[hold.lock].id,
                Seconds(before.until),
                hold.client,
                Seconds(entry.at)
            )
        });
    }
}
