//! Plans for situations that random faults rarely produce.

use std::time::Duration;

use super::{Fault, Plan};
use crate::{clock::Stop, rng::Rng};

impl Plan {
    /// Modifies some plans for a special situation.
    pub(super) fn make_special(&mut self, rng: &mut Rng) {
        match rng.within(0..100) {
            0..5 => self.make_known_restores(rng),
            5..13 if !self.bad_clocks => self.make_short_vm_pauses(rng),
            13..18 if !self.bad_clocks => self.make_corrected_vm_pauses(rng),
            18..22 => self.make_short_waits(rng),
            22..26 => self.make_deletes_in_use(rng),
            26..30 => self.make_distant_dates(rng),
            30..33 => self.make_known_deletes(rng),
            33..37 if !self.bad_clocks => self.make_advanced_clocks(rng),
            37..41 => self.make_broken_writes(rng),
            41..45 if !self.bad_clocks => self.make_detached(rng),
            45..48 => self.make_resumes(rng),
            48..51 if !self.bad_clocks => self.make_step_downs(rng),
            51..54 => self.make_cancel_races(rng),
            _ => {}
        }
    }

    /// One daemon that is never restarted and has seen every token. A blob from
    /// before the storage service's clock was ahead is restored afterwards.
    /// Then neither the record nor that clock prevents tokens from decreasing,
    /// only the daemon's memory.
    fn make_known_restores(&mut self, rng: &mut Rng) {
        (self.places, self.bad_clocks, self.date_jumps) = (1, false, true);
        self.gc_after = Duration::ZERO;
        self.faults.retain(|(_, fault)| {
            matches!(
                fault,
                Fault::PauseClient { .. } | Fault::KillClient { .. } | Fault::ResetLink { .. }
            )
        });
        for _ in 0..rng.within(1..4) {
            let at = rng.within(0..self.calm_from / 2);
            let (by, ahead) = (*rng.pick(&[3600, 7200]), rng.millis(1000..10_000));
            let length = rng.millis(100..20_000);
            let lock = rng.within(0..u64::from(self.locks)) as u32;
            self.faults.push((at, Fault::RestoreKnown { lock, length: ahead + length }));
            self.faults.push((at, Fault::AdvanceDate { by, length: ahead }));
        }
    }

    /// One daemon's VM is paused repeatedly for less than a second while its
    /// leases can't be renewed. No clock is set, because that would hide the
    /// pauses.
    fn make_short_vm_pauses(&mut self, rng: &mut Rng) {
        self.unaware = false;
        self.faults.retain(|(_, fault)| {
            !matches!(
                fault,
                Fault::SetWall { .. }
                    | Fault::PauseDaemon { how: Some(_), .. }
                    | Fault::PauseBoth { how: Some(_), .. }
            )
        });
        let place = rng.index(self.places);
        for _ in 0..3 {
            let at = rng.within(0..self.calm_from);
            let length = self.length(rng).min(self.calm_from - at);
            self.faults.push((at, Fault::Cut { place, out: true, back: true, length }));
        }
        let mut at = 0;
        loop {
            let max = *rng.pick(&[2_000, 6_000, 12_000]);
            at += rng.millis(200..max);
            let length = rng.millis(50..990);
            if at + length >= self.calm_from {
                return;
            }
            let how = Some(Stop::VmPaused);
            self.faults.push((at, Fault::PauseDaemon { place, how, length }));
            at += length;
        }
    }

    /// VMs of daemons are paused, and their wall clocks are set back by the same
    /// amount soon afterwards. Few clients, so that hardly any event triggers a
    /// clock check in between.
    fn make_corrected_vm_pauses(&mut self, rng: &mut Rng) {
        (self.clients, self.client_tasks) = (2, 1);
        (self.ttl, self.max_lease) = (Duration::from_secs(30), self.lease);
        for _ in 0..rng.within(8..16) {
            let at = rng.within(0..self.calm_from);
            let length = rng.millis(1_100..3_000).min(self.calm_from - at);
            let (which, how) = (rng.index(self.places), Some(Stop::VmPaused));
            self.faults.push((at, Fault::PauseDaemon { place: which, how, length }));
            let at = (at + length + rng.millis(2_000..2_300)).min(self.calm_from);
            self.faults.push((at, Fault::SetWall { daemon: true, which, by: -(length as i64) }));
        }
        let unaware = |how: &Option<Stop>| *how == Some(Stop::Unaware);
        self.unaware = false;
        self.faults.retain(|(_, fault)| match fault {
            Fault::PauseDaemon { how, .. }
            | Fault::PauseClient { how, .. }
            | Fault::PauseBoth { how, .. } => !unaware(how),
            _ => true,
        });
    }

