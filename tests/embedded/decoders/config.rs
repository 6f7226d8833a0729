//! Configuration: files and the environment.

use std::{collections::HashMap, ffi::OsString, fs, os::unix::ffi::OsStringExt, path::Path};

use leasehold::config::{Config, ConfigErrors, Effective, Layer, SETTINGS, Setting, Source, load};
use leasehold_fuzz::Fuzz;

use super::HUSH;

const WORDS: &[&str] = &[
    HUSH,
    "listen",
    "http_listen",
    "allow_remote",
    "socket_mode",
    "store",
    "azure",
    "embedded",
    "data_dir",
    "azure_account_url",
    "azure_connection_string",
    "azure_account_key",
    "azure_sas",
    "azure_credential",
    "azure_container",
    "azure_prefix",
    "gc_after",
    "default_ttl",
    "max_ttl",
    "drain_timeout",
    "lease_duration",
    "linger",
    "poll_interval",
    "max_locks",
    "threads",
    "reflection",
    "log",
    "log_format",
    "true",
    "false",
    " = ",
    "\"",
    "\n",
    "[",
    "]",
    "{",
    "}",
    "'''",
    "\"\"\"",
    "10s",
    "1h 5m",
    "1.5s",
    "0xff",
    "1e3",
    "nan",
    "1979-05-27",
    "127.0.0.1:0",
    "[::1]:0",
    "0.0.0.0:1",
    "unix:/tmp/x",
    "localhost:1",
    "info,leasehold=debug",
    "REDACTED",
    "https://acme.blob.core.windows.net",
    "?sv=1&sig=",
    "UseDevelopmentStorage=true",
    "#",
    ",",
];

/// Whether this value of this setting may be shown as it is.
fn is_open(key: &str, text: &str) -> bool {
    match key {
        "azure_connection_string" | "azure_account_key" | "azure_sas" => false,
        // The host is no secret; what else may be in an address can be one.
        "azure_account_url" => {
            let address = text.split('?').next().unwrap_or_default();
            address.contains(HUSH)
                && address.chars().all(|c| c.is_ascii_alphanumeric() || "-._:/[]".contains(c))
        }
        _ => text.contains(HUSH),
    }
}

/// What a configuration came to, once it is sure that every mistake has its
/// key and, unless it was given where everybody may see it, no secret is told.
fn judge(result: Result<Effective, ConfigErrors>, open: bool, again: &Path) -> String {
    let hushed = |shown: &str| assert!(open || !shown.contains(HUSH), "{shown}");
    let effective = match result {
        Err(mistakes) => {
            hushed(&mistakes.to_string());
            hushed(&format!("{mistakes:?}"));
            for mistake in mistakes.all() {
                assert!(!mistake.key.is_empty(), "{mistake}");
                assert!(!mistake.problem.is_empty() && !mistake.source.is_empty(), "{mistake}");
                assert!(!mistake.to_string().chars().any(|c| c.is_control()), "{mistake:?}");
            }
            let problems = mistakes.all().iter().map(|mistake| {
                let known = Setting::find(&mistake.key).map_or("?", |setting| setting.key);
                format!("{known} {}", mistake.problem.split(':').next().unwrap_or_default())
            });
            return problems.take(3).collect::<Vec<_>>().join("|");
        }
        Ok(effective) => effective,
    };
    hushed(&format!("{effective:?}"));
    hushed(&effective.to_toml());
    hushed(&effective.to_json().to_string());
    let Config { azure, .. } = &effective.config;
    let secrets = [&azure.connection_string, &azure.account_key, &azure.sas, &azure.url_sas];
    if secrets.iter().all(|secret| secret.is_none()) {
        // What is shown can be given again, and means the same.
        fs::write(again, effective.to_toml()).unwrap();
        let layer = Layer::file(again, &Source::Default);
        let same = load(vec![layer]).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(same.config, effective.config);
    }
    let given = SETTINGS.iter().filter(|setting| *effective.source(setting.key) != Source::Default);
    given.map(|setting| setting.key).take(4).collect::<Vec<_>>().join(" ")
}

#[test]
fn files_are_taken_or_refused_by_key_fuzzed() {
    let dir = tempfile::tempdir().unwrap();
    let (path, again) = (dir.path().join("given.toml"), dir.path().join("shown.toml"));
    Fuzz::new("config-file").words(WORDS).run(|input| {
        fs::write(&path, input).unwrap();
        let table =
            std::str::from_utf8(input).ok().and_then(|text| text.parse::<toml::Table>().ok());
        let open = table.is_some_and(|table| {
            table.iter().any(|(key, value)| {
                let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                key.contains(HUSH) || is_open(key, &text)
            })
        });
        judge(load(vec![Layer::file(&path, &Source::Flag("config".into()))]), open, &again)
    });
}

#[test]
fn variables_are_taken_or_refused_by_key_fuzzed() {
    let dir = tempfile::tempdir().unwrap();
    let again = dir.path().join("shown.toml");
    Fuzz::new("config-environment").words(WORDS).run(|input| {
        // Lines such as `default_ttl=10s`, as LEASEHOLD_DEFAULT_TTL.
        let mut variables = HashMap::new();
        let mut open = false;
        for line in input.split(|byte| *byte == b'\n') {
            let at = line.iter().position(|byte| *byte == b'=').unwrap_or(line.len());
            let (key, value) =
                (String::from_utf8_lossy(&line[..at]), &line[line.len().min(at + 1)..]);
            let before = variables.insert(
                format!("LEASEHOLD_{}", key.to_uppercase()),
                (key.to_lowercase(), OsString::from_vec(value.to_vec())),
            );
            drop(before);
        }
        for (key, value) in variables.values() {
            open |= is_open(key, &value.to_string_lossy());
        }
        let lookup = |name: &str| variables.get(name).map(|(_, value)| value.clone());
        judge(load(vec![Layer::environment(lookup)]), open, &again)
    });
}
