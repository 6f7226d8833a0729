//! `docs/reference/cli.md`, from the commands.

use std::fmt::Write;

use clap::{Arg, Command, builder::StyledStr};
use leasehold::config::Setting;

use super::{cell, compare, escaped, head, sentence};

const PAGE: &str = "docs/reference/cli.md";

const READER: &str = "\
For users of the command line. `leasehold COMMAND --help` prints the same texts.
";

/// Help heading of the options that all clients of a daemon share.
const COMMON: &str = "Common options";

/// Returns the longer of the help texts.
fn about(long: Option<&StyledStr>, short: Option<&StyledStr>) -> String {
    long.or(short).map(ToString::to_string).unwrap_or_default()
}

/// Returns the setting that an argument of `serve` or `doctor` sets. Arguments of
/// other commands can have the name of a setting, but have no heading.
fn setting(argument: &Arg) -> Option<&'static Setting> {
    Setting::find(argument.get_id().as_str()).filter(|_| argument.get_help_heading().is_some())
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

/// Splits notes such as `[default: 10s]` from the end of a help text.
fn split_notes(text: &str) -> (&str, Vec<(&str, &str)>) {
    let mut notes = Vec::new();
    let mut text = text.trim();
    while let Some((before, note)) = text.strip_suffix(']').and_then(|text| text.rsplit_once('['))
        && let Some((label, value)) = note.split_once(": ")
    {
        notes.insert(0, (label, value));
        text = before.trim();
    }
    (text, notes)
}

/// Returns the description of an argument, with its possible values and default.
fn description(argument: &Arg) -> String {
    let help = about(argument.get_long_help(), argument.get_help());
    let (text, notes) = split_notes(&help);
    let mut text = sentence(&cell(text));
    let values = argument.get_possible_values();
    let values: Vec<_> = values.iter().filter(|value| !value.is_hide_set()).collect();
    if !argument.is_hide_possible_values_set() && argument.get_action().takes_values() {
        let names: Vec<_> = values.iter().map(|value| format!("`{}`", value.get_name())).collect();
        if !names.is_empty() {
            _ = write!(text, " Values: {}.", names.join(", "));
        }
    }
    for (label, value) in notes {
        let label = match label {
            "env" => "Environment variable",
            "default" => "Default",
            label => label,
        };
        let is_literal = !value.contains(' ');
        let value = if is_literal { format!("`{value}`") } else { cell(value) };
        _ = write!(text, " {label}: {value}.");
    }
    let defaults = argument.get_default_values();
    let is_printed = argument.get_action().takes_values() && !argument.is_hide_default_value_set();
    if !defaults.is_empty() && is_printed {
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
        let typed = typed(argument).replace('|', "\\|");
        _ = writeln!(page, "| `{typed}` | {} |", description(argument));
    }
}

/// Writes the options of a command by heading: common options and settings as
/// links, the others as tables. Only `serve` lists the settings.
fn options(page: &mut String, command: &str, options: &[&Arg]) {
    let mut headings: Vec<Option<&str>> = Vec::new();
    for heading in options.iter().map(|option| option.get_help_heading()) {
        if !headings.contains(&heading) {
            headings.push(heading);
        }
    }
    let mut settings = String::new();
    for heading in headings {
        let of_heading: Vec<_> =
            options.iter().copied().filter(|it| it.get_help_heading() == heading).collect();
        if heading == Some(COMMON) {
            let names: Vec<_> = of_heading.iter().filter_map(|option| option.get_long()).collect();
            let names = names.iter().map(|name| format!("`--{name}`")).collect::<Vec<_>>();
            _ = write!(page, "\n[{COMMON}](#common-options): {}.\n", names.join(", "));
        } else if of_heading.iter().all(|option| setting(option).is_some()) {
            let links = of_heading.iter().filter_map(|option| setting(option));
            let links: Vec<_> = links
                .map(|it| format!("[`--{}`](configuration.md#{})", it.flag(), it.key))
                .collect();
            let heading = heading.unwrap_or_default();
            _ = writeln!(settings, "| {heading} | {} |", links.join(", "));
        } else {
            table(page, heading.unwrap_or("Option"), &of_heading);
        }
    }
    if command == "serve" {
        _ = write!(page, "\n| [Settings](configuration.md) | Flags |\n|---|---|\n{settings}");
    } else if !settings.is_empty() {
        page.push_str("\nAll settings are flags, as of [`leasehold serve`](#leasehold-serve).\n");
    }
}

