//! The processes and the ways between them.
//!
//! ```text
//! 10 processes of 3 clients ⇄ links ⇄ 3 daemons ⇄ a proxy each ⇄ Azurite
//! ```

use std::{path::PathBuf, sync::Arc, time::Duration};

use leasehold::clock::{Moment, sleep};
use leasehold_check::{Entry, Event};
use tokio::sync::Mutex;

use crate::{
    clients::Clients,
    daemons::{Life, Slot},
    link::{Link, Passage},
    locks,
    options::Options,
    record::{Recorder, nanos},
    support::{
        azurite::Azurite,
        proxy::Kind,
        rest::{Blob, Rest},
    },
};

pub(crate) const DAEMONS: usize = 3;
pub(crate) const PROCESSES: usize = 10;
pub(crate) const CLIENTS_PER_PROCESS: usize = 3;
pub(crate) const CONTAINER: &str = "chaos";

/// How long leases last without a renewal: the shortest that the storage has.
pub(crate) const LEASE: Duration = Duration::from_secs(15);
/// The longest wait of a daemon between two looks at another's lease.
pub(crate) const POLL: Duration = Duration::from_millis(500);

/// All that faults are done to.
pub(crate) struct World {
    /// Where pages, resources and logs are.
    pub(crate) dir: PathBuf,
    pub(crate) start: Moment,
    pub(crate) recorder: Recorder,
    pub(crate) slots: Vec<Slot>,
    pub(crate) clients: Vec<Clients>,
    /// Who has it may put up the stop sign.
    pub(crate) stop_sign: Mutex<()>,
    /// By process, then by slot.
    pub(crate) links: Vec<Vec<Link>>,
    // Dropped last: the others use it.
    azurite: Azurite,
}

impl World {
    /// Starts everything, and waits until all daemons listen.
    pub(crate) async fn begin(dir: PathBuf, options: &Options) -> Arc<Self> {
        let azurite = tokio::task::spawn_blocking(Azurite::start).await.unwrap();
        let recorder = Recorder::create(&dir, "faults");
        let slots: Vec<_> = (0..DAEMONS).map(|slot| Slot::new(slot, &dir, &azurite)).collect();
        let mut links = Vec::new();
        for _ in 0..PROCESSES {
            let mut ways = Vec::new();
            for slot in &slots {
                ways.push(Link::to(slot.target()).await);
            }
            links.push(ways);
        }
        let clients = (0..PROCESSES)
            .map(|process| Clients::new(process, &dir, options.seed, &links[process]))
            .collect();
        let start = Moment::now();
        let stop_sign = Mutex::default();
        let world = Self { dir, start, recorder, slots, clients, stop_sign, links, azurite };
        let world = Arc::new(world);
        for slot in 0..DAEMONS {
            assert!(world.start_daemon(slot).await, "daemon {slot} does not start");
        }
        for clients in &world.clients {
            clients.start();
        }
        world
    }

    /// Starts a daemon where none runs; false if it does not listen before
    /// long, whatever its storage does.
    pub(crate) async fn start_daemon(self: &Arc<Self>, slot: usize) -> bool {
        let world = Arc::clone(self);
        let limit = Moment::now() + 4 * LEASE;
        while !limit.has_passed() {
            let world = Arc::clone(&world);
            // Ends when the daemon says that it listens, or has ended.
            let started = tokio::task::spawn_blocking(move || world.slots[slot].start());
            if started.await.unwrap() {
                return true;
            }
            sleep(Duration::from_millis(300)).await;
        }
        false
    }

    /// Ends every fault: what is stopped goes on, what is closed is opened.
    pub(crate) fn heal(&self) {
        for ways in &self.links {
            ways.iter().for_each(|link| link.set(Passage::Open));
        }
        for slot in &self.slots {
            slot.proxy.heal();
            slot.carry_on();
        }
        self.clients.iter().for_each(Clients::carry_on);
    }

    /// Lets the clients come to an end, then the daemons.
    pub(crate) async fn end(&self) {
        for clients in &self.clients {
            clients.finish();
        }
        let limit = Moment::now() + Duration::from_secs(20);
        while self.clients.iter().any(Clients::is_running) && !limit.has_passed() {
            sleep(Duration::from_millis(50)).await;
        }
        for clients in &self.clients {
            clients.kill();
        }
        for slot in &self.slots {
            slot.kill();
        }
    }

    /// A lock's blob, past the proxies.
    pub(crate) fn blob(&self, lock: u32) -> Blob {
        Rest::new(&self.azurite).container(CONTAINER).blob(&locks::blob(lock))
    }

    /// What the storage was told to keep and has kept, as the proxies saw it.
    ///
    /// Each at the moment when it was sent on: a later record of another daemon
    /// was sent after its daemon had read this one, and whatever was granted
    /// under this one came after it, too.
    pub(crate) fn stored(&self) -> Vec<Entry> {
        let mut stored = Vec::new();
        for slot in &self.slots {
            for call in slot.proxy.calls() {
                let kept = matches!(call.kind, Kind::Write | Kind::Create)
                    && call.upstream.is_some_and(|status| status < 300);
                let (Some(lock), Some(at)) = (locks::of_blob(&call.blob), call.forwarded) else {
                    continue;
                };
                // A new blob has no token yet.
                if let Some(token) = call.token.filter(|token| kept && *token > 0) {
                    let daemon = slot.life_at(at).number;
                    let event = Event::Stored { daemon, lock, token };
                    stored.push(Entry { at: nanos(at), event });
                }
            }
        }
        stored.sort_by_key(|entry| entry.at);
        // The record of a break repeats the token of the hold that it ended,
        // whichever daemon writes it.
        let mut latest = vec![0; locks::all().len()];
        stored.retain(|entry| {
            let Event::Stored { lock, token, .. } = entry.event else { return false };
            std::mem::replace(&mut latest[lock as usize], token) != token
        });
        stored
    }

    /// All daemons that there were.
    pub(crate) fn lives(&self) -> Vec<Life> {
        self.slots.iter().flat_map(Slot::lives).collect()
    }
}
