//! Credentials for tables, and their redaction in errors and logs.

use std::{
    io,
    sync::{Arc, Mutex},
};

use azure_core::{credentials::Secret, hmac::hmac_sha256, time::to_rfc7231};
use http_body_util::{BodyExt, Full};
use hyper::{Request, body::Bytes};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use leasehold_fence::{
    azure::Account,
    table::{Error, Table, Transaction},
};
use leasehold_test_support::{
    azurite::{ACCOUNT, Azurite, KEY, blob_url},
    logging,
};
use serde_json::Value;

use super::{Stock, amount, fenced_table, held, stock, table};

/// Makes a REST call that the client would refuse. Panics if it fails.
pub(crate) async fn raw(method: &str, path: &str, body: Option<&Value>) {
    let date = to_rfc7231(&leasehold_time::clock::wall().into());
    let text = format!("{date}\n/{ACCOUNT}/{ACCOUNT}/{path}");
    let signature = hmac_sha256(&text, &Secret::new(KEY)).unwrap();
    let request = Request::builder()
        .method(method)
        .uri(format!("{}/{path}", blob_url(Azurite::shared().table_port())))
        .header("x-ms-date", date)
        .header("x-ms-version", "2025-11-05")
        .header("accept", "application/json")
        .header("content-type", "application/json")
        .header("if-match", "*")
        .header("authorization", format!("SharedKeyLite {ACCOUNT}:{signature}"));
    let body = body.map(ToString::to_string).unwrap_or_default();
    let client = Client::builder(TokioExecutor::new()).build_http();
    let response =
        client.request(request.body(Full::new(Bytes::from(body))).unwrap()).await.unwrap();
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert!(status.is_success(), "{status}: {}", String::from_utf8_lossy(&body));
}

/// Creates an account SAS for tables, with permissions and an expiry time.
fn account_sas(permissions: &str, expiry: &str) -> String {
    let (services, types, version) = ("t", "sco", "2022-11-02");
    let text =
        format!("{ACCOUNT}\n{permissions}\n{services}\n{types}\n\n{expiry}\n\n\n{version}\n\n");
    let signed = escaped(&hmac_sha256(&text, &Secret::new(KEY)).unwrap());
    format!("sv={version}&ss={services}&srt={types}&sp={permissions}&se={expiry}&sig={signed}")
}

/// Creates a SAS for one table.
fn table_sas(table: &str, permissions: &str) -> String {
    let (expiry, version) = ("2099-01-01T00:00:00Z", "2022-11-02");
    let text =
        format!("{permissions}\n\n{expiry}\n/table/{ACCOUNT}/{table}\n\n\n\n{version}\n\n\n\n");
    let signed = escaped(&hmac_sha256(&text, &Secret::new(KEY)).unwrap());
    format!("sv={version}&tn={table}&sp={permissions}&se={expiry}&sig={signed}")
}

fn escaped(text: &str) -> String {
    text.replace('+', "%2B").replace('/', "%2F").replace('=', "%3D")
}

fn url() -> String {
    blob_url(Azurite::shared().table_port())
}

fn by_sas(sas: &str) -> Account {
    Account::with_sas(ACCOUNT, sas).unwrap().table_endpoint(&url()).unwrap()
}

/// Makes each kind of call.
pub(crate) async fn uses(account: &Account, name: &str) {
    let table = Table::new(account, name).unwrap();
    let partition = fenced_table(&table, 1).partition("p").await.unwrap();
    partition
        .commit(&Transaction::new().insert("a b", &stock(1)).upsert("c", &stock(2)))
        .await
        .unwrap();
    partition.commit(&Transaction::new().merge("a b", &stock(3)).delete("c")).await.unwrap();
    assert_eq!(partition.get::<Stock>("a b").await.unwrap().unwrap().value, stock(3));
    let rows = partition.query().await.unwrap().filter("amount eq 3L").page_size(1);
    assert_eq!(rows.all::<Stock>().await.unwrap().len(), 1);
    table.commit("p", &Transaction::new().replace("a b", &stock(4))).await.unwrap();
    table.commit("p", &Transaction::new().delete("a b")).await.unwrap();
}

#[tokio::test]
async fn account_key_authenticates() {
    table("bykey").await;
    let account = Account::with_key(ACCOUNT, KEY).unwrap().table_endpoint(&url()).unwrap();
    uses(&account, "bykey").await;
}

