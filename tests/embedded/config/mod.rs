//! Configuration as a whole: layers, precedence and errors.

mod azure;

use std::{collections::HashMap, ffi::OsString, io::Write, path::PathBuf, time::Duration};

use leasehold::config::{
    Config, ConfigErrors, Effective, Layer, Listen, SETTINGS, Setting, Source, load,
};
use tempfile::NamedTempFile;

fn file(text: &str) -> (NamedTempFile, Layer) {
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    let layer = Layer::file(file.path(), &Source::Flag("config".to_owned()));
    (file, layer)
}

fn environment(variables: &[(&str, &str)]) -> Layer {
    let variables: HashMap<_, _> = variables.iter().copied().collect();
    Layer::environment(|name| variables.get(name).map(OsString::from))
}

fn flags(given: &[(&str, &str)]) -> Layer {
    Layer::flags(
        given.iter().map(|(key, word)| (Setting::find(key).unwrap(), vec![(*word).to_owned()])),
    )
}

fn config_errors(result: Result<Effective, ConfigErrors>) -> Vec<String> {
    result.unwrap_err().all().iter().map(ToString::to_string).collect()
}

/// Returns the only error of a configuration with one flag.
fn config_error(key: &str, word: &str) -> String {
    let found = config_errors(load(vec![flags(&[(key, word)])]));
    assert_eq!(found.len(), 1, "{found:?}");
    found.into_iter().next().unwrap()
}

#[test]
fn empty_configuration_has_defaults() {
    let effective = load(vec![]).unwrap();
    assert_eq!(effective.config, Config::default());
    assert!(SETTINGS.iter().all(|setting| *effective.source(setting.key) == Source::Default));
}

#[test]
fn every_default_is_accepted() {
    let default = Config::default();
    for setting in SETTINGS {
        let value = match setting.value(&default) {
            toml::Value::String(text) => text,
            toml::Value::Array(parts) => {
                parts.first().map_or("", |part| part.as_str().unwrap()).to_owned()
            }
            other => other.to_string(),
        };
        let effective = load(vec![flags(&[(setting.key, &value)])]).unwrap();
        assert_eq!(effective.config, default, "{}", setting.key);
    }
}

#[test]
fn flags_override_environment_and_environment_overrides_file() {
    let (_file, layer) = file("threads = 2\ndrain_timeout = \"1s\"\nlog = \"warn\"\n");
    let effective = load(vec![
        layer,
        environment(&[("LEASEHOLD_THREADS", "3"), ("LEASEHOLD_DRAIN_TIMEOUT", "2s")]),
        flags(&[("threads", "4")]),
    ])
    .unwrap();
    assert_eq!(effective.config.threads, 4);
    assert_eq!(effective.config.drain_timeout, Duration::from_secs(2));
    assert_eq!(effective.config.log, "warn");
    assert_eq!(*effective.source("threads"), Source::Flag("threads".to_owned()));
    assert_eq!(
        *effective.source("drain_timeout"),
        Source::Environment("LEASEHOLD_DRAIN_TIMEOUT".to_owned())
    );
    assert!(matches!(effective.source("log"), Source::File(_)));
}

#[test]
fn file_accepts_values_of_each_type() {
    let (_file, layer) = file(
        r#"
        listen = ["127.0.0.1:0", "unix:/run/leasehold.sock"]
        allow_remote = true
        socket_mode = "0660"
        store = "embedded"
        data_dir = "/var/lib/leasehold"
        default_ttl = "1500ms"
        max_locks = 5
        log_format = "json"
        "#,
    );
    let config = load(vec![layer]).unwrap().config;
    assert_eq!(config.listen[1], Listen::Unix(PathBuf::from("/run/leasehold.sock")));
    assert!(config.allow_remote);
    assert_eq!(config.socket_mode, 0o660);
    assert_eq!(config.default_ttl, Duration::from_millis(1500));
    assert_eq!(config.max_locks, 5);
}

#[test]
fn listeners_in_environment_are_separated_by_commas() {
    let layer = environment(&[("LEASEHOLD_LISTEN", "127.0.0.1:1, unix:/s")]);
    assert_eq!(load(vec![layer]).unwrap().config.listen.len(), 2);
}

#[test]
fn variables_of_orchestrators_and_empty_variables_are_ignored() {
    let layer = environment(&[
        ("LEASEHOLD_PORT", "tcp://10.0.0.1:7420"),
        ("LEASEHOLD_SERVICE_HOST", "10.0.0.1"),
        ("LEASEHOLD_THREADS", ""),
    ]);
    assert_eq!(load(vec![layer]).unwrap().config, Config::default());
}

