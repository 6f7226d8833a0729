//! `leasehold doctor` and the checks at the start of `leasehold serve`, against
//! Azurite: findings, messages, and that no blob is left behind.
use std::{collections::BTreeMap, process::Command, time::Duration};

use azure_core::{credentials::Secret, hmac::hmac_sha256};
use azure_storage_blob::{
    BlobServiceClient, BlobServiceClientOptions,
    models::{BlobServiceProperties, RetentionPolicy},
};
use leasehold_azure_store::protect;
use leasehold_test_support::{
    Running,
    azurite::{ACCOUNT, Azurite, KEY, blob_url},
    program,
    proxy::{Fault, Kind, Match, Proxy, Refusal},
    rest::{Container, Rest, VERSION, sign::sas},
};
use serde_json::Value;

const SERVE: &[&str] = &["serve", "--listen", "127.0.0.1:0"];
const FAR_EXPIRY: &str = "2099-01-01T00:00:00Z";
const NOT_ALLOWED: Fault = Fault::Refuse(Refusal::new(403, "AuthorizationPermissionMismatch"));

/// Configuration of the account, by configuration key.
#[derive(Clone)]
struct Setup(BTreeMap<&'static str, String>);

impl Setup {
    fn new(url: String, container: &str) -> Self {
        let container = container.to_owned();
        Self([("STORE", "azure".to_owned()), ("AZURE_CONTAINER", container)].into())
            .with("AZURE_ACCOUNT_URL", url)
            .with("AZURE_ACCOUNT_KEY", KEY)
    }

    /// Configuration for the shared Azurite.
    fn shared(container: &str) -> Self {
        Self::new(Azurite::shared().blob_url(), container)
    }

    fn with(mut self, key: &'static str, value: impl Into<String>) -> Self {
        self.0.insert(key, value.into());
        self
    }

    /// Replaces the key by a shared access signature.
    fn with_sas(mut self, sas: String) -> Self {
        self.0.remove("AZURE_ACCOUNT_KEY");
        self.with("AZURE_SAS", sas)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = program();
        for (key, value) in &self.0 {
            command.env(format!("LEASEHOLD_{key}"), value);
        }
        command.args(arguments);
        command
    }

    /// Runs the program to its end. Asserts that its output contains no secret.
    fn run(&self, arguments: &[&str]) -> Ran {
        let output = self.command(arguments).output().unwrap();
        let ran = Ran {
            code: output.status.code().unwrap(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        };
        for secret in ["AZURE_ACCOUNT_KEY", "AZURE_SAS"] {
            let secret = self.0.get(secret).map(|secret| secret.split("sig=").last().unwrap());
            let leaked = secret.is_some_and(|secret| format!("{ran:?}").contains(secret));
            assert!(!leaked, "{ran:?}");
        }
        ran
    }

    /// Runs `doctor`. Returns its exit code and findings.
    fn run_doctor(&self) -> (i32, Findings) {
        let ran = self.run(&["doctor", "--output", "json"]);
        assert_eq!(ran.stderr, "");
        let findings = ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap());
        (ran.code, Findings(findings.collect()))
    }
}

#[derive(Debug)]
struct Ran {
    code: i32,
    stdout: String,
    stderr: String,
}

#[derive(Debug)]
struct Findings(Vec<Value>);

impl Findings {
    /// The status and the text of a check.
    #[track_caller]
    fn of(&self, check: &str) -> (&str, &str) {
        let found = self.0.iter().find(|finding| finding["check"] == check);
        let found = found.unwrap_or_else(|| panic!("no {check} in {self:?}"));
        (found["status"].as_str().unwrap(), found["text"].as_str().unwrap())
    }

    /// Checks with this status.
    fn with_status(&self, status: &str) -> Vec<&str> {
        let found = self.0.iter().filter(|finding| finding["status"] == status);
        found.map(|finding| finding["check"].as_str().unwrap()).collect()
    }
}

/// The container over plain REST.
fn container(name: &str) -> Container {
    Rest::new(Azurite::shared()).container(name)
}

async fn blobs(container: &Container) -> usize {
    container.list().await.ok().listed().len()
}

#[tokio::test]
async fn healthy_account_passes_all_checks() {
    container("in-order").create().await.ok();
    let setup = Setup::shared("in-order").with("AZURE_PREFIX", "team/a");
    let (code, found) = setup.run_doctor();
    assert_eq!(code, 0, "{found:?}");
    assert_eq!(found.with_status("failed"), [""; 0]);
    assert_eq!(found.with_status("warning"), [""; 0]);
    let place = format!("{}/in-order, by account key", Azurite::shared().blob_url());
    assert_eq!(found.of("store"), ("note", place.as_str()));
    assert_eq!(found.of("account").0, "ok");
    assert_eq!(found.of("credential"), ("ok", "account key is accepted"));
    assert_eq!(found.of("clock").0, "note");
    assert_eq!(found.of("container"), ("ok", "in-order exists"));
    let (status, text) = found.of("permissions");
    assert_eq!(status, "ok");
    let all = "may create, list, read, lease, write, release and delete blobs, as tried on ";
    assert!(text.starts_with(&format!("{all}team/a/check/")), "{text}");
    assert_eq!(found.of("soft delete").0, "ok");
    assert_eq!(found.of("versioning").0, "ok");
    // Azurite reports an account with read access to a secondary region.
    assert!(found.of("geo-replication").1.starts_with("on (Standard_RAGRS)"), "{found:?}");
    assert_eq!(blobs(&container("in-order")).await, 0, "the probe blob is left");

    let text = setup.run(&["doctor"]).stdout;
    assert!(text.contains("\nok       credential: account key is accepted\n"), "{text}");
    assert!(text.contains("\n         azure_protect_container = true lets"), "{text}");
}

#[tokio::test]
async fn missing_container_is_created() {
    let (code, found) = Setup::shared("created-by-doctor").run_doctor();
    assert_eq!((code, found.of("container").0), (0, "note"), "{found:?}");
    container("created-by-doctor").head().await.ok();

    let mut daemon = Running::start(&mut Setup::shared("created-by-serve").command(SERVE));
    assert!(daemon.line().starts_with("listening on "));
    container("created-by-serve").head().await.ok();
    assert_eq!(blobs(&container("created-by-serve")).await, 0, "the probe blob is left");
}

/// Faulty configurations, each with the failing check and a part of its message.
fn problem_cases() -> Vec<(Setup, &'static str, &'static str)> {
    let azurite = Azurite::shared();
    let plain = || Setup::shared("problems");
    let at = |url: String| Setup::new(url, "problems");
    let tls = azurite.blob_url().replace("http:", "https:");
    let other = azurite.blob_url().replace(ACCOUNT, "another");
    let may_not = "may not create and list blobs (403 AuthorizationPermissionMismatch)";
    vec![
        (
            plain().with("AZURE_ACCOUNT_KEY", "d3Jvbmc="),
            "credential",
            "refused a call (403 AuthorizationFailure)",
        ),
        (plain().with_sas(sas("rwdlac", "2020-01-01T00:00:00Z")), "credential", "expired"),
        (plain().with_sas(sas("r", FAR_EXPIRY)), "permissions", may_not),
        (at(other), "account", "no account of that name"),
        (at(blob_url(1)), "account", "Connection refused"),
        (at(tls), "account", "The TLS handshake failed"),
        (at("https://unknown.blob.invalid".to_owned()), "account", "host name can't be resolved"),
    ]
}

#[tokio::test]
async fn each_problem_is_reported_once() {
    container("problems").create().await.ok();
    for (setup, check, expected) in problem_cases() {
        let (code, found) = setup.run_doctor();
        assert_eq!(code, 1, "{found:?}");
        assert_eq!(found.with_status("failed"), [check], "{found:?}");
        let last = found.0.last().unwrap();
        assert_eq!(last["check"], check, "later checks are skipped: {found:?}");
        assert!(last.to_string().contains(expected), "{found:?}");
        assert!(last["fix"].is_string(), "{found:?}");

        let ran = setup.run(SERVE);
        assert_eq!((ran.code, ran.stdout.as_str()), (1, ""), "{ran:?}");
        assert_eq!(ran.stderr.lines().count(), 1, "{ran:?}");
        let url = setup.0["AZURE_ACCOUNT_URL"].as_str();
        let place = format!("leasehold: can't keep locks in {url}/problems: {check}: ");
        assert!(ran.stderr.starts_with(&place), "{ran:?}");
        assert!(ran.stderr.contains(expected), "{ran:?}");
        assert!(ran.stderr.contains(last["fix"].as_str().unwrap()), "{ran:?}");
    }
    assert_eq!(blobs(&container("problems")).await, 0);
}

#[tokio::test]
async fn failed_step_leaves_no_blob_behind() {
    let proxy = Proxy::start(Azurite::shared().port());
    let container = container("steps");
    container.create().await.ok();
    let setup = Setup::new(blob_url(proxy.port()), "steps");
    for (kind, fault, expected) in [
        (Kind::Read, NOT_ALLOWED, "may not read blobs"),
        (Kind::Acquire, NOT_ALLOWED, "may not lease blobs"),
        (Kind::Write, NOT_ALLOWED, "may not write blobs"),
        (Kind::Release, NOT_ALLOWED, "may not release blobs"),
        (Kind::List, NOT_ALLOWED, "may not list blobs"),
        // The outcome is unknown to the client, but the call is applied.
        (Kind::Create, Fault::DropResponse, "could not create a blob"),
        (Kind::Acquire, Fault::DropResponse, "could not lease a blob"),
        (Kind::Write, Fault::Refuse(Refusal::INTERNAL_ERROR), "could not write a blob"),
    ] {
        proxy.when(kind).then(fault);
        let (code, found) = setup.run_doctor();
        proxy.heal();
        assert_eq!(code, 1, "{kind:?}: {found:?}");
        let (status, text) = found.of("permissions");
        assert_eq!(status, "failed", "{found:?}");
        assert!(text.starts_with(expected), "{text}");
        assert!(!text.contains("stays behind"), "{text}");
        assert_eq!(blobs(&container).await, 0, "{kind:?}");
    }
}

#[tokio::test]
async fn delete_permission_is_required_only_for_gc() {
    let proxy = Proxy::start(Azurite::shared().port());
    let container = container("no-delete");
    container.create().await.ok();
    proxy.when(Kind::Delete).then(NOT_ALLOWED);
    let setup = Setup::new(blob_url(proxy.port()), "no-delete");
    let (code, found) = setup.run_doctor();
    let (status, text) = found.of("permissions");
    assert_eq!((code, status), (0, "warning"), "{found:?}");
    let left = container.list().await.ok().listed();
    let expected = format!("the blob {} stays behind", left[0].name());
    assert!(text.ends_with(&expected), "{text}");
    let (code, found) = setup.with("GC_AFTER", "1day").run_doctor();
    assert_eq!((code, found.of("permissions").0), (1, "failed"), "{found:?}");
}

#[tokio::test]
async fn large_clock_skew_is_reported_as_cause() {
    let proxy = Proxy::start(Azurite::shared().port());
    container("clock").create().await.ok();
    let setup = Setup::new(blob_url(proxy.port()), "clock");
    let past = Fault::Header { name: "date", value: "Thu, 01 Jan 2026 00:00:00 GMT" };
    proxy.when(Match::any()).then(past);
    let (code, found) = setup.run_doctor();
    assert_eq!((code, found.with_status("failed")), (1, vec!["clock"]), "{found:?}");
    assert!(found.of("clock").1.contains("ahead of the service's"), "{found:?}");
}

#[tokio::test]
async fn daemon_starts_while_account_is_busy() {
    let proxy = Proxy::start(Azurite::shared().port());
    let setup = Setup::new(blob_url(proxy.port()), "busy");
    proxy.when(Match::any()).then(Fault::Refuse(Refusal::busy(Duration::from_secs(1))));
    let (code, found) = setup.run_doctor();
    assert_eq!((code, found.of("account").0), (0, "warning"), "{found:?}");
    let mut daemon = Running::start(&mut setup.command(SERVE));
    assert!(daemon.line().starts_with("listening on "));
}

#[tokio::test]
async fn unresponsive_account_times_out() {
    let proxy = Proxy::start(Azurite::shared().port());
    proxy.stall();
    let (code, found) = Setup::new(blob_url(proxy.port()), "silent").run_doctor();
    assert_eq!((code, found.with_status("failed")), (1, vec!["account"]), "{found:?}");
    assert!(found.of("account").1.ends_with("did not answer within 10s"), "{found:?}");
}

/// Shared access signature for one container, without the right to create
/// containers or read their properties.
fn container_sas(container: &str) -> String {
    let (permissions, version) = ("racwdl", "2022-11-02");
    let resource = format!("/blob/{ACCOUNT}/{container}");
    let text =
        format!("{permissions}\n\n{FAR_EXPIRY}\n{resource}\n\n\n\n{version}\nc\n\n\n\n\n\n\n");
    let signature = hmac_sha256(&text, &Secret::new(KEY)).unwrap();
    let signature = signature.replace('+', "%2B").replace('/', "%2F").replace('=', "%3D");
    format!("sv={version}&sr=c&sp={permissions}&se={FAR_EXPIRY}&sig={signature}")
}

#[tokio::test]
async fn container_sas_suffices_if_container_exists() {
    let setup = Setup::shared("by-sas").with_sas(container_sas("by-sas"));
    let (code, found) = setup.run_doctor();
    assert_eq!((code, found.with_status("failed")), (1, vec!["container"]), "{found:?}");
    assert!(found.of("container").1.contains("may not create it"), "{found:?}");

    container("by-sas").create().await.ok();
    let (code, found) = setup.clone().with("AZURE_PROTECT_CONTAINER", "true").run_doctor();
    assert_eq!(code, 0, "{found:?}");
    assert_eq!(found.of("credential"), ("ok", "shared access signature is accepted"));
    assert_eq!(found.with_status("warning"), ["deletion"], "{found:?}");
    assert!(found.of("deletion").1.contains("can't be protected"), "{found:?}");
}

#[tokio::test]
async fn container_protection_is_reported() {
    let protected = container("protected");
    protected.create().await.ok();
    let setup = Setup::shared("protected").with("AZURE_PROTECT_CONTAINER", "true");
    let (code, found) = setup.run_doctor();
    let id = protect::lease_id("protected");
    assert_eq!((code, found.of("deletion").0), (0, "ok"), "{found:?}");
    assert!(
        found.of("deletion").1.contains(&format!("--name protected --lease-id {id}")),
        "{found:?}"
    );
    assert_eq!(protected.delete().await.status, 412, "the container is protected");
    assert!(Setup::shared("protected").run_doctor().1.of("deletion").1.contains(&id));

    protected.release(&id).await.ok();
    protected.acquire("0d5bcd34-2a3c-4a5b-8f7c-0f4a7d0c7e11", 60).await.ok();
    let (code, found) = setup.run_doctor();
    assert_eq!((code, found.of("deletion").0), (0, "warning"), "{found:?}");
}

#[tokio::test]
async fn soft_delete_is_reported() {
    // A separate instance, because the setting applies to the account.
    let azurite = Azurite::start();
    let url = format!("{}?{}", azurite.blob_url(), sas("rwdlac", FAR_EXPIRY)).parse().unwrap();
    let options = BlobServiceClientOptions {
        version: VERSION.to_owned(),
        ..BlobServiceClientOptions::default()
    };
    let service = BlobServiceClient::new(url, None, Some(options)).unwrap();
    let policy =
        RetentionPolicy { enabled: Some(true), days: Some(7), ..RetentionPolicy::default() };
    let properties = BlobServiceProperties {
        delete_retention_policy: Some(policy),
        ..BlobServiceProperties::default()
    };
    service.set_properties(properties.try_into().unwrap(), None).await.unwrap();

    let (code, found) = Setup::new(azurite.blob_url(), "soft-delete").run_doctor();
    assert_eq!(code, 0, "{found:?}");
    let (status, text) = found.of("soft delete");
    assert_eq!(status, "note");
    assert!(text.ends_with("for 7 days"), "{text}");
}
