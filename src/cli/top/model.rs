//! State of the view: two samples of a daemon, the rates between them, and the order of
//! the rows. Sans-IO.

use std::{cell::Cell, cmp::Reverse, collections::VecDeque, time::Duration};

use leasehold_time::Moment;

/// Maximum number of rates of grants that are kept for the chart.
pub(super) const MAX_RATES: usize = 300;

/// Numbers of a daemon at one time.
#[derive(Debug, Clone)]
pub(super) struct Sample {
    pub(super) at: Moment,
    pub(super) store: String,
    /// Reason why the store can't grant now.
    pub(super) trouble: Option<String>,
    pub(super) sessions: u64,
    pub(super) held: u64,
    pub(super) waiting: u64,
    pub(super) at_risk: u64,
    /// Elections that have a candidate and no leader.
    pub(super) leaderless: u64,
    pub(super) oldest_wait: Option<Duration>,
    /// Totals since the start of the daemon.
    pub(super) grants: u64,
    pub(super) releases: u64,
    pub(super) losses: u64,
    pub(super) calls: Vec<Calls>,
    /// Busiest and longest-held locks, locks at risk and with the longest queues.
    pub(super) locks: Vec<Lock>,
}

/// State of a lock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum State {
    /// Neither a session of the daemon nor, as far as it knows, a peer holds the lock.
    Free,
    #[default]
    Held,
    /// Held by the leader of an election.
    Led,
    /// Held through a peer.
    Peer,
    /// Election with a candidate and without a leader.
    Leaderless,
    AtRisk,
    /// Not among the locks that the daemon listed with their holders.
    Unknown,
}

impl State {
    /// Name in the table and in JSON.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Held => "held",
            Self::Led => "led",
            Self::Peer => "at a peer",
            Self::Leaderless => "no leader",
            Self::AtRisk => "at risk",
            Self::Unknown => "-",
        }
    }
}

/// Storage calls of one kind since the start of the daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Calls {
    pub(super) operation: String,
    pub(super) purpose: String,
    pub(super) count: u64,
}

/// One lock.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Lock {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) holder: Option<String>,
    pub(super) token: Option<u64>,
    pub(super) held_for: Option<Duration>,
    pub(super) time_left: Option<Duration>,
    pub(super) waiting: u64,
    pub(super) longest_wait: Option<Duration>,
    pub(super) state: State,
    pub(super) is_election: bool,
    /// Grants in the last one to two minutes.
    pub(super) recent_grants: u64,
}

/// Numbers per second between two samples.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Rates {
    pub(super) grants: f64,
    pub(super) releases: f64,
    pub(super) losses: f64,
    /// Storage calls by operation, most first.
    pub(super) calls: Vec<(String, f64)>,
}

/// Order of the rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Order {
    /// Locks at risk first, then by the time that they are held.
    #[default]
    Held,
    /// Least time left first.
    Left,
    /// Most waiters first.
    Waiting,
    /// Most grants first.
    Grants,
    /// By namespace and name.
    Name,
}

impl Order {
    /// Orders with their keys and names.
    pub(super) const ALL: [(Self, char, &'static str); 5] = [
        (Self::Held, 'h', "held"),
        (Self::Left, 'l', "left"),
        (Self::Waiting, 'w', "waiting"),
        (Self::Grants, 'g', "grants"),
        (Self::Name, 'n', "name"),
    ];
}

/// Input of the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Input {
    Sort(Order),
    Reverse,
    Up(usize),
    Down(usize),
}

/// State of the view.
#[derive(Debug, Default)]
pub(super) struct Model {
    sample: Option<Sample>,
    rates: Option<Rates>,
    /// Grants per second, oldest first.
    history: VecDeque<f64>,
    error: Option<String>,
    order: Order,
    is_reversed: bool,
    first_row: usize,
    /// Number of rows that fit on the screen, at the last drawing.
    visible_rows: Cell<usize>,
}

impl Model {
    /// Adds a sample, or the error of the request.
    pub(super) fn update(&mut self, sample: Result<Sample, String>) {
        let sample = match sample {
            Ok(sample) => sample,
            Err(error) => {
                self.error = Some(error);
                return;
            }
        };
        self.error = None;
        self.rates = self.sample.as_ref().and_then(|before| rates(before, &sample));
        if let Some(rates) = &self.rates {
            self.history.push_back(rates.grants);
            if self.history.len() > MAX_RATES {
                self.history.pop_front();
            }
        }
        self.sample = Some(sample);
        self.sort();
    }

