//! Settings of the Azure store, and the redaction of secrets.

use std::{ffi::OsString, os::unix::ffi::OsStringExt, process::Command, time::Duration};

use leasehold::config::{ConfigErrors, Credential, Effective, Layer, Store, load};

use super::{config_error, config_errors, environment, file, flags};

/// Account key. No output may contain it.
const KEY: &str = "dG9wc2VjcmV0";
/// Shared access signature. No output may contain its signature.
const SAS: &str = "sv=2024-01-01&sig=topsecret";
const CONNECTION_STRING: &str = "AccountName=acme;AccountKey=dG9wc2VjcmV0";
const URL: &str = "https://acme.blob.core.windows.net";

#[track_caller]
fn assert_no_secret(text: &str) {
    for part in ["dG9wc2VjcmV0", "topsecret"] {
        assert!(!text.contains(part), "{text}");
    }
}

/// Loads the configuration with `store = "azure"`.
fn azure(variables: &[(&str, &str)]) -> Result<Effective, ConfigErrors> {
    load(vec![environment(variables), flags(&[("store", "azure")])])
}

/// Returns the only error, and checks that it has no secret.
fn azure_error(variables: &[(&str, &str)]) -> String {
    let result = azure(variables);
    assert_no_secret(&format!("{result:?}"));
    let found = config_errors(result);
    assert_eq!(found.len(), 1, "{found:#?}");
    found.into_iter().next().unwrap()
}

const ACCOUNT_URL: &str = "LEASEHOLD_AZURE_ACCOUNT_URL";
const ACCOUNT_KEY: &str = "LEASEHOLD_AZURE_ACCOUNT_KEY";
const AZURE_SAS: &str = "LEASEHOLD_AZURE_SAS";
const AZURE_CONNECTION_STRING: &str = "LEASEHOLD_AZURE_CONNECTION_STRING";
const CREDENTIAL: &str = "LEASEHOLD_AZURE_CREDENTIAL";

#[test]
fn azure_store_accepts_each_way_to_name_account() {
    for variables in [
        &[(ACCOUNT_URL, URL)][..],
        &[(ACCOUNT_URL, URL), (ACCOUNT_KEY, KEY)],
        &[(ACCOUNT_URL, URL), (AZURE_SAS, SAS)],
        &[(ACCOUNT_URL, URL), (AZURE_SAS, "?sig=topsecret"), (CREDENTIAL, "sas")],
        &[(ACCOUNT_URL, "https://acme.example/?sig=topsecret")],
        &[(ACCOUNT_URL, "http://127.0.0.1:10000/devstoreaccount1/"), (ACCOUNT_KEY, KEY)],
        &[(ACCOUNT_URL, "http://azurite:10000/devstoreaccount1"), (AZURE_SAS, SAS)],
        &[(ACCOUNT_URL, URL), (CREDENTIAL, "managed-identity")],
        &[(ACCOUNT_URL, URL), (CREDENTIAL, "azure-cli")],
        // An explicit `azure_credential` has priority over the other credentials.
        &[(ACCOUNT_URL, URL), (ACCOUNT_KEY, KEY), (CREDENTIAL, "azure-cli")],
        &[(AZURE_CONNECTION_STRING, "UseDevelopmentStorage=true")],
        &[(AZURE_CONNECTION_STRING, CONNECTION_STRING)],
        &[(AZURE_CONNECTION_STRING, CONNECTION_STRING), (CREDENTIAL, "connection-string")],
        &[
            (ACCOUNT_URL, URL),
            (CREDENTIAL, "workload-identity"),
            ("AZURE_TENANT_ID", "t"),
            ("AZURE_CLIENT_ID", "c"),
            ("AZURE_FEDERATED_TOKEN_FILE", "/run/token"),
        ],
        &[
            (ACCOUNT_URL, URL),
            (CREDENTIAL, "client-secret"),
            ("AZURE_TENANT_ID", "t"),
            ("AZURE_CLIENT_ID", "c"),
            ("AZURE_CLIENT_SECRET", "topsecret"),
        ],
    ] {
        let effective = azure(variables).unwrap();
        assert_eq!(effective.config.store, Store::Azure);
    }
}

