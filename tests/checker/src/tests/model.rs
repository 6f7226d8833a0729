//! Generator of histories of a correct system: a lock passes from one holder to the next,
//! within a daemon or between daemons, after each kind of end.

use proptest::{collection::vec, prelude::*};

use super::history_builder::{MS, all, bounds};
use crate::{Entry, Event, History, Nanos, check};

/// Lease duration in milliseconds.
const LEASE: u64 = 15_000;

#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    Released,
    Lost,
    Expired,
    ClientDied,
    DaemonDied,
}

/// One hold of the lock.
#[derive(Clone, Debug)]
pub(crate) struct Turn {
    /// True if it waits at the daemon of the preceding holder, if that daemon is alive.
    same_daemon: bool,
    /// True if its acquire starts during the preceding hold, otherwise `idle` after it.
    waits: bool,
    idle: u64,
    renewals: u64,
    /// Time from the last renewal to the end.
    holds_for: u64,
    end: End,
    /// Delay of the grant.
    notice: u64,
    disturbed: bool,
    acquires_again: bool,
}

fn turn() -> impl Strategy<Value = Turn> {
    let end = prop_oneof![
        4 => Just(End::Released),
        1 => Just(End::Lost),
        1 => Just(End::Expired),
        1 => Just(End::ClientDied),
        1 => Just(End::DaemonDied),
    ];
    let flags = (any::<bool>(), any::<bool>(), prop::bool::weighted(0.2), any::<bool>());
    (flags, 1..30_000u64, 0..3u64, 1..4_000u64, end, 1..90u64).prop_map(
        |(
            (same_daemon, waits, disturbed, acquires_again),
            idle,
            renewals,
            holds_for,
            end,
            notice,
        )| {
            Turn {
                same_daemon,
                waits,
                idle,
                renewals,
                holds_for,
                end,
                notice,
                disturbed,
                acquires_again,
            }
        },
    )
}

pub(crate) fn histories() -> impl Strategy<Value = History> {
    vec(vec(turn(), 1..12), 1..4).prop_map(|locks| {
        let mut entries = Vec::new();
        for (lock, turns) in (0..).zip(locks) {
            let mut world = World { lock, numbers: lock * 1_000, ..World::default() };
            turns.iter().for_each(|turn| world.turn(turn));
            if let Some(daemon) = world.daemon {
                world.end_hold(daemon);
            }
            entries.append(&mut world.entries);
        }
        entries.sort_by_key(|entry| entry.at);
        History { bounds: bounds(), entries }
    })
}

#[derive(Default)]
struct World {
    lock: u32,
    entries: Vec<Entry>,
    now: u64,
    /// Last number of a client, daemon or operation.
    numbers: u32,
    daemon: Option<u32>,
    token: u64,
    stored: u64,
    until: u64,
    /// Start and end of the preceding hold.
    last: Option<(u64, u64)>,
}

impl World {
    fn number(&mut self) -> u32 {
        self.numbers += 1;
        self.numbers
    }

    fn at(&mut self, at: u64, event: Event) {
        self.entries.push(Entry { at: at * MS, event });
    }

    fn now(&mut self, event: Event) {
        self.at(self.now, event);
    }

    /// Extends the lease: in the storage, then in the daemon.
    fn extend(&mut self, daemon: u32) {
        let (lock, first) = (self.lock, self.token & !1023);
        self.until = self.now + LEASE;
        let ms = |ms: u64| -> Nanos { ms * MS };
        self.now(Event::Leased { daemon, lock, until: ms(self.until) });
        self.now += 1;
        if self.stored != self.token & !1023 {
            self.stored = self.token;
            self.now(Event::Stored { daemon, lock, token: self.token });
        }
        let until = ms(self.until - 1_000);
        self.now(Event::Holds { daemon, lock, first, last: first + 1023, until });
    }

    fn end_hold(&mut self, daemon: u32) {
        let lock = self.lock;
        self.now(Event::HoldEnded { daemon, lock });
        self.now(Event::Unleased { lock });
    }

    fn turn(&mut self, turn: &Turn) {
        let (lock, client, op) = (self.lock, self.number(), u64::from(self.number()));
        let daemon = self.daemon.filter(|_| turn.same_daemon);
        let stays = daemon.is_some();
        let daemon = daemon.unwrap_or_else(|| self.number());
        let invoked = match self.last {
            Some((granted, stopped)) if turn.waits => (granted + stopped) / 2,
            _ => self.now + turn.idle,
        };
        self.at(invoked, Event::Acquire { op, client, daemon, lock });
        self.at(invoked + 1, Event::Queued { op });
        // Without a waiter, the daemon releases the lease.
        let idle = invoked > self.now;
        if let Some(before) = self.daemon.filter(|_| idle || !stays) {
            self.end_hold(before);
            self.now += 1;
        }
        self.now = self.now.max(invoked + 2);
        if stays && !idle {
            self.token += 1;
        } else {
            self.token = (self.token / 1024 + 1) * 1024;
            self.extend(daemon);
        }
        self.daemon = Some(daemon);
        self.now += turn.notice;
        self.hold(turn, op, client, daemon);
    }

    fn hold(&mut self, turn: &Turn, op: u64, client: u32, daemon: u32) {
        let (lock, token, granted) = (self.lock, self.token, self.now);
        // A handoff may happen shortly before the lease expires.
        if self.until < self.now + LEASE / 2 {
            self.extend(daemon);
        }
        self.now(Event::Granted { op, token });
        let valid = |until: u64| Event::Valid { client, lock, token, until: until * MS };
        let mut deadline = self.until - 1_500;
        self.now(valid(deadline));
        let cut = format!("connection of {op} cut");
        for _ in 0..turn.renewals {
            self.now += 4_000;
            self.extend(daemon);
            deadline = self.until - 1_500;
            self.now(valid(deadline));
        }
        if turn.acquires_again {
            let op = u64::from(self.number());
            self.now(Event::Acquire { op, client, daemon, lock });
            self.now(Event::Queued { op });
            self.now(Event::Refused {
                op,
                why: "canceled".to_owned(),
                faulty: false,
                canceled: false,
            });
        }
        let used = Event::Used { client, lock, token, fenced: true, accepted: true };
        self.now(used);
        if turn.disturbed {
            self.now(Event::Disturbed { what: cut.clone() });
        }
        self.now += turn.holds_for;
        if turn.disturbed {
            self.now(Event::Undisturbed { what: cut });
        }
        match turn.end {
            End::Released => {
                let op = u64::from(self.number());
                self.now(Event::Release { op, client, lock, token });
                self.last = Some((granted, self.now));
                self.at(self.now + 1, Event::Released { op });
            }
            End::Lost => {
                self.now(Event::Lost { client, lock, token });
                self.last = Some((granted, self.now));
            }
            End::Expired => {
                self.now = deadline;
                self.last = Some((granted, deadline));
            }
            End::ClientDied => {
                self.now(Event::ClientDied { client });
                self.last = Some((granted, self.now));
                self.now += 9_000;
                self.extend(daemon);
            }
            End::DaemonDied => {
                self.now(Event::DaemonDied { daemon });
                self.last = Some((granted, self.now));
                self.now = self.until;
                self.now(Event::Unleased { lock });
                self.daemon = None;
            }
        }
        self.now += 1;
    }
}

proptest! {
    #[test]
    fn correct_system_has_no_violation(history in histories()) {
        let found = check(&history);
        prop_assert!(found.is_empty(), "{}", all(&found));
    }
}
