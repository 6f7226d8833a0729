//! The daemons: one at a time in each slot, each with a number of its own.

use std::{
    fs::File,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};

use leasehold::clock::Moment;
use nix::sys::signal::Signal;

use crate::{
    link::Target,
    support::{Running, azurite::Azurite, proxy::Proxy, serve},
    world::{CONTAINER, LEASE, POLL},
};

/// A daemon's time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Life {
    pub(crate) slot: usize,
    /// As in the history.
    pub(crate) number: u32,
    /// When it was begun, before it could be reached.
    pub(crate) from: Moment,
    pub(crate) to: Option<Moment>,
}

/// The place of a daemon, with its own way to the storage.
pub(crate) struct Slot {
    pub(crate) proxy: Proxy,
    slot: usize,
    dir: PathBuf,
    connection: String,
    target: Target,
    running: Mutex<Option<Running>>,
    lives: Mutex<Vec<Life>>,
}

impl Slot {
    pub(crate) fn new(slot: usize, dir: &Path, azurite: &Azurite) -> Self {
        let proxy = Proxy::start(azurite.port());
        let connection = azurite.connection_string_via(proxy.port());
        let dir = dir.to_owned();
        let (target, running, lives) = Default::default();
        Self { proxy, slot, dir, connection, target, running, lives }
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
        let timing = ["--lease-duration", &lease, "--poll-interval", &poll, "--drain", "3s"];
        let mut command = serve(&self.dir, "127.0.0.1:0", &[&azure[..], &timing].concat());
        command.env("LEASEHOLD_AZURE_CONNECTION_STRING", &self.connection);
        command.env("LEASEHOLD_LOG", "info").stderr(log);
        let from = Moment::now();
        let mut running = Running::start(&mut command);
        let line = running.line();
        let Some(address) = line.strip_prefix("listening on ") else { return false };
        self.lives.lock().unwrap().push(Life { slot: self.slot, number, from, to: None });
        *self.target.lock().unwrap() = Some(address.parse().unwrap());
        *self.running.lock().unwrap() = Some(running);
        true
    }

    /// Whether there was one to be signalled.
    pub(crate) fn signal(&self, signal: Signal) -> bool {
        let running = self.running.lock().unwrap();
        running.as_ref().inspect(|running| running.signal(signal)).is_some()
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
        let mut running = self.running.lock().unwrap().take()?;
        _ = running.child.kill();
        running.end();
        Some(self.ended())
    }

    /// Looks whether it has ended by itself.
    pub(crate) fn has_ended(&self) -> Option<(u32, Moment)> {
        let mut running = self.running.lock().unwrap();
        running.as_mut()?.child.try_wait().unwrap()?;
        *running = None;
        Some(self.ended())
    }

    fn ended(&self) -> (u32, Moment) {
        *self.target.lock().unwrap() = None;
        let (mut lives, at) = (self.lives.lock().unwrap(), Moment::now());
        let life = lives.last_mut().unwrap();
        life.to = Some(at);
        (life.number, at)
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
