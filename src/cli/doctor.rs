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
use leasehold_store::finding::{Finding, Report, Verdict};
use leasehold_time::Entropy;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Takes the configuration of `serve`, and does what a daemon with it would do. In a \
storage account it creates the container if it is missing, and a blob that it deletes again. A data \
directory that a daemon uses is only read.

Prints one line per check: ok, note (worth knowing), warning (works, but not as well as it could) \
or FAILED, followed by the fix. With --output json, each line is an object with the keys check, \
verdict (ok, note, warning, failed), text and remedy (null if there is none).

Exit codes:
  0    no check failed
  1    a check failed
  64   usage error
  78   invalid configuration; all errors are listed

Examples:
  leasehold doctor --config leasehold.toml
  leasehold doctor --store azure --azure-account-url https://ACCOUNT.blob.core.windows.net
  LEASEHOLD_AZURE_CONNECTION_STRING=UseDevelopmentStorage=true leasehold doctor --store azure
  leasehold doctor --output json | jq -r 'select(.verdict == \"failed\").remedy'"
)]
pub(super) struct Doctor {
    #[command(flatten)]
    configuration: Configuration,
    #[command(flatten)]
    output: OutputOption,
}

impl Doctor {
    /// Checks the store.
    pub(super) async fn run(self) -> Result<ExitCode, Failure> {
        let output = self.output.output;
        let effective = self.configuration.load()?;
        effective.warnings.iter().for_each(|warning| output.note(warning));
        let report = examine(&effective.config).await?;
        let palette = Palette::stdout(output);
        for finding in report.findings() {
            match output {
                Output::Text => line(text(finding, palette))?,
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
            let settings = config.azure.settings();
            let account =
                Account::new(&settings).map_err(|error| Failure::new(FAILED, "account", error))?;
            Ok(doctor::examine(&account, &settings, &mut Entropy::system()?).await)
        }
    }
}

/// A line, and an indented one with the fix.
fn text(finding: &Finding, palette: Palette) -> String {
    let mark = match finding.verdict {
        Verdict::Ok => palette.good("ok      "),
        Verdict::Note => palette.dim("note    "),
        Verdict::Warning => palette.notable("warning "),
        Verdict::Failed => palette.bad("FAILED  "),
    };
    let found = format!("{}: {}", finding.check, finding.text);
    let found = printable(&match &finding.remedy {
        Some(remedy) => format!("{found}\n{:9}{remedy}", ""),
        None => found,
    });
    format!("{mark} {found}")
}
