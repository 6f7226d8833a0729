//! `docs/reference/configuration.md`, from the table of settings.

use std::fmt::Write;

use leasehold::config::{Config, SETTINGS};

use super::{cell, compare, head, sentence};

const PAGE: &str = "docs/reference/configuration.md";

const READER: &str = "\
For operators who configure a daemon.

Settings come from a TOML file (`--config FILE` or `LEASEHOLD_CONFIG`), from the environment and
from flags, in increasing precedence. `leasehold serve --check` validates them and prints each
effective value with its source; all errors are reported at once. An unknown key of the file is an
error. An unknown `LEASEHOLD_…` variable is a warning that names the closest setting. Lists are
separated by commas in a variable, and their flags are repeatable. Give secrets by variable or
file: other users of the machine can see flags. Secrets are never printed or logged.
";

/// Returns the heading under which the help of `serve` lists a setting.
fn heading(command: &clap::Command, key: &str) -> String {
    let serve = command.find_subcommand("serve").unwrap();
    let argument = serve.get_arguments().find(|argument| argument.get_id() == key).unwrap();
    argument.get_help_heading().unwrap().to_owned()
}

fn page() -> String {
    let mut page = head("Configuration", READER, "`SETTINGS` in src/config/settings/table.rs");
    let command = leasehold::cli::command();
    let defaults = Config::default();
    let mut group = String::new();
    for setting in SETTINGS {
        let heading = heading(&command, setting.key);
        if heading != group {
            _ = write!(page, "\n## {heading}\n");
            group = heading;
        }
        let default = match setting.value(&defaults) {
            toml::Value::String(text) if text.is_empty() => "none".to_owned(),
            value => format!("`{value}`"),
        };
        let flag = setting.flag();
        let flag =
            if setting.is_switch() { format!("`--{flag}`") } else { format!("`--{flag} VALUE`") };
        let secret = if setting.is_secret() { " Secret." } else { "" };
        _ = write!(
            page,
            "\n### `{}`\n\n{}{secret}\n\n| Values | Default | Flag | Environment variable |\n\
             |---|---|---|---|\n| {} | {default} | {flag} | `{}` |\n",
            setting.key,
            sentence(setting.about),
            cell(&setting.allowed()),
            setting.variable(),
        );
    }
    page
}

#[test]
fn configuration_page_is_up_to_date() {
    compare(PAGE, &page());
}
