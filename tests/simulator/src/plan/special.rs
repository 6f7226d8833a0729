//! Plans for what hardly ever comes about by chance.

use std::time::Duration;

use super::{Fault, Plan};
use crate::{clock::Stop, rng::Rng};

impl Plan {
    /// Makes some plans special.
    pub(super) fn make_special(&mut self, rng: &mut Rng) {
        match rng.within(0..100) {
            0..5 => self.make_lone(rng),
            5..13 if !self.bad_clocks => self.make_jerky(rng),
            13..18 if !self.bad_clocks => self.make_corrected(rng),
            18..22 => self.make_hasty(rng),
            22..26 => self.make_swift(rng),
            26..30 => self.make_absurd(rng),
            30..33 => self.make_seen(rng),
            33..37 if !self.bad_clocks => self.make_overset(rng),
            37..41 => self.make_snatched(rng),
            41..45 if !self.bad_clocks => self.make_detached(rng),
            45..48 => self.make_resumed(rng),
            48..51 if !self.bad_clocks => self.make_stepped(rng),
            51..54 => self.make_crossed(rng),
            _ => {}
        }
    }

    /// A single daemon that is never restarted, and so has seen everything. A blob
    /// from before the storage service's clock was ahead is restored after that. Then
    /// neither the record nor that clock, only the daemon's memory, keeps tokens from
    /// going back.
    fn make_lone(&mut self, rng: &mut Rng) {
        (self.places, self.bad_clocks, self.leaping_date) = (1, false, true);
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
            self.faults.push((at, Fault::RestoreSeen { lock, length: ahead + length }));
            self.faults.push((at, Fault::LeapDate { by, length: ahead }));
        }
    }

    /// Daemons whose machines are frozen for less than a second, again and again,
    /// while their leases can't be renewed; nobody sets clocks, which would hide it.
    fn make_jerky(&mut self, rng: &mut Rng) {
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
            let most = *rng.pick(&[2_000, 6_000, 12_000]);
            at += rng.millis(200..most);
            let length = rng.millis(50..990);
            if at + length >= self.calm_from {
                return;
            }
            let how = Some(Stop::Frozen);
            self.faults.push((at, Fault::PauseDaemon { place, how, length }));
            at += length;
        }
    }

    /// Daemons whose machines are frozen, and whose wall clocks somebody sets back by as
    /// much soon after. So few clients that hardly anything has daemons look at their
    /// clocks meanwhile.
    fn make_corrected(&mut self, rng: &mut Rng) {
        (self.clients, self.hands) = (2, 1);
        (self.ttl, self.longest_lease) = (Duration::from_secs(30), self.lease);
        for _ in 0..rng.within(8..16) {
            let at = rng.within(0..self.calm_from);
            let length = rng.millis(1_100..3_000).min(self.calm_from - at);
            let (which, how) = (rng.index(self.places), Some(Stop::Frozen));
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

    /// Clients that give up soon, at daemons that keep leases for long and have to ask
    /// for more tokens each time.
    fn make_hasty(&mut self, rng: &mut Rng) {
        (self.hasty, self.tokens, self.places) = (600, 1, self.places.max(2));
        self.clients = self.clients.max(4);
        self.linger = Duration::from_millis(rng.within(5_000..15_000));
        self.poll = Duration::from_millis(500);
    }

    /// Blobs that are deleted in the second in which they were used, while others wait
    /// at another daemon, which may create them anew in the same second.
    fn make_swift(&mut self, rng: &mut Rng) {
        (self.places, self.clients) = (self.places.max(2), self.clients.max(4));
        (self.locks, self.hands, self.leaping_date) = (1, 1, false);
        self.poll = Duration::from_millis(500);
        self.faults.retain(|(_, fault)| fault.keeps_blobs());
        for _ in 0..rng.within(6..12) {
            self.faults.push((rng.within(0..self.calm_from), Fault::DeleteUsed { lock: 0 }));
        }
    }

    /// The storage service's clock leaps so far ahead that nobody believes it. Blobs are
    /// restored from backups meanwhile or deleted afterwards, while all daemons start
    /// anew.
    fn make_absurd(&mut self, rng: &mut Rng) {
        self.leaping_date = false;
        self.faults.retain(|(_, fault)| fault.keeps_blobs());
        for _ in 0..rng.within(1..3) {
            let at = rng.within(0..self.calm_from / 2);
            let length = rng.millis(1000..20_000);
            self.faults.push((at, Fault::LeapDate { by: 172_800, length }));
            if rng.permille(500) {
                let lock = rng.within(0..u64::from(self.locks)) as u32;
                let (age, restart) = (rng.within(4_000..100_000), Some(rng.millis(10..500)));
                self.faults.push((at, Fault::Age { lock, age, restart, length }));
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

    /// A single daemon that is never restarted and whose storage never fails, and so has
    /// seen every token; blobs are deleted that were used while the storage service's
    /// clock was ahead.
    fn make_seen(&mut self, rng: &mut Rng) {
        (self.places, self.bad_clocks, self.leaping_date) = (1, false, true);
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
            self.faults.push((at, Fault::LeapDate { by, length }));
            let at = at + rng.millis(0..40_000);
            let lock = rng.within(0..u64::from(self.locks)) as u32;
            self.faults.push((at.min(self.calm_from), Fault::DeleteSeen { lock }));
        }
    }

    /// Wall clocks of daemons are set ahead while leases can't be renewed, and holders
    /// are told to let go, but do not hear it.
    fn make_overset(&mut self, rng: &mut Rng) {
        // What holders count on ends with their leases, not with their sessions.
        (self.lease, self.ttl) = (Duration::from_secs(15), Duration::from_secs(30));
        (self.longest_lease, self.locks, self.hands) = (self.lease, 1, 1);
        self.clients = 3;
        for _ in 0..rng.within(6..12) {
            let (at, place) = (rng.within(0..self.calm_from), rng.index(self.places));
            let length = rng.millis(3_000..8_000).min(self.calm_from - at);
            self.faults.push((at, Fault::Cut { place, out: true, back: true, length }));
            let (set, by) = (at + length / 4, rng.millis(2_000..14_000) as i64);
            self.faults.push((set, Fault::SetWall { daemon: true, which: place, by }));
            let (client, up, down) = (rng.index(self.clients), false, true);
            let deaf = rng.millis(4_000..12_000).min(self.calm_from - set);
            self.faults.push((set, Fault::CutLink { client, up, down, length: deaf }));
            self.faults.push((at + length / 2, Fault::Break { place, lock: 0 }));
        }
    }

    /// Leases that are taken away while their records are being written, and others who
    /// write theirs in the same second.
    fn make_snatched(&mut self, rng: &mut Rng) {
        (self.places, self.clients) = (self.places.max(2), self.clients.max(4));
        (self.locks, self.hands) = (1, 1);
        self.poll = Duration::from_millis(500);
        for _ in 0..rng.within(6..12) {
            self.faults.push((rng.within(0..self.calm_from), Fault::Snatch));
        }
    }
}

impl Plan {
    /// Operators break locks and stop daemons while holders have no stream but still count
    /// on their grants.
    fn make_detached(&mut self, rng: &mut Rng) {
        self.faults.clear();
        (self.places, self.clients) = (rng.within(1..3) as usize, 3);
        (self.locks, self.hands, self.rivals, self.fenced) = (1, 1, false, false);
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

    /// Connections break all the time, and sessions are resumed while they hold locks.
    fn make_resumed(&mut self, rng: &mut Rng) {
        (self.clients, self.ttl) = (self.clients.max(3), Duration::from_secs(10));
        for _ in 0..rng.within(15..30) {
            let client = rng.index(self.clients);
            self.faults.push((rng.within(0..self.calm_from), Fault::ResetLink { client }));
        }
    }

    /// Holders are asked to step down again and again: what they were promised becomes
    /// shorter.
    fn make_stepped(&mut self, rng: &mut Rng) {
        (self.clients, self.locks, self.hands) = (self.clients.max(3), 1, 1);
        self.ttl = Duration::from_millis(*rng.pick(&[1_000, 10_000, 30_000]));
        for _ in 0..rng.within(10..20) {
            let at = rng.within(0..self.calm_from);
            for place in 0..self.places {
                self.faults.push((at, Fault::StepDown { place, lock: 0 }));
            }
        }
    }

    /// Clients cancel their acquires when the lock is about to be theirs.
    fn make_crossed(&mut self, rng: &mut Rng) {
        (self.cancels, self.clients) = (600, self.clients.max(4));
        (self.locks, self.hands, self.rivals) = (1, 2, rng.permille(500));
    }
}

impl Fault {
    /// Whether nobody deletes a blob, or puts something old in its place, or has the
    /// service's clock leap.
    const fn keeps_blobs(&self) -> bool {
        !matches!(
            self,
            Self::LeapDate { .. }
                | Self::Delete { .. }
                | Self::Garble { .. }
                | Self::Restore { .. }
                | Self::RestoreSeen { .. }
                | Self::Age { .. }
                | Self::NoContainer { .. }
        )
    }
}