    /// Acquires with short wait limits, at daemons with a long linger time and
    /// one token per range.
    fn make_short_waits(&mut self, rng: &mut Rng) {
        (self.short_waits, self.tokens, self.places) = (600, 1, self.places.max(2));
        self.clients = self.clients.max(4);
        self.linger = Duration::from_millis(rng.within(5_000..15_000));
        self.poll = Duration::from_millis(500);
    }

    /// Blobs are deleted in the second in which they were used, while clients
    /// wait at another daemon, which may create them again in the same second.
    fn make_deletes_in_use(&mut self, rng: &mut Rng) {
        (self.places, self.clients) = (self.places.max(2), self.clients.max(4));
        (self.locks, self.client_tasks, self.date_jumps) = (1, 1, false);
        self.poll = Duration::from_millis(500);
        self.faults.retain(|(_, fault)| fault.keeps_blobs());
        for _ in 0..rng.within(6..12) {
            self.faults.push((rng.within(0..self.calm_from), Fault::DeleteUsed { lock: 0 }));
        }
    }

    /// The storage service's clock is so far ahead that daemons ignore it. In
    /// the meantime, blobs are restored from backups, or they are deleted
    /// afterwards, while all daemons restart.
    fn make_distant_dates(&mut self, rng: &mut Rng) {
        self.date_jumps = false;
        self.faults.retain(|(_, fault)| fault.keeps_blobs());
        for _ in 0..rng.within(1..3) {
            let at = rng.within(0..self.calm_from / 2);
            let length = rng.millis(1000..20_000);
            self.faults.push((at, Fault::AdvanceDate { by: 172_800, length }));
            if rng.permille(500) {
                let lock = rng.within(0..u64::from(self.locks)) as u32;
                let (age, restart) = (rng.within(4_000..100_000), Some(rng.millis(10..500)));
                self.faults.push((at, Fault::RestoreBackup { lock, age, restart, length }));
                continue;
            }
            let at = at + length + rng.millis(0..20_000);
            let lock = rng.within(0..u64::from(self.locks)) as u32;
            self.faults.push((at, Fault::Delete { lock }));
            for place in 0..self.places {
                let down = rng.millis(10..500);
                self.faults.push((at, Fault::KillDaemon { place, silent: false, down }));
            }
        }
    }

    /// One daemon that is never restarted and whose storage calls never fail,
    /// so that it has seen every token. Blobs are deleted that were used while
    /// the storage service's clock was ahead.
    fn make_known_deletes(&mut self, rng: &mut Rng) {
        (self.places, self.bad_clocks, self.date_jumps) = (1, false, true);
        self.gc_after = Duration::ZERO;
        self.faults.retain(|(_, fault)| {
            matches!(
                fault,
                Fault::PauseClient { .. } | Fault::KillClient { .. } | Fault::ResetLink { .. }
            )
        });
        for _ in 0..rng.within(1..4) {
            let at = rng.within(0..self.calm_from / 2);
            let (by, length) = (*rng.pick(&[3600, 7200]), rng.millis(1000..20_000));
            self.faults.push((at, Fault::AdvanceDate { by, length }));
            let at = at + rng.millis(0..40_000);
            let lock = rng.within(0..u64::from(self.locks)) as u32;
            self.faults.push((at.min(self.calm_from), Fault::DeleteKnown { lock }));
        }
    }

