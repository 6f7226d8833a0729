//! Processes and the links between them.
//!
//! ```text
//! 10 processes of 3 clients ⇄ links ⇄ 3 daemons ⇄ a proxy each ⇄ Azurite
//! ```

use std::{fs, mem, path::PathBuf, sync::Arc, time::Duration};

use leasehold_checker::{Entry, Event};
use leasehold_runtime::{sleep, sleep_until};
use leasehold_test_support::{
    azurite::Azurite,
    proxy::{Kind, RecordedCall},
    rest::{Blob, Rest},
};
use leasehold_time::Moment;
use tokio::sync::Mutex;

use crate::{
    clients::Clients,
    daemons::{Lifetime, Slot},
    link::{Link, Passage},
    locks,
    options::Options,
    record::{Recorder, nanos},
};

pub(crate) const DAEMONS: usize = 3;
pub(crate) const PROCESSES: usize = 10;
pub(crate) const CLIENTS_PER_PROCESS: usize = 3;
pub(crate) const CONTAINER: &str = "chaos";

/// Lease duration: the minimum of the storage service.
pub(crate) const LEASE: Duration = Duration::from_secs(15);
/// Maximum interval between a daemon's polls of a peer's lease.
pub(crate) const POLL: Duration = Duration::from_millis(500);

/// Timeout of a regular exit: a client ends its current operation, a daemon
/// waits for its holders (3 s) and releases its leases.
const EXIT_TIMEOUT: Duration = Duration::from_secs(40);

