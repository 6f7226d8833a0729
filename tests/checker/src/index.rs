//! What belongs together in a history: which acquire was granted when, until
//! when a grant was valid, who waited where, and when it was calm. Made in one
//! pass; the checks then look nothing up by number any more.

mod build;

use crate::{Bounds, Entry, Nanos};

/// An entry's place in the history.
pub(crate) type Pos = usize;

/// A moment: of entries with the same time, the earlier one is less. What is not
/// an entry (a deadline) comes before the entries of its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Point {
    pub(crate) at: Nanos,
    pub(crate) pos: Pos,
}

impl Point {
    /// After everything.
    pub(crate) const NEVER: Self = Self { at: Nanos::MAX, pos: Pos::MAX };

    /// The end of what lasts until this time, and not longer.
    pub(crate) fn deadline(at: Nanos) -> Self {
        Self { at, pos: 0 }
    }

    /// Certainly before the other, if clocks of recorders differ by this much.
    pub(crate) fn certainly_before(self, other: Self, skew: Nanos) -> bool {
        if skew == 0 { self < other } else { self.at.saturating_add(skew) < other.at }
    }
}

/// From `from` on, before `to`.
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

/// What an entry is about: indices into the lists of [`Index`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum About {
    /// Nothing that is looked up, or something malformed.
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

/// An acquire and what became of it.
#[derive(Debug)]
pub(crate) struct Acquire<'h> {
    pub(crate) client: u32,
    pub(crate) lock: usize,
    pub(crate) place: usize,
    pub(crate) invoked: Point,
    pub(crate) queued: Option<Point>,
    pub(crate) answer: Option<Answer>,
    /// Its client or its daemon died before the answer.
    pub(crate) gone: Option<Gone>,
    /// When its daemon knew that its client, which was dead, has no stream any more.
    pub(crate) absent: Option<Point>,
    /// The value that it campaigns with, if it does.
    pub(crate) campaign: Option<(&'h str, Point)>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Answer {
    Granted {
        point: Point,
        hold: usize,
    },
    /// `faulty`: the service could not serve it. `canceled`: its client withdrew it.
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
    /// When it did not wait any more.
    pub(crate) fn over(&self) -> Option<Point> {
        let answered = self.answer.map(|answer| match answer {
            Answer::Granted { point, .. } | Answer::Refused { point, .. } => point,
        });
        let gone = self.gone.map(|gone| gone.point);
        answered.into_iter().chain(gone).min()
    }

    /// Whether its daemon may have taken the lease within this span: if leases are
    /// recorded, that is known.
    pub(crate) fn may_have_leased(&self, index: &Index<'_>, span: Span) -> bool {
        let leases = &index.places[self.place].leases;
        !index.has_leases || leases.iter().any(|lease| lease.span.and(span).length() > 0)
    }

    /// Whether its client withdrew it while its daemon had the lease: then it may have
    /// been granted the lock and have released it.
    pub(crate) fn may_have_crossed(&self, index: &Index<'_>, gave_up: Nanos) -> bool {
        let to = gave_up.saturating_add(index.bounds.local_handover);
        matches!(self.answer, Some(Answer::Refused { canceled: true, .. }))
            && self.may_have_leased(index, Span { from: self.invoked.at, to })
    }

    /// Whether its daemon took the lease while it waited, or right after it gave up.
    pub(crate) fn leased_anew(&self, index: &Index<'_>, gave_up: Nanos) -> bool {
        let to = gave_up.saturating_add(index.bounds.local_handover);
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

/// Grant of an acquire: a client's hold of a lock under one token.
#[derive(Debug)]
pub(crate) struct Hold {
    pub(crate) client: u32,
    pub(crate) lock: usize,
    pub(crate) token: u64,
    pub(crate) acquire: usize,
    pub(crate) granted: Point,
    /// When its acquire was invoked.
    pub(crate) invoked: Point,
    /// Up to `end`.
    pub(crate) valid: Vec<Valid>,
    /// The first of release, loss, death and the end of a fenced session's stream.
    pub(crate) end: Option<End>,
    /// The client let go, after it had been lost.
    pub(crate) let_go: Option<Point>,
    /// The client was told that its release is done.
    pub(crate) released: Option<Point>,
    /// The client died, before or after its hold had ended.
    pub(crate) died: Option<Point>,
    /// From here on its clock is wrong.
    pub(crate) broken: Option<Point>,
    /// When it was valid: usually one span.
    pub(crate) segments: Vec<Segment>,
    /// The end of the last time that it was valid.
    pub(crate) over: Point,
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
    pub(crate) how: How,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    Released,
    Lost,
    Died,
    /// With the stream of its fenced session. Its client may not know yet.
    Freed,
}

/// A client counted on its hold through this time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    pub(crate) from: Point,
    pub(crate) to: Point,
}

impl Hold {
    /// The entry that ended it, unless it had run out before.
    pub(crate) fn ended_by(&self) -> Option<End> {
        self.end.filter(|end| end.point <= self.over)
    }

    /// Whether it was freed with its session's stream before this entry: whatever its
    /// client says of it after that is no fault.
    pub(crate) fn is_freed(&self, pos: Pos) -> bool {
        self.end.is_some_and(|end| end.how == How::Freed && end.point.pos < pos)
    }

    /// What the client counted on at this moment.
    pub(crate) fn valid_at(&self, point: Point) -> Option<Valid> {
        let next = self.valid.partition_point(|valid| valid.point <= point);
        // Before the first of them, that one counts: it follows the grant.
        self.valid.get(next.saturating_sub(1)).copied()
    }

    /// Between its grant and the first `Valid` a client counts on what that
    /// says; if there is none, on everything until it hears otherwise.
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
        self.over = self.segments.last().map_or(self.granted, |last| last.to);
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
    /// The greatest token that there could be so far.
    greatest: u64,
    /// The same whenever an operator took the lease away, and when it would have
    /// run out by itself.
    overruled: Vec<(u64, Nanos)>,
    /// Highest token of holds that a new daemon did not know of, and how long
    /// they may have lasted.
    forgotten: Vec<(u64, Nanos)>,
}

impl Lock {
    /// Whether an operator took the lease of the lower token away before there
    /// was the greater one, and it would have lasted until then.
    pub(crate) fn is_overruled(&self, lower: u64, greater: u64, at: Nanos) -> bool {
        let excuses =
            |&(upto, until): &(u64, Nanos)| lower <= upto && upto < greater && at <= until;
        self.is_taken_away(lower, greater, at) || self.forgotten.iter().any(excuses)
    }

    /// The same, but not because a new daemon did not know of the lower one: that
    /// one may go on, but no later acquire may be granted a token like it.
    pub(crate) fn is_taken_away(&self, lower: u64, greater: u64, at: Nanos) -> bool {
        let mut overruled = self.overruled.iter();
        overruled.any(|&(upto, until)| lower <= upto && upto < greater && at <= until)
    }
}

#[derive(Debug)]
pub(crate) struct Daemon {
    pub(crate) id: u32,
    pub(crate) died: Option<Point>,
    /// From here on its clock may be wrong: that of one of its clients is.
    pub(crate) broken: Option<Point>,
    acquires: Vec<usize>,
}

/// A lock at a daemon.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) lock: usize,
    pub(crate) daemon: usize,
    /// In the order in which they were invoked.
    pub(crate) acquires: Vec<usize>,
    /// When the storage had a lease for it.
    pub(crate) leases: Vec<Lease>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Lease {
    pub(crate) span: Span,
    /// The first `Leased`.
    pub(crate) began: Pos,
    /// The latest `Leased`, and the `Unleased` if there is one.
    pub(crate) leased: Pos,
    pub(crate) unleased: Option<Pos>,
}

/// A leader's request to publish a value.
#[derive(Debug)]
pub(crate) struct Proclaim<'h> {
    pub(crate) hold: usize,
    pub(crate) value: &'h str,
    pub(crate) invoked: Point,
    pub(crate) acknowledged: Option<Point>,
}

