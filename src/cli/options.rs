//! Shared options: daemon, namespace and output format.

use std::{env, ffi::OsString, str::FromStr};

use leasehold_client::{Client, ClientBuilder, Error};

use super::{exit::Failure, output::Output};

const DEFAULT_ENDPOINT: &str = "http://127.0.0.1:7420";

/// Output format of a command.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Common options")]
pub(super) struct OutputOption {
    /// Output format: text, or json for one JSON object per line
    #[arg(long, short, value_name = "FORMAT", default_value = "text", hide_possible_values = true)]
    pub(super) output: Output,
}

/// Daemon of a command.
// Environment variables are read below, not by clap: its usage lines would show an
// option that a variable sets as if it were required.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Common options")]
pub(super) struct EndpointOption {
    /// Daemon: http://HOST:PORT or unix:/PATH; several daemons on the same store, separated by
    /// commas [env: LEASEHOLD_ENDPOINT] [default: http://127.0.0.1:7420]
    #[arg(long, short, value_name = "URL")]
    endpoint: Option<String>,
}

impl EndpointOption {
    /// Returns the address of the daemon.
    pub(super) fn endpoint(&self) -> String {
        let endpoint = self.endpoint.clone().or_else(|| variable("LEASEHOLD_ENDPOINT"));
        endpoint.unwrap_or_else(|| DEFAULT_ENDPOINT.to_owned())
    }
}

/// Options of the commands on locks and elections.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Common options")]
pub(super) struct Globals {
    #[command(flatten)]
    daemon: EndpointOption,
    /// Namespace of the locks [env: LEASEHOLD_NAMESPACE] [default: default]
    #[arg(long, short, value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// Output format: text, or json for one JSON object per line
    #[arg(long, short, value_name = "FORMAT", default_value = "text", hide_possible_values = true)]
    pub(super) output: Output,
}

impl Globals {
    /// Returns the namespace of the locks.
    pub(super) fn namespace(&self) -> String {
        let namespace = self.namespace.clone().or_else(|| variable("LEASEHOLD_NAMESPACE"));
        namespace.unwrap_or_else(|| "default".to_owned())
    }

    /// Returns the address of the daemon.
    pub(super) fn endpoint(&self) -> String {
        self.daemon.endpoint()
    }

    /// Returns the address of the daemon, if it was given as an option.
    pub(super) fn given_endpoint(&self) -> Option<&str> {
        self.daemon.endpoint.as_deref()
    }

    pub(super) fn builder(&self) -> ClientBuilder {
        Client::builder(self.daemon.endpoint()).namespace(self.namespace())
    }

    /// Connects for unary calls: no session is opened.
    pub(super) async fn connect(&self) -> Result<Client, Failure> {
        connected(self.builder().connect().await)
    }
}

/// Adds the fix to a failed connection.
pub(super) fn connected(client: Result<Client, Error>) -> Result<Client, Failure> {
    client.map_err(|error| match error {
        Error::Unavailable { message, retry_after } => {
            let fix = "start it with \"leasehold serve\" or set --endpoint";
            Error::Unavailable { message: format!("{message}; {fix}"), retry_after }.into()
        }
        error => error.into(),
    })
}

/// Parses a positive number of the command line.
pub(super) fn parse_count<T: FromStr>(text: &str) -> Result<T, &'static str> {
    text.parse().map_err(|_| "use a whole number of at least 1")
}

/// Names of all environment variables.
pub(super) fn variable_names() -> impl Iterator<Item = String> {
    env::vars_os().filter_map(|(name, _)| name.into_string().ok())
}

/// Value of an environment variable that is set and not empty.
pub(super) fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

/// Command with the shared options of all clients of a daemon.
#[derive(Debug, clap::Args)]
pub(super) struct On<T: clap::Args> {
    #[command(flatten)]
    pub(super) command: T,
    #[command(flatten)]
    pub(super) globals: Globals,
}

/// Options that are also accepted before the command, as in `leasehold -n shop ls`.
const SHARED: [(&str, &str); 3] = [("--endpoint", "-e"), ("--namespace", "-n"), ("--output", "-o")];

/// Moves shared options from before the command to after it. Each command accepts the
/// options that affect it and refuses the others.
pub(super) fn reorder(arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments = arguments.into_iter();
    let mut reordered: Vec<OsString> = arguments.next().into_iter().collect();
    let mut moved = Vec::new();
    while let Some(argument) = arguments.next() {
        match kind(&argument) {
            Kind::WithValue => moved.push(argument),
            Kind::ValueFollows => {
                moved.push(argument);
                moved.extend(arguments.next());
            }
            Kind::Other if is_command(&argument) => {
                let has_subcommands = argument == "bench";
                reordered.push(argument);
                if has_subcommands {
                    reordered.extend(arguments.next());
                }
                break;
            }
            // No command follows: leave the options in place.
            Kind::Other => {
                reordered.append(&mut moved);
                reordered.push(argument);
                break;
            }
        }
    }
    reordered.append(&mut moved);
    reordered.extend(arguments);
    reordered
}

enum Kind {
    /// Shared option with its value in the same argument.
    WithValue,
    /// Shared option with its value in the next argument.
    ValueFollows,
    Other,
}

fn kind(argument: &OsString) -> Kind {
    let Some(text) = argument.to_str() else { return Kind::Other };
    for (long, short) in SHARED {
        if text == long || text == short {
            return Kind::ValueFollows;
        }
        if text.strip_prefix(long).is_some_and(|rest| rest.starts_with('='))
            || (!text.starts_with("--") && text.starts_with(short))
        {
            return Kind::WithValue;
        }
    }
    Kind::Other
}

fn is_command(argument: &OsString) -> bool {
    argument.to_str().is_some_and(|text| !text.starts_with('-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reordered(line: &str) -> String {
        let words = reorder(line.split(' ').map(OsString::from));
        words.iter().map(|word| word.to_str().unwrap()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn shared_options_before_command_are_moved() {
        for (line, expected) in [
            ("leasehold -n shop ls -A", "leasehold ls -n shop -A"),
            ("leasehold --output=json -nshop get a", "leasehold get --output=json -nshop a"),
            ("leasehold -o json lock a -- cmd -n x", "leasehold lock -o json a -- cmd -n x"),
            ("leasehold ls -o json", "leasehold ls -o json"),
            ("leasehold -o json bench hold", "leasehold bench hold -o json"),
            ("leasehold --help", "leasehold --help"),
            ("leasehold -n shop --help", "leasehold -n shop --help"),
            ("leasehold --output", "leasehold --output"),
            ("leasehold", "leasehold"),
        ] {
            assert_eq!(reordered(line), expected);
        }
    }
}