#[test]
fn invalid_value_is_reported_with_valid_values() {
    for (key, word, hint) in [
        ("listen", "nowhere", "IP:PORT"),
        ("listen", "unix:", "unix:/PATH"),
        ("listen", "unix:relative", "\"unix:relative\" has a relative path; use \"unix:/PATH\""),
        ("listen", "127.0.0.1:5,127.0.0.1:5", "twice"),
        ("http_listen", "nowhere", "IP:PORT"),
        ("http_listen", "unix:", "unix:/PATH"),
        ("http_listen", "127.0.0.1:5,127.0.0.1:5", "twice"),
        ("http_listen", "127.0.0.1:7420", "already serves gRPC"),
        ("allow_remote", "maybe", "true or false"),
        ("socket_mode", "0999", "octal"),
        ("socket_mode", "07777", "0777"),
        ("store", "paper", "embedded"),
        ("store", "Azure", "azure"),
        ("azure_account_url", "acme", "not a URL"),
        ("azure_account_url", "ftp://acme.example", "https://"),
        ("azure_account_url", "https://acme.blob.core.windows.net/locks", "azure_container"),
        ("azure_account_url", "http://127.0.0.1:1/devstoreaccount1/locks", "azure_container"),
        ("azure_credential", "password", "managed-identity"),
        ("azure_container", "ab", "3 to 63"),
        ("azure_container", "Locks", "lowercase"),
        ("azure_container", "a--b", "single hyphens"),
        ("azure_container", "-ab", "first and last"),
        ("azure_prefix", "/a", "between"),
        ("azure_prefix", "a//b", "single slashes"),
        ("azure_prefix", "a b", "letters"),
        ("azure_protect_container", "yes", "true or false"),
        ("gc_after", "59m", "1h"),
        ("gc_after", "3651d", "3650d"),
        ("data_dir", "", "directory"),
        ("default_ttl", "0s", "from 1s to 1m"),
        ("max_ttl", "61s", "from 1s to 1m"),
        ("drain_timeout", "6m", "from 0s to 5m"),
        ("lease_duration", "14s", "from 15s to 1m"),
        ("lease_duration", "30", "such as"),
        ("lease_duration", "15s 500ms", "whole seconds"),
        ("linger", "61s", "from 0s to 1m"),
        ("poll_interval", "100ms", "from 500ms to 1m"),
        ("max_storage_calls", "0", "from 1 to 1000"),
        ("max_storage_calls", "1001", "from 1 to 1000"),
        ("threads", "0", "from 1 to 64"),
        ("threads", "many", "from 1 to 64"),
        ("reflection", "1", "true or false"),
        ("max_connections", "0", "from 1 to"),
        ("max_sessions", "-1", "from 1 to"),
        ("max_locks", "1e6", "from 1 to"),
        ("max_waiters_per_lock", "0", "from 1 to"),
        ("max_locks_per_session", "99999999999999999999", "from 1 to"),
        ("log", "inof", "level"),
        ("log_format", "xml", "json"),
    ] {
        let message = config_error(key, word);
        assert!(message.starts_with(&format!("{key} = {word:?}")), "{message}");
        assert!(message.contains(&format!("flag --{}", key.replace('_', "-"))), "{message}");
        assert!(message.contains(hint), "{message}");
    }
}

#[test]
fn non_loopback_listener_requires_allow_remote() {
    let message = config_error("listen", "0.0.0.0:7420");
    assert!(message.contains("no authentication"), "{message}");
    assert!(message.contains("allow_remote"), "{message}");
    let allowed = flags(&[("listen", "0.0.0.0:7420"), ("allow_remote", "true")]);
    assert!(load(vec![allowed]).is_ok());

    let message = config_error("http_listen", "0.0.0.0:8080");
    assert!(message.contains("can read leaders"), "{message}");
    assert!(message.contains("allow_remote"), "{message}");
    let allowed = flags(&[("http_listen", "0.0.0.0:8080"), ("allow_remote", "true")]);
    assert!(load(vec![allowed]).is_ok());
}

#[test]
fn http_accepts_any_number_of_listeners() {
    let (_file, none) = file("http_listen = []");
    assert_eq!(load(vec![none]).unwrap().config, Config::default());
    let two = environment(&[("LEASEHOLD_HTTP_LISTEN", "127.0.0.1:0,unix:/run/http.sock")]);
    assert_eq!(load(vec![two]).unwrap().config.http_listen.len(), 2);
    // Port 0 is a different free port for each listener.
    let any = flags(&[("listen", "127.0.0.1:0"), ("http_listen", "127.0.0.1:0,127.0.0.1:0")]);
    assert_eq!(load(vec![any]).unwrap().config.http_listen.len(), 2);
}

#[test]
fn default_ttl_does_not_exceed_max_ttl() {
    let lowered = load(vec![flags(&[("max_ttl", "5s")])]).unwrap().config;
    assert_eq!(lowered.default_ttl, Duration::from_secs(5));
    let found = config_errors(load(vec![flags(&[("max_ttl", "5s"), ("default_ttl", "6s")])]));
    assert!(found[0].contains("max_ttl (5s)"), "{found:?}");
}

