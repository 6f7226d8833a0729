//! Schedule of faults, derived from the seed alone.

use std::{fmt, time::Duration};

use leasehold_test_support::proxy::{self, Kind, Refusal};
use rand::{
    RngExt, SeedableRng,
    rngs::StdRng,
    seq::{IndexedRandom, SliceRandom},
};

use crate::{
    client::TTL,
    fault::{Fault, StorageCut},
    link::Passage,
    locks,
    options::Options,
    world::{DAEMONS, LEASE, PROCESSES},
};

/// Approximate duration of a round of faults, after which all must recover.
const ROUND: Duration = Duration::from_secs(60);

pub(crate) struct Plan(pub(crate) Vec<Round>);

/// Overlapping faults.
pub(crate) struct Round {
    pub(crate) length: Duration,
    pub(crate) faults: Vec<Planned>,
}

/// Fault with its start and duration.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Planned {
    pub(crate) number: usize,
    pub(crate) from: Duration,
    pub(crate) duration: Duration,
    pub(crate) fault: Fault,
}

impl Plan {
    pub(crate) fn new(options: &Options) -> Self {
        let mut scheduler = Scheduler {
            chance: StdRng::seed_from_u64(options.seed),
            remaining: Vec::new(),
            planned_count: 0,
            busy: Vec::new(),
        };
        let rounds = (options.length.as_secs_f64() / ROUND.as_secs_f64()).round().max(1.0);
        let length = options.length.div_f64(rounds);
        // Frequent faults overlap more; between rare ones, more locks are
        // granted.
        let paces = [1.0, 0.6, 1.6, 3.0];
        let paces = paces.into_iter().cycle().take(rounds as usize);
        Self(paces.map(|pace| scheduler.round(length, pace)).collect())
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, round) in self.0.iter().enumerate() {
            writeln!(f, "round {number}: {:.0} s", round.length.as_secs_f64())?;
            for fault in &round.faults {
                writeln!(f, "  {fault}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Planned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { number, from, duration, fault } = self;
        let (from, duration) = (from.as_secs_f64(), duration.as_secs_f64());
        write!(f, "#{number} at {from:.2} s for {duration:.2} s: {fault}")
    }
}

/// Kind of a fault, without its target.
#[derive(Clone, Copy, Debug)]
enum FaultKind {
    KillDaemon,
    KillAll,
    DrainDaemon,
    PauseDaemon,
    KillClients,
    PauseClients,
    PauseBeforeWrite,
    PauseBoth,
    Storage(StorageCut),
    Outage,
    Calls,
    Link(Passage),
    Break,
    DeleteIdle,
    DeleteHeld,
}

/// Number of occurrences of each kind in a shuffled cycle.
const CYCLE: [(FaultKind, usize); 21] = [
    (FaultKind::KillDaemon, 2),
    (FaultKind::KillAll, 1),
    (FaultKind::DrainDaemon, 1),
    (FaultKind::PauseDaemon, 3),
    (FaultKind::KillClients, 3),
    (FaultKind::PauseClients, 3),
    (FaultKind::PauseBeforeWrite, 4),
    (FaultKind::PauseBoth, 1),
    (FaultKind::Storage(StorageCut::Refused), 1),
    (FaultKind::Storage(StorageCut::Silent), 1),
    (FaultKind::Storage(StorageCut::RequestsLost), 1),
    (FaultKind::Storage(StorageCut::AnswersLost), 1),
    (FaultKind::Outage, 1),
    (FaultKind::Calls, 11),
    (FaultKind::Link(Passage::Closed), 2),
    (FaultKind::Link(Passage::Stalled), 1),
    (FaultKind::Link(Passage::ToDaemon), 1),
    (FaultKind::Link(Passage::ToClients), 1),
    (FaultKind::Break, 1),
    (FaultKind::DeleteIdle, 2),
    (FaultKind::DeleteHeld, 1),
];

/// Target that only one fault at a time affects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subject {
    Daemon(usize),
    /// Link of a daemon to the storage.
    Storage(usize),
    Process(usize),
    Links(usize),
}

struct Scheduler {
    chance: StdRng,
    remaining: Vec<FaultKind>,
    planned_count: usize,
    /// Affected targets and the end of the fault.
    busy: Vec<(Subject, Duration)>,
}

impl Scheduler {
    /// Creates a round. `pace` is the mean time between two faults, in seconds.
    fn round(&mut self, length: Duration, pace: f64) -> Round {
        self.busy.clear();
        let mut faults = Vec::new();
        let mut from = Duration::from_millis(500);
        // The shortest pause must fit in.
        while from + Duration::from_secs(2) < length {
            let room = length - from;
            if let Some((fault, duration)) = self.next_fault(from, room) {
                faults.push(Planned { number: self.planned_count, from, duration, fault });
                self.planned_count += 1;
            }
            from += self.between(400, 1600).mul_f64(pace);
        }
        Round { length, faults }
    }

