//! The daemons: one at a time in each slot, each with a number of its own.

use std::{
    fs::File,
    mem,
    os::unix::process::{CommandExt, ExitStatusExt},
    path::{Path, PathBuf},
    process::ExitStatus,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};

use leasehold_test_support::{Running, azurite::Azurite, proxy::Proxy, serve};
use leasehold_time::Moment;
use nix::sys::signal::Signal;

use crate::{
    link::Target,
    watchdog,
    world::{CONTAINER, DAEMONS, LEASE, POLL},
};

/// On how many threads the daemon of each slot serves its clients.
const THREADS: [&str; DAEMONS] = ["1", "1", "3"];

/// A daemon's time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Life {
    pub(crate) slot: usize,
    /// As in the history.
    pub(crate) number: u32,
    /// When it was begun, before it could be reached.
    pub(crate) from: Moment,
    /// From when on it could be reached.
    pub(crate) listens: Moment,
    pub(crate) to: Option<Moment>,
}

/// The place of a daemon, with its own way to the storage.
pub(crate) struct Slot {
    pub(crate) proxy: Proxy,
    slot: usize,
    dir: PathBuf,
    connection: String,
    target: Target,
    running: Mutex<Option<Daemon>>,
    lives: Mutex<Vec<Life>>,
    /// What ended otherwise than it was made to.
    complaints: Mutex<Vec<String>>,
}

struct Daemon {
    process: Running,
    told_to_end: bool,
}

impl Slot {
    pub(crate) fn new(slot: usize, dir: &Path, azurite: &Azurite) -> Self {
        let proxy = Proxy::start(azurite.port());
        let connection = azurite.connection_string_via(proxy.port());
        let dir = dir.to_owned();
        let (target, running, lives, complaints) = Default::default();
        Self { proxy, slot, dir, connection, target, running, lives, complaints }
    }

    /// Where clients find it.
    pub(crate) fn target(&self) -> Target {
        Arc::clone(&self.target)
    }

    /// As for `--endpoint`; none while it is not there.
    pub(crate) fn endpoint(&self) -> Option<String> {
        self.target.lock().unwrap().map(|address| format!("http://{address}"))
    }

    /// Starts one and waits until it listens. False if it ends instead: it may
    /// have found its storage out of reach.
    pub(crate) fn start(&self) -> bool {
        static NUMBERS: AtomicU32 = AtomicU32::new(0);
        let number = NUMBERS.fetch_add(1, Relaxed);
        let log = File::create(self.dir.join(format!("daemon-{number}.log"))).unwrap();
        let (lease, poll) = (format!("{}s", LEASE.as_secs()), format!("{}ms", POLL.as_millis()));
        let azure = ["--store", "azure", "--azure-container", CONTAINER];
        let timing =
            ["--lease-duration", &lease, "--poll-interval", &poll, "--drain-timeout", "3s"];
        let threads = ["--threads", THREADS[self.slot]];
        let options = [&azure[..], &timing, &threads].concat();
        let mut command = serve(&self.dir, "127.0.0.1:0", &options);
        command.env("LEASEHOLD_AZURE_CONNECTION_STRING", &self.connection);
        command.env("LEASEHOLD_LOG", "info").stderr(log).process_group(0);
        let from = Moment::now();
        let mut process = watchdog::start(|| Running::start(&mut command), Running::pid);
        let line = process.line();
        let Some(address) = line.strip_prefix("listening on ") else {
            watchdog::forget(process.pid());
            let status = process.end();
            if status.code().is_none_or(|code| code == 0) {
                self.complain(number, "did not listen and ended by itself", status);
            }
            return false;
        };
        let (slot, listens) = (self.slot, Moment::now());
        self.lives.lock().unwrap().push(Life { slot, number, from, listens, to: None });
        *self.target.lock().unwrap() = Some(address.parse().unwrap());
        *self.running.lock().unwrap() = Some(Daemon { process, told_to_end: false });
        true
    }

    /// Whether there was one to be signalled.
    pub(crate) fn signal(&self, signal: Signal) -> bool {
        let running = self.running.lock().unwrap();
        running.as_ref().inspect(|running| running.process.signal(signal)).is_some()
    }

    /// By SIGTERM. From now on it may end, if it says that all is well.
    pub(crate) fn tell_to_end(&self) -> bool {
        let mut running = self.running.lock().unwrap();
        let Some(daemon) = running.as_mut() else { return false };
        daemon.told_to_end = true;
        daemon.process.signal(Signal::SIGTERM);
        true
    }

    /// The one that runs.
    pub(crate) fn number(&self) -> Option<u32> {
        let running = self.running.lock().unwrap();
        running.as_ref().and_then(|_| self.lives().last().map(|life| life.number))
    }

    /// Goes on if it was stopped.
    pub(crate) fn carry_on(&self) {
        self.signal(Signal::SIGCONT);
    }

    /// Kills it, if there is one, and gives its number and when it was dead.
    pub(crate) fn kill(&self) -> Option<(u32, Moment)> {
        let mut daemon = self.running.lock().unwrap().take()?;
        watchdog::forget(daemon.process.pid());
        // If it was dead already, this changes nothing.
        _ = daemon.process.child.kill();
        let status = daemon.process.end();
        let killed = status.signal() == Some(Signal::SIGKILL as i32);
        Some(self.ended(status, killed || daemon.told_to_end && status.success()))
    }

    /// Looks whether it has ended without having been killed.
    pub(crate) fn has_ended(&self) -> Option<(u32, Moment)> {
        let mut running = self.running.lock().unwrap();
        let status = running.as_mut()?.process.child.try_wait().unwrap()?;
        let daemon = running.take()?;
        watchdog::forget(daemon.process.pid());
        Some(self.ended(status, daemon.told_to_end && status.success()))
    }

    fn ended(&self, status: ExitStatus, as_it_should: bool) -> (u32, Moment) {
        *self.target.lock().unwrap() = None;
        let (mut lives, at) = (self.lives.lock().unwrap(), Moment::now());
        let life = lives.last_mut().unwrap();
        life.to = Some(at);
        if !as_it_should {
            self.complain(life.number, "ended by itself", status);
        }
        (life.number, at)
    }

    fn complain(&self, number: u32, what: &str, status: ExitStatus) {
        let what = format!("daemon {number} in slot {} {what}: {status}", self.slot);
        self.complaints.lock().unwrap().push(what);
    }

    /// What there is to complain of since the last call.
    pub(crate) fn complaints(&self) -> Vec<String> {
        mem::take(&mut self.complaints.lock().unwrap())
    }

    /// Which daemon it was at a moment.
    pub(crate) fn life_at(&self, at: Moment) -> Life {
        let lives = self.lives.lock().unwrap();
        *lives.iter().rfind(|life| life.from <= at).unwrap_or(&lives[0])
    }

    pub(crate) fn lives(&self) -> Vec<Life> {
        self.lives.lock().unwrap().clone()
    }
}
