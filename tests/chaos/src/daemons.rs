//! Daemons: one at a time in each slot, each with its own number.

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

/// Number of threads of the daemon in each slot.
const THREADS: [&str; DAEMONS] = ["1", "1", "3"];

/// Lifetime of a daemon.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lifetime {
    pub(crate) slot: usize,
    /// Number in the history.
    pub(crate) number: u32,
    /// Time of its start.
    pub(crate) from: Moment,
    /// Time from which it listens.
    pub(crate) listens: Moment,
    pub(crate) to: Option<Moment>,
}

/// Slot of a daemon, with its own proxy to the storage.
pub(crate) struct Slot {
    pub(crate) proxy: Proxy,
    slot: usize,
    dir: PathBuf,
    connection: String,
    target: Target,
    running: Mutex<Option<Daemon>>,
    lifetimes: Mutex<Vec<Lifetime>>,
    /// Unexpected exits since the last report.
    unexpected_exits: Mutex<Vec<String>>,
}

struct Daemon {
    process: Running,
    is_terminating: bool,
}

impl Slot {
    pub(crate) fn new(slot: usize, dir: &Path, azurite: &Azurite) -> Self {
        let proxy = Proxy::start(azurite.port());
        let connection = azurite.connection_string_via(proxy.port());
        let dir = dir.to_owned();
        let (target, running, lifetimes, unexpected_exits) = Default::default();
        Self { proxy, slot, dir, connection, target, running, lifetimes, unexpected_exits }
    }

    /// Returns the address at which clients reach it.
    pub(crate) fn target(&self) -> Target {
        Arc::clone(&self.target)
    }

    /// Returns the URL for `--endpoint`; `None` while no daemon is running.
    pub(crate) fn endpoint(&self) -> Option<String> {
        self.target.lock().unwrap().map(|address| format!("http://{address}"))
    }

    /// Starts a daemon and waits until it listens. Returns false if it exits
    /// instead, for example because its storage is unreachable.
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
                self.record_exit(number, "exited unexpectedly before it listened", status);
            }
            return false;
        };
        let (slot, listens) = (self.slot, Moment::now());
        self.lifetimes.lock().unwrap().push(Lifetime { slot, number, from, listens, to: None });
        *self.target.lock().unwrap() = Some(address.parse().unwrap());
        *self.running.lock().unwrap() = Some(Daemon { process, is_terminating: false });
        true
    }

    /// Sends a signal. Returns whether a daemon is running.
    pub(crate) fn signal(&self, signal: Signal) -> bool {
        let running = self.running.lock().unwrap();
        running.as_ref().inspect(|running| running.process.signal(signal)).is_some()
    }

    /// Sends SIGTERM. From now on, a successful exit is expected.
    pub(crate) fn terminate(&self) -> bool {
        let mut running = self.running.lock().unwrap();
        let Some(daemon) = running.as_mut() else { return false };
        daemon.is_terminating = true;
        daemon.process.signal(Signal::SIGTERM);
        true
    }

    /// Returns the number of the running daemon.
    pub(crate) fn number(&self) -> Option<u32> {
        let running = self.running.lock().unwrap();
        running.as_ref().and_then(|_| self.lifetimes().last().map(|lifetime| lifetime.number))
    }

    /// Ends a pause.
    pub(crate) fn resume(&self) {
        self.signal(Signal::SIGCONT);
    }

    /// Kills the daemon, if it is running, and returns its number and the time
    /// of its exit.
    pub(crate) fn kill(&self) -> Option<(u32, Moment)> {
        let mut daemon = self.running.lock().unwrap().take()?;
        watchdog::forget(daemon.process.pid());
        // No effect if it has already exited.
        _ = daemon.process.child.kill();
        let status = daemon.process.end();
        let killed = status.signal() == Some(Signal::SIGKILL as i32);
        Some(self.record_end(status, killed || daemon.is_terminating && status.success()))
    }

    /// Returns the daemon and time if it has exited without having been killed.
    pub(crate) fn poll_exit(&self) -> Option<(u32, Moment)> {
        let mut running = self.running.lock().unwrap();
        let status = running.as_mut()?.process.child.try_wait().unwrap()?;
        let daemon = running.take()?;
        watchdog::forget(daemon.process.pid());
        Some(self.record_end(status, daemon.is_terminating && status.success()))
    }

    fn record_end(&self, status: ExitStatus, is_expected: bool) -> (u32, Moment) {
        *self.target.lock().unwrap() = None;
        let (mut lifetimes, at) = (self.lifetimes.lock().unwrap(), Moment::now());
        let lifetime = lifetimes.last_mut().unwrap();
        lifetime.to = Some(at);
        if !is_expected {
            self.record_exit(lifetime.number, "exited unexpectedly", status);
        }
        (lifetime.number, at)
    }

    fn record_exit(&self, number: u32, what: &str, status: ExitStatus) {
        let what = format!("daemon {number} in slot {} {what}: {status}", self.slot);
        self.unexpected_exits.lock().unwrap().push(what);
    }

    /// Returns the unexpected exits since the last call.
    pub(crate) fn unexpected_exits(&self) -> Vec<String> {
        mem::take(&mut self.unexpected_exits.lock().unwrap())
    }

    /// Returns the lifetime of the daemon at this time.
    pub(crate) fn lifetime_at(&self, at: Moment) -> Lifetime {
        let lifetimes = self.lifetimes.lock().unwrap();
        *lifetimes.iter().rfind(|lifetime| lifetime.from <= at).unwrap_or(&lifetimes[0])
    }

    pub(crate) fn lifetimes(&self) -> Vec<Lifetime> {
        self.lifetimes.lock().unwrap().clone()
    }
}
