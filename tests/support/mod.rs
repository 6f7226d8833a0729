//! Real daemons for tests: processes, sockets, signals.

#![allow(dead_code, unreachable_pub, reason = "each test uses a part of it")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::Arc,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tempfile::TempDir;

/// The program under test.
pub const LEASEHOLD: &str = env!("CARGO_BIN_EXE_leasehold");

/// A running daemon. It is killed when this is dropped; its directory stays as
/// long as somebody holds it.
pub struct Daemon {
    child: Child,
    /// As for `--endpoint`.
    pub endpoint: String,
    /// Where its data is.
    pub dir: Arc<TempDir>,
}

impl Daemon {
    /// Starts a daemon on a free port, with a fresh directory.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// The same, with more arguments.
    pub fn start_with(arguments: &[&str]) -> Self {
        Self::start_in(Arc::new(TempDir::new().unwrap()), "127.0.0.1:0", arguments)
    }

    /// Starts a daemon in a directory.
    pub fn start_in(dir: Arc<TempDir>, listen: &str, arguments: &[&str]) -> Self {
        let mut child = serve(dir.path(), listen, arguments)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the daemon can be started");
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line
            .trim()
            .strip_prefix("listening on ")
            .unwrap_or_else(|| panic!("the daemon said {line:?}"));
        let endpoint = match address.strip_prefix("unix:") {
            Some(_) => address.to_owned(),
            None => format!("http://{address}"),
        };
        Self { child, endpoint, dir }
    }

    /// Starts another in the same directory, on the same address.
    pub fn restart(mut self, arguments: &[&str]) -> Self {
        _ = self.child.kill();
        self.child.wait().unwrap();
        Self::start_in(Arc::clone(&self.dir), self.address(), arguments)
    }

    /// As for `--listen`.
    pub fn address(&self) -> &str {
        self.endpoint.strip_prefix("http://").unwrap_or(&self.endpoint)
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        send(self.pid(), signal);
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    /// Ends it as an operator would.
    pub fn stop(&mut self) -> ExitStatus {
        self.signal(Signal::SIGTERM);
        self.wait()
    }

    /// A command of the same program, with this daemon as its endpoint.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = program();
        command.env("LEASEHOLD_ENDPOINT", &self.endpoint).args(arguments);
        command
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// The program, free of what the environment might say.
pub fn program() -> Command {
    let mut command = Command::new(LEASEHOLD);
    for (key, _) in std::env::vars().filter(|(key, _)| key.starts_with("LEASEHOLD_")) {
        command.env_remove(key);
    }
    command.stdin(Stdio::null());
    command
}

/// `serve` in a directory.
pub fn serve(dir: &Path, listen: &str, arguments: &[&str]) -> Command {
    let data: PathBuf = dir.join("data");
    let mut command = program();
    command.arg("serve").arg("--data-dir").arg(data).args(["--listen", listen]).args(arguments);
    command
}

/// Sends a signal to a process.
pub fn send(pid: u32, signal: Signal) {
    kill(Pid::from_raw(pid as i32), signal).unwrap();
}

/// Looks again and again until something is there. For what no event tells;
/// the test's own time limit is the limit.
pub async fn until<T>(mut look: impl AsyncFnMut() -> Option<T>) -> T {
    loop {
        if let Some(found) = look().await {
            return found;
        }
        leasehold::clock::sleep(std::time::Duration::from_millis(10)).await;
    }
}