    /// Wall clocks of daemons are set ahead while leases can't be renewed, and
    /// holders do not receive the notification of a break.
    fn make_advanced_clocks(&mut self, rng: &mut Rng) {
        // Validity ends with the lease, not with the session.
        (self.lease, self.ttl) = (Duration::from_secs(15), Duration::from_secs(30));
        (self.max_lease, self.locks, self.client_tasks) = (self.lease, 1, 1);
        self.clients = 3;
        for _ in 0..rng.within(6..12) {
            let (at, place) = (rng.within(0..self.calm_from), rng.index(self.places));
            let length = rng.millis(3_000..8_000).min(self.calm_from - at);
            self.faults.push((at, Fault::Cut { place, out: true, back: true, length }));
            let (set, by) = (at + length / 4, rng.millis(2_000..14_000) as i64);
            self.faults.push((set, Fault::SetWall { daemon: true, which: place, by }));
            let (client, up, down) = (rng.index(self.clients), false, true);
            let cut_length = rng.millis(4_000..12_000).min(self.calm_from - set);
            self.faults.push((set, Fault::CutLink { client, up, down, length: cut_length }));
            self.faults.push((at + length / 2, Fault::Break { place, lock: 0 }));
        }
    }

    /// Leases are broken while their records are written, and other daemons
    /// write theirs in the same second.
    fn make_broken_writes(&mut self, rng: &mut Rng) {
        (self.places, self.clients) = (self.places.max(2), self.clients.max(4));
        (self.locks, self.client_tasks) = (1, 1);
        self.poll = Duration::from_millis(500);
        for _ in 0..rng.within(6..12) {
            self.faults.push((rng.within(0..self.calm_from), Fault::BreakDuringWrite));
        }
    }
}

impl Plan {
    /// Operators break locks and shut down daemons while holders have no stream
    /// but valid grants.
    fn make_detached(&mut self, rng: &mut Rng) {
        self.faults.clear();
        (self.places, self.clients) = (rng.within(1..3) as usize, 3);
        (self.locks, self.client_tasks, self.rivals, self.fenced) = (1, 1, false, false);
        self.ttl = Duration::from_millis(*rng.pick(&[10_000, 30_000]));
        self.drain = Duration::from_millis(*rng.pick(&[0, 500]));
        for _ in 0..rng.within(8..16) {
            let at = rng.within(0..self.calm_from);
            let length = rng.millis(2_000..8_000).min(self.calm_from - at);
            for client in 0..self.clients {
                if rng.permille(600) {
                    let cut = Fault::CutLink { client, up: true, down: true, length };
                    self.faults.push((at, cut));
                    self.faults.push((at + 1, Fault::ResetLink { client }));
                }
            }
            let at = (at + rng.millis(50..1_000)).min(self.calm_from);
            let stops = rng.permille(400);
            for place in 0..self.places {
                let down = rng.millis(10..5_000);
                self.faults.push((
                    at,
                    if stops {
                        Fault::StopDaemon { place, down }
                    } else {
                        Fault::Break { place, lock: 0 }
                    },
                ));
            }
        }
    }

    /// Frequent connection resets: sessions are resumed while they hold locks.
    fn make_resumes(&mut self, rng: &mut Rng) {
        (self.clients, self.ttl) = (self.clients.max(3), Duration::from_secs(10));
        for _ in 0..rng.within(15..30) {
            let client = rng.index(self.clients);
            self.faults.push((rng.within(0..self.calm_from), Fault::ResetLink { client }));
        }
    }

    /// Frequent step-down requests, which shorten the validity of grants.
    fn make_step_downs(&mut self, rng: &mut Rng) {
        (self.clients, self.locks, self.client_tasks) = (self.clients.max(3), 1, 1);
        self.ttl = Duration::from_millis(*rng.pick(&[1_000, 10_000, 30_000]));
        for _ in 0..rng.within(10..20) {
            let at = rng.within(0..self.calm_from);
            for place in 0..self.places {
                self.faults.push((at, Fault::StepDown { place, lock: 0 }));
            }
        }
    }

    /// Clients cancel their acquires shortly before the grant.
    fn make_cancel_races(&mut self, rng: &mut Rng) {
        (self.cancels, self.clients) = (600, self.clients.max(4));
        (self.locks, self.client_tasks, self.rivals) = (1, 2, rng.permille(500));
    }
}

impl Fault {
    /// Returns whether the fault neither deletes nor replaces a blob and leaves
    /// the service's clock alone.
    const fn keeps_blobs(&self) -> bool {
        !matches!(
            self,
            Self::AdvanceDate { .. }
                | Self::Delete { .. }
                | Self::CorruptRecord { .. }
                | Self::Restore { .. }
                | Self::RestoreKnown { .. }
                | Self::RestoreBackup { .. }
                | Self::NoContainer { .. }
        )
    }
}