    fn between(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(self.chance.random_range(from..to))
    }

    /// Returns the next fault whose targets are free.
    fn next_fault(&mut self, from: Duration, room: Duration) -> Option<(Fault, Duration)> {
        if self.remaining.is_empty() {
            self.remaining = CYCLE.iter().flat_map(|(kind, count)| vec![*kind; *count]).collect();
            self.remaining.shuffle(&mut self.chance);
        }
        for index in (0..self.remaining.len()).rev() {
            if let Some(scheduled) = self.schedule(self.remaining[index], from, room) {
                self.remaining.remove(index);
                return Some(scheduled);
            }
        }
        None
    }

    fn schedule(
        &mut self,
        kind: FaultKind,
        now: Duration,
        room: Duration,
    ) -> Option<(Fault, Duration)> {
        let down = self.between(100, 2500).min(room);
        let slot = self.chance.random_range(0..DAEMONS);
        Some(match kind {
            FaultKind::KillDaemon => (Fault::KillDaemon { slot: self.daemon(now, down)? }, down),
            FaultKind::KillAll => {
                self.all(Subject::Daemon, now, down)?;
                (Fault::KillAll, down)
            }
            FaultKind::DrainDaemon => (Fault::DrainDaemon { slot: self.daemon(now, down)? }, down),
            FaultKind::PauseDaemon => {
                let duration = self.pause(room);
                (Fault::PauseDaemon { slot: self.daemon(now, duration)? }, duration)
            }
            FaultKind::KillClients => {
                (Fault::KillClients { process: self.process(now, down)? }, down)
            }
            FaultKind::PauseClients => {
                let duration = self.pause(room);
                (Fault::PauseClients { process: self.process(now, duration)? }, duration)
            }
            FaultKind::PauseBeforeWrite => {
                // Long enough for another client to be granted the lock.
                (Fault::PauseBeforeWrite, self.pause(room).max(TTL * 3 / 2).min(room))
            }
            FaultKind::PauseBoth => {
                let duration = self.pause(room);
                let process = self.process(now, duration)?;
                (Fault::PauseBoth { slot: self.daemon(now, duration)?, process }, duration)
            }
            FaultKind::Storage(cut) => {
                // A daemon that is cut off continues while its leases last:
                // half of the cuts are longer than that.
                let beyond = LEASE + self.between(1000, 6000);
                let duration = self.pause(room);
                let duration =
                    if self.chance.random() && beyond < room { beyond } else { duration };
                (
                    Fault::Storage { slot: self.slot(Subject::Storage, now, duration)?, cut },
                    duration,
                )
            }
            FaultKind::Outage => {
                // All holders lose their locks, and all daemons recover.
                let duration = LEASE + self.between(1000, 6000);
                if duration > room {
                    return None;
                }
                self.all(Subject::Storage, now, duration)?;
                let cut =
                    if self.chance.random() { StorageCut::Refused } else { StorageCut::Silent };
                (Fault::Outage { cut }, duration)
            }
            FaultKind::Calls => self.calls(slot, room),
            FaultKind::Link(passage) => {
                let duration = self.pause(room);
                self.claim(Subject::Links(slot), now, duration)?;
                let all = self.chance.random_bool(0.3);
                let process = (!all).then(|| self.chance.random_range(0..PROCESSES));
                let reset = self.chance.random();
                (Fault::Link { slot, process, passage, reset }, duration)
            }
            FaultKind::Break => {
                let lock = self.chance.random_range(0..locks::QUIET);
                // A lease of another daemon runs until its expiry.
                (Fault::Break { slot, lock }, (LEASE + Duration::from_secs(1)).min(room))
            }
            FaultKind::DeleteIdle => {
                let busy = self.chance.random_range(0..locks::QUIET);
                let lock = if self.chance.random() { locks::QUIET } else { busy };
                (Fault::DeleteIdle { lock }, Duration::from_secs(5).min(room))
            }
            FaultKind::DeleteHeld => (Fault::DeleteHeld, Duration::from_secs(12).min(room)),
        })
    }

    /// Returns a length close to a significant duration.
    fn pause(&mut self, room: Duration) -> Duration {
        let third = LEASE / 3;
        let deadline = LEASE - Duration::from_millis(1030);
        let around = |length: Duration, spread: u64| {
            let spread = Duration::from_millis(spread);
            (length.saturating_sub(spread), length + spread)
        };
        let lengths = [
            around(Duration::from_millis(1000), 800),
            around(TTL, 500),
            around(TTL, 100),
            around(third, 400),
            around(deadline, 500),
            around(LEASE, 500),
            around(LEASE + Duration::from_secs(4), 3000),
        ];
        let fit: Vec<_> = lengths.into_iter().filter(|(_, max)| *max <= room).collect();
        let (min, max) = *fit.choose(&mut self.chance).unwrap_or(&lengths[0]);
        self.between(min.as_millis() as u64, max.as_millis() as u64)
    }

