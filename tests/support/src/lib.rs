//! Test support: real daemons as processes, with sockets and signals.
//!
//! - `azurite`: runs the storage emulator. `npm`: installs packages of Node.js.
//! - `proxy`: injects faults between a daemon and its storage.
//! - `rest`: reads and changes blobs without the product's code.
//! - `relay`: cuts connections between clients and a daemon.
//! - `election_cli`, `election_client`, `http_endpoint`: run elections through the command
//!   line, the client library and HTTP.
//! - `otlp`: receives telemetry.
//! - `logging`: captures the log events of the client library.
//! - `metrics`: scrapes of a daemon, and the programs that check them.
//! - `store_conformance`: checks that every store must pass.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
#![allow(missing_docs, reason = "helpers with descriptive names have no comment")]

pub mod azurite;
pub mod election_cli;
pub mod election_client;
pub mod http_endpoint;
pub mod logging;
pub mod metrics;
pub mod npm;
pub mod otlp;
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

/// Path of the program under test: the path that Cargo sets for the tests of its package,
/// otherwise the program in the target directory of the running test.
///
/// # Panics
/// If the program does not exist.
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

/// A child process with its standard output piped. Dropping it kills the process.
pub struct Running {
    pub child: Child,
    output: BufReader<ChildStdout>,
}

impl Running {
    pub fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the program starts");
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, output }
    }

    /// Reads the next line of output.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Reads until all processes with the write end of the pipe have exited.
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

/// A running daemon.
pub struct Daemon {
    pub process: Running,
    /// Endpoint in the syntax of `--endpoint`.
    pub endpoint: String,
    /// Parent of the data directory. Deleted with the last reference.
    pub dir: Arc<TempDir>,
}

impl Daemon {
    /// Starts a daemon on a free port, with a fresh directory.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// Like [`Self::start`], with additional arguments.
    pub fn start_with(arguments: &[&str]) -> Self {
        Self::start_in(Arc::new(TempDir::new().unwrap()), "127.0.0.1:0", arguments)
    }

    /// Like [`Self::start_with`], with additional environment variables.
    pub fn start_with_variables(arguments: &[&str], variables: &[(&str, String)]) -> Self {
        let dir = Arc::new(TempDir::new().unwrap());
        let mut command = serve(dir.path(), "127.0.0.1:0", arguments);
        command.envs(variables.iter().map(|(key, value)| (key, value)));
        Self::start_command(dir, &mut command)
    }

    /// Starts a daemon in a directory.
    pub fn start_in(dir: Arc<TempDir>, listen: &str, arguments: &[&str]) -> Self {
        let mut command = serve(dir.path(), listen, arguments);
        Self::start_command(dir, &mut command)
    }

    fn start_command(dir: Arc<TempDir>, command: &mut Command) -> Self {
        let mut process = Running::start(command);
        let line = process.line();
        let address = line
            .strip_prefix("listening on ")
            .unwrap_or_else(|| panic!("unexpected output {line:?}"));
        let endpoint = match address.strip_prefix("unix:") {
            Some(_) => address.to_owned(),
            None => format!("http://{address}"),
        };
        Self { process, endpoint, dir }
    }

    /// Kills the daemon with SIGKILL if it still runs, and starts another one in
    /// the same directory, at the same address.
    pub fn restart(mut self, arguments: &[&str]) -> Self {
        _ = self.process.child.kill();
        self.process.end();
        Self::start_in(Arc::clone(&self.dir), self.address(), arguments)
    }

    /// Address in the syntax of `--listen`.
    pub fn address(&self) -> &str {
        self.endpoint.strip_prefix("http://").unwrap_or(&self.endpoint)
    }

    /// Stops the daemon with SIGTERM and waits for its exit.
    pub fn stop(&mut self) -> ExitStatus {
        self.process.signal(Signal::SIGTERM);
        self.process.end()
    }

    /// A command of the same program, with this daemon as its endpoint. Not
    /// started.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = program();
        command.env("LEASEHOLD_ENDPOINT", &self.endpoint).args(arguments);
        command
    }

    /// Runs a command to its end.
    pub fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Starts a command.
    pub fn begin(&self, arguments: &[&str]) -> Running {
        Running::start(&mut self.command(arguments))
    }
}

/// The program without `LEASEHOLD_` and `OTEL_` variables in its environment.
pub fn program() -> Command {
    let mut command = Command::new(leasehold());
    let is_ours = |key: &str| key.starts_with("LEASEHOLD_") || key.starts_with("OTEL_");
    for (key, _) in env::vars().filter(|(key, _)| is_ours(key)) {
        command.env_remove(key);
    }
    command.stdin(Stdio::null());
    command
}

/// `leasehold serve` with its data in a directory.
pub fn serve(dir: &Path, listen: &str, arguments: &[&str]) -> Command {
    let data: PathBuf = dir.join("data");
    let mut command = program();
    command.arg("serve").arg("--data-dir").arg(data).args(["--listen", listen]).args(arguments);
    command
}

/// Returns whether this process ignores a signal, for example under nohup or in
/// the background of a script. Its child processes then ignore the signal too.
pub fn is_ignored(signal: Signal) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.map_or(0, |mask| u64::from_str_radix(mask.trim(), 16).unwrap());
    mask & (1 << (signal as i32 - 1)) != 0
}

/// Polls until a condition returns a value, for changes that no event reports.
/// It has no timeout: the test harness reports slow tests.
pub async fn until<T>(mut condition: impl AsyncFnMut() -> Option<T>) -> T {
    loop {
        if let Some(value) = condition().await {
            return value;
        }
        leasehold_runtime::sleep(std::time::Duration::from_millis(10)).await;
    }
}
