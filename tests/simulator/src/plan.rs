//! What a seed stands for: how many there are of each, how they are set up, and
//! what befalls them when.

mod special;

use std::time::Duration;

use leasehold_checker::Bounds;
use leasehold_simulated_storage::storage::Habits;

use crate::{
    clock::{Clocks, Stop},
    embedded::{faults::DiskFault, plan::EmbeddedPlan},
    rng::Rng,
    wire::{Kind, Stage, TROUBLES, Trouble},
    world::{BEGINNING, MILLISECOND, Nanos, SECOND},
};

/// Clocks that differ by less than 1/500 gain or lose less than this, in
/// nanoseconds a second.
pub const DRIFT: u64 = 1_000_000;

/// A seed's plan.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How many places there are for daemons.
    pub places: usize,
    /// How many clients there are at a time.
    pub clients: usize,
    /// How many locks they want.
    pub locks: u32,
    /// How many locks a client wants at a time.
    pub hands: u32,
    /// How many of a thousand acquires are given up while the storage is being asked.
    pub hasty: u64,
    /// How many of a thousand acquires are canceled while they wait.
    pub cancels: u64,
    /// Whether all tasks of a client want the same locks, and compete within its session.
    pub rivals: bool,
    /// The lease's duration.
    pub lease: Duration,
    /// The longest that clients ask for.
    pub longest_lease: Duration,
    /// How many tokens a daemon gets at a time.
    pub tokens: u64,
    /// The longest wait between two polls.
    pub poll: Duration,
    /// How long a lease is kept without need.
    pub linger: Duration,
    /// The sessions' ttl.
    pub ttl: Duration,
    /// How long holders are given to let go when a daemon stops.
    pub drain: Duration,
    /// How long a blob must be idle to be collected; zero: never.
    pub gc_after: Duration,
    /// How the storage service behaves.
    pub habits: Habits,
    /// Whether a clock becomes worse than what is assumed.
    pub bad_clocks: bool,
    /// Whether wall clocks may sleep with their machines and stay behind; if not,
    /// machines may be frozen. Both at once would leave nothing to notice a freeze by.
    pub unaware: bool,
    /// Whether the storage service's clock may leap ahead, and be believed.
    pub leaping_date: bool,
    /// Whether blobs were there from long ago.
    pub old_blobs: bool,
    /// Whether every other client has a fenced session.
    pub fenced: bool,
    /// Whether most acquires are campaigns, and each daemon has observers.
    pub observed: bool,
    /// When the trouble ends.
    pub calm_from: Nanos,
    /// When everything ends.
    pub end: Nanos,
    /// What befalls them, in order of time.
    pub faults: Vec<(Nanos, Fault)>,
    /// Set if the daemon runs on the embedded store.
    pub embedded: Option<EmbeddedPlan>,
}