#[test]
fn missing_azure_setting_is_reported_with_source_and_fix() {
    for (variables, start, fix) in [
        (&[][..], "store = \"azure\" (flag --store)", "LEASEHOLD_AZURE_ACCOUNT_URL"),
        (&[(ACCOUNT_KEY, KEY)], "store = \"azure\"", "azure_account_url"),
        (
            &[(ACCOUNT_URL, URL), (AZURE_CONNECTION_STRING, CONNECTION_STRING)],
            "azure_account_url = \"https://acme.blob.core.windows.net\" (environment variable \
             LEASEHOLD_AZURE_ACCOUNT_URL)",
            "leave one of them out",
        ),
        (
            &[(ACCOUNT_URL, "https://acme.example?sig=topsecret"), (AZURE_SAS, SAS)],
            "azure_sas = \"REDACTED\" (environment variable LEASEHOLD_AZURE_SAS)",
            "leave one of them out",
        ),
        (
            &[(ACCOUNT_URL, "https://locks.example"), (ACCOUNT_KEY, KEY)],
            "azure_account_url = \"https://locks.example\"",
            "AccountName",
        ),
        (
            &[(ACCOUNT_URL, "http://127.0.0.1:10000/devstoreaccount1")],
            "azure_account_url = \"http://127.0.0.1:10000/devstoreaccount1\"",
            "https://",
        ),
        (
            &[(ACCOUNT_URL, "http://acme.example"), (CREDENTIAL, "azure-cli")],
            "azure_account_url = \"http://acme.example\"",
            "https://",
        ),
        (
            &[(ACCOUNT_URL, URL), (CREDENTIAL, "account-key")],
            "azure_credential = \"account-key\" (environment variable LEASEHOLD_AZURE_CREDENTIAL)",
            "LEASEHOLD_AZURE_ACCOUNT_KEY",
        ),
        (&[(ACCOUNT_URL, URL), (CREDENTIAL, "sas")], "azure_credential", "LEASEHOLD_AZURE_SAS"),
        (
            &[(ACCOUNT_URL, URL), (CREDENTIAL, "connection-string")],
            "azure_credential",
            "LEASEHOLD_AZURE_CONNECTION_STRING",
        ),
        (
            &[(AZURE_CONNECTION_STRING, CONNECTION_STRING), (CREDENTIAL, "workload-identity")],
            "azure_credential",
            "azure_account_url",
        ),
        (
            &[
                (ACCOUNT_URL, URL),
                (CREDENTIAL, "workload-identity"),
                ("AZURE_CLIENT_ID", "c"),
                ("AZURE_TENANT_ID", ""),
            ],
            "azure_credential",
            "variables AZURE_TENANT_ID and AZURE_FEDERATED_TOKEN_FILE, which are not set",
        ),
        (
            &[
                (ACCOUNT_URL, URL),
                (CREDENTIAL, "client-secret"),
                ("AZURE_CLIENT_ID", "c"),
                ("AZURE_CLIENT_SECRET", "topsecret"),
            ],
            "azure_credential",
            "variable AZURE_TENANT_ID, which is not set",
        ),
    ] {
        let message = azure_error(variables);
        assert!(message.starts_with(start), "{message}");
        assert!(message.contains(fix), "{message}");
    }
}

#[test]
fn error_in_secret_does_not_quote_secret() {
    for (key, word, hint) in [
        ("azure_account_key", "topsecret!", "base64"),
        ("azure_account_key", "REDACTED", "give the secret"),
        ("azure_sas", "sv=topsecret", "no sig="),
        ("azure_connection_string", "topsecret", "Name=value"),
        ("azure_connection_string", "AccountName=acme;AccountKey=topsecret!", "base64"),
        ("azure_connection_string", "AccountName=acme", "azure_account_url"),
        ("azure_connection_string", "BlobEndpoint=topsecret;AccountKey=dG9wc2VjcmV0", "not a URL"),
        ("azure_account_url", "ftp://acme.example?sig=topsecret", "https://"),
        ("azure_account_url", "https://me:topsecret@acme.example", "password"),
        ("azure_account_url", "https://acme.example?topsecret", "no sig="),
        ("azure_account_url", CONNECTION_STRING, "not a URL"),
    ] {
        let message = config_error(key, word);
        assert!(message.starts_with(&format!("{key} = ")), "{message}");
        assert!(message.contains(hint), "{message}");
        assert!(message.contains("REDACTED"), "{message}");
        assert_no_secret(&message);
    }
}

