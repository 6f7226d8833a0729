//! Index of a history: acquires with their grants, validity intervals, waiters by daemon
//! and the *calm* spans, which have no active fault. Built in one pass, so that the checks
//! use indices instead of searching by number.

mod build;

use crate::{Bounds, Entry, Nanos};

/// Position of an entry in the history.
pub(crate) type Pos = usize;

/// Instant in a history. Entries with the same time are ordered by position. A deadline,
/// which is no entry, comes before the entries of its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Point {
    pub(crate) at: Nanos,
    pub(crate) pos: Pos,
}

impl Point {
    /// Instant after every entry and deadline.
    pub(crate) const NEVER: Self = Self { at: Nanos::MAX, pos: Pos::MAX };

    /// Returns the end of a validity that excludes this time.
    pub(crate) fn deadline(at: Nanos) -> Self {
        Self { at, pos: 0 }
    }

    /// Returns true if this instant precedes the other even if the recorders' clocks differ
    /// by `skew`.
    pub(crate) fn certainly_before(self, other: Self, skew: Nanos) -> bool {
        if skew == 0 { self < other } else { self.at.saturating_add(skew) < other.at }
    }
}

/// Time interval that includes `from` and excludes `to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) from: Nanos,
    pub(crate) to: Nanos,
}

impl Span {
    pub(crate) fn and(self, other: Self) -> Self {
        Self { from: self.from.max(other.from), to: self.to.min(other.to) }
    }

    pub(crate) fn length(self) -> Nanos {
        self.to.saturating_sub(self.from)
    }
}

/// Subject of an entry, as indices into the lists of [`Index`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum About {
    /// Entry without an index, or malformed entry.
    Nothing,
    Acquire(usize),
    Hold(usize),
    Used {
        lock: usize,
        hold: Option<usize>,
    },
    Place(usize),
    Lock(usize),
}

/// Acquire with its outcome.
#[derive(Debug)]
pub(crate) struct Acquire<'h> {
    pub(crate) client: u32,
    pub(crate) lock: usize,
    pub(crate) place: usize,
    pub(crate) invoked: Point,
    pub(crate) queued: Option<Point>,
    pub(crate) answer: Option<Answer>,
    /// Death of its client or its daemon before the answer.
    pub(crate) gone: Option<Gone>,
    /// Time at which its daemon detected the end of the stream of its dead client.
    pub(crate) absent: Option<Point>,
    /// Value of a campaign, and the time of its entry.
    pub(crate) campaign: Option<(&'h str, Point)>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Answer {
    Granted {
        point: Point,
        hold: usize,
    },
    /// Refusal. `faulty`: the service could not serve it. `canceled`: its client withdrew it.
    Refused {
        point: Point,
        faulty: bool,
        canceled: bool,
    },
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Gone {
    pub(crate) point: Point,
    pub(crate) client: bool,
}

impl Acquire<'_> {
    /// Returns the time at which it stopped waiting.
    pub(crate) fn ended_at(&self) -> Option<Point> {
        let answered = self.answer.map(|answer| match answer {
            Answer::Granted { point, .. } | Answer::Refused { point, .. } => point,
        });
        let gone = self.gone.map(|gone| gone.point);
        answered.into_iter().chain(gone).min()
    }

    /// Returns true if its daemon may have had the lease within this span. Exact if leases
    /// are recorded.
    pub(crate) fn may_have_leased(&self, index: &Index<'_>, span: Span) -> bool {
        let leases = &index.places[self.place].leases;
        !index.has_leases || leases.iter().any(|lease| lease.span.and(span).length() > 0)
    }

    /// Returns true if its client withdrew it while its daemon had the lease. The daemon may
    /// then have granted the lock and have received its release.
    pub(crate) fn may_have_crossed(&self, index: &Index<'_>, withdrawn_at: Nanos) -> bool {
        let to = withdrawn_at.saturating_add(index.bounds.local_handoff);
        matches!(self.answer, Some(Answer::Refused { canceled: true, .. }))
            && self.may_have_leased(index, Span { from: self.invoked.at, to })
    }

    /// Returns true if its daemon acquired the lease while it waited or right after that.
    pub(crate) fn caused_lease(&self, index: &Index<'_>, ended_at: Nanos) -> bool {
        let to = ended_at.saturating_add(index.bounds.local_handoff);
        let leases = &index.places[self.place].leases;
        leases.iter().any(|lease| (self.invoked.at..to).contains(&lease.span.from))
    }

    pub(crate) fn hold(&self) -> Option<usize> {
        self.granted().map(|(_, hold)| hold)
    }

    pub(crate) fn granted(&self) -> Option<(Point, usize)> {
        match self.answer {
            Some(Answer::Granted { point, hold }) => Some((point, hold)),
            _ => None,
        }
    }
}

