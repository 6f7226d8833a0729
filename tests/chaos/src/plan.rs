//! The schedule of faults. It follows from the seed alone.

use std::{fmt, time::Duration};

use leasehold_test_support::proxy::{self, Kind, Refusal};
use rand::{
    RngExt, SeedableRng,
    rngs::StdRng,
    seq::{IndexedRandom, SliceRandom},
};

use crate::{
    client::TTL,
    fault::{Fault, Way},
    link::Passage,
    locks,
    options::Options,
    world::{DAEMONS, LEASE, PROCESSES},
};

/// Faults are made for so long; then everything is healed and looked at.
const ROUND: Duration = Duration::from_secs(60);

pub(crate) struct Plan(pub(crate) Vec<Round>);

/// Faults that overlap, until all are over.
pub(crate) struct Round {
    pub(crate) length: Duration,
    pub(crate) faults: Vec<Planned>,
}

/// A fault, when it begins and for how long it lasts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Planned {
    pub(crate) number: usize,
    pub(crate) from: Duration,
    pub(crate) lasts: Duration,
    pub(crate) fault: Fault,
}

impl Plan {
    pub(crate) fn new(options: &Options) -> Self {
        let mut dealer = Dealer {
            chance: StdRng::seed_from_u64(options.seed),
            deck: Vec::new(),
            dealt: 0,
            busy: Vec::new(),
        };
        let rounds = (options.length.as_secs_f64() / ROUND.as_secs_f64()).round().max(1.0);
        let length = options.length.div_f64(rounds);
        // Dense faults overlap more; between sparse ones more is granted.
        let paces = [1.0, 0.6, 1.6, 3.0];
        let paces = paces.into_iter().cycle().take(rounds as usize);
        Self(paces.map(|pace| dealer.round(length, pace)).collect())
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
        let Self { number, from, lasts, fault } = self;
        let (from, lasts) = (from.as_secs_f64(), lasts.as_secs_f64());
        write!(f, "#{number} at {from:.2} s for {lasts:.2} s: {fault}")
    }
}

/// What a fault is made of, without its target.
#[derive(Clone, Copy, Debug)]
enum Card {
    KillDaemon,
    KillAll,
    DrainDaemon,
    StopDaemon,
    KillClients,
    StopClients,
    StopInside,
    StopBoth,
    Storage(Way),
    Outage,
    Calls,
    Link(Passage),
    Break,
    DeleteIdle,
    DeleteHeld,
}

/// Each kind comes about that often before all have come.
const DECK: [(Card, usize); 21] = [
    (Card::KillDaemon, 2),
    (Card::KillAll, 1),
    (Card::DrainDaemon, 1),
    (Card::StopDaemon, 3),
    (Card::KillClients, 3),
    (Card::StopClients, 3),
    (Card::StopInside, 4),
    (Card::StopBoth, 1),
    (Card::Storage(Way::Refused), 1),
    (Card::Storage(Way::Silent), 1),
    (Card::Storage(Way::RequestsLost), 1),
    (Card::Storage(Way::AnswersLost), 1),
    (Card::Outage, 1),
    (Card::Calls, 11),
    (Card::Link(Passage::Closed), 2),
    (Card::Link(Passage::Frozen), 1),
    (Card::Link(Passage::ToDaemon), 1),
    (Card::Link(Passage::ToClients), 1),
    (Card::Break, 1),
    (Card::DeleteIdle, 2),
    (Card::DeleteHeld, 1),
];

/// What only one fault at a time is done to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subject {
    Daemon(usize),
    /// A daemon's way to it.
    Storage(usize),
    Process(usize),
    Links(usize),
}

struct Dealer {
    chance: StdRng,
    deck: Vec<Card>,
    dealt: usize,
    /// Until when.
    busy: Vec<(Subject, Duration)>,
}

