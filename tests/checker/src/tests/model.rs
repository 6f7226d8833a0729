//! Histories of a system that does everything right: a lock goes from one holder
//! to the next, within a daemon or to another, however a hold ends.

use proptest::{collection::vec, prelude::*};

use super::history_builder::{MS, all, bounds};
use crate::{Entry, Event, History, Nanos, check};

/// How long a lease lasts, in milliseconds.
const LEASE: u64 = 15_000;

#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    Released,
    Lost,
    RanOut,
    ClientDied,
    DaemonDied,
}

/// One holder's turn.
#[derive(Clone, Debug)]
pub(crate) struct Turn {
    /// It waits where the one before it holds, if that daemon is alive.
    same_daemon: bool,
    /// It asks while the one before it holds. Otherwise after this long.
    waits: bool,
    idle: u64,
    renewals: u64,
    /// After the last renewal.
    holds_for: u64,
    end: End,
    /// How long the next one takes to notice.
    notice: u64,
    disturbed: bool,
    asks_again: bool,
}

fn turn() -> impl Strategy<Value = Turn> {
    let end = prop_oneof![
        4 => Just(End::Released),
        1 => Just(End::Lost),
        1 => Just(End::RanOut),
        1 => Just(End::ClientDied),
        1 => Just(End::DaemonDied),
    ];
    let flags = (any::<bool>(), any::<bool>(), prop::bool::weighted(0.2), any::<bool>());
    (flags, 1..30_000u64, 0..3u64, 1..4_000u64, end, 1..90u64).prop_map(
        |((same_daemon, waits, disturbed, asks_again), idle, renewals, holds_for, end, notice)| {
            Turn {
                same_daemon,
                waits,
                idle,
                renewals,
                holds_for,
                end,
                notice,
                disturbed,
                asks_again,
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
                world.let_go(daemon);
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
    /// Of clients, daemons and operations.
    numbers: u32,
    daemon: Option<u32>,
    token: u64,
    stored: u64,
    until: u64,
    /// When the one before was granted, and when it stopped.
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

    /// The storage, the daemon and then the client count on it.
    fn count_on(&mut self, daemon: u32) {
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

    fn let_go(&mut self, daemon: u32) {
        let lock = self.lock;
        self.now(Event::LetGo { daemon, lock });
        self.now(Event::Unleased { lock });
    }

    fn turn(&mut self, turn: &Turn) {
        let (lock, client, op) = (self.lock, self.number(), u64::from(self.number()));
        let daemon = self.daemon.filter(|_| turn.same_daemon);
        let stays = daemon.is_some();
        let daemon = daemon.unwrap_or_else(|| self.number());
        let asks = match self.last {
            Some((granted, stopped)) if turn.waits => (granted + stopped) / 2,
            _ => self.now + turn.idle,
        };
        self.at(asks, Event::Acquire { op, client, daemon, lock });
        self.at(asks + 1, Event::Queued { op });
        // Without anybody who waits, the lease is not kept for long.
        let idle = asks > self.now;
        if let Some(before) = self.daemon.filter(|_| idle || !stays) {
            self.let_go(before);
            self.now += 1;
        }
        self.now = self.now.max(asks + 2);
        if stays && !idle {
            self.token += 1;
        } else {
            self.token = (self.token / 1024 + 1) * 1024;
            self.count_on(daemon);
        }
        self.daemon = Some(daemon);
        self.now += turn.notice;
        self.hold(turn, op, client, daemon);
    }

    fn hold(&mut self, turn: &Turn, op: u64, client: u32, daemon: u32) {
        let (lock, token, granted) = (self.lock, self.token, self.now);
        // A hand-over may come when the lease is nearly over.
        if self.until < self.now + LEASE / 2 {
            self.count_on(daemon);
        }
        self.now(Event::Granted { op, token });
        let valid = |until: u64| Event::Valid { client, lock, token, until: until * MS };
        let mut deadline = self.until - 1_500;
        self.now(valid(deadline));
        let cut = format!("{op} can't be heard");
        for _ in 0..turn.renewals {
            self.now += 4_000;
            self.count_on(daemon);
            deadline = self.until - 1_500;
            self.now(valid(deadline));
        }
        if turn.asks_again {
            let op = u64::from(self.number());
            self.now(Event::Acquire { op, client, daemon, lock });
            self.now(Event::Queued { op });
            self.now(Event::Refused {
                op,
                why: "gave up".to_owned(),
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
            End::RanOut => {
                self.now = deadline;
                self.last = Some((granted, deadline));
            }
            End::ClientDied => {
                self.now(Event::ClientDied { client });
                self.last = Some((granted, self.now));
                self.now += 9_000;
                self.count_on(daemon);
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
    fn nothing_is_wrong_with_a_system_that_does_it_right(history in histories()) {
        let found = check(&history);
        prop_assert!(found.is_empty(), "{}", all(&found));
    }
}
