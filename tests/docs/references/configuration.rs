//! `docs/reference/configuration.md`, from the table of settings.

use std::fmt::Write;

use leasehold::config::{Config, SETTINGS};

use super::{compare, escaped, head, sentence};

const PAGE: &str = "docs/reference/configuration.md";

const READER: &str = "\
For operators who configure a daemon.

Each setting has a key in a TOML file, an environment variable and a flag. The file is named by
`--config FILE` or `LEASEHOLD_CONFIG`. A variable overrides the file, and a flag overrides both:

```toml
listen = [\"127.0.0.1:7420\", \"unix:/run/leasehold.sock\"]
store = \"azure\"
azure_account_url = \"https://ACCOUNT.blob.core.windows.net\"
lease_duration = \"20s\"
max_locks = 100000
```

- `leasehold serve --check` validates the settings and prints each value with its source. All errors
  are reported at once.
- An unknown key of the file is an error. An unknown variable `LEASEHOLD_…` is a warning, with the
  closest name.
- Separate the elements of a list by commas in a variable, and repeat its flag.
- Give secrets by variable or file, because other users of the machine can read flags. Secrets are
  never printed or logged.
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
        let secret = if setting.is_secret() { " This is a secret." } else { "" };
        _ = write!(
            page,
            "\n### `{}`\n\n{}{secret}\n\n- Values: {}\n- Default: {default}\n- Flag: {flag}\n\
             - Variable: `{}`\n",
            setting.key,
            sentence(&escaped(setting.about)),
            escaped(&setting.allowed()),
            setting.variable(),
        );
    }
    page
}

#[test]
fn configuration_page_is_up_to_date() {
    compare(PAGE, &page());
}
