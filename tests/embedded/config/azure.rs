//! What belongs to the Azure store, and that no secret is shown.

use std::{ffi::OsString, os::unix::ffi::OsStringExt, process::Command, time::Duration};

use leasehold::config::{ConfigErrors, Credential, Effective, Layer, Store, load};

use super::{environment, file, flags, mistake, mistakes};

/// Parts of secrets: none of them may ever be seen.
const KEY: &str = "aHVzaC1odXNo";
const SAS: &str = "sv=2024-01-01&sig=hush-hush";
const CONNECTION_STRING: &str = "AccountName=acme;AccountKey=aHVzaC1odXNo";
const URL: &str = "https://acme.blob.core.windows.net";

#[track_caller]
fn discreet(text: &str) {
    for part in ["aHVzaC1odXNo", "hush-hush", "hush\u{fffd}"] {
        assert!(!text.contains(part), "{text}");
    }
}

/// With `store = "azure"`.
fn azure(variables: &[(&str, &str)]) -> Result<Effective, ConfigErrors> {
    load(vec![environment(variables), flags(&[("store", "azure")])])
}

/// The one mistake, which shows no secret.
fn azure_mistake(variables: &[(&str, &str)]) -> String {
    let result = azure(variables);
    discreet(&format!("{result:?}"));
    let found = mistakes(result);
    assert_eq!(found.len(), 1, "{found:#?}");
    found.into_iter().next().unwrap()
}

const ACCOUNT_URL: &str = "LEASEHOLD_AZURE_ACCOUNT_URL";
const ACCOUNT_KEY: &str = "LEASEHOLD_AZURE_ACCOUNT_KEY";
const AZURE_SAS: &str = "LEASEHOLD_AZURE_SAS";
const AZURE_CONNECTION_STRING: &str = "LEASEHOLD_AZURE_CONNECTION_STRING";
const CREDENTIAL: &str = "LEASEHOLD_AZURE_CREDENTIAL";

#[test]
fn the_azure_store_takes_an_account_in_many_ways() {
    for variables in [
        &[(ACCOUNT_URL, URL)][..],
        &[(ACCOUNT_URL, URL), (ACCOUNT_KEY, KEY)],
        &[(ACCOUNT_URL, URL), (AZURE_SAS, SAS)],
        &[(ACCOUNT_URL, URL), (AZURE_SAS, "?sig=hush-hush"), (CREDENTIAL, "sas")],
        &[(ACCOUNT_URL, "https://acme.example/?sig=hush-hush")],
        &[(ACCOUNT_URL, "http://127.0.0.1:10000/devstoreaccount1/"), (ACCOUNT_KEY, KEY)],
        &[(ACCOUNT_URL, "http://azurite:10000/devstoreaccount1"), (AZURE_SAS, SAS)],
        &[(ACCOUNT_URL, URL), (CREDENTIAL, "managed-identity")],
        &[(ACCOUNT_URL, URL), (CREDENTIAL, "azure-cli")],
        // A forced credential is used also if others are given.
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
            ("AZURE_CLIENT_SECRET", "hush-hush"),
        ],
    ] {
        let effective = azure(variables).unwrap();
        assert_eq!(effective.config.store, Store::Azure);
    }
}

#[test]
fn what_the_azure_store_lacks_is_named_with_its_source_and_remedy() {
    for (variables, start, remedy) in [
        (&[][..], "store = \"azure\" (flag --store)", "LEASEHOLD_AZURE_ACCOUNT_URL"),
        (&[(ACCOUNT_KEY, KEY)], "store = \"azure\"", "azure_account_url"),
        (
            &[(ACCOUNT_URL, URL), (AZURE_CONNECTION_STRING, CONNECTION_STRING)],
            "azure_account_url = \"https://acme.blob.core.windows.net\" (environment variable \
             LEASEHOLD_AZURE_ACCOUNT_URL)",
            "leave one of them out",
        ),
        (
            &[(ACCOUNT_URL, "https://acme.example?sig=hush-hush"), (AZURE_SAS, SAS)],
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
                ("AZURE_CLIENT_SECRET", "hush-hush"),
            ],
            "azure_credential",
            "variable AZURE_TENANT_ID, which is not set",
        ),
    ] {
        let message = azure_mistake(variables);
        assert!(message.starts_with(start), "{message}");
        assert!(message.contains(remedy), "{message}");
    }
}