impl Dealer {
    /// `pace` is the mean time between two faults, in seconds.
    fn round(&mut self, length: Duration, pace: f64) -> Round {
        self.busy.clear();
        let mut faults = Vec::new();
        let mut from = Duration::from_millis(500);
        // The shortest pause must fit.
        while from + Duration::from_secs(2) < length {
            let room = length - from;
            if let Some((fault, lasts)) = self.deal(from, room) {
                faults.push(Planned { number: self.dealt, from, lasts, fault });
                self.dealt += 1;
            }
            from += self.between(400, 1600).mul_f64(pace);
        }
        Round { length, faults }
    }

    fn between(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(self.chance.random_range(from..to))
    }

    /// The next card that can be played now.
    fn deal(&mut self, from: Duration, room: Duration) -> Option<(Fault, Duration)> {
        if self.deck.is_empty() {
            self.deck = DECK.iter().flat_map(|(card, count)| vec![*card; *count]).collect();
            self.deck.shuffle(&mut self.chance);
        }
        for index in (0..self.deck.len()).rev() {
            if let Some(played) = self.play(self.deck[index], from, room) {
                self.deck.remove(index);
                return Some(played);
            }
        }
        None
    }

    fn play(&mut self, card: Card, now: Duration, room: Duration) -> Option<(Fault, Duration)> {
        let down = self.between(100, 2500).min(room);
        let slot = self.chance.random_range(0..DAEMONS);
        Some(match card {
            Card::KillDaemon => (Fault::KillDaemon { slot: self.daemon(now, down)? }, down),
            Card::KillAll => {
                self.all(Subject::Daemon, now, down)?;
                (Fault::KillAll, down)
            }
            Card::DrainDaemon => (Fault::DrainDaemon { slot: self.daemon(now, down)? }, down),
            Card::StopDaemon => {
                let lasts = self.pause(room);
                (Fault::StopDaemon { slot: self.daemon(now, lasts)? }, lasts)
            }
            Card::KillClients => (Fault::KillClients { process: self.process(now, down)? }, down),
            Card::StopClients => {
                let lasts = self.pause(room);
                (Fault::StopClients { process: self.process(now, lasts)? }, lasts)
            }
            Card::StopInside => {
                // Long enough for somebody else to be granted the lock.
                (Fault::StopInside, self.pause(room).max(TTL * 3 / 2).min(room))
            }
            Card::StopBoth => {
                let lasts = self.pause(room);
                let process = self.process(now, lasts)?;
                (Fault::StopBoth { slot: self.daemon(now, lasts)?, process }, lasts)
            }
            Card::Storage(way) => {
                // A daemon that is cut off goes on for as long as its leases
                // last: every other time it is for longer than that.
                let beyond = LEASE + self.between(1000, 6000);
                let lasts = self.pause(room);
                let lasts = if self.chance.random() && beyond < room { beyond } else { lasts };
                (Fault::Storage { slot: self.slot(Subject::Storage, now, lasts)?, way }, lasts)
            }
            Card::Outage => {
                // All lose what they hold, and all get it back.
                let lasts = LEASE + self.between(1000, 6000);
                if lasts > room {
                    return None;
                }
                self.all(Subject::Storage, now, lasts)?;
                let way = if self.chance.random() { Way::Refused } else { Way::Silent };
                (Fault::Outage { way }, lasts)
            }
            Card::Calls => self.calls(slot, room),
            Card::Link(passage) => {
                let lasts = self.pause(room);
                self.claim(Subject::Links(slot), now, lasts)?;
                let all = self.chance.random_bool(0.3);
                let process = (!all).then(|| self.chance.random_range(0..PROCESSES));
                let reset = self.chance.random();
                (Fault::Link { slot, process, passage, reset }, lasts)
            }
            Card::Break => {
                let lock = self.chance.random_range(0..locks::QUIET);
                // A lease that another daemon has runs out.
                (Fault::Break { slot, lock }, (LEASE + Duration::from_secs(1)).min(room))
            }
            Card::DeleteIdle => {
                let busy = self.chance.random_range(0..locks::QUIET);
                let lock = if self.chance.random() { locks::QUIET } else { busy };
                (Fault::DeleteIdle { lock }, Duration::from_secs(5).min(room))
            }
            Card::DeleteHeld => (Fault::DeleteHeld, Duration::from_secs(12).min(room)),
        })
    }

