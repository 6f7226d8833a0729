//! Servers that are started for a benchmark, with their memory and CPU time. These are
//! read from /proc, so that only Linux is supported.

use std::{
    fs,
    io::{self, BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::cli::exit::{FAILED, Failure};

/// Unit of CPU time in /proc: hundredths of a second.
const TICK: Duration = Duration::from_millis(10);

/// Process of this program. Dropping it kills the process.
pub(super) struct Server {
    child: Child,
    pub(super) endpoint: String,
    dir: PathBuf,
}

impl Server {
    /// Starts a daemon with a new data directory.
    pub(super) fn daemon(name: &str, unix: bool, arguments: &[String]) -> Result<Self, Failure> {
        Self::start(name, unix, |command, dir, listen| {
            command.arg("serve").arg("--data-dir").arg(dir.join("data"));
            command.args(["--listen", listen, "--log", "error"]).args(arguments);
        })
    }

    /// Starts the floor.
    pub(super) fn floor(unix: bool) -> Result<Self, Failure> {
        Self::start("floor", unix, |command, _, listen| {
            command.args(["bench", "floor", "--listen", listen]);
        })
    }

    fn start(
        name: &str,
        unix: bool,
        arguments: impl FnOnce(&mut Command, &PathBuf, &str),
    ) -> Result<Self, Failure> {
        let dir =
            std::env::temp_dir().join(format!("leasehold-bench-{}-{name}", std::process::id()));
        fs::create_dir_all(&dir)?;
        let listen = if unix {
            format!("unix:{}", dir.join("socket").display())
        } else {
            "127.0.0.1:0".to_owned()
        };
        let mut command = Command::new(std::env::current_exe()?);
        arguments(&mut command, &dir, &listen);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let mut first_line = String::new();
        if let Some(output) = child.stdout.take() {
            BufReader::new(output).read_line(&mut first_line)?;
        }
        let mut server = Self { child, endpoint: String::new(), dir };
        let Some(address) = first_line.trim().strip_prefix("listening on ") else {
            return Err(Failure::new(FAILED, "bench", format!("{name} did not start")));
        };
        server.endpoint = if unix { address.to_owned() } else { format!("http://{address}") };
        Ok(server)
    }

    /// Returns the directory of the server, which is removed with it.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the resident memory, including shared memory, in bytes.
    pub(super) fn memory(&self) -> Result<u64, Failure> {
        let status = self.read("status")?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse().ok());
        kib.map(|kib: u64| kib * 1024).ok_or_else(|| unreadable("status"))
    }

    /// Returns the CPU time used so far.
    pub(super) fn cpu(&self) -> Result<Duration, Failure> {
        let stat = self.read("stat")?;
        // The name in parentheses may contain any character; fields are counted after it.
        let fields = stat.rsplit_once(") ").map(|(_, fields)| fields).unwrap_or_default();
        let mut times = fields.split(' ').skip(11).map(str::parse::<u32>);
        match (times.next(), times.next()) {
            (Some(Ok(user)), Some(Ok(system))) => Ok(TICK * (user + system)),
            _ => Err(unreadable("stat")),
        }
    }

    /// Sends a signal to the process.
    pub(super) fn signal(&self, signal: Signal) -> Result<(), Failure> {
        kill(Pid::from_raw(self.child.id() as i32), signal)
            .map_err(|error| Failure::new(FAILED, "bench", error.to_string()))
    }

    fn read(&self, file: &str) -> Result<String, Failure> {
        let path = format!("/proc/{}/{file}", self.child.id());
        fs::read_to_string(path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => unreadable(file),
            _ => error.into(),
        })
    }
}

fn unreadable(file: &str) -> Failure {
    let message = format!("can't read /proc/PID/{file}: this benchmark needs Linux");
    Failure::new(FAILED, "bench", message)
}

impl Drop for Server {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
        _ = fs::remove_dir_all(&self.dir);
    }
}