/// Grant of an acquire, as its client sees it: a lock under one token.
#[derive(Debug)]
pub(crate) struct Hold {
    pub(crate) client: u32,
    pub(crate) lock: usize,
    pub(crate) token: u64,
    pub(crate) acquire: usize,
    pub(crate) granted: Point,
    /// Time at which its acquire was invoked.
    pub(crate) invoked: Point,
    /// Recorded deadlines up to `end`.
    pub(crate) valid: Vec<Valid>,
    /// First of release, loss, death and the end of a fenced session's stream.
    pub(crate) end: Option<End>,
    /// Release after the loss.
    pub(crate) late_release: Option<Point>,
    /// Response to the release.
    pub(crate) released: Option<Point>,
    /// Death of the client, before or after the end of the hold.
    pub(crate) died: Option<Point>,
    /// Start of a clock fault of the client.
    pub(crate) broken: Option<Point>,
    /// Validity intervals, usually one.
    pub(crate) segments: Vec<Segment>,
    /// End of the last validity interval.
    pub(crate) valid_to: Point,
    /// Another acquire's hold with the same token.
    same_token: Option<usize>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Valid {
    pub(crate) point: Point,
    pub(crate) until: Nanos,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct End {
    pub(crate) point: Point,
    pub(crate) cause: EndCause,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndCause {
    Released,
    Lost,
    Died,
    /// Ended with the stream of its fenced session. Its client may not know yet.
    Freed,
}

/// Interval in which a client relied on its hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    pub(crate) from: Point,
    pub(crate) to: Point,
}

impl Hold {
    /// Returns the entry that ended it, unless it had expired before.
    pub(crate) fn ended_by(&self) -> Option<End> {
        self.end.filter(|end| end.point <= self.valid_to)
    }

    /// Returns true if the end of a fenced session's stream freed it before this entry.
    /// Later entries of its client about it are then no violation.
    pub(crate) fn is_freed(&self, pos: Pos) -> bool {
        self.end.is_some_and(|end| end.cause == EndCause::Freed && end.point.pos < pos)
    }

    /// Returns the deadline that the client relied on at this instant.
    pub(crate) fn valid_at(&self, point: Point) -> Option<Valid> {
        let next = self.valid.partition_point(|valid| valid.point <= point);
        // The first deadline also applies before its entry, because it follows the grant.
        self.valid.get(next.saturating_sub(1)).copied()
    }

    /// Computes the validity intervals. The first `Valid` applies from the grant on. Without
    /// any `Valid`, the hold is valid until its end.
    fn find_segments(&mut self) {
        let cap = self.end.map_or(Point::NEVER, |end| end.point);
        let mut segment = Segment { from: self.granted, to: Point::NEVER };
        for (nth, valid) in self.valid.iter().enumerate() {
            let until = Point::deadline(valid.until);
            if nth == 0 {
                segment.to = until;
            } else if segment.to >= valid.point {
                segment.to = until.max(valid.point);
            } else {
                if segment.from < segment.to {
                    self.segments.push(segment);
                }
                segment = Segment { from: valid.point, to: until };
            }
        }
        segment.to = segment.to.min(cap);
        if segment.from < segment.to {
            self.segments.push(segment);
        }
        self.valid_to = self.segments.last().map_or(self.granted, |last| last.to);
    }
}

#[derive(Debug)]
pub(crate) struct Lock {
    pub(crate) id: u32,
    /// In the order in which they were invoked.
    pub(crate) acquires: Vec<usize>,
    /// In the order in which they were granted.
    pub(crate) holds: Vec<usize>,
    pub(crate) places: Vec<usize>,
    /// Highest token that can exist so far.
    highest: u64,
    /// For each lease that an operator broke: the highest token by then, and the regular
    /// expiry of the lease.
    overruled: Vec<(u64, Nanos)>,
    /// For each daemon that started without the record of its predecessor: the highest
    /// token of the earlier holds, and the time until which they may have lasted.
    forgotten: Vec<(u64, Nanos)>,
}

impl Lock {
    /// Returns true if an operator broke the lease of the lower token, or a new daemon
    /// started without its record, before the higher token existed. At `at`, that lease
    /// would not have expired yet.
    pub(crate) fn is_overruled(&self, lower: u64, higher: u64, at: Nanos) -> bool {
        let excuses = |&(upto, until): &(u64, Nanos)| lower <= upto && upto < higher && at <= until;
        self.is_lease_broken(lower, higher, at) || self.forgotten.iter().any(excuses)
    }

    /// Returns true if an operator broke the lease, as in [`Lock::is_overruled`]. Ignores a
    /// missing record: the earlier hold may then remain valid, but a later acquire must not
    /// be granted such a low token.
    pub(crate) fn is_lease_broken(&self, lower: u64, higher: u64, at: Nanos) -> bool {
        let mut overruled = self.overruled.iter();
        overruled.any(|&(upto, until)| lower <= upto && upto < higher && at <= until)
    }
}

#[derive(Debug)]
pub(crate) struct Daemon {
    pub(crate) id: u32,
    pub(crate) died: Option<Point>,
    /// Start of a clock fault of one of its clients, which may share its clock.
    pub(crate) broken: Option<Point>,
    acquires: Vec<usize>,
}

/// Pair of a lock and a daemon.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) lock: usize,
    pub(crate) daemon: usize,
    /// In the order in which they were invoked.
    pub(crate) acquires: Vec<usize>,
    /// Leases of the storage for this daemon.
    pub(crate) leases: Vec<Lease>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Lease {
    pub(crate) span: Span,
    /// First `Leased`.
    pub(crate) began: Pos,
    /// Latest `Leased`, and the `Unleased` if there is one.
    pub(crate) leased: Pos,
    pub(crate) unleased: Option<Pos>,
}

/// Leader's request to publish a value.
#[derive(Debug)]
pub(crate) struct Proclaim<'h> {
    pub(crate) hold: usize,
    pub(crate) value: &'h str,
    pub(crate) invoked: Point,
    pub(crate) acknowledged: Option<Point>,
}

/// Stream of leaders, or a single read.
#[derive(Debug)]
pub(crate) struct Observer<'h> {
    pub(crate) place: usize,
    pub(crate) is_stream: bool,
    pub(crate) opened: Point,
    pub(crate) ended: Option<Point>,
    pub(crate) states: Vec<ObservedState<'h>>,
}

