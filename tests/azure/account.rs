//! Credentials of the storage account, against Azurite.
use std::{
    collections::{BTreeSet, HashMap},
    io,
    process::Stdio,
    sync::{Arc, Mutex},
};

use azure_core::{
    Bytes,
    credentials::Secret,
    hmac::hmac_sha256,
    http::{RequestContent, StatusCode},
};
use azure_storage_blob::{
    BlobContainerClient,
    models::{
        BlobClientAcquireLeaseOptions, BlobClientGetPropertiesResultHeaders as _,
        BlobClientSetMetadataOptions, BlobContainerClientListBlobsOptions, ListBlobsIncludeItem,
    },
};
use leasehold::{
    config::{Azure, Config, LogFormat, SecretText},
    telemetry,
};
use leasehold_azure_store::account::Account;
use leasehold_test_support::{
    Running,
    azurite::{ACCOUNT, Azurite, KEY},
    logging,
};
use nix::sys::signal::Signal;
use tokio_stream::StreamExt as _;
use tracing::Subscriber;

const LEASE: &str = "0d5bcd34-2a3c-4a5b-8f7c-0f4a7d0c7e11";

fn by_connection_string(container: &str) -> Azure {
    Azure {
        connection_string: Some(SecretText::new(Azurite::shared().connection_string())),
        container: container.to_owned(),
        ..Azure::default()
    }
}

fn by_key(container: &str) -> Azure {
    Azure {
        account_url: Some(Azurite::shared().blob_url()),
        account_key: Some(SecretText::new(KEY)),
        container: container.to_owned(),
        ..Azure::default()
    }
}

/// Shared access signature for all blobs of the account, valid for years.
fn sas() -> SecretText {
    let (permissions, services, types) = ("rwdlacupx", "b", "sco");
    let (start, expiry, version) = ("", "2099-01-01T00:00:00Z", "2022-11-02");
    let text = format!(
        "{ACCOUNT}\n{permissions}\n{services}\n{types}\n{start}\n{expiry}\n\n\n{version}\n\n"
    );
    let signed = hmac_sha256(&text, &Secret::new(KEY)).unwrap();
    let signed = signed.replace('+', "%2B").replace('/', "%2F").replace('=', "%3D");
    SecretText::new(format!(
        "sv={version}&ss={services}&srt={types}&sp={permissions}&se={expiry}&sig={signed}"
    ))
}

fn by_sas(container: &str) -> Azure {
    Azure { account_key: None, sas: Some(sas()), ..by_key(container) }
}

async fn create(container: &BlobContainerClient, blob: &str) {
    let blob = container.blob_client(blob);
    blob.upload(RequestContent::<Bytes, _>::from(Vec::new()), None).await.unwrap();
}

/// Makes each kind of call that the store makes.
async fn use_account(azure: &Azure) {
    let account = Account::new(&azure.settings()).unwrap();
    let container = account.container();
    container.create(None).await.unwrap();
    container.get_properties(None).await.unwrap();

    create(container, "locks/default/orders").await;
    let blob = container.blob_client("locks/default/orders");
    let options = BlobClientAcquireLeaseOptions {
        proposed_lease_id: Some(LEASE.to_owned()),
        ..BlobClientAcquireLeaseOptions::default()
    };
    blob.acquire_lease(15, Some(options)).await.unwrap();
    blob.renew_lease(LEASE.to_owned(), None).await.unwrap();
    let metadata = HashMap::from(
        [
            ("plain", "a"),
            ("spaces", "a  b   c"),
            ("signs", "a+b=c/d;e:f&g?h#i"),
            ("percent", "100%25%zz"),
            ("quotes", "\"'`\\"),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned())),
    );
    let etag = blob.get_properties(None).await.unwrap().etag().unwrap();
    let options = BlobClientSetMetadataOptions {
        lease_id: Some(LEASE.to_owned()),
        if_match: etag,
        ..BlobClientSetMetadataOptions::default()
    };
    blob.set_metadata(&metadata, Some(options)).await.unwrap();
    let stored = blob.get_properties(None).await.unwrap().metadata().unwrap();
    assert_eq!(stored, metadata);

    for name in ["locks/default/x~2by", "locks/default/Zürich", "locks/default/a b", "other/z"] {
        create(container, name).await;
    }
    assert_eq!(listed(container, "locks/default/").await.len(), 4);
    assert_eq!(listed(container, "locks/default/a b").await.len(), 1);

    blob.release_lease(LEASE.to_owned(), None).await.unwrap();
    blob.delete(None).await.unwrap();
    container.delete(None).await.unwrap();
}

/// Lists blobs, one per page.
async fn listed(container: &BlobContainerClient, prefix: &str) -> BTreeSet<String> {
    let options = BlobContainerClientListBlobsOptions {
        include: Some(vec![ListBlobsIncludeItem::Metadata]),
        maxresults: Some(1),
        prefix: Some(prefix.to_owned()),
        ..BlobContainerClientListBlobsOptions::default()
    };
    let mut blobs = container.list_blobs(Some(options)).unwrap();
    let mut names = BTreeSet::new();
    while let Some(blob) = blobs.next().await {
        names.insert(blob.unwrap().name.unwrap());
    }
    names
}

#[tokio::test]
async fn connection_string_authenticates() {
    use_account(&by_connection_string("by-connection-string")).await;
}

