//! Real daemons for tests: processes, sockets, signals.
//!
//! `azurite` runs the storage emulator, `proxy` puts faults between a daemon and its
//! storage, `rest` reads and changes blobs without the product's code, `relay` cuts
//! connections between clients and a daemon, `election_cli`, `election_client` and
//! `http_endpoint` drive a daemon in the three ways that tests of elections need, `logging`
//! captures what the client library logs, and
//! `store_conformance` has the checks that every store must pass.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
#![allow(missing_docs, reason = "a helper whose name says it all has no comment")]

pub mod azurite;
pub mod election_cli;
pub mod election_client;
pub mod http_endpoint;
pub mod logging;
pub mod proxy;
pub mod relay;
pub mod rest;
pub mod store_conformance;

use std::{
    env,
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio},
    sync::{Arc, LazyLock},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tempfile::TempDir;

/// Path of the program under test: the one that Cargo names to the tests of its package,
/// otherwise the one in the target directory of the running program.
///
/// # Panics
/// If there is no program at the path.
pub fn leasehold() -> &'static Path {
    static LEASEHOLD: LazyLock<PathBuf> = LazyLock::new(|| {
        if let Some(path) = env::var_os("CARGO_BIN_EXE_leasehold") {
            return path.into();
        }
        let mut directory = env::current_exe().unwrap();
        directory.pop();
        if directory.ends_with("deps") {
            directory.pop();
        }
        let path = directory.join(format!("leasehold{}", env::consts::EXE_SUFFIX));
        let build = "build it with `cargo build -p leasehold`, in the same profile as this program";
        assert!(path.exists(), "{} does not exist; {build}", path.display());
        path
    });
    &LEASEHOLD
}

/// A process whose standard output is read. It is killed when this is dropped.
pub struct Running {
    pub child: Child,
    output: BufReader<ChildStdout>,
}

impl Running {
    pub fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("it can be started");
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, output }
    }

    /// The next line that it writes.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Everything up to the end of the last process that could write.
    pub fn rest(&mut self) -> String {
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        rest
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid() as i32), signal).unwrap();
    }

    pub fn end(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    pub fn code(&mut self) -> Option<i32> {
        self.end().code()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// A running daemon. Its directory stays as long as somebody holds it.
pub struct Daemon {
    pub process: Running,
    /// As for `--endpoint`.
    pub endpoint: String,
    /// What its data directory is in.
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
        let mut process = Running::start(&mut serve(dir.path(), listen, arguments));
        let line = process.line();
        let address = line
            .strip_prefix("listening on ")
            .unwrap_or_else(|| panic!("the daemon said {line:?}"));
        let endpoint = match address.strip_prefix("unix:") {
            Some(_) => address.to_owned(),
            None => format!("http://{address}"),
        };
        Self { process, endpoint, dir }
    }

    /// Kills it with -9 if it still runs, and starts another in the same
    /// directory, on the same address.
    pub fn restart(mut self, arguments: &[&str]) -> Self {
        _ = self.process.child.kill();
        self.process.end();
        Self::start_in(Arc::clone(&self.dir), self.address(), arguments)
    }

    /// As for `--listen`.
    pub fn address(&self) -> &str {
        self.endpoint.strip_prefix("http://").unwrap_or(&self.endpoint)
    }

    /// Ends it as an operator would.
    pub fn stop(&mut self) -> ExitStatus {
        self.process.signal(Signal::SIGTERM);
        self.process.end()
    }

    /// A command of the same program, with this daemon as its endpoint.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = program();
        command.env("LEASEHOLD_ENDPOINT", &self.endpoint).args(arguments);
        command
    }

    /// The same, run to its end.
    pub fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// The same, begun.
    pub fn begin(&self, arguments: &[&str]) -> Running {
        Running::start(&mut self.command(arguments))
    }
}

/// The program, free of what the environment might say.
pub fn program() -> Command {
    let mut command = Command::new(leasehold());
    for (key, _) in env::vars().filter(|(key, _)| key.starts_with("LEASEHOLD_")) {
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

/// Whether this process, and so each that it starts, ignores a signal: under nohup, in
/// the background of a script and the like, the program does as it is told.
pub fn is_ignored(signal: Signal) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.map_or(0, |mask| u64::from_str_radix(mask.trim(), 16).unwrap());
    mask & (1 << (signal as i32 - 1)) != 0
}

/// Looks again and again until something is there. For what no event tells. It has
/// no limit: a test that takes long is named by its harness.
pub async fn until<T>(mut look: impl AsyncFnMut() -> Option<T>) -> T {
    loop {
        if let Some(found) = look().await {
            return found;
        }
        leasehold_runtime::sleep(std::time::Duration::from_millis(10)).await;
    }
}
