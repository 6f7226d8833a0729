//! Commands that read elections and ask for a step-down: `leader`, `observe` and
//! `step-down`.

mod output;

use std::{process::ExitCode, time::Duration};

use serde_json::json;

use self::output::ElectionOutput;
pub(super) use self::output::value_text;
use super::{
    Globals,
    exit::{FAILED, Failure},
    output::{Output, line, lock_name, millis, optional_line, short_duration},
    palette::Palette,
    peer, process, times,
};

#[derive(Debug, clap::Args)]
#[command(after_help = "A value that is not printable UTF-8 is printed as base64:…. With \
--output json, \"value\" is null if it is not UTF-8, and \"value_base64\" always has it; \"local\" is \
true if the leader is a client of this daemon.

The result may be out of date when it arrives: let resources compare tokens.

Exit codes:
  0    the election has a leader
  1    it has none

Examples:
  leasehold leader scheduler
  leasehold leader scheduler --output json | jq -r .leader.value")]
pub(super) struct LeaderArgs {
    /// Name of the election
    name: String,
}

impl LeaderArgs {
    pub(super) async fn run(self, globals: &Globals) -> Result<ExitCode, Failure> {
        let client = globals.connect().await?;
        let election = ElectionOutput(client.election(&self.name).leader().await?);
        // The exit code is the result, even if the output is closed.
        match globals.output {
            Output::Text => optional_line(election.paragraph(Palette::stdout(globals.output)))?,
            Output::Json => optional_line(election.json())?,
        }
        Ok(ExitCode::from(if election.0.leader.is_some() { 0 } else { FAILED }))
    }
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Prints the current state first, then a line for every change, \"no \
leader\" included, until interrupted. A slow reader receives the latest state, not every intermediate \
state. Each line begins with the local time of its arrival; with --output json, \"time\" has it in UTC \
(RFC 3339). While the daemon is unreachable, the last line may be out of date, which is reported on \
standard error; `observe` continues when the daemon is back.

An observer does not campaign. Changes at other daemons are seen within the poll interval.

Examples:
  leasehold observe scheduler
  leasehold observe scheduler --output json | jq -r '.leader.value // \"no leader\"'")]
pub(super) struct Observe {
    /// Name of the election
    name: String,
}

impl Observe {
    pub(super) async fn run(self, globals: &Globals) -> Result<ExitCode, Failure> {
        let client = globals.connect().await?;
        let output = globals.output;
        let palette = Palette::stdout(output);
        let mut observer = client.election(&self.name).observe().on_error(move |error| {
            output.note(format_args!("the last line may be out of date: {error}"));
        });
        loop {
            let election = ElectionOutput(observer.next().await?);
            match output {
                Output::Text => {
                    let time = palette.dim(&times::local_now());
                    line(format_args!("{time} {}", election.line(palette)))?;
                }
                Output::Json => {
                    let mut object = election.json();
                    object["time"] = times::utc_now().into();
                    line(object)?;
                }
            }
        }
    }
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "The leader is notified immediately, finishes its work and resigns; then the next \
candidate leads. A leader that has not resigned when the timeout expires loses the leadership. \
`leasehold elect` sends SIGTERM to its command and campaigns again after at least 5s. The \
reason and the operator (user@host) are sent to the leader and logged by the daemon.

If the leader is a client of another daemon, the request is forwarded to that daemon, if it can be \
reached from here. An election without a leader is no error. To end the leadership without notice, \
use `leasehold break`.

Exit codes:
  0    the leader was asked to step down, or the election has no leader
  1    the leader's daemon could not be reached; the output names it

Examples:
  leasehold step-down scheduler --reason 'node-7 is drained'
  leasehold step-down scheduler --reason 'upgrade to 2.3' --timeout 10m"
)]
pub(super) struct StepDown {
    /// Name of the election
    name: String,
    /// Reason, sent to the leader and logged
    #[arg(long, short)]
    reason: String,
    /// Time the leader has to step down (1s to 1h); never shorter than its current validity
    #[arg(long, value_name = "TIME", value_parser = times::parse_duration)]
    #[arg(default_value = "30s")]
    timeout: Duration,
}

impl StepDown {
    pub(super) async fn run(self, globals: &Globals) -> Result<ExitCode, Failure> {
        let client = globals.connect().await?;
        let election = client.election(&self.name);
        let answer = election
            .step_down()
            .by(process::operator())
            .reason(&self.reason)
            .timeout(self.timeout)
            .await?;
        let state = ElectionOutput(answer.state);
        let palette = Palette::stdout(globals.output);
        let name = lock_name(&globals.namespace(), &self.name);
        let is_unreachable = !answer.asked && state.0.leader.is_some();
        match globals.output {
            Output::Text if answer.asked => {
                let within = short_duration(answer.ends_within);
                let requested = short_duration(self.timeout);
                let is_longer = answer.ends_within > self.timeout && within != requested;
                let longer = is_longer
                    .then(|| format!(" (not {requested}: its current validity is longer)"));
                let longer = longer.unwrap_or_default();
                let line = state.line(palette);
                optional_line(format!(
                    "asked the leader of {name} to step down within {within}{longer}:\n{line}"
                ))?;
            }
            Output::Text if is_unreachable => {
                let leader = state.0.leader.as_ref();
                let advice = peer::advice(leader.and_then(|leader| leader.peer.as_ref()));
                optional_line(format!("not asked: {advice}\n{}", state.line(palette)))?;
            }
            Output::Text => {
                optional_line(format!("election {name} has no leader; nothing to do"))?;
            }
            Output::Json => optional_line(json!({
                "asked": answer.asked,
                "ends_within_ms": millis(answer.ends_within),
                "election": state.json(),
            }))?,
        }
        Ok(ExitCode::from(if is_unreachable { FAILED } else { 0 }))
    }
}