/// Something that befalls them.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the fields are what their names say")]
pub enum Fault {
    /// Calls of the storage from a place go wrong for a while.
    Storm { place: usize, share: u64, kinds: Vec<Trouble>, length: Nanos },
    /// A place and the storage are cut off from each other, in one direction or
    /// both.
    Cut { place: usize, out: bool, back: bool, length: Nanos },
    /// The storage refuses connections.
    Outage { length: Nanos },
    /// A daemon is stopped and goes on.
    PauseDaemon { place: usize, how: Option<Stop>, length: Nanos },
    /// A client is stopped and goes on.
    PauseClient { client: usize, how: Option<Stop>, length: Nanos },
    /// Both are.
    PauseBoth { client: usize, how: Option<Stop>, length: Nanos },
    /// A daemon is killed, and started again; perhaps its host vanishes without
    /// a word.
    KillDaemon { place: usize, silent: bool, down: Nanos },
    /// A daemon is killed in the middle of its next call of this kind.
    TrapDaemon { place: usize, kind: Kind, stage: Stage, down: Nanos },
    /// A daemon is told to stop, and started again.
    StopDaemon { place: usize, down: Nanos },
    /// A client is killed, and another started.
    KillClient { client: usize, silent: bool, down: Nanos },
    /// A client and its daemon are cut off from each other.
    CutLink { client: usize, up: bool, down: bool, length: Nanos },
    /// A client's connection breaks.
    ResetLink { client: usize },
    /// A machine's clocks run faster or slower, by nanoseconds a second.
    Drift { daemon: bool, which: usize, drift: i64 },
    /// Somebody sets a machine's wall clock.
    SetWall { daemon: bool, which: usize, by: i64 },
    /// An operator breaks a lock through a daemon.
    Break { place: usize, lock: u32 },
    /// An operator asks a holder to step down.
    StepDown { place: usize, lock: u32 },
    /// An operator breaks a lease in the storage itself, at once.
    BreakLease { lock: u32 },
    /// An operator breaks a lease in the storage itself: it runs on to its end, but
    /// can't be renewed.
    BreakGently { lock: u32 },
    /// The next record that is written gets lost, and an operator breaks the lease
    /// under which it was to be written, at once.
    Snatch,
    /// Somebody else takes a lease in the storage itself, and lets it run out.
    Usurp { lock: u32 },
    /// An operator deletes a blob in the very second in which it was used.
    DeleteUsed { lock: u32 },
    /// An operator deletes a blob that the only daemon has seen, whatever the
    /// storage service's clock was then.
    DeleteSeen { lock: u32 },
    /// An operator deletes a blob, whoever leases it.
    Delete { lock: u32 },
    /// An operator makes a blob unreadable, and later deletes it or puts back what
    /// was there; perhaps while all daemons are started anew.
    Garble { lock: u32, put_back: bool, restart: Option<Nanos>, length: Nanos },
    /// An operator restores a blob as it was a while ago, whoever leases it.
    Restore { lock: u32, length: Nanos },
    /// An operator restores a blob as it was a while ago. The only daemon has seen
    /// every token since, whatever the storage service's clock was then.
    RestoreSeen { lock: u32, length: Nanos },
    /// An operator restores a blob from a backup that is hours old, perhaps while
    /// all daemons are started anew: then none remembers that there was more.
    Age { lock: u32, age: u64, restart: Option<Nanos>, length: Nanos },
    /// An operator edits what no daemon cares for.
    Touch { lock: u32 },
    /// An operator deletes the container, and creates it again.
    NoContainer { length: Nanos },
    /// The storage service's clock is ahead for a while.
    LeapDate { by: u64, length: Nanos },
    /// Something happens to the data directory of the embedded store.
    Disk(DiskFault),
}

impl Plan {
    /// What a seed stands for.
    #[must_use]
    pub fn new(rng: &mut Rng) -> Self {
        let lease = Duration::from_secs(*rng.pick(&[15, 15, 15, 20, 30]));
        let bad_clocks = rng.permille(80);
        let leaping_date = !bad_clocks && rng.permille(100);
        let emulator = rng.permille(300);
        let grace = if rng.permille(150) { rng.millis(0..60_000) } else { 0 };
        let drift = drift(rng);
        let collects = leaping_date || rng.permille(250);
        let trouble = rng.millis(60_000..180_000);
        let locks = *rng.pick(&[1, 1, 2, 3]);
        let mut plan = Self {
            places: *rng.pick(&[1, 2, 2, 3, 3]),
            clients: rng.within(2..6) as usize,
            locks,
            hands: if locks > 1 && rng.permille(400) { 2 } else { 1 },
            hasty: 80,
            cancels: 20,
            rivals: rng.clone().split().split().permille(200),
            lease,
            longest_lease: if rng.permille(250) { Duration::from_secs(60) } else { lease },
            tokens: *rng.pick(&[1024, 1024, 1024, 1, 2, 5]),
            poll: Duration::from_millis(*rng.pick(&[500, 1000, 2000, 5000])),
            linger: Duration::from_millis(*rng.pick(&[0, 0, 0, 1000, 5000, 10_000])),
            ttl: Duration::from_millis(*rng.pick(&[1000, 3000, 5000, 10_000, 30_000])),
            drain: Duration::from_millis(*rng.pick(&[0, 1000, 10_000])),
            gc_after: Duration::from_secs(if collects { rng.within(5..30) } else { 0 }),
            habits: Habits { emulator, grace, drift },
            bad_clocks,
            unaware: rng.permille(500),
            leaping_date,
            old_blobs: rng.permille(300),
            // Of a copy: so the rest of the plan does not hang on it.
            fenced: rng.clone().permille(150),
            observed: rng.clone().split().permille(300),
            calm_from: trouble,
            end: trouble + rng.millis(100_000..150_000),
            faults: Vec::new(),
            embedded: None,
        };
        let count = *rng.pick(&[0, 2, 4, 6, 8, 12]);
        for _ in 0..count {
            let at = rng.within(0..trouble);
            let fault = plan.fault(at, rng);
            plan.faults.push((at, fault));
        }
        if collects {
            for _ in 0..rng.within(0..4) {
                let at = rng.within(0..trouble);
                let fault = plan.age(at, rng);
                plan.faults.push((at, fault));
                if leaping_date {
                    let length = rng.millis(1000..20_000).min(trouble - at);
                    let by = *rng.pick(&[3600, 7200]);
                    plan.faults.push((at, Fault::LeapDate { by, length }));
                }
            }
        }
        if leaping_date && rng.permille(400) {
            let at = rng.within(0..trouble);
            let fault = plan.garble(at, true, rng);
            plan.faults.push((at, fault));
        }
        plan.bad_clocks = plan.faults.iter().any(|(_, fault)| {
            matches!(fault, Fault::Drift { drift, .. } if drift.unsigned_abs() > DRIFT)
        });
        plan.make_special(rng);
        // Nothing else is wrong by then: so others must take over in time.
        if rng.permille(300) {
            let at = trouble + rng.millis(15_000..60_000);
            let lock = rng.within(0..u64::from(plan.locks)) as u32;
            plan.faults.push((at, Fault::BreakGently { lock }));
        }
        if plan.clients > 2 && rng.permille(400) {
            let at = trouble + rng.millis(20_000..50_000);
            let (silent, down) = (rng.permille(300), rng.millis(10..20_000));
            let death = match rng.within(0..10) {
                0..=3 if plan.places > 1 => {
                    Fault::KillDaemon { place: rng.index(plan.places), silent, down }
                }
                4..=6 if plan.places > 1 => {
                    Fault::StopDaemon { place: rng.index(plan.places), down }
                }
                _ => Fault::KillClient { client: rng.index(plan.clients), silent, down },
            };
            plan.faults.push((at, death));
        }
        plan.faults.sort_by_key(|(at, _)| *at);
        plan
    }

