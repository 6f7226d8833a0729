//! Interpretation of responses by the SDK.

use std::{collections::HashMap, time::Duration};

use azure_core::{
    Bytes,
    error::ErrorKind,
    http::{ClientOptions, Etag, RequestContent, RetryOptions, Url, headers::HeaderName},
};
use azure_storage_blob::{
    BlobContainerClient, BlobContainerClientOptions,
    models::{
        BlobClientAcquireLeaseOptions, BlobClientAcquireLeaseResultHeaders,
        BlobClientGetPropertiesResultHeaders, BlobClientSetMetadataOptions,
        BlobClientUploadOptions, BlobContainerClientListBlobsOptions, LeaseState,
        ListBlobsIncludeItem,
    },
};
use leasehold_test_support::{
    azurite::{Azurite, blob_url},
    proxy::{Fault, Kind, Proxy, Refusal},
    rest::{VERSION, sign::sas},
};
use tokio_stream::StreamExt as _;

use super::{A, B, container};

/// SDK client for a container, through a port.
fn client(port: u16, container: &str) -> BlobContainerClient {
    let signature = sas("rwdlac", "2099-01-01T00:00:00Z");
    let url = Url::parse(&format!("{}/{container}?{signature}", blob_url(port))).unwrap();
    let client_options = ClientOptions { retry: RetryOptions::none(), ..Default::default() };
    let options = BlobContainerClientOptions { client_options, version: VERSION.to_owned() };
    BlobContainerClient::new(url, None, Some(options)).unwrap()
}

fn shared(container: &str) -> BlobContainerClient {
    client(Azurite::shared().port(), container)
}

#[track_caller]
fn refusal<T>(result: azure_core::Result<T>) -> (u16, String) {
    match result.err().unwrap().kind() {
        ErrorKind::HttpResponse { status, error_code, .. } => {
            (u16::from(*status), error_code.clone().unwrap_or_default())
        }
        other => panic!("{other:?} is not a response"),
    }
}

fn proposing(id: &str) -> Option<BlobClientAcquireLeaseOptions<'static>> {
    Some(BlobClientAcquireLeaseOptions {
        proposed_lease_id: Some(id.to_owned()),
        ..Default::default()
    })
}

fn empty() -> RequestContent<Bytes, azure_core::http::NoFormat> {
    RequestContent::from(Vec::new())
}

#[tokio::test]
async fn sdk_returns_status_and_code_without_body() {
    let rest = container("sdk-errors").await.blob("locks/default/x");
    let blob = shared("sdk-errors").blob_client("locks/default/x");
    let is = |status, code: &str| (status, code.to_owned());

    assert_eq!(refusal(blob.get_properties(None).await), is(404, "BlobNotFound"));
    let missing = shared("sdk-missing").blob_client("x");
    assert_eq!(refusal(missing.get_properties(None).await), is(404, "ContainerNotFound"));

    rest.put().await.ok();
    rest.acquire(A, 60).await.ok();
    let held = blob.acquire_lease(15, proposing(B)).await;
    assert_eq!(refusal(held), is(409, "LeaseAlreadyPresent"));
    let mismatch = is(409, "LeaseIdMismatchWithLeaseOperation");
    assert_eq!(refusal(blob.renew_lease(B.to_owned(), None).await), mismatch);
    assert_eq!(refusal(blob.release_lease(B.to_owned(), None).await), mismatch);
    let options = BlobClientUploadOptions::default().if_not_exists();
    let exists = blob.upload(empty(), Some(options)).await;
    assert_eq!(refusal(exists), is(409, "BlobAlreadyExists"));
    let options = BlobClientSetMetadataOptions {
        lease_id: Some(A.to_owned()),
        if_match: Some(Etag::from("\"0x0\"")),
        ..Default::default()
    };
    let changed = blob.set_metadata(&HashMap::new(), Some(options)).await;
    assert_eq!(refusal(changed), is(412, "ConditionNotMet"));
}