/// Targets of faults.
pub(crate) struct World {
    /// Directory of recordings, resources and logs.
    pub(crate) dir: PathBuf,
    pub(crate) start: Moment,
    pub(crate) recorder: Recorder,
    pub(crate) slots: Vec<Slot>,
    pub(crate) clients: Vec<Clients>,
    /// Held by the fault that uses the pause request.
    pub(crate) pause_request: Mutex<()>,
    /// Links, by process and slot.
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
            let mut of_process = Vec::new();
            for slot in &slots {
                of_process.push(Link::to(slot.target()).await);
            }
            links.push(of_process);
        }
        let clients = (0..PROCESSES)
            .map(|process| Clients::new(process, &dir, options, &links[process]))
            .collect();
        let start = Moment::now();
        let pause_request = Mutex::default();
        let world = Self { dir, start, recorder, slots, clients, pause_request, links, azurite };
        let world = Arc::new(world);
        for slot in 0..DAEMONS {
            assert!(world.start_daemon(slot).await, "daemon {slot} did not start");
        }
        for clients in &world.clients {
            clients.start();
        }
        world
    }

    /// Starts a daemon in an empty slot. Returns false if it does not listen in
    /// time.
    pub(crate) async fn start_daemon(self: &Arc<Self>, slot: usize) -> bool {
        let world = Arc::clone(self);
        let limit = Moment::now() + 4 * LEASE;
        while !limit.has_passed() {
            let world = Arc::clone(&world);
            // Ends when the daemon listens or has exited.
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

    /// Ends every fault: resumes processes and restores links.
    pub(crate) fn heal(&self) {
        for links in &self.links {
            links.iter().for_each(|link| link.set(Passage::Open));
        }
        for slot in &self.slots {
            slot.proxy.heal();
            slot.resume();
        }
        self.clients.iter().for_each(Clients::resume);
    }

    /// Stops the clients, then the daemons. Returns the processes that did not
    /// exit.
    pub(crate) async fn end(&self) -> Vec<String> {
        let mut still_running = Vec::new();
        for clients in &self.clients {
            clients.finish();
        }
        until(EXIT_TIMEOUT, || self.clients.iter().all(Clients::has_finished)).await;
        for (process, clients) in self.clients.iter().enumerate() {
            if !clients.has_finished() {
                still_running.push(format!("client process {process} did not exit"));
                clients.kill();
            }
        }
        for slot in &self.slots {
            slot.terminate();
        }
        let poll_exit = |slot: &Slot| slot.poll_exit().is_some() || slot.number().is_none();
        until(EXIT_TIMEOUT, || self.slots.iter().all(poll_exit)).await;
        for slot in &self.slots {
            if let Some((daemon, _)) = slot.kill() {
                still_running.push(format!("daemon {daemon} did not exit after SIGTERM"));
            }
        }
        still_running
    }

    /// Returns the unexpected exits since the last call.
    pub(crate) fn unexpected_exits(&self) -> Vec<String> {
        for slot in &self.slots {
            if let Some((daemon, at)) = slot.poll_exit() {
                self.recorder.at(at, Event::DaemonDied { daemon });
            }
        }
        let clients = self.clients.iter().flat_map(Clients::unexpected_exits);
        self.slots.iter().flat_map(Slot::unexpected_exits).chain(clients).collect()
    }

    /// Returns panics in the logs of daemons, and all output in the logs of
    /// clients, which only log findings.
    pub(crate) fn log_errors(&self) -> Vec<String> {
        let files = fs::read_dir(&self.dir).unwrap().map(|file| file.unwrap().path());
        let logs = files.filter(|path| path.extension().is_some_and(|end| end == "log"));
        let mut log_errors = Vec::new();
        for path in logs {
            let log = String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let mut lines = log.lines();
            let from_client = name.starts_with("clients");
            if let Some(line) = lines.find(|line| from_client || line.contains("panicked")) {
                log_errors.push(format!("{name}: {line}\n  {}", lines.next().unwrap_or_default()));
            }
        }
        log_errors
    }

    /// Returns a lock's blob, without the proxies.
    pub(crate) fn blob(&self, lock: u32) -> Blob {
        Rest::new(&self.azurite).container(CONTAINER).blob(&locks::blob(lock))
    }

    /// Returns the records that the storage stored, as the proxies observed
    /// them.
    ///
    /// Each at the time at which it was forwarded: another daemon writes a
    /// later record only after it has read this one, and every grant under this
    /// record follows as well.
    pub(crate) fn stored(&self) -> Vec<Entry> {
        let calls: Vec<(&Slot, RecordedCall)> = self
            .slots
            .iter()
            .flat_map(|slot| slot.proxy.calls().into_iter().map(move |call| (slot, call)))
            .collect();
        // Without an observed answer, a later read shows whether the write was
        // applied.
        let was_read = |write: &RecordedCall| {
            let shows_token = |read: &RecordedCall| {
                read.kind == Kind::Read
                    && (&read.blob, read.stored_token) == (&write.blob, write.token)
                    && read.forwarded_at > write.forwarded_at
            };
            calls.iter().any(|(_, call)| shows_token(call))
        };
        let mut stored = Vec::new();
        for (slot, call) in &calls {
            let lock = locks::from_blob(&call.blob);
            let lock = lock.filter(|_| matches!(call.kind, Kind::Write | Kind::Create));
            // A new blob has no token.
            let token = call.token.filter(|token| *token > 0);
            let (Some(lock), Some(token)) = (lock, token) else { continue };
            let is_good = |status: u16| status < 300;
            let once = call.upstream_status.map_or_else(|| was_read(call), is_good);
            let again = call.duplicate_status.is_some_and(is_good);
            let moments =
                [call.forwarded_at.filter(|_| once), call.duplicate_sent_at.filter(|_| again)];
            for at in moments.into_iter().flatten() {
                let daemon = slot.lifetime_at(call.received_at).number;
                let event = Event::Stored { daemon, lock, token };
                stored.push((Entry { at: nanos(at), event }, call.records_break));
            }
        }
        stored.sort_by_key(|(entry, _)| entry.at);
        // The record of a break repeats the token of the hold that it ended,
        // even if another daemon writes it.
        let mut latest = vec![0; locks::all().len()];
        stored.retain(|(entry, notes_break)| {
            let Event::Stored { lock, token, .. } = entry.event else { return false };
            mem::replace(&mut latest[lock as usize], token) != token || !notes_break
        });
        stored.into_iter().map(|(entry, _)| entry).collect()
    }

    /// Returns the lifetimes of all daemons.
    pub(crate) fn lifetimes(&self) -> Vec<Lifetime> {
        self.slots.iter().flat_map(Slot::lifetimes).collect()
    }
}

/// Waits until a condition is true, up to this limit.
pub(crate) async fn until(limit: Duration, condition: impl Fn() -> bool) {
    let limit = Moment::now() + limit;
    while !condition() && !limit.has_passed() {
        sleep(Duration::from_millis(50)).await;
    }
}
