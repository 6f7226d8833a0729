//! The flags of `serve`, made from the table of settings.

use std::{collections::BTreeMap, sync::LazyLock};

use clap::{Arg, ArgAction, ArgMatches, Command, Error, FromArgMatches};

use crate::config::{Config, Group, Layer, SETTINGS, Setting};

/// Flags live as long as the program that parses them.
static FLAGS: LazyLock<BTreeMap<&'static str, String>> =
    LazyLock::new(|| SETTINGS.iter().map(|setting| (setting.key, setting.flag())).collect());

/// What was given, for each setting that was. The values are not judged here,
/// so that all mistakes can be told at once.
#[derive(Debug, Clone)]
pub(super) struct SettingFlags(Vec<(&'static Setting, Vec<String>)>);

impl SettingFlags {
    /// The layer that these flags are.
    pub(super) fn layer(self) -> Layer {
        Layer::flags(self.0)
    }
}

impl clap::Args for SettingFlags {
    fn augment_args(command: Command) -> Command {
        let defaults = Config::default();
        SETTINGS.iter().fold(command, |command, setting| command.arg(arg(setting, &defaults)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for SettingFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let given = |setting: &'static Setting| {
            let words = matches.get_many::<String>(setting.key)?;
            Some((setting, words.cloned().collect()))
        };
        Ok(Self(SETTINGS.iter().filter_map(given).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

fn arg(setting: &'static Setting, defaults: &Config) -> Arg {
    let long = FLAGS.get(setting.key).map_or(setting.key, String::as_str);
    let short_help = format!("{} [default: {}]", setting.about, setting.show(defaults));
    let long_help = format!(
        "{}.\n\nAllowed: {}\n[default: {}] [env: {}]",
        setting.about,
        setting.allowed(),
        setting.show(defaults),
        setting.variable(),
    );
    let arg = Arg::new(setting.key)
        .long(long)
        .help(short_help)
        .long_help(long_help)
        .help_heading(heading(setting.group))
        .value_name("VALUE")
        .action(ArgAction::Append);
    if setting.is_switch() {
        arg.num_args(0..=1).require_equals(true).default_missing_value("true")
    } else {
        arg.allow_hyphen_values(true)
    }
}

const fn heading(group: Group) -> &'static str {
    match group {
        Group::Listeners => "Listeners",
        Group::Storage => "Storage",
        Group::Timing => "Timing",
        Group::Limits => "Limits",
        Group::Running => "Running",
    }
}
