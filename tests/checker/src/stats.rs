//! Figures of a history.

use std::{collections::BTreeMap, fmt, ops::AddAssign};

use crate::{
    History, Nanos,
    check::liveness::{Cause, vacancies},
    format::Seconds,
    index::{Answer, How, Index},
    report::Report,
};

/// Figures of a history, or of many that were added up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// How many histories.
    pub histories: usize,
    /// Entries by the name of the event.
    pub entries: BTreeMap<&'static str, usize>,
    /// Clients that did something.
    pub clients: usize,
    /// Daemons.
    pub daemons: usize,
    /// Locks.
    pub locks: usize,
    /// Acquires.
    pub acquires: usize,
    /// Acquires that were granted.
    pub grants: usize,
    /// Holds: one for each grant.
    pub holds: usize,
    /// Acquires that were refused or given up.
    pub refused: usize,
    /// Holds that ended with a release.
    pub released: usize,
    /// Holds that were known to be lost.
    pub lost: usize,
    /// Holds that ended with the death of the client.
    pub died: usize,
    /// Times that the lock passed from one daemon to another.
    pub moves: usize,
    /// Disturbances.
    pub disturbances: usize,
    /// How long it all took, in nanoseconds.
    pub length: Nanos,
    /// How much of that was calm.
    pub calm: Nanos,
    /// From an acquire to its grant, in calm or not.
    pub longest_wait: Nanos,
    /// In calm, from the death of a holder to the grant of one who waited.
    pub longest_takeover: Nanos,
    /// In calm, from a release to the grant of one who waited at the same daemon.
    pub longest_local_handover: Nanos,
    /// The same, at another daemon.
    pub longest_remote_handover: Nanos,
}

impl Stats {
    /// The figures of one history.
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
                    stats.longest_wait = stats.longest_wait.max(wait);
                }
                Some(Answer::Refused { .. }) => stats.refused += 1,
                None => {}
            }
        }
        for hold in &index.holds {
            match hold.ended_by().map(|end| end.how) {
                Some(How::Released) => stats.released += 1,
                Some(How::Lost | How::Freed) => stats.lost += 1,
                Some(How::Died) => stats.died += 1,
                None => {}
            }
        }
        (0..index.locks.len()).for_each(|lock| stats.hand_overs(&index, lock));
        stats
    }

    fn hand_overs(&mut self, index: &Index<'_>, lock: usize) {
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
            let longest = match stretch.cause {
                Cause::Died { .. } => &mut self.longest_takeover,
                Cause::Released(at) if at == Some(place(&next)) => &mut self.longest_local_handover,
                Cause::Released(_) => &mut self.longest_remote_handover,
                Cause::Unclear => continue,
            };
            *longest = took.max(*longest);
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
        self.longest_wait = self.longest_wait.max(other.longest_wait);
        self.longest_takeover = self.longest_takeover.max(other.longest_takeover);
        self.longest_local_handover = self.longest_local_handover.max(other.longest_local_handover);
        self.longest_remote_handover =
            self.longest_remote_handover.max(other.longest_remote_handover);
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
        line("  refused or given up", &self.refused)?;
        line("holds", &self.holds)?;
        line("  released", &self.released)?;
        line("  lost", &self.lost)?;
        line("  ended by death", &self.died)?;
        line("  moved to another daemon", &self.moves)?;
        line("disturbances", &self.disturbances)?;
        let mut time = |name, time| line(name, &Seconds(time).to_string());
        time("length", self.length)?;
        time("  calm", self.calm)?;
        time("longest wait", self.longest_wait)?;
        time("longest calm takeover", self.longest_takeover)?;
        time("longest calm local handover", self.longest_local_handover)?;
        time("longest calm remote handover", self.longest_remote_handover)
    }
}
