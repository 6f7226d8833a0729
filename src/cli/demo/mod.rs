//! `demo`: a daemon, three workers and faults, for newcomers.
//!
//! This process starts a daemon in a temporary directory ([`server`]) and three workers
//! ([`worker`]). It is also the resource that the workers write to, injects the faults
//! ([`fault`]), and prints the events ([`story`]). The daemon and the workers end when
//! this process ends, because their standard input is a pipe from it.

mod cast;
mod fault;
mod play;
mod server;
mod story;
mod worker;

use std::{
    io::{self, IsTerminal},
    num::NonZeroU32,
    process::ExitCode,
    time::Duration,
};

use leasehold_time::{Entropy, Moment};
use ratatui::crossterm::terminal;

use self::{fault::Plan, play::Play, server::Server, story::Event};
pub(super) use self::{server::DemoDaemon, worker::DemoWorker};
use super::{
    exit::Failure,
    options::{OutputOption, parse_count},
    output::Output,
    palette::Palette,
    process::{Signal, Signals},
    times::parse_duration,
};

/// Lock of the demo.
const LOCK: &str = "orders";

/// Election of the demo.
const ELECTION: &str = "scheduler";

/// Session TTL of the workers: short, so that a newcomer sees a failover soon.
const TTL: Duration = Duration::from_secs(2);

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Starts a daemon on the embedded store in a temporary directory, and three workers \
that compete for lock \"orders\" and elect the leader of \"scheduler\". Every few seconds, it kills or \
pauses a worker, or breaks the lock, and prints the effects. Each worker writes to a resource that \
compares tokens; the resource refuses a worker that was paused past its deadline.

Ctrl-C stops everything, and removes the directory.

Examples:
  leasehold demo
  leasehold demo --rounds 3
  leasehold demo --http-listen 127.0.0.1:8080     a fixed address for the console
  leasehold demo --output json | jq -c 'select(.event == \"refused\")'"
)]
pub(super) struct Demo {
    /// Stop after this many faults [default: no limit]
    #[arg(long, value_name = "COUNT", value_parser = parse_count::<NonZeroU32>)]
    rounds: Option<NonZeroU32>,
    /// Stop after this time [default: no limit]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    duration: Option<Duration>,
    /// Time between the end of a fault and the next one
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = parse_duration)]
    interval: Duration,
    /// Seed of the order of the faults [default: random]
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
    /// Address of the daemon: HOST:PORT or unix:/PATH; port 0 selects a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    listen: String,
    /// Address of the daemon for HTTP: HOST:PORT; port 0 selects a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    http_listen: String,
    #[command(flatten)]
    output: OutputOption,
}

impl Demo {
    pub(super) async fn run(self) -> Result<ExitCode, Failure> {
        // Before the start of any process, so that no signal leaves one behind.
        let mut stop = Signals::listen(&[Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP])?;
        let mut entropy = match self.seed {
            Some(seed) => Entropy::seeded(seed),
            None => Entropy::system()?,
        };
        let end = self.duration.map(|duration| Moment::now() + duration);
        let started = tokio::select! {
            biased;
            _ = stop.next() => return Ok(ExitCode::SUCCESS),
            started = Server::start(&self.listen, &self.http_listen, self.output.output) => started?,
        };
        let mut server = match started {
            Ok(server) => server,
            // The daemon has reported the error.
            Err(code) => return Ok(code),
        };
        let ended = self.play(&mut server, &mut entropy, &mut stop, end).await;
        server.stop().await;
        ended.map(|()| ExitCode::SUCCESS)
    }

    /// Plays until a signal, the end of the rounds or of the time. The workers end with
    /// this call.
    async fn play(
        &self,
        server: &mut Server,
        entropy: &mut Entropy,
        stop: &mut Signals,
        end: Option<Moment>,
    ) -> Result<(), Failure> {
        let output = self.output.output;
        let printer = Printer { output, palette: Palette::stdout(output) };
        printer.print(&server.event())?;
        let mut play = Play::start(server.endpoint(), printer).await?;
        let rounds = self.rounds.map_or(u32::MAX, NonZeroU32::get);
        tokio::select! {
            biased;
            _ = stop.next() => {}
            () = leasehold_runtime::sleep_until_any(end) => {}
            ended = server.ended() => return Err(ended),
            played = play.run(Plan::new(entropy), rounds, self.interval) => played?,
        }
        play.finish().await
    }
}

/// Width of the terminal. `None` if standard output is not a terminal.
fn width() -> Option<usize> {
    let size = io::stdout().is_terminal().then(terminal::size);
    size.and_then(Result::ok).map(|(columns, _)| usize::from(columns))
}

/// Output of the events.
#[derive(Debug, Clone, Copy)]
struct Printer {
    output: Output,
    palette: Palette,
}

impl Printer {
    fn print(self, event: &Event) -> Result<(), Failure> {
        match self.output {
            Output::Text => super::output::line(event.text(self.palette, width()))?,
            Output::Json => super::output::line(event.json())?,
        }
        Ok(())
    }
}