#[tokio::test]
async fn connection_string_authenticates() {
    table("bystring").await;
    let string = Azurite::table_connection_string(Azurite::shared().table_port());
    uses(&Account::from_connection_string(&string).unwrap(), "bystring").await;
    let sas = account_sas("raud", "2099-01-01T00:00:00Z");
    let string = format!("TableEndpoint={};SharedAccessSignature={sas}", url());
    let account = Account::from_connection_string(&string).unwrap();
    assert_eq!(account.name(), ACCOUNT);
    uses(&account, "bystring").await;
}

#[tokio::test]
async fn account_sas_authenticates() {
    table("bysas").await;
    uses(&by_sas(&account_sas("raud", "2099-01-01T00:00:00Z")), "bysas").await;
}

/// Azurite compares the table name of such a SAS with `$batch` and refuses the batch;
/// Azure does not. The test therefore makes single calls only.
#[tokio::test]
async fn table_sas_authenticates() {
    table("bytablesas").await;
    let account = by_sas(&table_sas("bytablesas", "raud"));
    let table = Table::new(&account, "bytablesas").unwrap();
    table.commit("p", &Transaction::new().insert("r", &stock(1))).await.unwrap();
    table.commit("p", &Transaction::new().merge("r", &stock(2))).await.unwrap();
    assert_eq!(amount(&table, "r").await, Some(2));
    assert_eq!(table.query(Some("p")).all::<Stock>().await.unwrap().len(), 1);
    table.commit("p", &Transaction::new().delete("r")).await.unwrap();
    let other = Table::new(&account, "bysas").unwrap();
    let error = other.get::<Stock>("p", "r").await.unwrap_err();
    assert!(error.to_string().contains("(403 "), "{error}");
}

#[tokio::test]
async fn forbidden_error_omits_secrets() {
    let known = table("refused").await;
    held(&known, 1).await.commit(&Transaction::new().insert("a", &stock(1))).await.unwrap();
    let other_key = Account::with_key(ACCOUNT, "aHVzaA==").unwrap().table_endpoint(&url()).unwrap();
    let expired = by_sas(&account_sas("raud", "2020-01-01T00:00:00Z"));
    let reads_only = by_sas(&account_sas("r", "2099-01-01T00:00:00Z"));
    let change = Transaction::new().upsert("a", &stock(9));
    for (account, reads) in [(other_key, false), (expired, false), (reads_only, true)] {
        let table = Table::new(&account, "refused").unwrap();
        let mut errors = vec![table.commit("p", &change).await.unwrap_err()];
        // Azurite does not check the permissions of a SAS within a batch.
        if !reads {
            let many = change.clone().upsert("b", &stock(9));
            errors.push(table.commit("p", &many).await.unwrap_err());
            errors.push(fenced_table(&table, 2).partition("p").await.unwrap_err());
        }
        for error in errors {
            let Error::Invalid { message, .. } = &error else { panic!("{account:?}: {error:?}") };
            assert!(message.contains("refused the call (403 "), "{message}");
            for secret in ["sig=", KEY, "aHVzaA"] {
                assert!(!format!("{error} {error:?}").contains(secret), "{error}");
            }
        }
    }
    assert_eq!(amount(&known, "a").await, Some(1));
    assert_eq!(amount(&known, "b").await, None);
}

#[tokio::test]
async fn connection_refused_error_omits_secrets() {
    let sas = account_sas("raud", "2099-01-01T00:00:00Z");
    let unreachable = by_sas(&sas).table_endpoint("http://127.0.0.1:1/devstoreaccount1").unwrap();
    let error =
        Table::new(&unreachable, "orders").unwrap().get::<Stock>("p", "r").await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    for text in [error.to_string(), format!("{error:?}")] {
        assert!(text.contains("No server listens at this address"), "{text}");
        assert!(!text.contains("sig="), "{text}");
    }
}

/// Captured log.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn trace_log_contains_no_secret() {
    table("logged").await;
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(move || writer.clone())
        .finish();
    let _guard = logging::capture(subscriber);
    let sas = account_sas("raud", "2099-01-01T00:00:00Z");
    uses(&by_sas(&sas), "logged").await;
    let key = Account::with_key(ACCOUNT, KEY).unwrap().table_endpoint(&url()).unwrap();
    uses(&key, "logged").await;
    let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(text.contains("logged("), "requests are logged: {text}");
    let signature = sas.split("sig=").nth(1).unwrap();
    for secret in [signature, KEY, "SharedKey devstoreaccount1:"] {
        assert!(!text.contains(secret), "{secret} in {text}");
    }
}