/// Writes the text after the options: prose as paragraphs, examples as a block, and
/// other indented lines as a list.
fn after(page: &mut String, text: &str) {
    for paragraph in text.trim_end().split("\n\n") {
        if paragraph.starts_with("Examples:") {
            let examples = paragraph.lines().skip(1).map(|line| line.get(2..).unwrap_or_default());
            let examples = examples.collect::<Vec<_>>().join("\n");
            _ = write!(page, "\nExamples:\n\n```text\n{examples}\n```\n");
            continue;
        }
        let mut was_item = None;
        for line in paragraph.lines() {
            let item = line.strip_prefix("  ");
            if was_item != Some(item.is_some()) {
                page.push('\n');
            }
            was_item = Some(item.is_some());
            _ = match item.map(|item| (item, item.split_once("  "))) {
                None => writeln!(page, "{}", escaped(line)),
                Some((_, Some((term, meaning)))) => {
                    writeln!(page, "- `{}`: {}", term.trim(), escaped(meaning.trim()))
                }
                Some((item, None)) => writeln!(page, "- {}", escaped(item)),
            };
        }
    }
}

/// Writes a command and its subcommands.
fn section(page: &mut String, command: &mut Command, depth: usize) {
    let name = command.get_bin_name().unwrap_or(command.get_name()).to_owned();
    _ = write!(page, "\n{} {name}\n", "#".repeat(depth));
    let text = about(command.get_long_about(), command.get_about());
    _ = write!(page, "\n{}\n", sentence(&text));
    let usage = command.render_usage().to_string();
    _ = write!(page, "\n```text\n{}\n```\n", usage.trim_start_matches("Usage: ").trim());
    // Every command has flags for its help and its version.
    let is_listed = |argument: &&Arg| {
        !argument.is_hide_set() && argument.get_id() != "help" && argument.get_id() != "version"
    };
    let positional: Vec<_> = command.get_positionals().filter(is_listed).collect();
    table(page, "Argument", &positional);
    let named = command.get_arguments().filter(|argument| !argument.is_positional());
    options(page, command.get_name(), &named.filter(is_listed).collect::<Vec<_>>());
    after(page, &about(command.get_after_long_help(), command.get_after_help()));
    for subcommand in command.get_subcommands_mut().filter(|command| !command.is_hide_set()) {
        if subcommand.get_name() != "help" {
            section(page, subcommand, (depth + 1).min(4));
        }
    }
}

/// Writes a table of the commands, and the options that most of them share.
fn overview(page: &mut String, command: &Command) {
    page.push_str("\n## Commands\n\n| Command | Description |\n|---|---|\n");
    for command in command.get_subcommands().filter(|command| command.get_name() != "help") {
        let name = command.get_name();
        let about = sentence(&about(None, command.get_about()));
        _ = writeln!(page, "| [`{name}`](#leasehold-{name}) | {about} |");
    }
    _ = write!(page, "\n## {COMMON}\n\nAlso accepted before the command.\n");
    let lock = command.find_subcommand("lock").unwrap();
    let common = lock.get_arguments().filter(|it| it.get_help_heading() == Some(COMMON));
    table(page, "Option", &common.collect::<Vec<_>>());
}

fn page() -> String {
    let mut page = head("Command line", READER, "the commands in src/cli");
    let mut command = leasehold::cli::command();
    command.build();
    overview(&mut page, &command);
    section(&mut page, &mut command, 2);
    page
}

#[test]
fn command_line_page_is_up_to_date() {
    compare(PAGE, &page());
}

#[test]
fn notes_are_split_from_help() {
    let (text, notes) = split_notes("Daemon [a] [env: A_B] [default: no limit]");
    assert_eq!((text, notes), ("Daemon [a]", vec![("env", "A_B"), ("default", "no limit")]));
    assert_eq!(split_notes("Daemon").1, []);
}

#[test]
fn text_after_options_becomes_prose_lists_and_examples() {
    let mut page = String::new();
    after(
        &mut page,
        "One <A>.\n\nExit codes:\n  0    good\n  own; else\nMore.\n\nExamples:\n  a\n  b",
    );
    let expected = "\nOne \\<A>.\n\nExit codes:\n\n- `0`: good\n- own; else\n\nMore.\n\
                    \nExamples:\n\n```text\na\nb\n```\n";
    assert_eq!(page, expected);
}
