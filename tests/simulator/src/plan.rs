//! Plan of a seed: number and settings of daemons, clients and locks, and the
//! faults with their times.

mod special;

use std::time::Duration;

use leasehold_checker::Bounds;
use leasehold_simulated_storage::storage::Behavior;

use crate::{
    clock::{Clocks, Stop},
    embedded::{faults::DiskFault, plan::EmbeddedPlan},
    rng::Rng,
    wire::{CALL_FAULTS, CallFault, Kind, Stage},
    world::{BEGINNING, MILLISECOND, Nanos, SECOND},
};

/// Maximum drift of a clock, in nanoseconds per second: two such clocks differ
/// by less than 1/500.
pub const DRIFT: u64 = 1_000_000;

/// Plan of a seed.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Number of places for daemons.
    pub places: usize,
    /// Number of concurrent clients.
    pub clients: usize,
    /// Number of locks.
    pub locks: u32,
    /// Number of concurrent tasks of a client, each of which uses its own
    /// locks.
    pub client_tasks: u32,
    /// Permille of acquires with a wait limit shorter than a storage call.
    pub short_waits: u64,
    /// Permille of acquires that are canceled while they wait.
    pub cancels: u64,
    /// True if all tasks of a client use the same locks and compete within its
    /// session.
    pub rivals: bool,
    /// Lease duration.
    pub lease: Duration,
    /// Maximum lease duration that clients request.
    pub max_lease: Duration,
    /// Number of tokens in a token range.
    pub tokens: u64,
    /// Maximum interval between polls.
    pub poll: Duration,
    /// Linger time of an unused lease.
    pub linger: Duration,
    /// TTL of sessions.
    pub ttl: Duration,
    /// Drain timeout of a daemon.
    pub drain: Duration,
    /// Idle time after which a blob is deleted; zero disables garbage
    /// collection.
    pub gc_after: Duration,
    /// Behavior of the storage service.
    pub behavior: Behavior,
    /// True if a clock may drift beyond the tolerated rate.
    pub bad_clocks: bool,
    /// True if wall clocks may stop during suspend and stay behind; otherwise,
    /// VMs may be paused. With both, a pause could not be detected.
    pub unaware: bool,
    /// True if the storage service's clock may be ahead by an amount that
    /// daemons accept.
    pub date_jumps: bool,
    /// True if blobs with old records exist at the start.
    pub old_blobs: bool,
    /// True if every other client has a fenced session.
    pub fenced: bool,
    /// True if most acquires are campaigns, and each daemon has observers.
    pub observed: bool,
    /// Start of the calm phase.
    pub calm_from: Nanos,
    /// End of the run.
    pub end: Nanos,
    /// Faults in the order of their times.
    pub faults: Vec<(Nanos, Fault)>,
    /// Settings of the embedded store, if the daemon uses it.
    pub embedded: Option<EmbeddedPlan>,
}