/// State that an observer received.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ObservedState<'h> {
    pub(crate) point: Point,
    pub(crate) token: Option<u64>,
    pub(crate) value: Option<&'h str>,
    pub(crate) ending: bool,
}

/// Index of a history.
pub(crate) struct Index<'h> {
    pub(crate) bounds: &'h Bounds,
    pub(crate) entries: &'h [Entry],
    /// Subject of each entry.
    pub(crate) about: Vec<About>,
    pub(crate) acquires: Vec<Acquire<'h>>,
    pub(crate) holds: Vec<Hold>,
    pub(crate) locks: Vec<Lock>,
    pub(crate) daemons: Vec<Daemon>,
    pub(crate) places: Vec<Place>,
    /// Pairs of holds with the same lock and token.
    pub(crate) duplicates: Vec<(usize, usize)>,
    /// In the order in which they were invoked.
    pub(crate) proclaims: Vec<Proclaim<'h>>,
    /// In the order in which they were opened.
    pub(crate) observers: Vec<Observer<'h>>,
    /// True if the history has events of elections.
    pub(crate) has_elections: bool,
    /// Spans without an active fault.
    pub(crate) calm: Vec<Span>,
    /// For each calm span, the entry that ended the last fault before it, if there was one.
    pub(crate) calmed: Vec<Option<Pos>>,
    pub(crate) disturbances: usize,
    pub(crate) clients: usize,
    /// True if the history records the holds of daemons.
    pub(crate) has_holds: bool,
    /// True if the history records the leases of the storage.
    pub(crate) has_leases: bool,
    /// True if the history records the stored tokens.
    pub(crate) has_stored: bool,
    /// Time of the last entry.
    pub(crate) end: Nanos,
    /// True if an entry is earlier than its predecessor.
    pub(crate) disordered: bool,
}

impl Index<'_> {
    pub(crate) fn daemon_of(&self, acquire: usize) -> &Daemon {
        &self.daemons[self.places[self.acquires[acquire].place].daemon]
    }

    /// Returns the start of the calm span that contains a time, or the time itself if none
    /// contains it.
    pub(crate) fn calm_since(&self, at: Nanos) -> Nanos {
        let calm = self.calm.get(self.calm.partition_point(|calm| calm.to <= at));
        calm.map_or(at, |calm| calm.from.min(at))
    }

    /// Returns the entry that ended the last fault, if a calm span began at this time.
    pub(crate) fn calmed_at(&self, at: Nanos) -> Option<Pos> {
        let next = self.calm.partition_point(|calm| calm.from < at);
        self.calmed.get(next).copied().flatten().filter(|&pos| self.entries[pos].at == at)
    }

    /// Returns the intersections of the calm spans with a span.
    pub(crate) fn calm_in(&self, span: Span) -> impl Iterator<Item = Span> + '_ {
        let first = self.calm.partition_point(|calm| calm.to <= span.from);
        let overlapping = self.calm[first..].iter().take_while(move |calm| calm.from < span.to);
        overlapping.map(move |calm| calm.and(span))
    }

    /// Calls `early` for each entry in order. Calls `late` for an entry after `early` has
    /// received all entries that, given the skew, may have happened before it or at the same
    /// time. Without a skew, `late` follows `early` immediately.
    pub(crate) fn replay<S>(
        &self,
        state: &mut S,
        mut early: impl FnMut(&mut S, Pos),
        mut late: impl FnMut(&mut S, Pos),
    ) {
        let skew = self.bounds.skew;
        let mut next = 0;
        for pos in 0..self.entries.len() {
            if skew > 0 {
                while self.entries[next].at.saturating_add(skew) < self.entries[pos].at {
                    late(state, next);
                    next += 1;
                }
            }
            early(state, pos);
            if skew == 0 {
                late(state, pos);
                next = pos + 1;
            }
        }
        for pos in next..self.entries.len() {
            late(state, pos);
        }
    }
}
