//! Metadata of blobs.

use super::container;

#[tokio::test]
async fn set_metadata_and_upload_replace_all_metadata() {
    let blob = container("metadata-replace").await.blob("x");
    blob.put().metadata("token", "1").metadata("holder", "a").await.ok();
    blob.set_metadata().metadata("token", "2").await.ok();
    let metadata = blob.head().await.metadata();
    assert_eq!(metadata.into_iter().collect::<Vec<_>>(), [("token".to_owned(), "2".to_owned())]);
    blob.put().await.ok();
    assert!(blob.head().await.metadata().is_empty());
    blob.set_metadata().metadata("token", "3").await.ok();
    blob.set_metadata().await.ok();
    assert!(blob.head().await.metadata().is_empty());
}

#[tokio::test]
async fn printable_ascii_round_trips() {
    let blob = container("metadata-values").await.blob("x");
    let all: String = ('!'..='~').collect();
    for value in ["0", "a%20b%C3%A9", "a b", &all] {
        blob.put().metadata("holder", value).await.ok();
        assert_eq!(blob.head().await.metadata()["holder"], value);
        blob.set_metadata().metadata("holder", value).await.ok();
        assert_eq!(blob.head().await.metadata()["holder"], value);
    }
}

/// For this reason our keys are lowercase letters and our values are escaped.
#[tokio::test]
async fn other_metadata_is_refused_or_trimmed() {
    let blob = container("metadata-odd").await.blob("x");
    blob.put().metadata("holder", " a ").await.ok();
    assert_eq!(blob.head().await.metadata()["holder"], "a", "surrounding spaces are removed");
    let write = || blob.set_metadata();
    assert_eq!(write().metadata("holder", "é").await.is(), (403, "AuthorizationFailure"));
    assert_eq!(write().metadata("the-holder", "a").await.is(), (400, "InvalidMetadata"));
    assert_eq!(write().metadata("1holder", "a").await.is(), (400, "InvalidMetadata"));
}

/// 8 KiB is Azure's limit for names and values together. Azurite accepts more,
/// up to the header limit of its HTTP server.
#[tokio::test]
async fn eight_kib_of_metadata_are_accepted() {
    let blob = container("metadata-size").await.blob("x");
    blob.put().await.ok();
    for size in [8 * 1024, 9000] {
        let value = "x".repeat(size - "token".len());
        blob.set_metadata().metadata("token", &value).await.ok();
        assert_eq!(blob.head().await.metadata()["token"], value);
        blob.put().metadata("token", &value).await.ok();
    }
    assert_eq!(blob.set_metadata().metadata("token", &"x".repeat(17_000)).await.status, 431);
}