/// Fault of a plan.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the names describe the fields")]
pub enum Fault {
    /// Storage calls of a place fail with this probability (permille).
    Storm { place: usize, share: u64, kinds: Vec<CallFault>, length: Nanos },
    /// The link between a place and the storage is cut, in one direction or
    /// both.
    Cut { place: usize, out: bool, back: bool, length: Nanos },
    /// The storage refuses connections.
    Outage { length: Nanos },
    /// A daemon is paused.
    PauseDaemon { place: usize, how: Option<Stop>, length: Nanos },
    /// A client is paused.
    PauseClient { client: usize, how: Option<Stop>, length: Nanos },
    /// A client and its daemon are paused.
    PauseBoth { client: usize, how: Option<Stop>, length: Nanos },
    /// A daemon is killed and started again; if `silent`, its connections are
    /// not reset.
    KillDaemon { place: usize, silent: bool, down: Nanos },
    /// A daemon is killed during its next call of this kind.
    CrashDuringCall { place: usize, kind: Kind, stage: Stage, down: Nanos },
    /// A daemon is shut down and started again.
    StopDaemon { place: usize, down: Nanos },
    /// A client is killed and replaced.
    KillClient { client: usize, silent: bool, down: Nanos },
    /// The link between a client and its daemon is cut.
    CutLink { client: usize, up: bool, down: bool, length: Nanos },
    /// A client's connection is reset.
    ResetLink { client: usize },
    /// A machine's clocks drift, by nanoseconds per second.
    Drift { daemon: bool, which: usize, drift: i64 },
    /// A machine's wall clock is stepped.
    SetWall { daemon: bool, which: usize, by: i64 },
    /// An operator breaks a lock through a daemon.
    Break { place: usize, lock: u32 },
    /// An operator asks a holder to step down.
    StepDown { place: usize, lock: u32 },
    /// An operator breaks a lease in the storage account, with a break period
    /// of 0.
    BreakLease { lock: u32 },
    /// An operator breaks a lease in the storage account: it runs until its
    /// normal expiry, but can't be renewed.
    BreakAtExpiry { lock: u32 },
    /// The next record write is lost, and an operator breaks its lease with a
    /// break period of 0.
    BreakDuringWrite,
    /// Another client takes a lease in the storage account and lets it expire.
    SeizeLease { lock: u32 },
    /// An operator deletes a blob within the second in which it was used.
    DeleteUsed { lock: u32 },
    /// An operator deletes a blob that the only daemon has seen, even if the
    /// storage service's clock was ahead.
    DeleteKnown { lock: u32 },
    /// An operator deletes a blob, even if it is leased.
    Delete { lock: u32 },
    /// An operator makes a record invalid, and later deletes the blob or
    /// restores the record; all daemons may be restarted in between.
    CorruptRecord { lock: u32, put_back: bool, restart: Option<Nanos>, length: Nanos },
    /// An operator restores an earlier version of a blob, even if it is leased.
    Restore { lock: u32, length: Nanos },
    /// An operator restores an earlier version of a blob. The only daemon has
    /// seen every token since, even if the storage service's clock was ahead.
    RestoreKnown { lock: u32, length: Nanos },
    /// An operator restores a blob from a backup that is hours old. All daemons
    /// may be restarted in between; then none knows the later tokens.
    RestoreBackup { lock: u32, age: u64, restart: Option<Nanos>, length: Nanos },
    /// An operator edits metadata that daemons ignore.
    EditBlob { lock: u32 },
    /// An operator deletes the container and creates it again.
    NoContainer { length: Nanos },
    /// The storage service's clock is ahead for `length`.
    AdvanceDate { by: u64, length: Nanos },
    /// Fault of the embedded store's data directory.
    Disk(DiskFault),
}

