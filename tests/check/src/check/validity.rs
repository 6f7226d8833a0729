//! Who may count on what: I3 never two holders at once; I4 never again after
//! the end; I6 a client no longer than its daemon, a daemon no longer than the
//! storage.

use crate::{
    Event, Kind, Nanos,
    index::{About, Hold, How, Index, Point, Pos, Segment},
    report::Report,
    words::Seconds,
};

pub(crate) fn check(index: &Index<'_>, report: &mut Report) {
    let mut segments = Vec::new();
    for lock in 0..index.locks.len() {
        disjoint(index, lock, &mut segments, report);
    }
    ended(index, report);
    nested(index, report);
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
    let shows = |hold: &Hold| {
        let valid = hold.valid_at(from).map(|valid| valid.point.pos);
        let end = hold.ended_by().map(|end| end.point.pos);
        [Some(hold.granted.pos), valid, end].into_iter().flatten()
    };
    let (first, second) = (&index.holds[first], &index.holds[second]);
    report.add(Kind::I3, from.at, shows(first).chain(shows(second)), || {
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
            (Event::Granted { .. }, About::Acquire(acquire)) => (index.acquires[acquire].hold(), 0),
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
            How::Died => continue,
        };
        let what = match entry.event {
            Event::Granted { .. } => "was granted it again",
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

/// What a daemon had of a lock without a break: its tokens, and the longest that
/// it counted on it.
#[derive(Clone, Copy)]
struct Tenure {
    first: u64,
    last: u64,
    until: Nanos,
    pos: Pos,
}

/// What a daemon, or the storage for it, has of a lock. Clients and daemons hear
/// late, so what they believe is compared with the longest that there was.
#[derive(Clone, Default)]
struct Believed {
    tenures: Vec<Tenure>,
    held: bool,
    lease: Option<(Nanos, Pos)>,
    leased: bool,
}

/// I6.
fn nested(index: &Index<'_>, report: &mut Report) {
    index.replay(
        &mut vec![Believed::default(); index.places.len()],
        |places, pos| match (&index.entries[pos].event, index.about[pos]) {
            (&Event::Holds { first, last, until, .. }, About::Place(place)) => {
                let place = &mut places[place];
                match place.tenures.last_mut().filter(|_| place.held) {
                    Some(tenure) => {
                        tenure.first = tenure.first.min(first);
                        tenure.last = tenure.last.max(last);
                        if tenure.until < until {
                            (tenure.until, tenure.pos) = (until, pos);
                        }
                    }
                    None => place.tenures.push(Tenure { first, last, until, pos }),
                }
                place.held = true;
            }
            (Event::LetGo { .. }, About::Place(place)) => places[place].held = false,
            (&Event::Leased { until, .. }, About::Place(place)) => {
                for &other in &index.locks[index.places[place].lock].places {
                    places[other].leased &= other == place;
                }
                let place = &mut places[place];
                if place.lease.is_none_or(|(longest, _)| !place.leased || longest < until) {
                    place.lease = Some((until, pos));
                }
                place.leased = true;
            }
            (Event::Unleased { .. }, About::Lock(lock)) => {
                for &place in &index.locks[lock].places {
                    places[place].leased = false;
                }
            }
            _ => {}
        },
        |places, pos| match (&index.entries[pos].event, index.about[pos]) {
            (&Event::Valid { until, .. }, About::Hold(hold)) => {
                client_in_daemon(index, places, pos, hold, until, report);
            }
            (&Event::Holds { until, .. }, About::Place(place)) => {
                daemon_in_storage(index, &places[place], pos, place, until, report);
            }
            _ => {}
        },
    );
}

fn client_in_daemon(
    index: &Index<'_>,
    places: &[Believed],
    pos: Pos,
    hold: usize,
    until: Nanos,
    report: &mut Report,
) {
    let hold = &index.holds[hold];
    // Whichever daemon had this token: an acquire may have gone through another
    // than the one that it began with. If none had it, that is for I5.
    let places = index.locks[hold.lock].places.iter().map(|place| (*place, &places[*place]));
    let own = places.filter_map(|(place, believed)| {
        // Their tokens rise, unless I5 and I7 have something to say.
        let after = believed.tenures.partition_point(|tenure| tenure.first <= hold.token);
        let tenure = after.checked_sub(1).map(|at| &believed.tenures[at])?;
        (hold.token <= tenure.last).then_some((place, tenure))
    });
    let Some((place, tenure)) = own.max_by_key(|(_, tenure)| tenure.until) else { return };
    if until <= tenure.until.saturating_add(index.bounds.skew)
        || hold.broken.is_some_and(|broken| broken.pos < pos)
    {
        return;
    }
    let at = index.entries[pos].at;
    report.add(Kind::I6, at, [tenure.pos, pos], || {
        format!(
            "client {} counted on lock {}, token {}, until {}, but its daemon {} only until {}",
            hold.client,
            index.locks[hold.lock].id,
            hold.token,
            Seconds(until),
            index.daemons[index.places[place].daemon].id,
            Seconds(tenure.until)
        )
    });
}

fn daemon_in_storage(
    index: &Index<'_>,
    believed: &Believed,
    pos: Pos,
    place: usize,
    until: Nanos,
    report: &mut Report,
) {
    let place = &index.places[place];
    let daemon = &index.daemons[place.daemon];
    let lock = &index.locks[place.lock];
    if !lock.has_leases || daemon.broken.is_some_and(|broken| broken.pos < pos) {
        return;
    }
    let lease = believed.lease;
    if lease.is_some_and(|(longest, _)| until <= longest.saturating_add(index.bounds.skew)) {
        return;
    }
    let excerpt = lease.map(|(_, leased)| leased).into_iter().chain([pos]);
    report.add(Kind::I6, index.entries[pos].at, excerpt, || {
        let storage = lease.map_or_else(
            || "the storage had no lease for it".to_owned(),
            |(longest, _)| format!("the storage only until {}", Seconds(longest)),
        );
        format!(
            "daemon {} counted on its lease of lock {} until {}, but {storage}",
            daemon.id,
            lock.id,
            Seconds(until)
        )
    });
}
