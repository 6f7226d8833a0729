//! Daemon of the demo: a process of this program that runs a daemon in a temporary
//! directory. It ends when its standard input ends, and removes the directory, so that
//! nothing is left behind even if the demo is killed.

use std::{
    fs,
    future::pending,
    io,
    path::{Path, PathBuf},
    process::{ExitCode, Stdio},
    time::Duration,
};

use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, ChildStdin, ChildStdout, Command},
    runtime::Builder,
};

use super::story::Event;
use crate::{
    cli::{
        configuration::Configuration,
        exit::{FAILED, Failure},
        options::variable_names,
        output::{Output, line},
        palette::is_log_colored,
        process,
    },
    config::Effective,
    daemon::{self, Daemon},
    telemetry,
};

/// Time that the daemon has to end.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// Internal command: the daemon of a demo.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct DemoDaemon {
    #[arg(long)]
    output: Output,
    /// Directory that is removed at the end
    #[arg(long)]
    directory: PathBuf,
    #[command(flatten)]
    configuration: Configuration,
}

impl DemoDaemon {
    /// Runs the daemon until standard input ends.
    pub(in crate::cli) fn run(self) -> ExitCode {
        let (output, directory) = (self.output, self.directory.clone());
        let ended = self.serve();
        // The demo may have removed it.
        let _ = fs::remove_dir_all(directory);
        ended.unwrap_or_else(|failure| failure.report(output))
    }

    fn serve(self) -> Result<ExitCode, Failure> {
        let Effective { config, .. } = self.configuration.load()?;
        telemetry::init(&config, is_log_colored(), None)
            .map_err(|error| Failure::new(FAILED, "telemetry", error))?;
        let runtime = Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let mut input = process::input()?;
            let failed = |error| Failure::new(FAILED, "daemon", error);
            let daemon = Daemon::bind(config, None).await.map_err(failed)?;
            line(format_args!("listening on {}", daemon.addresses().join(",")))?;
            line(format_args!("listening for HTTP on {}", daemon.http_addresses().join(",")))?;
            // Its state is removed: nothing has to be drained or recorded.
            let closed = async { while let Ok(Some(_)) = input.next_line().await {} };
            match daemon.run(pending(), closed).await {
                Ok(()) | Err(daemon::Error::Aborted) => Ok(ExitCode::SUCCESS),
                Err(error) => Err(failed(error)),
            }
        })
    }
}

/// Running daemon of a demo.
#[derive(Debug)]
pub(super) struct Server {
    child: Child,
    /// The daemon ends when this is closed. Not part of `child`, whose `wait` would close
    /// it.
    input: ChildStdin,
    directory: PathBuf,
    endpoint: String,
    http: String,
    /// Open as long as the daemon may write to it.
    _output: BufReader<ChildStdout>,
}

impl Server {
    /// Starts the daemon. Returns its exit code if it did not start; it has reported the
    /// error.
    pub(super) async fn start(
        listen: &str,
        http_listen: &str,
        output: Output,
    ) -> Result<Result<Self, ExitCode>, Failure> {
        let directory = process::temporary_directory("leasehold-demo")?;
        let started = Self::start_in(&directory, listen, http_listen, output).await;
        if !matches!(started, Ok(Ok(_))) {
            let _ = fs::remove_dir_all(&directory);
        }
        started
    }

    async fn start_in(
        directory: &Path,
        listen: &str,
        http_listen: &str,
        output: Output,
    ) -> Result<Result<Self, ExitCode>, Failure> {
        let mut command = hidden_command("demo-daemon")?;
        command
            .args(["--output", output.name(), "--log", "error"])
            .args(["--listen", listen, "--http-listen", http_listen, "--console=true"])
            .arg("--directory")
            .arg(directory)
            .arg("--data-dir")
            .arg(directory.join("data"));
        let mut child = command.spawn()?;
        let input = child.stdin.take().ok_or_else(no_pipe)?;
        let mut output = BufReader::new(child.stdout.take().ok_or_else(no_pipe)?);
        let addresses = [
            address(&mut output, "listening on ").await?,
            address(&mut output, "listening for HTTP on ").await?,
        ];
        let [Some(address), Some(http)] = addresses else {
            let code = child.wait().await?.code().and_then(|code| u8::try_from(code).ok());
            return Ok(Err(ExitCode::from(code.unwrap_or(FAILED))));
        };
        let [endpoint, http] = [address, http].map(|address| {
            if address.starts_with("unix:") { address } else { format!("http://{address}") }
        });
        let directory = directory.to_owned();
        Ok(Ok(Self { child, input, directory, endpoint, http, _output: output }))
    }

    /// Returns the daemon in the syntax of `--endpoint`.
    pub(super) fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Returns the event that names the addresses.
    pub(super) fn event(&self) -> Event {
        Event::Started {
            endpoint: self.endpoint.clone(),
            http: self.http.clone(),
            directory: self.directory.display().to_string(),
            pid: self.child.id().unwrap_or_default(),
        }
    }

    /// Waits for an unrequested end of the daemon.
    pub(super) async fn ended(&mut self) -> Failure {
        match self.child.wait().await {
            Ok(status) => Failure::new(FAILED, "demo", format!("the daemon ended: {status}")),
            Err(error) => error.into(),
        }
    }

    /// Stops the daemon and removes its directory.
    pub(super) async fn stop(self) {
        let Self { mut child, input, directory, .. } = self;
        drop(input);
        tokio::select! {
            biased;
            _ = child.wait() => {}
            () = leasehold_runtime::sleep(STOP_TIMEOUT) => {
                let _ = child.kill().await;
            }
        }
        // Removed by the daemon, unless it was killed.
        let _ = fs::remove_dir_all(directory);
    }
}

/// Reads the next address that the daemon prints. `None` if it has ended.
async fn address(
    output: &mut BufReader<ChildStdout>,
    prefix: &str,
) -> Result<Option<String>, Failure> {
    let mut text = String::new();
    output.read_line(&mut text).await?;
    Ok(text.trim_end().strip_prefix(prefix).map(str::to_owned))
}

/// Command of this program with pipes, in a process group of its own: Ctrl-C reaches only
/// the demo, which then stops it. The settings of the user's environment do not apply.
pub(super) fn hidden_command(name: &str) -> Result<Command, Failure> {
    let mut command = Command::new(process::this_program()?);
    command.arg0("leasehold").arg(name).stdin(Stdio::piped()).stdout(Stdio::piped());
    command.process_group(0);
    for variable in variable_names().filter(|name| name.starts_with("LEASEHOLD_")) {
        command.env_remove(variable);
    }
    Ok(command)
}

/// Error for a child without the requested pipes.
pub(super) fn no_pipe() -> io::Error {
    io::Error::other("a process was started without its pipes")
}
