//! `doctor`: whether the store can be used.

use std::process::ExitCode;

use clap::ArgMatches;
use serde_json::json;

use super::{
    configuration::Configuration,
    exit::{FAILED, Failure},
    output::{Output, line, printable},
};
use crate::{
    clock::Entropy,
    config::{Config, Store},
    lease::{
        azure::{account::Account, doctor},
        embedded,
        finding::{Finding, Report, Verdict},
    },
};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "It takes the configuration of `serve`, and tries what a daemon with it would \
do. In a storage account it creates the container if that is not there, and a blob that it removes \
again; a data directory that a daemon uses is only looked at.

Each finding is a line: ok, note (worth knowing), warning (it works, but not as well as it could) \
or FAILED, followed by what to do. With --output json it is an object with the keys check, verdict \
(ok, note, warning, failed), text and remedy (null if there is none).

Exit codes:
  0    nothing failed
  1    something failed
  64   the command line is wrong
  78   the configuration has mistakes; all of them are listed

Examples:
  leasehold doctor --config leasehold.toml
  leasehold doctor --store azure --azure-account-url https://ACCOUNT.blob.core.windows.net
  LEASEHOLD_AZURE_CONNECTION_STRING=UseDevelopmentStorage=true leasehold doctor --store azure
  leasehold doctor --output json | jq -r 'select(.verdict == \"failed\").remedy'"
)]
pub(super) struct Doctor {
    #[command(flatten)]
    configuration: Configuration,
}

impl Doctor {
    /// Examines the store. `matches` tells flags from the environment.
    pub(super) async fn run(
        self,
        matches: &ArgMatches,
        output: Output,
    ) -> Result<ExitCode, Failure> {
        let config = self.configuration.load(matches)?.config;
        let report = examine(&config).await?;
        for finding in report.findings() {
            match output {
                Output::Text => line(text(finding))?,
                Output::Json => line(json!({
                    "check": finding.check,
                    "verdict": finding.verdict.name(),
                    "text": finding.text,
                    "remedy": finding.remedy,
                }))?,
            }
        }
        Ok(if report.has_failed() { ExitCode::from(FAILED) } else { ExitCode::SUCCESS })
    }
}

async fn examine(config: &Config) -> Result<Report, Failure> {
    match config.store {
        Store::Embedded => Ok(embedded::examine(&config.data_dir)),
        Store::Azure => {
            let account = Account::new(&config.azure)
                .map_err(|error| Failure::new(FAILED, "account", error))?;
            Ok(doctor::examine(&account, &config.azure, &mut Entropy::system()?).await)
        }
    }
}

/// A line, and an indented one with what to do.
fn text(finding: &Finding) -> String {
    let mark = match finding.verdict {
        Verdict::Failed => "FAILED",
        verdict => verdict.name(),
    };
    let found = format!("{mark:<8} {}: {}", finding.check, finding.text);
    printable(&match &finding.remedy {
        Some(remedy) => format!("{found}\n{:9}{remedy}", ""),
        None => found,
    })
}
