//! Configuration options of `serve` and `doctor`: a file, the environment, and a
//! flag per setting of the table.

use std::{collections::BTreeMap, ffi::OsString, fmt, path::Path, sync::LazyLock};

use clap::{Arg, ArgAction, ArgMatches, Command, Error, FromArgMatches};

use super::{exit::Failure, options::variable_names};
use crate::config::{
    self, Config, ConfigErrors, Effective, Group, Layer, SETTINGS, Setting, Source,
};

#[derive(Clone, Debug, clap::Args)]
pub(super) struct Configuration {
    /// Configuration file (TOML) [env: LEASEHOLD_CONFIG]
    #[arg(long, short, value_name = "FILE")]
    config: Option<OsString>,
    #[command(flatten)]
    settings: SettingFlags,
}

impl Configuration {
    /// Loads the file, the environment and the flags.
    pub(super) fn load(self) -> Result<Effective, Failure> {
        Ok(self.read()?)
    }

    /// Loads them without converting the errors.
    pub(super) fn read(self) -> Result<Effective, ConfigErrors> {
        let mut layers = Vec::new();
        let flag = self.config.map(|path| (path, Source::Flag("config".into())));
        let named = flag.or_else(|| {
            let path = std::env::var_os("LEASEHOLD_CONFIG")?;
            Some((path, Source::Environment("LEASEHOLD_CONFIG".into())))
        });
        if let Some((path, named_by)) = named.filter(|(path, _)| !path.is_empty()) {
            layers.push(Layer::file(Path::new(&path), &named_by));
        }
        let environment = Layer::environment(|variable| std::env::var_os(variable));
        layers.push(environment.with_variables(variable_names()));
        layers.push(self.settings.layer());
        config::load(layers)
    }
}

/// Names of the flags by key; clap requires static strings.
static FLAGS: LazyLock<BTreeMap<&'static str, String>> =
    LazyLock::new(|| SETTINGS.iter().map(|setting| (setting.key, setting.flag())).collect());

/// Values of the given flags. They are validated later, so that all errors of a
/// configuration are reported at once.
#[derive(Clone)]
struct SettingFlags(Vec<(&'static Setting, Vec<String>)>);

impl SettingFlags {
    /// Converts the flags into a configuration layer.
    fn layer(self) -> Layer {
        Layer::flags(self.0)
    }
}

impl fmt::Debug for SettingFlags {
    // Values are left out, because some are secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(setting, _)| setting.key)).finish()
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

const SECRET: &str =
    " Prefer the environment or the file: all users of the machine can read flags.";

fn arg(setting: &'static Setting, defaults: &Config) -> Arg {
    let long = FLAGS.get(setting.key).map_or(setting.key, String::as_str);
    let default = match setting.value(defaults) {
        toml::Value::String(text) if text.is_empty() => String::new(),
        value => format!("[default: {value}] "),
    };
    let warning = if setting.is_secret() { SECRET } else { "" };
    let range = setting.range().map(|range| format!("[range: {range}] ")).unwrap_or_default();
    let short_help = format!("{} {range}{default}", setting.about);
    let long_help = format!(
        "{}.{warning}\n\nAllowed: {}\n{default}[env: {}]",
        setting.about,
        setting.allowed(),
        setting.variable(),
    );
    let arg = Arg::new(setting.key)
        .long(long)
        .help(short_help.trim_end().to_owned())
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
        Group::Azure => "Azure store",
        Group::Timing => "Timing",
        Group::Limits => "Limits",
        Group::Running => "Running",
    }
}