    /// Around the lengths at which something ends.
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
        let fit: Vec<_> = lengths.into_iter().filter(|(_, longest)| *longest <= room).collect();
        let (shortest, longest) = *fit.choose(&mut self.chance).unwrap_or(&lengths[0]);
        self.between(shortest.as_millis() as u64, longest.as_millis() as u64)
    }

    fn daemon(&mut self, now: Duration, lasts: Duration) -> Option<usize> {
        self.slot(Subject::Daemon, now, lasts)
    }

    /// A daemon that this can be done to, such that another one is left alone:
    /// otherwise nothing would be granted for long.
    fn slot(
        &mut self,
        subject: fn(usize) -> Subject,
        now: Duration,
        lasts: Duration,
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
        self.claim(subject(slot), now, lasts)?;
        Some(slot)
    }

    /// All daemons, if this can be done to all.
    fn all(&mut self, subject: fn(usize) -> Subject, now: Duration, lasts: Duration) -> Option<()> {
        if (0..DAEMONS).any(|slot| self.is_busy(subject(slot), now)) {
            return None;
        }
        (0..DAEMONS).try_for_each(|slot| self.claim(subject(slot), now, lasts))
    }

    fn process(&mut self, now: Duration, lasts: Duration) -> Option<usize> {
        let process = self.chance.random_range(0..PROCESSES);
        self.claim(Subject::Process(process), now, lasts)?;
        Some(process)
    }

    fn claim(&mut self, subject: Subject, now: Duration, lasts: Duration) -> Option<()> {
        if self.is_busy(subject, now) {
            return None;
        }
        // A start takes a moment.
        self.busy.push((subject, now + lasts + Duration::from_secs(1)));
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
        // What a storage answers to such a call although it should not.
        let odd = match kind {
            Some(Kind::Acquire) => Refusal::new(409, "LeaseAlreadyPresent"),
            Some(Kind::Renew) => Refusal::new(409, "LeaseIdMismatchWithLeaseOperation"),
            Some(Kind::Release) => Refusal::new(409, "LeaseNotPresentWithLeaseOperation"),
            Some(Kind::Write) => Refusal::new(412, "ConditionNotMet"),
            Some(Kind::Create) => Refusal::new(409, "BlobAlreadyExists"),
            Some(Kind::Read) => Refusal::new(404, "BlobNotFound"),
            _ => Refusal::FORBIDDEN,
        };
        // Long enough to meet some: most locks are not held until a renewal.
        let lasts = match kind {
            Some(Kind::Renew | Kind::Create) => self.between(8000, 20_000),
            _ => self.between(3000, 10_000),
        };
        let lasts = lasts.min(room);
        let (late, later) = (self.between(200, 4000), self.between(4000, 17_000));
        let faults = [
            proxy::Fault::Answer(Refusal::INTERNAL_ERROR),
            proxy::Fault::Answer(busy),
            proxy::Fault::Answer(odd),
            proxy::Fault::ApplyThenAnswer(Refusal::INTERNAL_ERROR),
            proxy::Fault::ApplyThenAnswer(busy),
            proxy::Fault::ApplyThenAnswer(odd),
            proxy::Fault::Delay(late),
            proxy::Fault::Delay(later),
            proxy::Fault::DelayAnswer(late),
            proxy::Fault::DropAnswer,
            proxy::Fault::Reset,
            proxy::Fault::Swallow,
            proxy::Fault::Duplicate { after: late },
            proxy::Fault::Duplicate { after: later },
        ];
        let times = self.chance.random_range(1..12);
        let faults = faults.map(|fault| Fault::Calls { slot, kind, fault, times });
        let fit: Vec<_> = faults.iter().filter(|fault| lasts + fault.aftermath() <= room).collect();
        (**fit.choose(&mut self.chance).unwrap_or(&&faults[0]), lasts)
    }
}