#[test]
fn a_mistake_in_a_secret_does_not_quote_it() {
    for (key, word, hint) in [
        ("azure_account_key", "hush-hush!", "base64"),
        ("azure_account_key", "REDACTED", "give the secret"),
        ("azure_sas", "sv=hush-hush", "no sig="),
        ("azure_connection_string", "hush-hush", "Name=value"),
        ("azure_connection_string", "AccountName=acme;AccountKey=hush-hush!", "base64"),
        ("azure_connection_string", "AccountName=acme", "azure_account_url"),
        ("azure_connection_string", "BlobEndpoint=hush-hush;AccountKey=aHVzaC1odXNo", "not a URL"),
        ("azure_account_url", "ftp://acme.example?sig=hush-hush", "https://"),
        ("azure_account_url", "https://me:hush-hush@acme.example", "password"),
        ("azure_account_url", "https://acme.example?hush-hush", "no sig="),
        ("azure_account_url", CONNECTION_STRING, "not a URL"),
    ] {
        let message = mistake(key, word);
        assert!(message.starts_with(&format!("{key} = ")), "{message}");
        assert!(message.contains(hint), "{message}");
        assert!(message.contains("REDACTED"), "{message}");
        discreet(&message);
    }
}

#[test]
fn a_file_with_mistakes_is_not_quoted_where_a_secret_may_be() {
    for (text, hint) in [
        ("azure_acount_key = \"hush-hush\"", "azure_account_key?"),
        ("storage_password = \"hush-hush\"", "unknown setting"),
        ("pin = \"hush-hush\"", "unknown setting"),
        ("lisen = [\"hush-hush\"]", "did you mean listen?"),
        ("[store.azure]\nwhatever = \"hush-hush\"", "must be"),
        ("[[listen]]\nwhatever = \"hush-hush\"", "must be"),
        ("[vault]\nwhatever = \"hush-hush\"", "unknown setting"),
        ("azure_account_key = 5\nazure_sas = [\"hush-hush\"]", "must be"),
        ("log = \"info\"\nazure_account_key = hush-hush", "line 2"),
    ] {
        let (_file, layer) = file(text);
        discreet(&format!("{layer:?}"));
        let found = mistakes(load(vec![layer])).join("\n");
        assert!(found.contains(hint), "{found}");
        discreet(&found);
    }
    let bytes = b"hush\xff".to_vec();
    let layer =
        Layer::environment(|name| (name == ACCOUNT_KEY).then(|| OsString::from_vec(bytes.clone())));
    let found = mistakes(load(vec![layer])).join("\n");
    assert!(found.contains("is not UTF-8"), "{found}");
    discreet(&found);
}

#[test]
fn secrets_are_not_shown() {
    let secrets = [
        (ACCOUNT_URL, "https://acme.blob.core.windows.net/?sig=hush-hush"),
        (ACCOUNT_KEY, KEY),
        ("AZURE_CLIENT_SECRET", "hush-hush"),
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
    let shown = format!("{effective:?}");
    for text in [toml, json.to_string(), shown, format!("{:?}", environment(&secrets))] {
        discreet(&text);
    }
}

#[test]
fn the_program_does_not_show_secrets_either() {
    for output in ["text", "json"] {
        for (url, code) in [(URL, 0), ("https://acme.example?hush-hush", 78)] {
            let run = Command::new(env!("CARGO_BIN_EXE_leasehold"))
                .args(["serve", "--check", "--output", output, "--store", "azure"])
                .args(["--azure-account-url", url, "--azure-sas", SAS])
                .env(ACCOUNT_KEY, KEY)
                .env("RUST_BACKTRACE", "1")
                .output()
                .unwrap();
            let said = format!(
                "{}{}",
                String::from_utf8_lossy(&run.stdout),
                String::from_utf8_lossy(&run.stderr)
            );
            assert_eq!(run.status.code(), Some(code), "{said}");
            assert!(said.contains("azure_account_url"), "{said}");
            assert!(said.contains("REDACTED"), "{said}");
            discreet(&said);
        }
    }
}

#[test]
fn what_belongs_to_azure_does_not_disturb_the_embedded_store() {
    let layer = environment(&[(ACCOUNT_KEY, KEY), (CREDENTIAL, "sas"), (ACCOUNT_URL, URL)]);
    let config = load(vec![layer]).unwrap().config;
    assert_eq!(config.store, Store::Embedded);
    assert_eq!(config.azure.credential, Credential::Sas);
}

#[test]
fn collecting_is_off_or_takes_its_time() {
    for (word, length) in [("0s", 0), ("1h", 3600), ("3650d", 3650 * 86_400)] {
        let config = load(vec![flags(&[("gc_after", word)])]).unwrap().config;
        assert_eq!(config.azure.gc_after, Duration::from_secs(length));
    }
}
