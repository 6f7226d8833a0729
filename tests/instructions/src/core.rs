//! Sans-IO core: takes an event and its time, returns actions.

use std::time::Duration;

use crate::{
    KEEP_ALIVES, Mode, REPETITIONS, finish,
    product::{
        Action, Entropy, Event, Handle, Holder, LockName, Message, Moment, Open, Request, Sessions,
        StreamId,
    },
    store::{MemoryStore, settings},
};

/// Sessions among which locks and requests are spread.
const SESSIONS: u32 = 10;

/// Time between two events: short, so that nothing expires.
const STEP: Duration = Duration::from_micros(10);

/// Core with its store.
struct Core {
    sessions: Sessions,
    store: MemoryStore,
    now: Moment,
    /// Number of the last request or keep-alive.
    request: u64,
    actions: Vec<Action>,
    /// Grants in order, with their streams.
    granted: Vec<(StreamId, Handle)>,
}

impl Core {
    /// Creates a core with open sessions.
    fn new() -> Self {
        let (sessions, locks) = settings();
        let mut core = Self {
            sessions: Sessions::new(sessions, locks, Entropy::seeded(1)),
            store: MemoryStore::default(),
            now: Moment::from_boot(Duration::from_secs(1000)),
            request: 0,
            actions: Vec::new(),
            granted: Vec::with_capacity(REPETITIONS as usize + 1),
        };
        for stream in 0..SESSIONS {
            let holder = Holder::try_new("worker", "host-1", 4711, "", []).expect("valid");
            let open = Open { ttl: Duration::from_secs(60), holder, fenced: false };
            core.on(Event::Open(StreamId(stream), Box::new(open)));
        }
        core
    }

    /// Processes one event and the store's answers to it.
    fn on(&mut self, event: Event) {
        self.now = self.now + STEP;
        let mut next = Some(event);
        while let Some(event) = next.take() {
            let mut actions = std::mem::take(&mut self.actions);
            self.sessions.on(event, self.now, &mut actions);
            for action in actions.drain(..) {
                match action {
                    Action::Call(lock, call) => next = Some(self.store.call(lock, call)),
                    Action::Send(stream, Message::Granted { handle, .. }) => {
                        self.granted.push((stream, handle));
                    }
                    _ => {}
                }
            }
            self.actions = actions;
        }
    }

    fn request(&mut self) -> u64 {
        self.request += 1;
        self.request
    }

    fn acquire(&mut self, name: LockName) {
        let request = self.request();
        let acquire = Request::Acquire {
            request,
            name,
            wait: None,
            max_hold_time: None,
            lease_duration: None,
            value: None,
            trace: None,
        };
        self.on(Event::Request(StreamId(request as u32 % SESSIONS), acquire));
    }

    fn release(&mut self, (stream, handle): (StreamId, Handle)) {
        let request = self.request();
        self.on(Event::Request(stream, Request::Release { request, handle }));
    }
}

/// Returns names of different locks, or of one.
fn names(is_one: bool) -> Vec<LockName> {
    let name = |number| LockName::parse("", &format!("orders-{number}")).expect("valid");
    (0..REPETITIONS).map(|number| name(if is_one { 0 } else { number })).collect()
}

/// Acquires free locks.
pub(crate) fn acquire(mode: Mode) {
    let mut core = Core::new();
    let names = names(false);
    if mode == Mode::Whole {
        for name in names {
            core.acquire(name);
        }
        assert_eq!(core.granted.len(), REPETITIONS as usize);
    }
    finish()
}

/// Releases locks without waiters.
pub(crate) fn release(mode: Mode) {
    let mut core = Core::new();
    for name in names(false) {
        core.acquire(name);
    }
    if mode == Mode::Whole {
        for grant in std::mem::take(&mut core.granted) {
            core.release(grant);
        }
        assert!(core.sessions.is_drained());
    }
    finish()
}

/// Sends keep-alives in a session that holds 100 locks.
pub(crate) fn keep_alive(mode: Mode) {
    let mut core = Core::new();
    for name in names(false) {
        core.acquire(name);
    }
    if mode == Mode::Whole {
        for _ in 0..KEEP_ALIVES {
            let keep_alive_number = core.request();
            core.on(Event::Request(
                StreamId(keep_alive_number as u32 % SESSIONS),
                Request::KeepAlive { keep_alive_number },
            ));
        }
    }
    finish()
}

/// Releases a lock to the next waiter.
pub(crate) fn handoff(mode: Mode) {
    let mut core = Core::new();
    let names = names(true);
    core.acquire(names[0].clone());
    for name in names {
        core.acquire(name);
    }
    if mode == Mode::Whole {
        for number in 0..REPETITIONS as usize {
            core.release(core.granted[number]);
        }
        assert_eq!(core.granted.len(), REPETITIONS as usize + 1);
    }
    finish()
}
