//! The processes that clients live in.

use std::{
    env, fs,
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
    client::Orders,
    link::Link,
    world::{CLIENTS_PER_PROCESS, DAEMONS},
};

/// The argument that makes this program a process of clients.
pub(crate) const SUBCOMMAND: &str = "client";

/// The place of a process of clients.
pub(crate) struct Clients {
    process: usize,
    dir: PathBuf,
    seed: u64,
    daemons: Vec<(u32, String)>,
    running: Mutex<Option<Running>>,
}

struct Running {
    child: Child,
    /// Its clients' numbers begin with this.
    first: u32,
}

impl Clients {
    pub(crate) fn new(process: usize, dir: &Path, seed: u64, links: &[Link]) -> Self {
        let daemons = (0..CLIENTS_PER_PROCESS)
            .map(|client| (process + client) % DAEMONS)
            .map(|slot| (slot as u32, links[slot].endpoint.clone()))
            .collect();
        let dir = dir.to_owned();
        Self { process, dir, seed, daemons, running: Mutex::new(None) }
    }

    /// Starts one; its clients have new numbers.
    pub(crate) fn start(&self) {
        static NUMBERS: AtomicU32 = AtomicU32::new(0);
        let first = NUMBERS.fetch_add(CLIENTS_PER_PROCESS as u32, Relaxed);
        let orders = Orders {
            seed: self.seed,
            dir: self.dir.clone(),
            page: format!("clients-{first:05}"),
            first,
            daemons: self.daemons.clone(),
            stop_sign: (stop_sign(&self.dir), self.stopped()),
        };
        let mut command = Command::new(env::current_exe().unwrap());
        command.arg(SUBCOMMAND).arg(serde_json::to_string(&orders).unwrap());
        let child = command.stdin(Stdio::piped()).spawn().unwrap();
        *self.running.lock().unwrap() = Some(Running { child, first });
    }

    /// What becomes of the stop sign when one of these clients has found it.
    fn stopped(&self) -> PathBuf {
        self.dir.join(format!("stopped-{}", self.process))
    }

    /// Whether the process has stopped itself since the last call.
    pub(crate) fn has_stopped_itself(&self) -> bool {
        fs::remove_file(self.stopped()).is_ok()
    }

    pub(crate) fn signal(&self, signal: Signal) -> bool {
        let running = self.running.lock().unwrap();
        let Some(running) = running.as_ref() else { return false };
        kill(Pid::from_raw(running.child.id() as i32), signal).is_ok()
    }

    pub(crate) fn carry_on(&self) {
        self.signal(Signal::SIGCONT);
    }

    /// Kills it, if there is one, and gives its clients' numbers.
    pub(crate) fn kill(&self) -> Option<Vec<u32>> {
        let mut running = self.running.lock().unwrap().take()?;
        _ = running.child.kill();
        _ = running.child.wait();
        Some((running.first..).take(CLIENTS_PER_PROCESS).collect())
    }

    /// Asks it to come to an end.
    pub(crate) fn finish(&self) {
        if let Some(running) = self.running.lock().unwrap().as_mut() {
            drop(running.child.stdin.take());
        }
    }

    pub(crate) fn is_running(&self) -> bool {
        let mut running = self.running.lock().unwrap();
        running.as_mut().is_some_and(|running| matches!(running.child.try_wait(), Ok(None)))
    }
}

/// See [`Orders::stop_sign`].
pub(crate) fn stop_sign(dir: &Path) -> PathBuf {
    dir.join("stop")
}

impl Drop for Clients {
    fn drop(&mut self) {
        self.kill();
    }
}
