//! What came of it.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fmt,
    time::Duration,
};

use leasehold_checker::{Entry, Event, Nanos, Stats};

use crate::{fault::Fault, inject::Outcome, locks, resource::State};

/// Counted and found in a run.
#[derive(Default)]
pub(crate) struct Report {
    /// By kind.
    faults: BTreeMap<String, Made>,
    /// By event, refusals by reason.
    events: BTreeMap<String, usize>,
    /// Grants that went to another daemon than the one before.
    moves: u32,
    /// From the death of a holder or its daemon to the next grant.
    takeovers: u32,
    longest_takeover: Nanos,
    longest_recovery: Duration,
    pub(crate) figures: Stats,
    /// How many entries.
    pub(crate) checked: usize,
    /// By lock: fenced, unfenced.
    resources: Vec<(u32, State, State)>,
    /// By lock: the writes to the fenced resource that clients were told were
    /// accepted.
    accepted: HashMap<u32, u64>,
    failures: Vec<String>,
}

/// How often something was made.
#[derive(Clone, Copy, Default)]
struct Made {
    done: u32,
    missed: u32,
    /// The calls to the storage that met it, as far as they are seen.
    calls: usize,
}

/// Of what was tried so often, something must have been done. Most of what is
/// aimed at calls of one kind misses at times: there was none.
const TRIES: u32 = 8;

impl Report {
    pub(crate) fn is_good(&self) -> bool {
        self.failures.is_empty()
    }

    /// Something that must not be.
    pub(crate) fn fail(&mut self, what: String) {
        self.failures.push(what);
    }

    pub(crate) fn fault(&mut self, fault: &Fault, outcome: Outcome) {
        let kind = fault.kind();
        match outcome {
            Outcome::Done => self.done(&kind, true),
            Outcome::Calls(calls) => {
                self.done(&kind, calls > 0);
                self.faults.entry(kind).or_default().calls += calls;
            }
            Outcome::Missed => self.done(&kind, false),
            Outcome::Failed(what) => self.fail(what),
        }
    }

    /// Something of this kind was done, or missed what it was for.
    pub(crate) fn done(&mut self, kind: &str, done: bool) {
        let made = self.faults.entry(kind.to_owned()).or_default();
        *(if done { &mut made.done } else { &mut made.missed }) += 1;
    }

    /// A run that is long enough has seen all that it is for. Otherwise it shows
    /// nothing.
    pub(crate) fn expect_everything(&mut self) {
        let in_vain = |made: &Made| made.done == 0 && made.missed >= TRIES;
        let mut unseen: Vec<_> = (self.faults.iter().filter(|(_, made)| in_vain(made)))
            .map(|(kind, made)| format!("missed each of {} times: {kind}", made.missed))
            .collect();
        if self.faults.values().all(|made| made.calls == 0) {
            unseen.push("no call to the storage went wrong".to_owned());
        }
        // Where an operator takes leases away, these say nothing of pauses.
        let sound = || self.resources.iter().filter(|(lock, ..)| *lock != locks::SABOTAGED);
        if sound().all(|(_, fenced, _)| fenced.refused == 0) {
            unseen.push("no fence refused anything".to_owned());
        }
        if sound().all(|(_, _, unfenced)| unfenced.lost() == 0) {
            unseen.push("nothing was lost where the lock alone was trusted".to_owned());
        }
        self.failures.append(&mut unseen);
    }

    pub(crate) fn recovered(&mut self, took: Duration) {
        self.longest_recovery = self.longest_recovery.max(took);
    }

    pub(crate) fn count(&mut self, entries: &[Entry]) {
        let mut asked = HashMap::new();
        // Who had each lock last, and when that one died with it.
        let mut last: HashMap<u32, Holder> = HashMap::new();
        let mut reads = HashSet::new();
        for Entry { at, event } in entries {
            let Some(name) = name(event) else { continue };
            *self.events.entry(name).or_default() += 1;
            match event {
                Event::Acquire { op, client, daemon, lock } => {
                    asked.insert(*op, (*client, *daemon, *lock));
                }
                Event::Granted { op, .. } => {
                    let (client, daemon, lock) = asked[op];
                    let holder = Holder { client, daemon, holds: true, died: None };
                    if let Some(before) = last.insert(lock, holder) {
                        self.moves += u32::from(before.daemon != daemon);
                        if let Some(died) = before.died {
                            self.takeovers += 1;
                            self.longest_takeover = self.longest_takeover.max(at - died);
                        }
                    }
                }
                Event::Release { client, lock, .. } | Event::Lost { client, lock, .. } => {
                    if let Some(holder) = last.get_mut(lock).filter(|last| last.client == *client) {
                        holder.holds = false;
                    }
                }
                Event::ClientDied { client: dead } => {
                    last.values_mut().filter(|last| last.client == *dead).for_each(|h| h.die(*at));
                }
                Event::DaemonDied { daemon: dead } => {
                    last.values_mut().filter(|last| last.daemon == *dead).for_each(|h| h.die(*at));
                }
                // Of each grant, the first access is the read.
                Event::Used { lock, token, fenced: true, accepted: true, .. }
                    if !reads.insert((*lock, *token)) =>
                {
                    *self.accepted.entry(*lock).or_default() += 1;
                }
                _ => {}
            }
        }
    }

