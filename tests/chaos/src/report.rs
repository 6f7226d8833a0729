//! Results of a run.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fmt,
    time::Duration,
};

use leasehold_checker::{Entry, Event, Nanos, Stats};

use crate::{fault::Fault, inject::Outcome, locks, resource::State};

/// Counters and findings of a run.
#[derive(Default)]
pub(crate) struct Report {
    /// Faults, by kind.
    faults: BTreeMap<String, Made>,
    /// Events by name, refusals by reason.
    events: BTreeMap<String, usize>,
    /// Grants at another daemon than the previous grant of the lock.
    moves: u32,
    /// Grants after the death of a holder or its daemon.
    takeovers: u32,
    max_takeover: Nanos,
    max_recovery: Duration,
    pub(crate) figures: Stats,
    /// Number of checked entries.
    pub(crate) checked: usize,
    /// Fenced and unfenced resource, by lock.
    resources: Vec<(u32, State, State)>,
    /// Writes to the fenced resource that clients recorded as accepted, by
    /// lock.
    accepted: HashMap<u32, u64>,
    failures: Vec<String>,
}

/// Counters of a kind of fault.
#[derive(Clone, Copy, Default)]
struct Made {
    done: u32,
    missed: u32,
    /// Affected storage calls, as far as they are known.
    calls: usize,
}

/// Number of attempts after which a fault must have succeeded at least once.
/// Faults of calls of one kind often miss because there was no such call.
const MIN_ATTEMPTS: u32 = 8;

impl Report {
    pub(crate) fn is_good(&self) -> bool {
        self.failures.is_empty()
    }

    /// Records a finding.
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

    /// Counts a fault of this kind that was injected, or missed.
    pub(crate) fn done(&mut self, kind: &str, done: bool) {
        let made = self.faults.entry(kind.to_owned()).or_default();
        *(if done { &mut made.done } else { &mut made.missed }) += 1;
    }

    /// Checks that a long run has injected every kind of fault, and that the
    /// faults had an effect. Otherwise the run proves nothing.
    pub(crate) fn expect_everything(&mut self) {
        let never_made = |made: &Made| made.done == 0 && made.missed >= MIN_ATTEMPTS;
        let mut missing: Vec<_> = (self.faults.iter().filter(|(_, made)| never_made(made)))
            .map(|(kind, made)| format!("missed all {} times: {kind}", made.missed))
            .collect();
        if self.faults.values().all(|made| made.calls == 0) {
            missing.push("no storage call failed".to_owned());
        }
        // Where an operator breaks leases, refusals do not prove that pauses
        // had an effect.
        let regular = || self.resources.iter().filter(|(lock, ..)| *lock != locks::SABOTAGED);
        if regular().all(|(_, fenced, _)| fenced.refused == 0) {
            missing.push("no fence refused an access".to_owned());
        }
        if regular().all(|(_, _, unfenced)| unfenced.lost() == 0) {
            missing.push("no unfenced resource lost an update".to_owned());
        }
        self.failures.append(&mut missing);
    }

    pub(crate) fn recovered(&mut self, took: Duration) {
        self.max_recovery = self.max_recovery.max(took);
    }

    pub(crate) fn count(&mut self, entries: &[Entry]) {
        let mut acquires = HashMap::new();
        // Last holder of each lock, and its time of death while it held it.
        let mut last: HashMap<u32, Holder> = HashMap::new();
        let mut reads = HashSet::new();
        for Entry { at, event } in entries {
            let Some(name) = name(event) else { continue };
            *self.events.entry(name).or_default() += 1;
            match event {
                Event::Acquire { op, client, daemon, lock } => {
                    acquires.insert(*op, (*client, *daemon, *lock));
                }
                Event::Granted { op, .. } => {
                    let (client, daemon, lock) = acquires[op];
                    let holder = Holder { client, daemon, holds: true, died: None };
                    if let Some(before) = last.insert(lock, holder) {
                        self.moves += u32::from(before.daemon != daemon);
                        if let Some(died) = before.died {
                            self.takeovers += 1;
                            self.max_takeover = self.max_takeover.max(at - died);
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
                // The first access of each grant is the read.
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
        // A killed client may have written without a record of it.
        let accepted = self.accepted.get(&lock).copied().unwrap_or_default();
        if accepted > fenced.counter {
            self.fail(format!(
                "{name}: {accepted} writes were accepted, but the file has {fenced:?}"
            ));
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

/// Returns the name under which an event is counted, if it is counted.
fn name(event: &Event) -> Option<String> {
    let name = match event {
        Event::Acquire { .. } => "acquire",
        Event::Queued { .. } => "queued",
        Event::Granted { .. } => "granted",
        Event::Refused { why, .. } => return Some(format!("refused: {why}")),
        Event::Valid { .. } => "valid until",
        Event::Release { .. } => "release",
        Event::Released { .. } => "release, confirmed",
        Event::Lost { .. } => "lost",
        Event::Used { fenced: true, accepted: true, .. } => "fenced access, accepted",
        Event::Used { fenced: true, accepted: false, .. } => "fenced access, refused",
        Event::Used { .. } => "unfenced write",
        Event::ClientDied { .. } => "client died",
        Event::DaemonDied { .. } => "daemon died",
        Event::Stored { .. } => "stored",
        Event::Deleted { .. } => "blob deleted",
        Event::Overruled { .. } => "lease broken by an operator",
        _ => return None,
    };
    Some(name.to_owned())
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\nfaults{:>42} {:>7} {:>7}", "made", "missed", "calls")?;
        let mut all = Made::default();
        for (kind, Made { done, missed, calls }) in &self.faults {
            // A kind may contain characters of several bytes.
            let space = 40_usize.saturating_sub(kind.chars().count());
            writeln!(f, "  {kind}{:space$} {done:>5} {missed:>7} {calls:>7}", "")?;
            all.done += done;
            all.missed += missed;
            all.calls += calls;
        }
        let Made { done, missed, calls } = all;
        writeln!(f, "  {:40} {done:>5} {missed:>7} {calls:>7}", "all")?;
        writeln!(f, "\nrecorded events")?;
        for (event, count) in &self.events {
            writeln!(f, "  {event:40} {count:>7}")?;
        }
        writeln!(f, "  {:40} {:>7}", "grants at another daemon than before", self.moves)?;
        writeln!(f, "  {:40} {:>7}", "takeovers after a death", self.takeovers)?;
        let Stats { calm, max_takeover, max_wait, .. } = self.figures;
        for (what, length) in [
            ("longest takeover, faults included", self.max_takeover),
            ("longest takeover in calm", max_takeover),
            ("longest handoff in calm, same daemon", self.figures.max_local_handoff),
            ("longest handoff in calm, other daemon", self.figures.max_remote_handoff),
            ("longest recovery of all locks", self.max_recovery.as_nanos() as Nanos),
            ("longest wait before a grant", max_wait),
            ("calm", calm),
        ] {
            let seconds = Duration::from_nanos(length).as_secs_f64();
            writeln!(f, "  {what:40} {seconds:>7.2} s")?;
        }
        writeln!(f, "\n{:12} {:>27} {:>35}", "resources", "fenced", "unfenced")?;
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