#[tokio::test]
async fn sdk_addresses_same_blob_and_returns_response_fields() {
    let rest = container("sdk-answers").await;
    let sdk = shared("sdk-answers");
    let blob = sdk.blob_client("locks/default/a~20b");
    let metadata = HashMap::from([("token".to_owned(), "1".to_owned())]);
    let options =
        BlobClientUploadOptions { metadata: Some(metadata.clone()), ..Default::default() };
    let uploaded = blob.upload(empty(), Some(options.if_not_exists())).await.unwrap();

    let rest = rest.blob("locks/default/a~20b");
    let seen = rest.head().await.ok();
    assert_eq!(uploaded.etag.unwrap().to_string(), seen.etag());
    assert_eq!(seen.metadata()["token"], "1");

    let acquired = blob.acquire_lease(60, proposing(A)).await.unwrap();
    assert_eq!(acquired.lease_id().unwrap().as_deref(), Some(A));
    assert_eq!(acquired.etag().unwrap().unwrap().to_string(), seen.etag());
    assert!(acquired.headers().get_optional_str(&HeaderName::from_static("date")).is_some());

    let properties = blob.get_properties(None).await.unwrap();
    assert_eq!(properties.metadata().unwrap(), metadata);
    assert_eq!(properties.lease_state().unwrap(), Some(LeaseState::Leased));
    let etag = properties.etag().unwrap().unwrap();

    let options = BlobClientSetMetadataOptions {
        lease_id: Some(A.to_owned()),
        if_match: Some(etag),
        ..Default::default()
    };
    let written = blob.set_metadata(&metadata, Some(options)).await.unwrap();
    let written = written.headers().get_optional_str(&HeaderName::from_static("etag"));
    assert_eq!(written, Some(rest.head().await.etag()));

    let options = BlobContainerClientListBlobsOptions {
        include: Some(vec![ListBlobsIncludeItem::Metadata]),
        prefix: Some("locks/default/a~".to_owned()),
        ..Default::default()
    };
    let mut pages = sdk.list_blobs(Some(options)).unwrap().into_pages();
    let page = pages.next().await.unwrap().unwrap().into_model().unwrap();
    let [listed] = &page.blob_items[..] else { panic!("{:?}", page.blob_items) };
    assert_eq!(listed.name.as_deref(), Some("locks/default/a~20b"));
    let properties = listed.properties.as_ref().unwrap();
    assert_eq!(properties.lease_state, Some(LeaseState::Leased));
    // Listings omit the quotes that headers have.
    assert_eq!(format!("\"{}\"", properties.etag.as_ref().unwrap()), written.unwrap());
    assert_eq!(listed.metadata.as_ref().unwrap().values, Some(metadata));
}

#[tokio::test]
async fn refused_connection_differs_from_lost_response() {
    container("sdk-lost").await.blob("x").put().await.ok();
    let proxy = Proxy::start(Azurite::shared().port());
    let blob = client(proxy.port(), "sdk-lost").blob_client("x");
    for fault in [Fault::DropResponse, Fault::Reset] {
        proxy.when(Kind::Acquire).times(1).then(fault);
        let error = blob.acquire_lease(15, proposing(A)).await.err().unwrap();
        assert_eq!(*error.kind(), ErrorKind::Io, "outcome unknown");
    }
    proxy.cut();
    let error = blob.acquire_lease(15, proposing(A)).await.err().unwrap();
    assert_eq!(*error.kind(), ErrorKind::Connection, "not applied");
}

#[tokio::test]
async fn sdk_does_not_retry_and_returns_retry_after() {
    container("sdk-busy").await.blob("x").put().await.ok();
    let proxy = Proxy::start(Azurite::shared().port());
    let blob = client(proxy.port(), "sdk-busy").blob_client("x");
    proxy.when(Kind::Acquire).then(Fault::Refuse(Refusal::busy(Duration::from_secs(7))));
    let error = blob.acquire_lease(15, proposing(A)).await.err().unwrap();
    let ErrorKind::HttpResponse { status, error_code, raw_response } = error.kind() else {
        panic!("{error:?}");
    };
    assert_eq!((u16::from(*status), error_code.as_deref()), (503, Some("ServerBusy")));
    let headers = raw_response.as_ref().unwrap().headers();
    assert_eq!(headers.get_optional_str(&HeaderName::from_static("retry-after")), Some("7"));
    assert_eq!(proxy.count(Kind::Acquire), 1);
}