#[test]
fn error_in_file_does_not_quote_possible_secrets() {
    for (text, hint) in [
        ("azure_acount_key = \"topsecret\"", "azure_account_key\"?"),
        ("storage_password = \"topsecret\"", "unknown setting"),
        ("pin = \"topsecret\"", "unknown setting"),
        ("lisen = [\"topsecret\"]", "did you mean \"listen\"?"),
        ("[store.azure]\nunknown = \"topsecret\"", "must be"),
        ("[[listen]]\nunknown = \"topsecret\"", "must be"),
        ("[vault]\nunknown = \"topsecret\"", "unknown setting"),
        ("azure_account_key = 5\nazure_sas = [\"topsecret\"]", "must be"),
        ("log = \"info\"\nazure_account_key = topsecret", "line 2"),
    ] {
        let (_file, layer) = file(text);
        assert_no_secret(&format!("{layer:?}"));
        let found = config_errors(load(vec![layer])).join("\n");
        assert!(found.contains(hint), "{found}");
        assert_no_secret(&found);
    }
    let bytes = b"topsecret\xff".to_vec();
    let layer =
        Layer::environment(|name| (name == ACCOUNT_KEY).then(|| OsString::from_vec(bytes.clone())));
    let found = config_errors(load(vec![layer])).join("\n");
    assert!(found.contains("is not UTF-8"), "{found}");
    assert_no_secret(&found);
}

#[test]
fn secrets_are_redacted_in_effective_configuration() {
    let secrets = [
        (ACCOUNT_URL, "https://acme.blob.core.windows.net/?sig=topsecret"),
        (ACCOUNT_KEY, KEY),
        ("AZURE_CLIENT_SECRET", "topsecret"),
    ];
    let effective = azure(&secrets).unwrap();
    let toml = effective.to_toml();
    let key = "azure_account_key = \"REDACTED\" # environment variable LEASEHOLD_AZURE_ACCOUNT_KEY";
    assert!(toml.contains(key), "{toml}");
    assert!(toml.contains("azure_sas = \"\" # default"), "{toml}");
    let url = "azure_account_url = \"https://acme.blob.core.windows.net?REDACTED\"";
    assert!(toml.contains(url), "{toml}");
    let json = effective.to_json();
    assert_eq!(json["config"]["azure_account_key"], "REDACTED");
    let debug = format!("{effective:?}");
    for text in [toml, json.to_string(), debug, format!("{:?}", environment(&secrets))] {
        assert_no_secret(&text);
    }
}

#[test]
fn program_output_has_no_secret() {
    for format in ["text", "json"] {
        for (url, code) in [(URL, 0), ("https://acme.example?topsecret", 78)] {
            let run = Command::new(env!("CARGO_BIN_EXE_leasehold"))
                .args(["serve", "--check", "--output", format, "--store", "azure"])
                .args(["--azure-account-url", url, "--azure-sas", SAS])
                .env(ACCOUNT_KEY, KEY)
                .env("RUST_BACKTRACE", "1")
                .output()
                .unwrap();
            let output = format!(
                "{}{}",
                String::from_utf8_lossy(&run.stdout),
                String::from_utf8_lossy(&run.stderr)
            );
            assert_eq!(run.status.code(), Some(code), "{output}");
            assert!(output.contains("azure_account_url"), "{output}");
            assert!(output.contains("REDACTED"), "{output}");
            assert_no_secret(&output);
        }
    }
}

#[test]
fn azure_settings_do_not_affect_embedded_store() {
    let layer = environment(&[(ACCOUNT_KEY, KEY), (CREDENTIAL, "sas"), (ACCOUNT_URL, URL)]);
    let config = load(vec![layer]).unwrap().config;
    assert_eq!(config.store, Store::Embedded);
    assert_eq!(config.azure.credential, Credential::Sas);
}

#[test]
fn gc_is_disabled_or_has_minimum_age() {
    for (word, length) in [("0s", 0), ("1h", 3600), ("3650d", 3650 * 86_400)] {
        let config = load(vec![flags(&[("gc_after", word)])]).unwrap().config;
        assert_eq!(config.azure.gc_after, Duration::from_secs(length));
    }
}