    /// Handles an input.
    pub(super) fn on(&mut self, input: Input) {
        // The list may have become shorter, or the screen higher.
        let last = self.locks().len().saturating_sub(self.visible_rows.get().max(1));
        let first_row = self.first_row.min(last);
        match input {
            Input::Sort(order) => (self.order, self.is_reversed) = (order, false),
            Input::Reverse => self.is_reversed = !self.is_reversed,
            Input::Up(rows) => self.first_row = first_row.saturating_sub(rows),
            Input::Down(rows) => self.first_row = first_row.saturating_add(rows).min(last),
        }
        self.sort();
    }

    /// Latest sample.
    pub(super) const fn sample(&self) -> Option<&Sample> {
        self.sample.as_ref()
    }

    /// Rates between the last two samples. `None` after a restart of the daemon.
    pub(super) const fn rates(&self) -> Option<&Rates> {
        self.rates.as_ref()
    }

    /// Grants per second, oldest first.
    pub(super) const fn history(&self) -> &VecDeque<f64> {
        &self.history
    }

    /// Error of the last request.
    pub(super) fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    pub(super) const fn order(&self) -> Order {
        self.order
    }

    pub(super) const fn is_reversed(&self) -> bool {
        self.is_reversed
    }

    /// Locks of the latest sample, in order.
    pub(super) fn locks(&self) -> &[Lock] {
        self.sample.as_ref().map_or(&[], |sample| &sample.locks)
    }

    /// Locks from the first visible row on. `rows` of them fit.
    pub(super) fn visible(&self, rows: usize) -> &[Lock] {
        self.visible_rows.set(rows);
        let locks = self.locks();
        let first = self.first_row.min(locks.len().saturating_sub(rows));
        &locks[first..]
    }

    fn sort(&mut self) {
        let order = self.order;
        let Some(sample) = &mut self.sample else { return };
        // Stable, so that equal rows stay ordered by name.
        sample.locks.sort_by(|one, other| {
            (&one.namespace, &one.name).cmp(&(&other.namespace, &other.name))
        });
        match order {
            Order::Held => {
                sample
                    .locks
                    .sort_by_key(|lock| Reverse((lock.state == State::AtRisk, lock.held_for)));
            }
            Order::Left => {
                sample.locks.sort_by_key(|lock| (lock.time_left.is_none(), lock.time_left));
            }
            Order::Waiting => {
                sample.locks.sort_by_key(|lock| Reverse((lock.waiting, lock.longest_wait)));
            }
            Order::Grants => sample.locks.sort_by_key(|lock| Reverse(lock.recent_grants)),
            Order::Name => {}
        }
        if self.is_reversed {
            sample.locks.reverse();
        }
    }
}

/// Rates between two samples. `None` if no time has passed, or a counter has decreased
/// because the daemon was restarted.
fn rates(before: &Sample, after: &Sample) -> Option<Rates> {
    let seconds = after.at.since(before.at).as_secs_f64();
    if seconds <= 0.0 {
        return None;
    }
    let rate = |before: u64, after: u64| Some(after.checked_sub(before)? as f64 / seconds);
    let mut calls: Vec<(String, f64)> = Vec::new();
    for (operation, count) in by_operation(&after.calls) {
        let earlier = by_operation(&before.calls);
        let earlier = earlier.iter().find(|(known, _)| *known == operation);
        calls.push((operation.to_owned(), rate(earlier.map_or(0, |(_, count)| *count), count)?));
    }
    calls.sort_by(|one, other| other.1.total_cmp(&one.1));
    Some(Rates {
        grants: rate(before.grants, after.grants)?,
        releases: rate(before.releases, after.releases)?,
        losses: rate(before.losses, after.losses)?,
        calls,
    })
}

