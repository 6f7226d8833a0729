//! Tables.

use azure_core::{credentials::Secret, hmac::hmac_sha256, time::to_rfc7231};
use http_body_util::{BodyExt, Full};
use hyper::{Request, body::Bytes};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use leasehold_client::Token;
use leasehold_fence::table::{Error, Table, Transaction};
use leasehold_test_support::azurite::{ACCOUNT, Azurite, KEY, blob_url};
use serde_json::{Value, json};

use super::{A, account, container, lock_token};

/// Calls a row over plain REST. Returns status, error code and body.
async fn row(method: &str, table: &str, if_match: Option<&str>, n: i64) -> (u16, String, Value) {
    let path = format!("{table}(PartitionKey='p',RowKey='r')");
    let date = to_rfc7231(&leasehold_time::clock::wall().into());
    let text = format!("{date}\n/{ACCOUNT}/{ACCOUNT}/{path}");
    let signature = hmac_sha256(&text, &Secret::new(KEY)).unwrap();
    let mut request = Request::builder()
        .method(method)
        .uri(format!("{}/{path}", blob_url(Azurite::shared().table_port())))
        .header("x-ms-date", date)
        .header("x-ms-version", "2025-11-05")
        .header("accept", "application/json;odata=fullmetadata")
        .header("content-type", "application/json")
        .header("authorization", format!("SharedKeyLite {ACCOUNT}:{signature}"));
    if let Some(etag) = if_match {
        request = request.header("if-match", etag);
    }
    let body = if method == "GET" { String::new() } else { json!({ "n": n }).to_string() };
    let client = Client::builder(TokioExecutor::new()).build_http();
    let answer = client.request(request.body(Full::new(Bytes::from(body))).unwrap()).await.unwrap();
    let status = answer.status().as_u16();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let code = body["odata.error"]["code"].as_str().unwrap_or_default().to_owned();
    (status, code, body)
}

async fn table(name: &str) -> Table {
    let table = Table::new(&account(), name).unwrap();
    table.create().await.unwrap();
    table
}

#[tokio::test]
async fn table_last_writer_wins() {
    table("last").await;
    for n in [1, 2] {
        assert_eq!(row("PUT", "last", None, n).await.0, 204);
    }
    assert_eq!(row("PUT", "last", Some("*"), 3).await.0, 204);
    assert_eq!(row("GET", "last", None, 0).await.2["n"], 3);
}

#[tokio::test]
async fn table_optimistic() {
    table("etag").await;
    row("PUT", "etag", None, 1).await;
    let (_, _, read) = row("GET", "etag", None, 0).await;
    let etag = read["odata.etag"].as_str().unwrap();
    assert_eq!(row("PUT", "etag", Some(etag), 2).await.0, 204);
    let (status, code, _) = row("PUT", "etag", Some(etag), 3).await;
    assert_eq!((status, code.as_str()), (412, "UpdateConditionNotSatisfied"));
    assert_eq!(row("GET", "etag", None, 0).await.2["n"], 2);
}

/// A table has no leases. The lease of a designated blob stops only programs that
/// acquire it.
#[tokio::test]
async fn table_pessimistic() {
    table("designated").await;
    let blob = container("designated-blobs").await.blob("table-designated");
    blob.put().await.ok();
    blob.acquire(A, 15).await.ok();
    assert_eq!(blob.acquire(super::B, 15).await.is(), (409, "LeaseAlreadyPresent"));
    assert_eq!(
        row("PUT", "designated", None, 1).await.0,
        204,
        "a write without the lease is applied"
    );
}

#[tokio::test]
async fn table_leasehold() {
    let table = table("fenced").await;
    let old = table.fenced(lock_token(1)).partition("p").await.unwrap();
    table.fenced(lock_token(2)).partition("p").await.unwrap();
    let late = old.commit(&Transaction::new().insert("r", &json!({ "n": 1 }))).await;
    assert!(
        matches!(late, Err(Error::Fenced { newer, .. }) if newer == Some(Token::new(2))),
        "{late:?}"
    );
    let (status, code, _) = row("GET", "fenced", None, 0).await;
    assert_eq!((status, code.as_str()), (404, "ResourceNotFound"));
}