#[tokio::test]
async fn account_key_authenticates() {
    use_account(&by_key("by-key")).await;
}

#[tokio::test]
async fn sas_authenticates() {
    use_account(&by_sas("by-sas-account")).await;
}

#[tokio::test]
async fn display_and_debug_omit_secrets() {
    let account = Account::new(&by_sas("displayed").settings()).unwrap();
    assert_eq!(account.display(), format!("{}/displayed", Azurite::shared().blob_url()));
    assert_eq!(account.credential_name(), "shared access signature");
    assert!(!format!("{account:?}").contains("sig="), "{account:?}");
    assert_eq!(
        Account::new(&by_key("displayed").settings()).unwrap().credential_name(),
        "account key"
    );
}

#[tokio::test]
async fn errors_omit_secrets() {
    // No process listens on this port.
    let unreachable = Azure {
        account_url: Some("http://127.0.0.1:1/devstoreaccount1".to_owned()),
        ..by_sas("unreachable")
    };
    let account = Account::new(&unreachable.settings()).unwrap();
    let error = account.container().get_properties(None).await.unwrap_err();
    assert_eq!(*error.kind(), azure_core::error::ErrorKind::Connection);
    for text in [error.to_string(), format!("{error:?}")] {
        assert!(text.contains("Connection refused"), "{text}");
        assert!(!text.contains("sig="), "{text}");
    }
}

#[tokio::test]
async fn wrong_account_key_is_rejected() {
    let azure =
        Azure { account_key: Some(SecretText::new("bm90IHRoZSBrZXk=")), ..by_key("refused") };
    let account = Account::new(&azure.settings()).unwrap();
    let error = account.container().create(None).await.unwrap_err();
    assert_eq!(error.http_status(), Some(StatusCode::Forbidden), "{error}");
}

/// Captured log output.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Acquires and renews a lease while a subscriber captures the events.
async fn lease_with_subscriber(container: &str, subscriber: impl Subscriber + Send + Sync) {
    let account = Account::new(&by_sas(container).settings()).unwrap();
    account.container().create(None).await.unwrap();
    create(account.container(), "blob").await;
    let options = BlobClientAcquireLeaseOptions {
        proposed_lease_id: Some(LEASE.to_owned()),
        ..BlobClientAcquireLeaseOptions::default()
    };
    let _guard = logging::capture(subscriber);
    tracing::debug!(target: "leasehold", "logging is enabled");
    let blob = account.container().blob_client("blob");
    blob.acquire_lease(15, Some(options)).await.unwrap();
    blob.renew_lease(LEASE.to_owned(), None).await.unwrap();
}

#[tokio::test]
async fn lease_ids_are_not_logged_with_any_filter() {
    const SDK: &str = "typespec_client_core::http::policies::logging";
    let formats = [LogFormat::Text, LogFormat::Json];
    let filters =
        ["trace".to_owned(), format!("trace,{SDK}=trace"), "trace,[{message}]=trace".to_owned()];
    for (number, filter) in filters.iter().enumerate() {
        for format in formats {
            let log = Log::default();
            let config = Config { log: filter.clone(), log_format: format, ..Config::default() };
            let writer = log.clone();
            let subscriber =
                telemetry::subscriber(&config, false, move || writer.clone()).unwrap().0;
            lease_with_subscriber(&format!("logged-{number}-{}", format as u8), subscriber).await;
            let text = log.text();
            assert!(text.contains("logging is enabled"), "{text}");
            for secret in [LEASE, "lease-id", "sig="] {
                assert!(!text.contains(secret), "{text}");
            }
        }
    }
    // Without our filter the SDK logs them; otherwise this test proves nothing.
    let log = Log::default();
    let writer = log.clone();
    let unfiltered = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::DEBUG)
        .with_writer(move || writer.clone())
        .finish();
    lease_with_subscriber("logged-unfiltered", unfiltered).await;
    assert!(log.text().contains(LEASE), "{}", log.text());
}

#[tokio::test]
async fn daemon_trace_log_contains_no_secret() {
    let sas = sas();
    let account = Account::new(&by_sas("daemon").settings()).unwrap();
    account.container().create(None).await.unwrap();
    let mut command = leasehold_test_support::program();
    command.args(["serve", "--store", "azure", "--azure-container", "daemon", "--log", "trace"]);
    command.args(["--listen", "127.0.0.1:0", "--azure-account-url", &Azurite::shared().blob_url()]);
    command.env("LEASEHOLD_AZURE_SAS", sas.expose()).stderr(Stdio::piped());
    let mut daemon = Running::start(&mut command);
    let mut errors = daemon.child.stderr.take().unwrap();
    let log = std::thread::spawn(move || io::read_to_string(&mut errors).unwrap());
    let endpoint = daemon.line().replace("listening on ", "http://");
    let mut lock = leasehold_test_support::program();
    lock.args(["lock", "x", "--endpoint", &endpoint, "--", "true"]);
    assert!(lock.status().unwrap().success());
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.code(), Some(0));
    let text = log.join().unwrap();
    assert!(text.contains("TRACE"), "{text}");
    for secret in ["lease-id", "sig=", "Authorization", "authorization"] {
        assert!(!text.contains(secret), "{secret} in {text}");
    }
}