impl Plan {
    /// Creates the plan of a seed.
    #[must_use]
    pub fn new(rng: &mut Rng) -> Self {
        let lease = Duration::from_secs(*rng.pick(&[15, 15, 15, 20, 30]));
        let bad_clocks = rng.permille(80);
        let date_jumps = !bad_clocks && rng.permille(100);
        let emulator = rng.permille(300);
        let grace = if rng.permille(150) { rng.millis(0..60_000) } else { 0 };
        let drift = drift(rng);
        let collects = date_jumps || rng.permille(250);
        let calm_from = rng.millis(60_000..180_000);
        let locks = *rng.pick(&[1, 1, 2, 3]);
        let mut plan = Self {
            places: *rng.pick(&[1, 2, 2, 3, 3]),
            clients: rng.within(2..6) as usize,
            locks,
            client_tasks: if locks > 1 && rng.permille(400) { 2 } else { 1 },
            short_waits: 80,
            cancels: 20,
            rivals: rng.clone().split().split().permille(200),
            lease,
            max_lease: if rng.permille(250) { Duration::from_secs(60) } else { lease },
            tokens: *rng.pick(&[1024, 1024, 1024, 1, 2, 5]),
            poll: Duration::from_millis(*rng.pick(&[500, 1000, 2000, 5000])),
            linger: Duration::from_millis(*rng.pick(&[0, 0, 0, 1000, 5000, 10_000])),
            ttl: Duration::from_millis(*rng.pick(&[1000, 3000, 5000, 10_000, 30_000])),
            drain: Duration::from_millis(*rng.pick(&[0, 1000, 10_000])),
            gc_after: Duration::from_secs(if collects { rng.within(5..30) } else { 0 }),
            behavior: Behavior { emulator, grace, drift },
            bad_clocks,
            unaware: rng.permille(500),
            date_jumps,
            old_blobs: rng.permille(300),
            // Drawn from a copy, so that the rest of the plan does not depend
            // on it.
            fenced: rng.clone().permille(150),
            observed: rng.clone().split().permille(300),
            calm_from,
            end: calm_from + rng.millis(100_000..150_000),
            faults: Vec::new(),
            embedded: None,
        };
        let count = *rng.pick(&[0, 2, 4, 6, 8, 12]);
        for _ in 0..count {
            let at = rng.within(0..calm_from);
            let fault = plan.fault(at, rng);
            plan.faults.push((at, fault));
        }
        if collects {
            for _ in 0..rng.within(0..4) {
                let at = rng.within(0..calm_from);
                let fault = plan.age(at, rng);
                plan.faults.push((at, fault));
                if date_jumps {
                    let length = rng.millis(1000..20_000).min(calm_from - at);
                    let by = *rng.pick(&[3600, 7200]);
                    plan.faults.push((at, Fault::AdvanceDate { by, length }));
                }
            }
        }
        if date_jumps && rng.permille(400) {
            let at = rng.within(0..calm_from);
            let fault = plan.corrupt_record(at, true, rng);
            plan.faults.push((at, fault));
        }
        plan.bad_clocks = plan.faults.iter().any(|(_, fault)| {
            matches!(fault, Fault::Drift { drift, .. } if drift.unsigned_abs() > DRIFT)
        });
        plan.make_special(rng);
        // No other fault is active by then, so another client must be granted
        // the lock in time.
        if rng.permille(300) {
            let at = calm_from + rng.millis(15_000..60_000);
            let lock = rng.within(0..u64::from(plan.locks)) as u32;
            plan.faults.push((at, Fault::BreakAtExpiry { lock }));
        }
        if plan.clients > 2 && rng.permille(400) {
            let at = calm_from + rng.millis(20_000..50_000);
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

    /// Returns the maximum time without a grant after a crash of a daemon.
    #[must_use]
    pub fn crash_wait(&self) -> Nanos {
        if self.embedded.is_some() { self.ttl.as_nanos() as Nanos + 2 * SECOND } else { 0 }
    }

    /// Creates the clocks of a new machine.
    #[must_use]
    pub fn clocks(&self, now: Nanos, rng: &mut Rng) -> Clocks {
        let up = rng.within(SECOND..1_000_000 * SECOND);
        // Wall clocks are off by some seconds, as in reality.
        let wall = (BEGINNING * SECOND + rng.within(0..6 * SECOND)).saturating_sub(3 * SECOND);
        let mut clocks = Clocks::new(up, wall, 0);
        clocks.set_drift(drift(rng), now);
        clocks
    }

    /// Returns the time limits that apply while nothing is disturbed.
    #[must_use]
    pub fn bounds(&self) -> Bounds {
        let nanos = |length: Duration| length.as_nanos() as Nanos;
        let grace = self.behavior.grace;
        let lease = nanos(self.max_lease);
        let (poll, ttl) = (nanos(self.poll), nanos(self.ttl));
        let linger = nanos(self.linger);
        let round_trips = 2 * SECOND;
        Bounds {
            takeover: lease.max(ttl + linger) + grace + poll + SECOND + round_trips,
            expiry: ttl
                + ttl / if self.bad_clocks { 20 } else { 500 }
                + linger
                + poll
                + round_trips,
            local_handoff: round_trips,
            remote_handoff: linger + poll + round_trips,
            orphan: lease.max(ttl + linger) + round_trips,
            unwanted: round_trips,
            recovery: lease + ttl + grace + poll + 10 * SECOND,
            visibility: 2 * poll + round_trips,
            skew: 0,
        }
    }

    fn fault(&self, at: Nanos, rng: &mut Rng) -> Fault {
        let place = rng.index(self.places);
        let client = rng.index(self.clients);
        let lock = rng.within(0..u64::from(self.locks)) as u32;
        let length = self.length(rng).min(self.calm_from - at);
        let down = rng.millis(10..20_000).min(self.calm_from - at);
        let full_stop = if self.unaware { Stop::Unaware } else { Stop::VmPaused };
        let how =
            *rng.pick(&[None, None, None, Some(Stop::Suspended), Some(full_stop), Some(full_stop)]);
        let one_way = |rng: &mut Rng| *rng.pick(&[(true, false), (false, true), (true, true)]);
        let silent = rng.permille(300);
        loop {
            return match rng.within(0..26) {
                0..=3 => {
                    let kinds = (0..rng.within(1..4)).map(|_| *rng.pick(&CALL_FAULTS)).collect();
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
                    Fault::CrashDuringCall { place, kind, stage, down }
                }
                14 => Fault::StopDaemon { place, down },
                15 => Fault::KillClient { client, silent, down },
                16 => {
                    let (up, down) = one_way(rng);
                    Fault::CutLink { client, up, down, length }
                }
                17 => Fault::ResetLink { client },
                18 => {
                    let max = if self.bad_clocks { 50 * DRIFT } else { DRIFT };
                    let drift = rng.within(0..2 * max) as i64 - max as i64;
                    Fault::Drift { daemon: rng.permille(500), which: rng.index(8), drift }
                }
                19 => {
                    let by = rng.within(0..40 * SECOND) as i64 - (20 * SECOND) as i64;
                    Fault::SetWall { daemon: rng.permille(500), which: rng.index(8), by }
                }
                20 => Fault::Break { place, lock },
                21 => Fault::StepDown { place, lock },
                22 if self.date_jumps => {
                    Fault::AdvanceDate { by: *rng.pick(&[3600, 7200, 172_800]), length }
                }
                // Not combined with `date_jumps`: after the clock went back,
                // a deleted blob would leave no source from which tokens could
                // be raised.
                23 if !self.date_jumps => match rng.within(0..7) {
                    0 => Fault::BreakLease { lock },
                    1 => Fault::Delete { lock },
                    2 => {
                        let put_back = rng.permille(500);
                        self.corrupt_record(at, put_back, rng)
                    }
                    3 => Fault::Restore { lock, length },
                    4 => Fault::SeizeLease { lock },
                    5 => Fault::NoContainer { length: length.min(20 * SECOND) },
                    _ => self.age(at, rng),
                },
                23 => self.corrupt_record(at, true, rng),
                24 => Fault::EditBlob { lock },
                25 => Fault::BreakAtExpiry { lock },
                _ => continue,
            };
        }
    }

    fn age(&self, at: Nanos, rng: &mut Rng) -> Fault {
        let lock = rng.within(0..u64::from(self.locks)) as u32;
        let restart = restart(rng);
        let length = rng.millis(1000..30_000).min(self.calm_from - at);
        Fault::RestoreBackup { lock, age: rng.within(4_000..100_000), restart, length }
    }

    fn corrupt_record(&self, at: Nanos, put_back: bool, rng: &mut Rng) -> Fault {
        let lock = rng.within(0..u64::from(self.locks)) as u32;
        let length = self.length(rng).min(self.calm_from - at);
        Fault::CorruptRecord { lock, put_back, restart: restart(rng), length }
    }

    /// Returns a length close to a significant duration.
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

/// Returns a drift within the tolerated rate.
fn drift(rng: &mut Rng) -> i64 {
    let drift = rng.within(0..2 * DRIFT) as i64 - DRIFT as i64;
    if rng.permille(300) { 0 } else { drift }
}

/// Returns the downtime if all daemons are restarted.
fn restart(rng: &mut Rng) -> Option<Nanos> {
    rng.permille(600).then(|| rng.millis(10..2000))
}
