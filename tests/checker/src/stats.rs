//! Statistics of a history.

use std::{collections::BTreeMap, fmt, ops::AddAssign};

use crate::{
    History, Nanos,
    check::liveness::{Cause, vacancies},
    format::Seconds,
    index::{Answer, EndCause, Index},
    report::Report,
};

/// Statistics of one history, or the sum over several histories.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Number of histories.
    pub histories: usize,
    /// Number of entries by the name of the event.
    pub entries: BTreeMap<&'static str, usize>,
    /// Number of clients with at least one event.
    pub clients: usize,
    /// Number of daemons.
    pub daemons: usize,
    /// Number of locks.
    pub locks: usize,
    /// Number of acquires.
    pub acquires: usize,
    /// Number of granted acquires.
    pub grants: usize,
    /// Number of holds, one for each grant.
    pub holds: usize,
    /// Number of refused or canceled acquires.
    pub refused: usize,
    /// Number of holds that ended with a release.
    pub released: usize,
    /// Number of holds that ended with a loss that the client noticed.
    pub lost: usize,
    /// Number of holds that ended with the death of the client.
    pub died: usize,
    /// Number of times that a lock passed from one daemon to another.
    pub moves: usize,
    /// Number of faults.
    pub disturbances: usize,
    /// Duration of the history, in nanoseconds.
    pub length: Nanos,
    /// Total time without an active fault, in nanoseconds.
    pub calm: Nanos,
    /// Maximum time from an acquire to its grant, with or without faults, in nanoseconds.
    pub max_wait: Nanos,
    /// Maximum time from the death of a holder to the grant of a waiter, without an active
    /// fault, in nanoseconds.
    pub max_takeover: Nanos,
    /// Maximum time from a release to the grant of a waiter at the same daemon, without an
    /// active fault, in nanoseconds.
    pub max_local_handoff: Nanos,
    /// Maximum time from a release to the grant of a waiter at another daemon, without an
    /// active fault, in nanoseconds.
    pub max_remote_handoff: Nanos,
}

impl Stats {
    /// Computes the statistics of one history.
    pub fn of(history: &History) -> Self {
        let index = Index::new(history, &mut Report::default());
        let mut stats = Self {
            histories: 1,
            clients: index.clients,
            daemons: index.daemons.len(),
            locks: index.locks.len(),
            acquires: index.acquires.len(),
            holds: index.holds.len(),
            disturbances: index.disturbances,
            length: index.end,
            calm: index.calm.iter().fold(0, |sum, calm| sum.saturating_add(calm.length())),
            ..Self::default()
        };
        for entry in &history.entries {
            *stats.entries.entry(entry.event.name()).or_default() += 1;
        }
        for acquire in &index.acquires {
            match acquire.answer {
                Some(Answer::Granted { point, .. }) => {
                    stats.grants += 1;
                    let wait = point.at.saturating_sub(acquire.invoked.at);
                    stats.max_wait = stats.max_wait.max(wait);
                }
                Some(Answer::Refused { .. }) => stats.refused += 1,
                None => {}
            }
        }
        for hold in &index.holds {
            match hold.ended_by().map(|end| end.cause) {
                Some(EndCause::Released) => stats.released += 1,
                Some(EndCause::Lost | EndCause::Freed) => stats.lost += 1,
                Some(EndCause::Died) => stats.died += 1,
                None => {}
            }
        }
        (0..index.locks.len()).for_each(|lock| stats.add_handoffs(&index, lock));
        stats
    }

    fn add_handoffs(&mut self, index: &Index<'_>, lock: usize) {
        let place = |hold: &usize| index.acquires[index.holds[*hold].acquire].place;
        let holds = &index.locks[lock].holds;
        self.moves += holds.windows(2).filter(|pair| place(&pair[0]) != place(&pair[1])).count();
        for vacancy in vacancies(index, lock) {
            let (Some(next), Some(stretch)) = (vacancy.next, vacancy.stretches.last()) else {
                continue;
            };
            let took = index.calm_in(stretch.span).last().filter(|calm| calm.to == stretch.span.to);
            let Some(calm) = took else { continue };
            let invoked = index.acquires[index.holds[next].acquire].invoked.at;
            let took = calm.to.saturating_sub(calm.from.max(invoked));
            let maximum = match stretch.cause {
                Cause::Died { .. } => &mut self.max_takeover,
                Cause::Released(at) if at == Some(place(&next)) => &mut self.max_local_handoff,
                Cause::Released(_) => &mut self.max_remote_handoff,
                Cause::Unknown => continue,
            };
            *maximum = took.max(*maximum);
        }
    }
}

impl AddAssign for Stats {
    fn add_assign(&mut self, other: Self) {
        for (name, count) in other.entries {
            *self.entries.entry(name).or_default() += count;
        }
        self.histories += other.histories;
        self.clients += other.clients;
        self.daemons += other.daemons;
        self.locks += other.locks;
        self.acquires += other.acquires;
        self.grants += other.grants;
        self.holds += other.holds;
        self.refused += other.refused;
        self.released += other.released;
        self.lost += other.lost;
        self.died += other.died;
        self.moves += other.moves;
        self.disturbances += other.disturbances;
        self.length = self.length.saturating_add(other.length);
        self.calm = self.calm.saturating_add(other.calm);
        self.max_wait = self.max_wait.max(other.max_wait);
        self.max_takeover = self.max_takeover.max(other.max_takeover);
        self.max_local_handoff = self.max_local_handoff.max(other.max_local_handoff);
        self.max_remote_handoff = self.max_remote_handoff.max(other.max_remote_handoff);
    }
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line =
            |name: &str, figure: &dyn fmt::Display| writeln!(f, "{name:<30}{figure:>16}");
        line("histories", &self.histories)?;
        line("entries", &self.entries.values().sum::<usize>())?;
        for (name, count) in &self.entries {
            line(&format!("  {name}"), count)?;
        }
        line("clients", &self.clients)?;
        line("daemons", &self.daemons)?;
        line("locks", &self.locks)?;
        line("acquires", &self.acquires)?;
        line("  granted", &self.grants)?;
        line("  refused or canceled", &self.refused)?;
        line("holds", &self.holds)?;
        line("  released", &self.released)?;
        line("  lost", &self.lost)?;
        line("  ended by death", &self.died)?;
        line("  moved to another daemon", &self.moves)?;
        line("disturbances", &self.disturbances)?;
        let mut time = |name, time| line(name, &Seconds(time).to_string());
        time("length", self.length)?;
        time("  calm", self.calm)?;
        time("longest wait", self.max_wait)?;
        time("longest calm takeover", self.max_takeover)?;
        time("longest calm local handoff", self.max_local_handoff)?;
        time("longest calm remote handoff", self.max_remote_handoff)
    }
}
