//! Client processes.

use std::{
    env,
    fs::{self, File},
    mem,
    os::unix::process::{CommandExt, ExitStatusExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Mutex,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::{
    client::ClientConfig,
    link::Link,
    options::Options,
    watchdog,
    world::{CLIENTS_PER_PROCESS, DAEMONS},
};

/// Argument that makes this program a client process.
pub(crate) const SUBCOMMAND: &str = "client";

/// Slot of a client process.
pub(crate) struct Clients {
    process: usize,
    dir: PathBuf,
    seed: u64,
    fence: bool,
    daemons: Vec<(u32, String)>,
    running: Mutex<Option<Running>>,
    /// Unexpected exits since the last report.
    unexpected_exits: Mutex<Vec<String>>,
}

struct Running {
    child: Child,
    /// Number of its first client.
    first: u32,
}

impl Clients {
    pub(crate) fn new(process: usize, dir: &Path, options: &Options, links: &[Link]) -> Self {
        let daemons = (0..CLIENTS_PER_PROCESS)
            .map(|client| (process + client) % DAEMONS)
            .map(|slot| (slot as u32, links[slot].endpoint.clone()))
            .collect();
        let (dir, seed, fence) = (dir.to_owned(), options.seed, options.fence);
        let (running, unexpected_exits) = Default::default();
        Self { process, dir, seed, fence, daemons, running, unexpected_exits }
    }

    /// Starts a process; its clients get new numbers.
    pub(crate) fn start(&self) {
        static NUMBERS: AtomicU32 = AtomicU32::new(0);
        let first = NUMBERS.fetch_add(CLIENTS_PER_PROCESS as u32, Relaxed);
        let config = ClientConfig {
            seed: self.seed,
            fence: self.fence,
            dir: self.dir.clone(),
            recording: format!("clients-{first:05}"),
            first,
            daemons: self.daemons.clone(),
            pause_request: (pause_request(&self.dir), self.pause_file()),
        };
        let log = File::create(self.dir.join(&config.recording).with_extension("log")).unwrap();
        let mut command = Command::new(env::current_exe().unwrap());
        command.arg(SUBCOMMAND).arg(serde_json::to_string(&config).unwrap());
        command.stdin(Stdio::piped()).stderr(log).process_group(0);
        let child = watchdog::start(|| command.spawn().unwrap(), Child::id);
        *self.running.lock().unwrap() = Some(Running { child, first });
    }

    /// Returns the file to which a client of this process renames the pause
    /// request.
    fn pause_file(&self) -> PathBuf {
        self.dir.join(format!("paused-{}", self.process))
    }

    /// Returns whether the process has paused itself since the last call.
    pub(crate) fn has_paused_itself(&self) -> bool {
        fs::remove_file(self.pause_file()).is_ok()
    }

    pub(crate) fn signal(&self, signal: Signal) -> bool {
        let running = self.running.lock().unwrap();
        let Some(running) = running.as_ref() else { return false };
        kill(Pid::from_raw(running.child.id() as i32), signal).is_ok()
    }

    pub(crate) fn resume(&self) {
        self.signal(Signal::SIGCONT);
    }

    /// Returns the numbers of the running clients, with the slots of their
    /// daemons.
    pub(crate) fn living(&self) -> Vec<(u32, u32)> {
        let running = self.running.lock().unwrap();
        let first = running.as_ref().map(|running| running.first);
        let slots = || self.daemons.iter().map(|(slot, _)| *slot);
        first.map_or_else(Vec::new, |first| (first..).zip(slots()).collect())
    }

    /// Kills the process, if it is running, and returns the numbers of its
    /// clients.
    pub(crate) fn kill(&self) -> Option<Vec<u32>> {
        let mut running = self.running.lock().unwrap().take()?;
        watchdog::forget(running.child.id());
        // No effect if it has already exited.
        _ = running.child.kill();
        let status = running.child.wait().unwrap();
        if status.signal() != Some(Signal::SIGKILL as i32) {
            self.record_exit(&format!("exited unexpectedly: {status}"));
        }
        Some((running.first..).take(CLIENTS_PER_PROCESS).collect())
    }

    /// Asks the process to exit.
    pub(crate) fn finish(&self) {
        if let Some(running) = self.running.lock().unwrap().as_mut() {
            drop(running.child.stdin.take());
        }
    }

    /// Returns whether it has exited after [`Self::finish`]. Records a failure.
    pub(crate) fn has_finished(&self) -> bool {
        let mut slot = self.running.lock().unwrap();
        let Some(running) = slot.as_mut() else { return true };
        let Some(status) = running.child.try_wait().unwrap() else { return false };
        watchdog::forget(running.child.id());
        *slot = None;
        if !status.success() {
            self.record_exit(&format!("exited with an error: {status}"));
        }
        true
    }

    fn record_exit(&self, what: &str) {
        self.unexpected_exits
            .lock()
            .unwrap()
            .push(format!("client process {} {what}", self.process));
    }

    /// Returns the unexpected exits since the last call.
    pub(crate) fn unexpected_exits(&self) -> Vec<String> {
        let mut running = self.running.lock().unwrap();
        let ended = running.as_mut().and_then(|running| running.child.try_wait().unwrap());
        drop(running);
        if ended.is_some() {
            self.kill();
        }
        mem::take(&mut self.unexpected_exits.lock().unwrap())
    }
}

/// Returns the file that requests a pause; see [`ClientConfig::pause_request`].
pub(crate) fn pause_request(dir: &Path) -> PathBuf {
    dir.join("stop")
}

impl Drop for Clients {
    fn drop(&mut self) {
        self.kill();
    }
}