#[test]
fn all_errors_are_reported_together_with_sources() {
    let (path, layer) = file("lisen = \"127.0.0.1:1\"\nthreads = \"2\"\nsocket_mode = 0o600\n");
    let found = config_errors(load(vec![
        layer,
        environment(&[("LEASEHOLD_DRAIN_TIMEOUT", "soon")]),
        flags(&[("log_format", "xml"), ("listen", "10.0.0.1:1")]),
    ]));
    let path = path.path().display();
    let expected = [
        format!("lisen (file {path}): unknown setting; did you mean \"listen\"?"),
        format!("threads = \"2\" (file {path}): must be a whole number"),
        format!("socket_mode = 384 (file {path}): must be a string with an octal number"),
        "drain_timeout = \"soon\" (environment variable LEASEHOLD_DRAIN_TIMEOUT): must be a duration"
            .to_owned(),
        "log_format = \"xml\" (flag --log-format): must be".to_owned(),
        "listen = \"10.0.0.1:1\" (flag --listen): 10.0.0.1:1 can be reached".to_owned(),
    ];
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for start in expected {
        assert!(found.iter().any(|message| message.starts_with(&start)), "{start}\n{found:#?}");
    }
}

#[test]
fn non_loopback_listener_is_reported_next_to_malformed_one() {
    for (layer, source) in [
        (flags(&[("listen", "10.0.0.1:1,nonsense")]), "flag --listen"),
        (environment(&[("LEASEHOLD_LISTEN", "x,0.0.0.0:1")]), "environment variable"),
    ] {
        let found = config_errors(load(vec![layer]));
        assert_eq!(found.len(), 2, "{found:#?}");
        assert!(found[0].contains("must be IP:PORT"), "{found:#?}");
        assert!(found[1].contains("can be reached from other machines"), "{found:#?}");
        assert!(found.iter().all(|message| message.contains(source)), "{found:#?}");
    }
    let allowed = flags(&[("listen", "10.0.0.1:1,nonsense"), ("allow_remote", "true")]);
    assert_eq!(config_errors(load(vec![allowed])).len(), 1);
}

#[test]
fn unknown_variables_are_warnings() {
    let warnings = |names: &[&str]| {
        let names = names.iter().map(|name| (*name).to_owned());
        load(vec![environment(&[]).with_variables(names)]).unwrap().warnings
    };
    assert_eq!(
        warnings(&["PATH", "LEASEHOLD_LISTEN", "LEASEHOLD_LOCK", "LEASEHOLD_PORT"]),
        [""; 0]
    );
    assert_eq!(warnings(&["LEASEHOLD_PORT_7420_TCP", "LEASEHOLD_A_PORT_1_UDP_ADDR"]), [""; 0]);
    let found = warnings(&["LEASEHOLD_listen", "LEASEHOLD_ALOW_REMOTE", "LEASEHOLD_"]);
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(
        found[1].ends_with("LEASEHOLD_ALOW_REMOTE; did you mean LEASEHOLD_ALLOW_REMOTE?"),
        "{found:?}"
    );
    assert!(found[2].ends_with("LEASEHOLD_listen; did you mean LEASEHOLD_LISTEN?"), "{found:?}");
}

#[test]
fn unreadable_or_invalid_file_is_reported() {
    let missing = Layer::file("no/such/file".as_ref(), &Source::Flag("config".to_owned()));
    let found = config_errors(load(vec![missing]));
    assert!(found[0].starts_with("config = \"no/such/file\" (flag --config): can't be read"));
    let (_file, garbage) = file("threads = = 3");
    let found = config_errors(load(vec![garbage]));
    assert!(found[0].contains("invalid TOML"), "{found:?}");
}

#[test]
fn printed_configuration_can_be_loaded() {
    let given = flags(&[
        ("listen", "127.0.0.1:0,unix:/run/a \"b\".sock"),
        ("drain_timeout", "90s"),
        ("socket_mode", "660"),
        ("reflection", "true"),
    ]);
    let effective = load(vec![given]).unwrap();
    let printed = effective.to_toml();
    assert!(printed.contains("drain_timeout = \"1m 30s\" # flag --drain-timeout"), "{printed}");
    assert!(printed.contains("threads = 1 # default"), "{printed}");
    let (_file, layer) = file(&printed);
    assert_eq!(load(vec![layer]).unwrap().config, effective.config);

    let json = effective.to_json();
    assert_eq!(json["config"]["socket_mode"], "0660");
    assert_eq!(json["config"]["reflection"], true);
    assert_eq!(json["sources"]["drain_timeout"], "flag --drain-timeout");
    assert_eq!(json["sources"]["log"], "default");
}
