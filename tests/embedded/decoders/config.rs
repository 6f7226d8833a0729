//! Configuration: files and the environment.

use std::{collections::HashMap, ffi::OsString, fs, os::unix::ffi::OsStringExt, path::Path};

use leasehold::config::{Config, ConfigErrors, Effective, Layer, SETTINGS, Setting, Source, load};
use leasehold_fuzz::Fuzz;

use super::SECRET;

const WORDS: &[&str] = &[
    SECRET,
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

/// Returns whether the value of a setting may be printed without redaction.
fn is_open(key: &str, text: &str) -> bool {
    match key {
        "azure_connection_string" | "azure_account_key" | "azure_sas" => false,
        // The host is no secret. Any other part of a URL can be one.
        "azure_account_url" => {
            let address = text.split('?').next().unwrap_or_default();
            address.contains(SECRET)
                && address.chars().all(|c| c.is_ascii_alphanumeric() || "-._:/[]".contains(c))
        }
        _ => text.contains(SECRET),
    }
}

/// Returns a summary of a configuration or of its errors. Every error must have a key.
/// No output may contain the secret, unless `open`: an unprotected setting has it.
fn summarize(result: Result<Effective, ConfigErrors>, open: bool, printed: &Path) -> String {
    let assert_redacted = |text: &str| assert!(open || !text.contains(SECRET), "{text}");
    let effective = match result {
        Err(errors) => {
            assert_redacted(&errors.to_string());
            assert_redacted(&format!("{errors:?}"));
            for error in errors.all() {
                assert!(!error.key.is_empty(), "{error}");
                assert!(!error.problem.is_empty() && !error.source.is_empty(), "{error}");
                assert!(!error.to_string().chars().any(|c| c.is_control()), "{error:?}");
            }
            let problems = errors.all().iter().map(|error| {
                let known = Setting::find(&error.key).map_or("?", |setting| setting.key);
                format!("{known} {}", error.problem.split(':').next().unwrap_or_default())
            });
            return problems.take(3).collect::<Vec<_>>().join("|");
        }
        Ok(effective) => effective,
    };
    assert_redacted(&format!("{effective:?}"));
    assert_redacted(&effective.to_toml());
    assert_redacted(&effective.to_json().to_string());
    let Config { azure, .. } = &effective.config;
    let secrets = [&azure.connection_string, &azure.account_key, &azure.sas, &azure.url_sas];
    if secrets.iter().all(|secret| secret.is_none()) {
        // The printed configuration can be loaded and has the same values.
        fs::write(printed, effective.to_toml()).unwrap();
        let layer = Layer::file(printed, &Source::Default);
        let same = load(vec![layer]).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(same.config, effective.config);
    }
    let settings =
        SETTINGS.iter().filter(|setting| *effective.source(setting.key) != Source::Default);
    settings.map(|setting| setting.key).take(4).collect::<Vec<_>>().join(" ")
}

#[test]
fn files_are_accepted_or_refused_by_key_fuzzed() {
    let dir = tempfile::tempdir().unwrap();
    let (path, printed) = (dir.path().join("given.toml"), dir.path().join("printed.toml"));
    Fuzz::new("config-file").words(WORDS).run(|input| {
        fs::write(&path, input).unwrap();
        let table =
            std::str::from_utf8(input).ok().and_then(|text| text.parse::<toml::Table>().ok());
        let open = table.is_some_and(|table| {
            table.iter().any(|(key, value)| {
                let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                key.contains(SECRET) || is_open(key, &text)
            })
        });
        summarize(load(vec![Layer::file(&path, &Source::Flag("config".into()))]), open, &printed)
    });
}

#[test]
fn variables_are_accepted_or_refused_by_key_fuzzed() {
    let dir = tempfile::tempdir().unwrap();
    let printed = dir.path().join("printed.toml");
    Fuzz::new("config-environment").words(WORDS).run(|input| {
        // A line such as `default_ttl=10s` sets LEASEHOLD_DEFAULT_TTL.
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
        summarize(load(vec![Layer::environment(lookup)]), open, &printed)
    });
}
