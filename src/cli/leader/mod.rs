//! The leader of an election: `leader`, `observe` and `step-down`.

mod output;

use std::{process::ExitCode, time::Duration};

use serde_json::json;

use self::output::ElectionOutput;
pub(super) use self::output::value_text;
use super::{
    Globals,
    exit::{FAILED, Failure},
    output::{Output, length, line, millis, offer},
    palette::Palette,
    peer, process, times,
};

#[derive(Debug, clap::Args)]
#[command(after_help = "A value that is not printable UTF-8 is printed as base64:…. With \
--output json, \"value\" is null if it is not UTF-8, and \"value_base64\" always has it; \"local\" is \
true if the leader is a client of this daemon.

The answer may be out of date when it arrives: let resources compare tokens.

Exit codes:
  0    there is a leader
  1    there is none

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
        let shown = ElectionOutput(client.election(&self.name).leader().await?);
        // The exit code is the answer, also without a reader.
        match globals.output {
            Output::Text => offer(shown.paragraph(Palette::stdout(globals.output)))?,
            Output::Json => offer(shown.json())?,
        }
        Ok(ExitCode::from(if shown.0.leader.is_some() { 0 } else { FAILED }))
    }
}

#[derive(Debug, clap::Args)]
#[command(after_help = "The current state comes first, then a line for every change, \"no \
leader\" included, until interrupted. A slow reader gets the latest state, not every state in \
between. Each line begins with the local time at which it arrived; with --output json, \"time\" has \
it in UTC (RFC 3339). While the daemon is unreachable, the last line may be out of date, which is \
reported on standard error; `observe` continues when the daemon is back.

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
            let shown = ElectionOutput(observer.next().await?);
            match output {
                Output::Text => {
                    let time = palette.dim(&times::local_now());
                    line(format_args!("{time} {}", shown.line(palette)))?;
                }
                Output::Json => {
                    let mut object = shown.json();
                    object["time"] = times::utc_now().into();
                    line(object)?;
                }
            }
        }
    }
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "The leader is told at once, finishes and resigns; then a waiting candidate \
leads. If it has not resigned when the time is over, it loses the leadership. `leasehold elect` \
sends its command SIGTERM when it is told, and does not campaign again before 5s have passed. The \
reason and who asked are shown to the leader and logged by the daemon.

If the leader is a client of another daemon, the request is sent to that daemon, if it can be \
reached from here. If nobody leads, there is nothing to do, and that is no error. To take the leadership away without a notice, use \
`leasehold break`.

Exit codes:
  0    the leader was asked, or nobody leads
  1    the leader's daemon could not be reached: nothing was done; the output says which it is

Examples:
  leasehold step-down scheduler --reason 'node-7 is drained'
  leasehold step-down scheduler --reason 'upgrade to 2.3' --timeout 10m"
)]
pub(super) struct StepDown {
    /// Name of the election
    name: String,
    /// Why: shown to the leader and logged
    #[arg(long)]
    reason: String,
    /// How long the leader is given: 1s to 1h, but never less than what it has been promised
    /// already
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    #[arg(default_value = "30s")]
    timeout: Duration,
}

impl StepDown {
    pub(super) async fn run(self, globals: &Globals) -> Result<ExitCode, Failure> {
        let client = globals.connect().await?;
        let election = client.election(&self.name);
        let answer = election
            .step_down()
            .by(process::who())
            .reason(&self.reason)
            .timeout(self.timeout)
            .await?;
        let shown = ElectionOutput(answer.state);
        let palette = Palette::stdout(globals.output);
        let elsewhere = !answer.asked && shown.0.leader.is_some();
        match globals.output {
            Output::Text if answer.asked => {
                let within = length(answer.ends_within);
                offer(format!("asked to step down within {within}:\n{}", shown.line(palette)))?;
            }
            Output::Text if elsewhere => {
                let leader = shown.0.leader.as_ref();
                let advice = peer::advice(leader.and_then(|leader| leader.peer.as_ref()));
                offer(format!("not asked: {advice}\n{}", shown.line(palette)))?;
            }
            Output::Text => offer(format!("nothing to do: {}", shown.line(palette)))?,
            Output::Json => offer(json!({
                "asked": answer.asked,
                "ends_within_ms": millis(answer.ends_within),
                "election": shown.json(),
            }))?,
        }
        Ok(ExitCode::from(if elsewhere { FAILED } else { 0 }))
    }
}
