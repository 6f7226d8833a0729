//! The processes that clients live in.

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
    client::Orders,
    link::Link,
    options::Options,
    watchdog,
    world::{CLIENTS_PER_PROCESS, DAEMONS},
};

/// The argument that makes this program a process of clients.
pub(crate) const SUBCOMMAND: &str = "client";

/// The place of a process of clients.
pub(crate) struct Clients {
    process: usize,
    dir: PathBuf,
    seed: u64,
    fence: bool,
    daemons: Vec<(u32, String)>,
    running: Mutex<Option<Running>>,
    /// What ended otherwise than it was made to.
    complaints: Mutex<Vec<String>>,
}

struct Running {
    child: Child,
    /// Its clients' numbers begin with this.
    first: u32,
}

impl Clients {
    pub(crate) fn new(process: usize, dir: &Path, options: &Options, links: &[Link]) -> Self {
        let daemons = (0..CLIENTS_PER_PROCESS)
            .map(|client| (process + client) % DAEMONS)
            .map(|slot| (slot as u32, links[slot].endpoint.clone()))
            .collect();
        let (dir, seed, fence) = (dir.to_owned(), options.seed, options.fence);
        let (running, complaints) = Default::default();
        Self { process, dir, seed, fence, daemons, running, complaints }
    }

    /// Starts one; its clients have new numbers.
    pub(crate) fn start(&self) {
        static NUMBERS: AtomicU32 = AtomicU32::new(0);
        let first = NUMBERS.fetch_add(CLIENTS_PER_PROCESS as u32, Relaxed);
        let orders = Orders {
            seed: self.seed,
            fence: self.fence,
            dir: self.dir.clone(),
            page: format!("clients-{first:05}"),
            first,
            daemons: self.daemons.clone(),
            stop_sign: (stop_sign(&self.dir), self.stopped()),
        };
        let log = File::create(self.dir.join(&orders.page).with_extension("log")).unwrap();
        let mut command = Command::new(env::current_exe().unwrap());
        command.arg(SUBCOMMAND).arg(serde_json::to_string(&orders).unwrap());
        command.stdin(Stdio::piped()).stderr(log).process_group(0);
        let child = watchdog::start(|| command.spawn().unwrap(), Child::id);
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

    /// The numbers of those who live, with their slots.
    pub(crate) fn living(&self) -> Vec<(u32, u32)> {
        let running = self.running.lock().unwrap();
        let first = running.as_ref().map(|running| running.first);
        let slots = || self.daemons.iter().map(|(slot, _)| *slot);
        first.map_or_else(Vec::new, |first| (first..).zip(slots()).collect())
    }

    /// Kills it, if there is one, and gives its clients' numbers.
    pub(crate) fn kill(&self) -> Option<Vec<u32>> {
        let mut running = self.running.lock().unwrap().take()?;
        watchdog::forget(running.child.id());
        // If it was dead already, this changes nothing.
        _ = running.child.kill();
        let status = running.child.wait().unwrap();
        if status.signal() != Some(Signal::SIGKILL as i32) {
            self.complain(&format!("ended by itself: {status}"));
        }
        Some((running.first..).take(CLIENTS_PER_PROCESS).collect())
    }

    /// Asks it to come to an end.
    pub(crate) fn finish(&self) {
        if let Some(running) = self.running.lock().unwrap().as_mut() {
            drop(running.child.stdin.take());
        }
    }

    /// Whether it has come to its end after [`Self::finish`], as it should.
    pub(crate) fn has_finished(&self) -> bool {
        let mut place = self.running.lock().unwrap();
        let Some(running) = place.as_mut() else { return true };
        let Some(status) = running.child.try_wait().unwrap() else { return false };
        watchdog::forget(running.child.id());
        *place = None;
        if !status.success() {
            self.complain(&format!("did not come to a good end: {status}"));
        }
        true
    }

    fn complain(&self, what: &str) {
        self.complaints.lock().unwrap().push(format!("process {} of clients {what}", self.process));
    }

    /// What there is to complain of since the last call.
    pub(crate) fn complaints(&self) -> Vec<String> {
        let mut running = self.running.lock().unwrap();
        let ended = running.as_mut().and_then(|running| running.child.try_wait().unwrap());
        drop(running);
        if ended.is_some() {
            self.kill();
        }
        mem::take(&mut self.complaints.lock().unwrap())
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
