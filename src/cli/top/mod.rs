//! `top`: live view of a daemon.
//!
//! [`model`] is the state of the view, [`draw`] draws it, [`terminal`] reads the keys.

mod draw;
mod model;
mod sample;
mod terminal;

use std::{io::IsTerminal, num::NonZeroU32, pin::pin, process::ExitCode, time::Duration};

use leasehold_client::{Client, Error};
use leasehold_time::Moment;
use serde_json::{Map, Value, json};

use self::{
    draw::{Caption, Theme, draw, text},
    model::{Lock, Model, Sample},
    terminal::{Key, Screen},
};
use super::{
    exit::Failure,
    options::{Globals, parse_count},
    output::{Output, line, millis},
    palette::Palette,
    process::{Signal, Signals},
    times::{self, parse_duration},
};

/// Minimum interval between two requests.
const MIN_INTERVAL: Duration = Duration::from_millis(100);

#[derive(Debug, clap::Args)]
#[command(after_help = "Shows the locks of all namespaces that are held through this daemon: the \
busiest and the longest held, those at risk, and those with the longest queues. A lock is at risk if \
renewals of its lease are failing. GRANTS counts the grants of the last one to two minutes.

Keys: h, l, w, g and n sort by time held, time left, waiters, grants and name; r reverses; the arrow \
and page keys scroll; q or Ctrl-C quits.

With --once, or if standard output is not a terminal, prints one frame after one interval, without \
colors. With --output json, that frame is one JSON object.

Examples:
  leasehold top
  leasehold top --interval 500ms --limit 100
  leasehold top --once --output json | jq .grants_per_s")]
pub(super) struct Top {
    /// Print one frame and exit
    #[arg(long)]
    once: bool,
    /// Time between two requests to the daemon (minimum 100ms)
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = parse_interval)]
    interval: Duration,
    /// Maximum number of locks of each kind
    #[arg(long, value_name = "COUNT", default_value = "50", value_parser = parse_count::<NonZeroU32>)]
    limit: NonZeroU32,
}

fn parse_interval(text: &str) -> Result<Duration, &'static str> {
    match parse_duration(text)? {
        interval if interval >= MIN_INTERVAL => Ok(interval),
        _ => Err("use at least 100ms"),
    }
}

impl Top {
    pub(super) async fn run(self, globals: &Globals) -> Result<ExitCode, Failure> {
        let client = globals.connect().await?;
        if self.once || globals.output == Output::Json || !std::io::stdout().is_terminal() {
            self.print_once(&client, globals).await
        } else {
            self.watch(&client, globals).await
        }
    }

    /// Prints one frame. The rates need two samples.
    async fn print_once(&self, client: &Client, globals: &Globals) -> Result<ExitCode, Failure> {
        let mut model = Model::default();
        model.update(Ok(self.sample_at(client, Moment::now()).await?));
        model.update(Ok(self.sample_at(client, Moment::now() + self.interval).await?));
        match globals.output {
            Output::Json => line(json_of(&model))?,
            Output::Text => {
                let (time, endpoint) = (local_time(), globals.endpoint());
                line(text(&model, self.caption(&endpoint, &time, false)).trim_end())?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Draws a frame after every interval and every key.
    async fn watch(&self, client: &Client, globals: &Globals) -> Result<ExitCode, Failure> {
        let theme = Theme { is_colored: Palette::stdout(globals.output).is_colored() };
        let endpoint = globals.endpoint();
        let mut stop = Signals::listen(&[Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP])?;
        let mut screen = Screen::open()?;
        let mut model = Model::default();
        let mut next_sample = pin!(self.sample_at(client, Moment::now()));
        loop {
            let time = local_time();
            let caption = self.caption(&endpoint, &time, true);
            screen.draw(|frame| draw(frame, &model, caption, theme))?;
            tokio::select! {
                biased;
                _ = stop.next() => return Ok(ExitCode::SUCCESS),
                key = screen.next_key() => match key? {
                    Key::Quit => return Ok(ExitCode::SUCCESS),
                    Key::Input(input) => model.on(input),
                    Key::Other => {}
                },
                sample = &mut next_sample => {
                    model.update(sample.map_err(|error| error.to_string()));
                    next_sample.set(self.sample_at(client, Moment::now() + self.interval));
                }
            }
        }
    }

    /// Reads a sample at a time.
    async fn sample_at(&self, client: &Client, at: Moment) -> Result<Sample, Error> {
        leasehold_runtime::sleep_until(at).await;
        let overview = client.overview(self.limit.get()).await?;
        Ok(Sample::new(overview, Moment::now()))
    }

    const fn caption<'a>(&self, endpoint: &'a str, time: &'a str, has_keys: bool) -> Caption<'a> {
        Caption { endpoint, interval: self.interval, time, has_keys }
    }
}

fn local_time() -> String {
    times::start(Duration::ZERO).unwrap_or_default()
}

/// JSON object of the latest sample. Unknown values are null, so that all keys are always
/// present.
fn json_of(model: &Model) -> Value {
    let Some(sample) = model.sample() else { return Value::Null };
    let rates = model.rates();
    let calls = sample.calls.iter().map(|calls| {
        json!({ "operation": calls.operation, "purpose": calls.purpose, "count": calls.count })
    });
    let calls_per_s = rates.map(|rates| {
        let rates = rates.calls.iter();
        rates.map(|(operation, rate)| (operation.clone(), json!(rate))).collect::<Map<_, _>>()
    });
    json!({
        "store": sample.store,
        "unavailability": sample.trouble,
        "sessions": sample.sessions,
        "held": sample.held,
        "waiting": sample.waiting,
        "at_risk": sample.at_risk,
        "leaderless_elections": sample.leaderless,
        "longest_wait_ms": sample.oldest_wait.map(millis),
        "grants": sample.grants,
        "releases": sample.releases,
        "losses": sample.losses,
        "grants_per_s": rates.map(|rates| rates.grants),
        "releases_per_s": rates.map(|rates| rates.releases),
        "losses_per_s": rates.map(|rates| rates.losses),
        "calls": calls.collect::<Vec<_>>(),
        "calls_per_s": calls_per_s,
        "locks": sample.locks.iter().map(lock_json).collect::<Vec<_>>(),
    })
}

fn lock_json(lock: &Lock) -> Value {
    json!({
        "namespace": lock.namespace,
        "name": lock.name,
        "state": lock.state.name(),
        "holder": lock.holder,
        "token": lock.token,
        "held_for_ms": lock.held_for.map(millis),
        "time_left_ms": lock.time_left.map(millis),
        "waiting": lock.waiting,
        "longest_wait_ms": lock.longest_wait.map(millis),
        "election": lock.is_election,
        "recent_grants": lock.recent_grants,
    })
}
