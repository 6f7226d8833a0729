//! `docs/reference/cli.md`, from the commands.

use std::fmt::Write;

use clap::{Arg, Command, builder::StyledStr};
use leasehold::config::Setting;

use super::{cell, compare, head};

const PAGE: &str = "docs/reference/cli.md";

const READER: &str = "\
For users of the command line. `leasehold COMMAND --help` prints the same texts.
";

/// Returns the longer of the help texts.
fn about(long: Option<&StyledStr>, short: Option<&StyledStr>) -> String {
    long.or(short).map(ToString::to_string).unwrap_or_default()
}

/// Writes an argument as it is typed, such as `-w, --wait <DURATION>`.
fn typed(argument: &Arg) -> String {
    // The representation of clap has no short name if there is a long one.
    let text = argument.to_string();
    match (argument.get_short(), argument.get_long()) {
        (Some(short), Some(_)) => format!("-{short}, {text}"),
        _ => text,
    }
}

/// Returns the description of an argument, with its possible values and default.
fn description(argument: &Arg) -> String {
    let setting = Setting::find(argument.get_id().as_str());
    if let (Some(setting), Some(help)) = (setting, argument.get_help()) {
        let help = help.to_string();
        let key = setting.key;
        return format!("{} ([`{key}`](configuration.md#{key}))", cell(&help));
    }
    let mut text = cell(&about(argument.get_long_help(), argument.get_help()));
    let values = argument.get_possible_values();
    let values: Vec<_> = values.iter().filter(|value| !value.is_hide_set()).collect();
    if !argument.is_hide_possible_values_set() && argument.get_action().takes_values() {
        let names: Vec<_> = values.iter().map(|value| format!("`{}`", value.get_name())).collect();
        if !names.is_empty() {
            _ = write!(text, " Values: {}.", names.join(", "));
        }
    }
    let defaults = argument.get_default_values();
    if !defaults.is_empty() && argument.get_action().takes_values() {
        let defaults: Vec<_> = defaults.iter().map(|value| value.to_string_lossy()).collect();
        _ = write!(text, " Default: `{}`.", defaults.join(" "));
    }
    text
}

/// Writes a table of arguments, if there are any.
fn table(page: &mut String, title: &str, arguments: &[&Arg]) {
    if arguments.is_empty() {
        return;
    }
    _ = write!(page, "\n| {title} | Description |\n|---|---|\n");
    for argument in arguments {
        _ = writeln!(
            page,
            "| `{}` | {} |",
            typed(argument).replace('|', "\\|"),
            description(argument)
        );
    }
}

/// Writes a command and its subcommands.
fn section(page: &mut String, command: &mut Command, depth: usize) {
    let name = command.get_bin_name().unwrap_or(command.get_name()).to_owned();
    _ = write!(page, "\n{} {name}\n", "#".repeat(depth));
    let text = about(command.get_long_about(), command.get_about());
    _ = write!(page, "\n{}\n", super::sentence(&text));
    let usage = command.render_usage().to_string();
    _ = write!(page, "\n```text\n{}\n```\n", usage.trim_start_matches("Usage: ").trim());
    // Every command has a flag for its help.
    let is_listed = |argument: &&Arg| !argument.is_hide_set() && argument.get_id() != "help";
    let positional: Vec<_> = command.get_positionals().filter(is_listed).collect();
    table(page, "Argument", &positional);
    let options = command.get_arguments().filter(|argument| !argument.is_positional());
    let options: Vec<_> = options.filter(is_listed).collect();
    let mut headings: Vec<Option<&str>> = Vec::new();
    for heading in options.iter().map(|option| option.get_help_heading()) {
        if !headings.contains(&heading) {
            headings.push(heading);
        }
    }
    for heading in headings {
        let of_heading = options.iter().filter(|option| option.get_help_heading() == heading);
        let of_heading: Vec<_> = of_heading.copied().collect();
        table(page, heading.unwrap_or("Option"), &of_heading);
    }
    let after = about(command.get_after_long_help(), command.get_after_help());
    if !after.is_empty() {
        _ = write!(page, "\n```text\n{}\n```\n", after.trim_end());
    }
    for subcommand in command.get_subcommands_mut().filter(|command| !command.is_hide_set()) {
        if subcommand.get_name() != "help" {
            section(page, subcommand, (depth + 1).min(4));
        }
    }
}

fn page() -> String {
    let mut page = head("Command line", READER, "the commands in src/cli");
    let mut command = leasehold::cli::command();
    command.build();
    section(&mut page, &mut command, 2);
    page
}

#[test]
fn command_line_page_is_up_to_date() {
    compare(PAGE, &page());
}