    /// How long a daemon may grant nothing after a crash.
    #[must_use]
    pub fn crash_wait(&self) -> Nanos {
        if self.embedded.is_some() { self.ttl.as_nanos() as Nanos + 2 * SECOND } else { 0 }
    }

    /// A new machine's clocks.
    #[must_use]
    pub fn clocks(&self, now: Nanos, rng: &mut Rng) -> Clocks {
        let up = rng.within(SECOND..1_000_000 * SECOND);
        // Wall clocks are off by some seconds, as they are.
        let wall = (BEGINNING * SECOND + rng.within(0..6 * SECOND)).saturating_sub(3 * SECOND);
        let mut clocks = Clocks::new(up, wall, 0);
        clocks.set_drift(drift(rng), now);
        clocks
    }

    /// How long things may take while nothing is disturbed.
    #[must_use]
    pub fn bounds(&self) -> Bounds {
        let nanos = |length: Duration| length.as_nanos() as Nanos;
        let grace = self.habits.grace;
        let lease = nanos(self.longest_lease);
        let (poll, ttl) = (nanos(self.poll), nanos(self.ttl));
        let linger = nanos(self.linger);
        let trips = 2 * SECOND;
        Bounds {
            takeover: lease.max(ttl + linger) + grace + poll + SECOND + trips,
            expiry: ttl + ttl / if self.bad_clocks { 20 } else { 500 } + linger + poll + trips,
            local_handover: trips,
            remote_handover: linger + poll + trips,
            orphan: lease.max(ttl + linger) + trips,
            vain: trips,
            recovery: lease + ttl + grace + poll + 10 * SECOND,
            visibility: 2 * poll + trips,
            skew: 0,
        }
    }

