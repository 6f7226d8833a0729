//! The processes and the ways between them.
//!
//! ```text
//! 10 processes of 3 clients ⇄ links ⇄ 3 daemons ⇄ a proxy each ⇄ Azurite
//! ```

use std::{fs, mem, path::PathBuf, sync::Arc, time::Duration};

use leasehold_checker::{Entry, Event};
use leasehold_runtime::{sleep, sleep_until};
use leasehold_test_support::{
    azurite::Azurite,
    proxy::{Kind, Seen},
    rest::{Blob, Rest},
};
use leasehold_time::Moment;
use tokio::sync::Mutex;

use crate::{
    clients::Clients,
    daemons::{Life, Slot},
    link::{Link, Passage},
    locks,
    options::Options,
    record::{Recorder, nanos},
};

pub(crate) const DAEMONS: usize = 3;
pub(crate) const PROCESSES: usize = 10;
pub(crate) const CLIENTS_PER_PROCESS: usize = 3;
pub(crate) const CONTAINER: &str = "chaos";

/// How long leases last without a renewal: the shortest that the storage has.
pub(crate) const LEASE: Duration = Duration::from_secs(15);
/// The longest wait of a daemon between two looks at another's lease.
pub(crate) const POLL: Duration = Duration::from_millis(500);

/// When all is well, nobody needs longer to come to an end: a client ends what
/// it does, a daemon waits for its holders (3 s) and releases its leases.
const END: Duration = Duration::from_secs(40);

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
            .map(|process| Clients::new(process, &dir, options, &links[process]))
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
            tokio::select! {
                started = started => if started.unwrap() {
                    return true;
                },
                () = sleep_until(limit) => {}
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

    /// Lets the clients come to an end, then the daemons, and says who did not.
    pub(crate) async fn end(&self) -> Vec<String> {
        let mut stayed = Vec::new();
        for clients in &self.clients {
            clients.finish();
        }
        until(END, || self.clients.iter().all(Clients::has_finished)).await;
        for (process, clients) in self.clients.iter().enumerate() {
            if !clients.has_finished() {
                stayed.push(format!("process {process} of clients did not come to an end"));
                clients.kill();
            }
        }
        for slot in &self.slots {
            slot.tell_to_end();
        }
        let has_ended = |slot: &Slot| slot.has_ended().is_some() || slot.number().is_none();
        until(END, || self.slots.iter().all(has_ended)).await;
        for slot in &self.slots {
            if let Some((daemon, _)) = slot.kill() {
                stayed.push(format!("daemon {daemon} was told to end and did not"));
            }
        }
        stayed
    }

    /// What there is to complain of since the last call: who ended by itself.
    pub(crate) fn complaints(&self) -> Vec<String> {
        for slot in &self.slots {
            if let Some((daemon, at)) = slot.has_ended() {
                self.recorder.then(at, Event::DaemonDied { daemon });
            }
        }
        let clients = self.clients.iter().flat_map(Clients::complaints);
        self.slots.iter().flat_map(Slot::complaints).chain(clients).collect()
    }

    /// What no daemon and no client may write to its log: that it panicked; a
    /// client writes nothing else there than what must not be.
    pub(crate) fn outcries(&self) -> Vec<String> {
        let files = fs::read_dir(&self.dir).unwrap().map(|file| file.unwrap().path());
        let logs = files.filter(|path| path.extension().is_some_and(|end| end == "log"));
        let mut outcries = Vec::new();
        for path in logs {
            let log = String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let mut lines = log.lines();
            let from_client = name.starts_with("clients");
            if let Some(line) = lines.find(|line| from_client || line.contains("panicked")) {
                outcries.push(format!("{name}: {line}\n  {}", lines.next().unwrap_or_default()));
            }
        }
        outcries
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
        let calls: Vec<(&Slot, Seen)> = self
            .slots
            .iter()
            .flat_map(|slot| slot.proxy.calls().into_iter().map(move |call| (slot, call)))
            .collect();
        // If nobody saw the storage's answer, a read that came later tells.
        let was_read = |write: &Seen| {
            let shows = |read: &Seen| {
                read.kind == Kind::Read
                    && (&read.blob, read.kept) == (&write.blob, write.token)
                    && read.forwarded > write.forwarded
            };
            calls.iter().any(|(_, call)| shows(call))
        };
        let mut stored = Vec::new();
        for (slot, call) in &calls {
            let lock = locks::of_blob(&call.blob);
            let lock = lock.filter(|_| matches!(call.kind, Kind::Write | Kind::Create));
            // A new blob has no token yet.
            let token = call.token.filter(|token| *token > 0);
            let (Some(lock), Some(token)) = (lock, token) else { continue };
            let is_good = |status: u16| status < 300;
            let once = call.upstream.map_or_else(|| was_read(call), is_good);
            let again = call.repeated.is_some_and(is_good);
            let moments = [call.forwarded.filter(|_| once), call.repeated_at.filter(|_| again)];
            for at in moments.into_iter().flatten() {
                let daemon = slot.life_at(call.came).number;
                let event = Event::Stored { daemon, lock, token };
                stored.push((Entry { at: nanos(at), event }, call.notes_break));
            }
        }
        stored.sort_by_key(|(entry, _)| entry.at);
        // The note of a break repeats the token of the hold that it ended,
        // whichever daemon writes it.
        let mut latest = vec![0; locks::all().len()];
        stored.retain(|(entry, notes_break)| {
            let Event::Stored { lock, token, .. } = entry.event else { return false };
            mem::replace(&mut latest[lock as usize], token) != token || !notes_break
        });
        stored.into_iter().map(|(entry, _)| entry).collect()
    }

    /// All daemons that there were.
    pub(crate) fn lives(&self) -> Vec<Life> {
        self.slots.iter().flat_map(Slot::lives).collect()
    }
}

/// Looks until something is so, at most for this long.
pub(crate) async fn until(limit: Duration, is_so: impl Fn() -> bool) {
    let limit = Moment::now() + limit;
    while !is_so() && !limit.has_passed() {
        sleep(Duration::from_millis(50)).await;
    }
}