    pub(crate) fn resource(&mut self, lock: u32, fenced: State, unfenced: State) {
        let name = locks::name(lock);
        if fenced.lost() > 0 || fenced.overwritten > 0 {
            self.fail(format!("the fenced resource of {name} lost an update: {fenced:?}"));
        }
        // Whoever was killed may have written without having said so.
        let accepted = self.accepted.get(&lock).copied().unwrap_or_default();
        if accepted > fenced.counter {
            self.fail(format!("{name}: {accepted} writes were accepted, but there is {fenced:?}"));
        }
        self.resources.push((lock, fenced, unfenced));
    }
}

struct Holder {
    client: u32,
    daemon: u32,
    holds: bool,
    died: Option<Nanos>,
}

impl Holder {
    fn die(&mut self, at: Nanos) {
        if self.holds && self.died.is_none() {
            self.died = Some(at);
        }
    }
}

/// What it is counted as, if it is something that a client did or was told.
fn name(event: &Event) -> Option<String> {
    let name = match event {
        Event::Acquire { .. } => "asked",
        Event::Queued { .. } => "queued",
        Event::Granted { .. } => "granted",
        Event::Refused { why, .. } => return Some(format!("refused: {why}")),
        Event::Valid { .. } => "valid until",
        Event::Release { .. } => "let go",
        Event::Released { .. } => "let go, confirmed",
        Event::Lost { .. } => "lost",
        Event::Used { fenced: true, accepted: true, .. } => "fenced access, accepted",
        Event::Used { fenced: true, accepted: false, .. } => "fenced access, refused",
        Event::Used { .. } => "unfenced write",
        Event::ClientDied { .. } => "client died",
        Event::DaemonDied { .. } => "daemon died",
        Event::Stored { .. } => "stored",
        Event::Deleted { .. } => "blob deleted",
        Event::Overruled { .. } => "lease taken away",
        _ => return None,
    };
    Some(name.to_owned())
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\nfaults{:>42} {:>7} {:>7}", "made", "missed", "calls")?;
        let mut all = Made::default();
        for (kind, Made { done, missed, calls }) in &self.faults {
            // Not all characters of a kind are one byte.
            let space = 40_usize.saturating_sub(kind.chars().count());
            writeln!(f, "  {kind}{:space$} {done:>5} {missed:>7} {calls:>7}", "")?;
            all.done += done;
            all.missed += missed;
            all.calls += calls;
        }
        let Made { done, missed, calls } = all;
        writeln!(f, "  {:40} {done:>5} {missed:>7} {calls:>7}", "all")?;
        writeln!(f, "\nwhat the clients did and were told, and what was kept")?;
        for (event, count) in &self.events {
            writeln!(f, "  {event:40} {count:>7}")?;
        }
        writeln!(f, "  {:40} {:>7}", "grants at another daemon than before", self.moves)?;
        writeln!(f, "  {:40} {:>7}", "taken over from the dead", self.takeovers)?;
        let Stats { calm, longest_takeover, longest_wait, .. } = self.figures;
        for (what, length) in [
            ("longest of these, faults included", self.longest_takeover),
            ("longest of these in calm", longest_takeover),
            ("longest hand-over in calm, same daemon", self.figures.longest_local_handover),
            ("longest hand-over in calm, another one", self.figures.longest_remote_handover),
            ("longest recovery of all locks", self.longest_recovery.as_nanos() as Nanos),
            ("longest wait that ended with a grant", longest_wait),
            ("calm", calm),
        ] {
            let seconds = Duration::from_nanos(length).as_secs_f64();
            writeln!(f, "  {what:40} {seconds:>7.2} s")?;
        }
        writeln!(f, "\n{:12} {:>27} {:>35}", "resources", "fenced", "trusting the lock alone")?;
        writeln!(
            f,
            "  {:10} {:>9} {:>8} {:>8} {:>9} {:>12} {:>12}",
            "lock", "writes", "lost", "refused", "writes", "overwritten", "lost"
        )?;
        for (lock, fenced, unfenced) in &self.resources {
            writeln!(
                f,
                "  {:10} {:>9} {:>8} {:>8} {:>9} {:>12} {:>12}",
                locks::name(*lock),
                fenced.writes,
                fenced.lost(),
                fenced.refused,
                unfenced.writes,
                unfenced.overwritten,
                unfenced.lost(),
            )?;
        }
        writeln!(f, "\n{} entries checked, {} violations", self.checked, self.failures.len())?;
        for failure in &self.failures {
            writeln!(f, "\n{failure}")?;
        }
        Ok(())
    }
}