/// A stream of leaders, or a single read.
#[derive(Debug)]
pub(crate) struct Observer<'h> {
    pub(crate) place: usize,
    pub(crate) is_stream: bool,
    pub(crate) opened: Point,
    pub(crate) ended: Option<Point>,
    pub(crate) shown: Vec<Shown<'h>>,
}

/// A state that an observer was shown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shown<'h> {
    pub(crate) point: Point,
    pub(crate) token: Option<u64>,
    pub(crate) value: Option<&'h str>,
    pub(crate) ending: bool,
}

/// A history, sorted out.
pub(crate) struct Index<'h> {
    pub(crate) bounds: &'h Bounds,
    pub(crate) entries: &'h [Entry],
    /// For each entry.
    pub(crate) about: Vec<About>,
    pub(crate) acquires: Vec<Acquire<'h>>,
    pub(crate) holds: Vec<Hold>,
    pub(crate) locks: Vec<Lock>,
    pub(crate) daemons: Vec<Daemon>,
    pub(crate) places: Vec<Place>,
    /// Pairs of holds with the same lock and token.
    pub(crate) twins: Vec<(usize, usize)>,
    /// In the order in which they were invoked.
    pub(crate) proclaims: Vec<Proclaim<'h>>,
    /// In the order in which they were opened.
    pub(crate) observers: Vec<Observer<'h>>,
    /// Whether there is anything about elections.
    pub(crate) has_elections: bool,
    /// When nothing was disturbed.
    pub(crate) calm: Vec<Span>,
    /// For each of them: the end of the last disturbance before, if there was one.
    pub(crate) calmed: Vec<Option<Pos>>,
    pub(crate) disturbances: usize,
    pub(crate) clients: usize,
    /// Whether it is recorded at all what daemons count on, what the storage
    /// leases, and what is stored there.
    pub(crate) has_holds: bool,
    pub(crate) has_leases: bool,
    pub(crate) has_stored: bool,
    /// The time of the last entry.
    pub(crate) end: Nanos,
    /// Some entry is earlier than the one before it.
    pub(crate) disordered: bool,
}

impl Index<'_> {
    pub(crate) fn daemon_of(&self, acquire: usize) -> &Daemon {
        &self.daemons[self.places[self.acquires[acquire].place].daemon]
    }

    /// When the calm began that there is at a moment; the moment itself, if there
    /// is none.
    pub(crate) fn calm_since(&self, at: Nanos) -> Nanos {
        let calm = self.calm.get(self.calm.partition_point(|calm| calm.to <= at));
        calm.map_or(at, |calm| calm.from.min(at))
    }

    /// What ended the last disturbance, if the calm that there is at a moment began
    /// then.
    pub(crate) fn calmed_at(&self, at: Nanos) -> Option<Pos> {
        let next = self.calm.partition_point(|calm| calm.from < at);
        self.calmed.get(next).copied().flatten().filter(|&pos| self.entries[pos].at == at)
    }

    /// The calm spans that overlap with a span, cut to it.
    pub(crate) fn calm_in(&self, span: Span) -> impl Iterator<Item = Span> + '_ {
        let first = self.calm.partition_point(|calm| calm.to <= span.from);
        let there = self.calm[first..].iter().take_while(move |calm| calm.from < span.to);
        there.map(move |calm| calm.and(span))
    }

    /// Calls `early` for each entry in order, and `late` for each entry when all
    /// that may have happened before it or together with it, given the skew,
    /// has been seen by `early`. With no skew that is right after it.
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