    fn daemon(&mut self, now: Duration, duration: Duration) -> Option<usize> {
        self.slot(Subject::Daemon, now, duration)
    }

    /// Returns a daemon whose target is free, such that another daemon is
    /// unaffected: otherwise no lock would be granted for a long time.
    fn slot(
        &mut self,
        subject: fn(usize) -> Subject,
        now: Duration,
        duration: Duration,
    ) -> Option<usize> {
        let untouched = |slot: &usize| {
            !self.is_busy(Subject::Daemon(*slot), now)
                && !self.is_busy(Subject::Storage(*slot), now)
        };
        let untouched: Vec<_> = (0..DAEMONS).filter(untouched).collect();
        let may_be = |slot: &usize| {
            !self.is_busy(subject(*slot), now) && untouched.iter().any(|other| other != slot)
        };
        let slots: Vec<_> = (0..DAEMONS).filter(may_be).collect();
        let slot = *slots.choose(&mut self.chance)?;
        self.claim(subject(slot), now, duration)?;
        Some(slot)
    }

    /// Claims all daemons, if the targets of all are free.
    fn all(
        &mut self,
        subject: fn(usize) -> Subject,
        now: Duration,
        duration: Duration,
    ) -> Option<()> {
        if (0..DAEMONS).any(|slot| self.is_busy(subject(slot), now)) {
            return None;
        }
        (0..DAEMONS).try_for_each(|slot| self.claim(subject(slot), now, duration))
    }

    fn process(&mut self, now: Duration, duration: Duration) -> Option<usize> {
        let process = self.chance.random_range(0..PROCESSES);
        self.claim(Subject::Process(process), now, duration)?;
        Some(process)
    }

    fn claim(&mut self, subject: Subject, now: Duration, duration: Duration) -> Option<()> {
        if self.is_busy(subject, now) {
            return None;
        }
        // A start takes time.
        self.busy.push((subject, now + duration + Duration::from_secs(1)));
        Some(())
    }

    fn is_busy(&self, subject: Subject, now: Duration) -> bool {
        self.busy.iter().any(|(busy, until)| *busy == subject && *until > now)
    }

    fn calls(&mut self, slot: usize, room: Duration) -> (Fault, Duration) {
        let mut kinds = vec![None, Some(Kind::Read), Some(Kind::Create)];
        for often in [Kind::Acquire, Kind::Renew, Kind::Write, Kind::Release] {
            kinds.extend([Some(often); 3]);
        }
        let kind = *kinds.choose(&mut self.chance).unwrap_or(&None);
        let busy = Refusal::busy(Duration::from_secs(self.chance.random_range(1..4)));
        // A plausible but incorrect answer to such a call.
        let odd = match kind {
            Some(Kind::Acquire) => Refusal::new(409, "LeaseAlreadyPresent"),
            Some(Kind::Renew) => Refusal::new(409, "LeaseIdMismatchWithLeaseOperation"),
            Some(Kind::Release) => Refusal::new(409, "LeaseNotPresentWithLeaseOperation"),
            Some(Kind::Write) => Refusal::new(412, "ConditionNotMet"),
            Some(Kind::Create) => Refusal::new(409, "BlobAlreadyExists"),
            Some(Kind::Read) => Refusal::new(404, "BlobNotFound"),
            _ => Refusal::FORBIDDEN,
        };
        // Long enough to affect some calls: most locks are not held until a
        // renewal.
        let duration = match kind {
            Some(Kind::Renew | Kind::Create) => self.between(8000, 20_000),
            _ => self.between(3000, 10_000),
        };
        let duration = duration.min(room);
        let (late, later) = (self.between(200, 4000), self.between(4000, 17_000));
        let faults = [
            proxy::Fault::Refuse(Refusal::INTERNAL_ERROR),
            proxy::Fault::Refuse(busy),
            proxy::Fault::Refuse(odd),
            proxy::Fault::ApplyThenRefuse(Refusal::INTERNAL_ERROR),
            proxy::Fault::ApplyThenRefuse(busy),
            proxy::Fault::ApplyThenRefuse(odd),
            proxy::Fault::Delay(late),
            proxy::Fault::Delay(later),
            proxy::Fault::DelayResponse(late),
            proxy::Fault::DropResponse,
            proxy::Fault::Reset,
            proxy::Fault::Swallow,
            proxy::Fault::Duplicate { after: late },
            proxy::Fault::Duplicate { after: later },
        ];
        let times = self.chance.random_range(1..12);
        let faults = faults.map(|fault| Fault::Calls { slot, kind, fault, times });
        let fit: Vec<_> =
            faults.iter().filter(|fault| duration + fault.late_effects() <= room).collect();
        (**fit.choose(&mut self.chance).unwrap_or(&&faults[0]), duration)
    }
}