/// Numbers of calls by operation, in the order of the first mention.
fn by_operation(calls: &[Calls]) -> Vec<(&str, u64)> {
    let mut sums: Vec<(&str, u64)> = Vec::new();
    for Calls { operation, count, .. } in calls {
        match sums.iter_mut().find(|(known, _)| known == operation) {
            Some((_, sum)) => *sum += count,
            None => sums.push((operation, *count)),
        }
    }
    sums
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::cli::top) fn lock(name: &str, held_for: u64, waiting: u64) -> Lock {
        Lock {
            namespace: "default".to_owned(),
            name: name.to_owned(),
            holder: Some("billing 2.3 on web-1".to_owned()),
            token: Some(1_048_577),
            held_for: Some(Duration::from_secs(held_for)),
            time_left: Some(Duration::from_secs(9)),
            waiting,
            ..Lock::default()
        }
    }

    pub(in crate::cli::top) fn sample(second: u64, grants: u64, locks: Vec<Lock>) -> Sample {
        let calls = |purpose: &str, count| Calls {
            operation: "renew".to_owned(),
            purpose: purpose.to_owned(),
            count,
        };
        Sample {
            at: Moment::from_boot(Duration::from_secs(second)),
            store: "embedded".to_owned(),
            trouble: None,
            sessions: 3,
            held: locks.len() as u64,
            waiting: 2,
            at_risk: 0,
            leaderless: 0,
            oldest_wait: Some(Duration::from_secs(4)),
            grants,
            releases: grants / 2,
            losses: 0,
            calls: vec![calls("hold", grants), calls("poll", grants)],
            locks,
        }
    }

    fn names(model: &Model) -> Vec<&str> {
        model.locks().iter().map(|lock| lock.name.as_str()).collect()
    }

    #[test]
    fn rates_are_differences_per_second() {
        let mut model = Model::default();
        model.update(Ok(sample(10, 100, Vec::new())));
        assert_eq!(model.rates(), None);
        model.update(Ok(sample(14, 180, Vec::new())));
        let rates = model.rates().unwrap();
        assert_eq!((rates.grants, rates.releases, rates.losses), (20.0, 10.0, 0.0));
        assert_eq!(rates.calls, [("renew".to_owned(), 40.0)]);
        assert_eq!(model.history(), &[20.0]);
    }

    #[test]
    fn restart_of_daemon_has_no_rates() {
        let mut model = Model::default();
        model.update(Ok(sample(10, 100, Vec::new())));
        model.update(Ok(sample(12, 3, Vec::new())));
        assert_eq!((model.rates(), model.history().len()), (None, 0));
    }

    #[test]
    fn rows_have_requested_order() {
        let mut model = Model::default();
        let risky = Lock { state: State::AtRisk, ..lock("c", 1, 0) };
        let busy = Lock { recent_grants: 9, time_left: None, ..lock("d", 2, 1) };
        model.update(Ok(sample(1, 0, vec![lock("b", 5, 7), busy, risky, lock("a", 5, 0)])));
        assert_eq!(names(&model), ["c", "a", "b", "d"]);
        for (order, expected) in [
            (Order::Waiting, ["b", "d", "a", "c"]),
            (Order::Grants, ["d", "a", "b", "c"]),
            (Order::Left, ["a", "b", "c", "d"]),
            (Order::Name, ["a", "b", "c", "d"]),
        ] {
            model.on(Input::Sort(order));
            assert_eq!(names(&model), expected, "{order:?}");
        }
        model.on(Input::Reverse);
        assert_eq!(names(&model), ["d", "c", "b", "a"]);
        model.update(Ok(sample(2, 0, vec![lock("x", 1, 0), lock("y", 1, 0)])));
        assert_eq!(names(&model), ["y", "x"], "new samples keep the order");
    }

    #[test]
    fn last_page_stays_full() {
        let mut model = Model::default();
        model.update(Ok(sample(1, 0, (0..10).map(|n| lock(&n.to_string(), 1, 0)).collect())));
        model.on(Input::Down(4));
        assert_eq!(model.visible(3)[0].name, "4");
        model.on(Input::Down(100));
        assert_eq!(model.visible(3).len(), 3);
        model.on(Input::Up(100));
        assert_eq!(model.visible(3)[0].name, "0");
        model.update(Ok(sample(2, 0, Vec::new())));
        assert!(model.visible(3).is_empty());
    }

    #[test]
    fn keys_scroll_at_once_after_last_page() {
        let mut model = Model::default();
        model.update(Ok(sample(1, 0, (0..10).map(|n| lock(&n.to_string(), 1, 0)).collect())));
        assert_eq!(model.visible(3)[0].name, "0");
        model.on(Input::Down(usize::MAX));
        assert_eq!(model.visible(3)[0].name, "7");
        model.on(Input::Up(1));
        assert_eq!(model.visible(3)[0].name, "6");
        assert_eq!(model.visible(5)[0].name, "5", "the screen is higher");
        model.on(Input::Up(1));
        assert_eq!(model.visible(5)[0].name, "4");
    }

    #[test]
    fn failed_request_keeps_last_sample() {
        let mut model = Model::default();
        model.update(Ok(sample(1, 0, vec![lock("a", 1, 0)])));
        model.update(Err("connection refused".to_owned()));
        assert_eq!((names(&model), model.error()), (vec!["a"], Some("connection refused")));
        model.update(Ok(sample(2, 0, Vec::new())));
        assert_eq!(model.error(), None);
    }
}
