//! `doctor`: checks that the store is usable.

use std::process::ExitCode;

use serde_json::json;

use super::{
    configuration::Configuration,
    exit::{FAILED, Failure},
    options::OutputOption,
    output::{Output, line, printable},
    palette::Palette,
};
use crate::config::{Config, Store};
use leasehold_azure_store::{account::Account, doctor};
use leasehold_embedded_store as embedded;
use leasehold_store::finding::{CheckStatus, Finding, Report};
use leasehold_time::Entropy;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Uses the configuration of `serve` and the operations of a daemon. In a storage \
account, it creates the container if it is missing, and a blob that it deletes again. A data \
directory in use by a daemon is only read.

Prints one line per check: ok, note (information), warning (usable with limitations) or FAILED, \
followed by the fix. With --output json, each line is an object with the keys check, status (ok, \
note, warning, failed), text and fix (null if there is none).

Exit codes:
  0    no check failed
  1    a check failed
  64   usage error
  78   invalid configuration; all errors are listed

Examples:
  leasehold doctor --config leasehold.toml
  leasehold doctor --store azure --azure-account-url https://ACCOUNT.blob.core.windows.net
  LEASEHOLD_AZURE_CONNECTION_STRING=UseDevelopmentStorage=true leasehold doctor --store azure
  leasehold doctor --output json | jq -r 'select(.status == \"failed\").fix'"
)]
pub(super) struct Doctor {
    #[command(flatten)]
    configuration: Configuration,
    #[command(flatten)]
    output: OutputOption,
}

impl Doctor {
    /// Runs the checks.
    pub(super) async fn run(self) -> Result<ExitCode, Failure> {
        let output = self.output.output;
        let effective = self.configuration.load()?;
        effective.warnings.iter().for_each(|warning| output.note(warning));
        let report = check(&effective.config).await?;
        let palette = Palette::stdout(output);
        for finding in report.findings() {
            match output {
                Output::Text => line(text(finding, palette))?,
                Output::Json => line(json!({
                    "check": finding.check,
                    "status": finding.status.name(),
                    "text": finding.text,
                    "fix": finding.fix,
                }))?,
            }
        }
        Ok(if report.has_failed() { ExitCode::from(FAILED) } else { ExitCode::SUCCESS })
    }
}

async fn check(config: &Config) -> Result<Report, Failure> {
    match config.store {
        Store::Embedded => Ok(embedded::diagnose(&config.data_dir)),
        Store::Azure => {
            let settings = config.azure.settings();
            let account =
                Account::new(&settings).map_err(|error| Failure::new(FAILED, "account", error))?;
            Ok(doctor::diagnose(&account, &settings, &mut Entropy::system()?).await)
        }
    }
}

/// Formats a finding: one line, and an indented line with the fix.
fn text(finding: &Finding, palette: Palette) -> String {
    let mark = match finding.status {
        CheckStatus::Ok => palette.good("ok      "),
        CheckStatus::Note => palette.dim("note    "),
        CheckStatus::Warning => palette.notable("warning "),
        CheckStatus::Failed => palette.bad("FAILED  "),
    };
    let result = format!("{}: {}", finding.check, finding.text);
    let result = printable(&match &finding.fix {
        Some(fix) => format!("{result}\n{:9}{fix}", ""),
        None => result,
    });
    format!("{mark} {result}")
}