    fn fault(&self, at: Nanos, rng: &mut Rng) -> Fault {
        let place = rng.index(self.places);
        let client = rng.index(self.clients);
        let lock = rng.within(0..u64::from(self.locks)) as u32;
        let length = self.length(rng).min(self.calm_from - at);
        let down = rng.millis(10..20_000).min(self.calm_from - at);
        let deep = if self.unaware { Stop::Unaware } else { Stop::Frozen };
        let how = *rng.pick(&[None, None, None, Some(Stop::Suspended), Some(deep), Some(deep)]);
        let one_way = |rng: &mut Rng| *rng.pick(&[(true, false), (false, true), (true, true)]);
        let silent = rng.permille(300);
        loop {
            return match rng.within(0..26) {
                0..=3 => {
                    let kinds = (0..rng.within(1..4)).map(|_| *rng.pick(&TROUBLES)).collect();
                    let share = *rng.pick(&[50, 200, 500, 900]);
                    Fault::Storm { place, share, kinds, length }
                }
                4 | 5 => {
                    let (out, back) = one_way(rng);
                    Fault::Cut { place, out, back, length }
                }
                6 => Fault::Outage { length },
                7 | 8 => Fault::PauseDaemon { place, how, length },
                9 | 10 => Fault::PauseClient { client, how, length },
                11 => Fault::PauseBoth { client, how, length },
                12 => Fault::KillDaemon { place, silent, down },
                13 => {
                    let kind = *rng.pick(&[
                        Kind::Acquire,
                        Kind::Renew,
                        Kind::Release,
                        Kind::Write,
                        Kind::Create,
                        Kind::Delete,
                    ]);
                    let stage = *rng.pick(&[Stage::Sent, Stage::Applied, Stage::Answered]);
                    Fault::TrapDaemon { place, kind, stage, down }
                }
                14 => Fault::StopDaemon { place, down },
                15 => Fault::KillClient { client, silent, down },
                16 => {
                    let (up, down) = one_way(rng);
                    Fault::CutLink { client, up, down, length }
                }
                17 => Fault::ResetLink { client },
                18 => {
                    let most = if self.bad_clocks { 50 * DRIFT } else { DRIFT };
                    let drift = rng.within(0..2 * most) as i64 - most as i64;
                    Fault::Drift { daemon: rng.permille(500), which: rng.index(8), drift }
                }
                19 => {
                    let by = rng.within(0..40 * SECOND) as i64 - (20 * SECOND) as i64;
                    Fault::SetWall { daemon: rng.permille(500), which: rng.index(8), by }
                }
                20 => Fault::Break { place, lock },
                21 => Fault::StepDown { place, lock },
                22 if self.leaping_date => {
                    Fault::LeapDate { by: *rng.pick(&[3600, 7200, 172_800]), length }
                }
                // A clock that went back, and then a deleted blob: then nothing
                // is left that tokens could be raised by.
                23 if !self.leaping_date => match rng.within(0..7) {
                    0 => Fault::BreakLease { lock },
                    1 => Fault::Delete { lock },
                    2 => {
                        let put_back = rng.permille(500);
                        self.garble(at, put_back, rng)
                    }
                    3 => Fault::Restore { lock, length },
                    4 => Fault::Usurp { lock },
                    5 => Fault::NoContainer { length: length.min(20 * SECOND) },
                    _ => self.age(at, rng),
                },
                23 => self.garble(at, true, rng),
                24 => Fault::Touch { lock },
                25 => Fault::BreakGently { lock },
                _ => continue,
            };
        }
    }

    fn age(&self, at: Nanos, rng: &mut Rng) -> Fault {
        let lock = rng.within(0..u64::from(self.locks)) as u32;
        let restart = restart(rng);
        let length = rng.millis(1000..30_000).min(self.calm_from - at);
        Fault::Age { lock, age: rng.within(4_000..100_000), restart, length }
    }

    fn garble(&self, at: Nanos, put_back: bool, rng: &mut Rng) -> Fault {
        let lock = rng.within(0..u64::from(self.locks)) as u32;
        let length = self.length(rng).min(self.calm_from - at);
        Fault::Garble { lock, put_back, restart: restart(rng), length }
    }

    /// Around the times that matter.
    fn length(&self, rng: &mut Rng) -> Nanos {
        let lease = self.lease.as_nanos() as Nanos;
        let around = *rng.pick(&[
            SECOND,
            self.ttl.as_nanos() as Nanos,
            lease / 3,
            lease - SECOND,
            lease,
            lease + lease / 2,
            2 * lease,
        ]);
        (around + rng.millis(0..2000)).saturating_sub(SECOND).max(10 * MILLISECOND)
    }
}

/// How fast a clock runs that is as good as is assumed.
fn drift(rng: &mut Rng) -> i64 {
    let drift = rng.within(0..2 * DRIFT) as i64 - DRIFT as i64;
    if rng.permille(300) { 0 } else { drift }
}

/// For how long all daemons are down, if they are started anew.
fn restart(rng: &mut Rng) -> Option<Nanos> {
    rng.permille(600).then(|| rng.millis(10..2000))
}
