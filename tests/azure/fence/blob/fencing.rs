//! Permitted and refused writes, and the data that a fence keeps.

use leasehold_client::Token;
use leasehold_fence::{
    LockToken,
    blob::{Blob, Conflict, Error, Upload, Written},
};

use super::{account, blob, direct, held, lock_token, text};

#[tokio::test]
async fn newer_holder_fences_older() {
    let blob = blob("newer").await;
    let old = held(&blob, 5).await;
    old.write("old").await.unwrap();
    let new = held(&blob, 6).await;
    assert_eq!(
        &new.read().await.unwrap().unwrap().bytes[..],
        b"old",
        "the fence keeps the content"
    );
    let error = old.write("late").await.unwrap_err();
    let Error::Fenced { newer, written: Written::No, place } = &error else { panic!("{error:?}") };
    assert_eq!(*newer, Some(Token::new(6)));
    assert_eq!((place.container.as_str(), place.token), ("newer", Some(Token::new(5))));
    assert!(error.to_string().contains("a newer holder has taken over with token 6"), "{error}");
    // All other operations fail too.
    let etag = blob.read().await.unwrap().unwrap().etag;
    for error in [
        old.read().await.map(drop).unwrap_err(),
        old.append("x").await.map(drop).unwrap_err(),
        old.delete().await.unwrap_err(),
        old.create("x").await.map(drop).unwrap_err(),
        old.replace("x", &etag).await.map(drop).unwrap_err(),
        blob.fenced(lock_token(5)).await.map(drop).unwrap_err(),
    ] {
        assert!(
            matches!(error, Error::Fenced { newer, .. } if newer == Some(Token::new(6))),
            "{error}"
        );
    }
    assert_eq!(text(&blob).await.as_deref(), Some("old"));
    new.write("new").await.unwrap();
    assert_eq!(text(&blob).await.as_deref(), Some("new"));
}

/// The newer holder has installed its fence, but has not read or written.
#[tokio::test]
async fn fence_applies_before_first_write() {
    let blob = blob("before").await;
    let old = held(&blob, 1).await;
    let _new = held(&blob, 2).await;
    let error = old.write("late").await.unwrap_err();
    assert!(
        matches!(error, Error::Fenced { newer, .. } if newer == Some(Token::new(2))),
        "{error}"
    );
    assert_eq!(text(&blob).await, None);
}

#[tokio::test]
async fn deleted_blob_keeps_fence() {
    let blob = blob("deleted").await;
    let old = held(&blob, 1).await;
    old.write("a").await.unwrap();
    let new = held(&blob, 2).await;
    new.delete().await.unwrap();
    assert_eq!(new.read().await.unwrap(), None);
    assert_eq!(text(&blob).await, None);
    for late in [old.create("late").await, old.write("late").await, old.append("late").await] {
        assert!(
            matches!(late, Err(Error::Fenced { newer, .. }) if newer == Some(Token::new(2))),
            "{late:?}"
        );
    }
    let error = new.delete().await.unwrap_err();
    assert!(matches!(error, Error::Conflict { conflict: Conflict::Missing, .. }), "{error}");
    // Other programs see an empty blob marked as deleted.
    let raw = direct("deleted").get().await.ok();
    assert_eq!((raw.body.as_str(), raw.metadata()["leaseholdgone"].as_str()), ("", "true"));
    new.create("new").await.unwrap();
    assert_eq!(text(&blob).await.as_deref(), Some("new"));
    assert!(!direct("deleted").head().await.ok().metadata().contains_key("leaseholdgone"));
}

#[tokio::test]
async fn content_type_and_metadata_are_kept() {
    let blob = blob("properties").await;
    let one = held(&blob, 1).await;
    let upload = Upload::new("a\n").content_type("text/csv").metadata("owner", "Ann B=1");
    one.write(upload).await.unwrap();
    let two = held(&blob, 2).await;
    two.append("b\n").await.unwrap();
    let content = two.read().await.unwrap().unwrap();
    assert_eq!(&content.bytes[..], b"a\nb\n");
    assert_eq!(content.content_type, "text/csv");
    assert_eq!(
        content.metadata.into_iter().collect::<Vec<_>>(),
        [("owner".into(), "Ann B=1".into())]
    );
}

#[tokio::test]
async fn existing_blob_is_fenced_unchanged() {
    let blob = blob("takeover").await;
    direct("takeover").put().body("theirs").metadata("owner", "x").await.ok();
    let one = held(&blob, 1).await;
    let content = one.read().await.unwrap().unwrap();
    assert_eq!((&content.bytes[..], content.metadata["owner"].as_str()), (&b"theirs"[..], "x"));
    one.replace(content.with("ours"), &content.etag).await.unwrap();
    let error = one.replace("again", &content.etag).await.unwrap_err();
    assert!(matches!(error, Error::Conflict { conflict: Conflict::Changed, .. }), "{error}");
    let error = one.create("x").await.unwrap_err();
    assert!(matches!(error, Error::Conflict { conflict: Conflict::Exists, .. }), "{error}");
}

/// Two programs can share a token, for example with `LockToken::from_env`.
#[tokio::test]
async fn holders_with_same_token_see_each_others_writes() {
    let blob = blob("same").await;
    let (one, other) = (held(&blob, 1).await, held(&blob, 1).await);
    one.create("1").await.unwrap();
    other.append("2").await.unwrap();
    one.append("3").await.unwrap();
    assert_eq!(text(&blob).await.as_deref(), Some("123"));
    other.delete().await.unwrap();
    let error = one.delete().await.unwrap_err();
    assert!(matches!(error, Error::Conflict { conflict: Conflict::Missing, .. }), "{error}");
}

#[tokio::test]
async fn write_bypassing_fence_is_detected() {
    let blob = blob("direct").await;
    let one = held(&blob, 1).await;
    one.write("a").await.unwrap();
    direct("direct").put().body("direct").await.ok();
    for error in [one.write("b").await.unwrap_err(), one.read().await.unwrap_err()] {
        assert!(matches!(error, Error::NeedsOperator { .. }), "{error}");
        assert!(error.to_string().contains("the fence is gone"), "{error}");
    }
    assert_eq!(text(&blob).await.as_deref(), Some("direct"));
    direct("direct").delete().await.ok();
    let error = one.write("b").await.unwrap_err();
    assert!(matches!(error, Error::NeedsOperator { .. }), "{error}");
    held(&blob, 2).await.write("next").await.unwrap();
}

#[tokio::test]
async fn unreadable_fence_is_not_changed() {
    let blob = blob("invalid-fence").await;
    direct("invalid-fence")
        .put()
        .metadata("leaseholdtoken", "x")
        .metadata("leaseholdlock", "a")
        .await
        .ok();
    for error in [
        blob.fenced(lock_token(1)).await.map(drop).unwrap_err(),
        blob.read().await.map(drop).unwrap_err(),
    ] {
        assert!(matches!(error, Error::NeedsOperator { .. }), "{error}");
    }
    assert_eq!(direct("invalid-fence").head().await.ok().metadata()["leaseholdtoken"], "x");
}

#[tokio::test]
async fn tokens_of_another_lock_are_refused() {
    let blob = blob("otherlock").await;
    held(&blob, 5).await;
    let error = blob.fenced(LockToken::new("", "another", Token::new(9))).await.unwrap_err();
    assert!(matches!(error, Error::Invalid { .. }), "{error}");
    assert!(error.to_string().contains("not by \"default/another\""), "{error}");
    let error = blob.fenced(lock_token(0)).await.unwrap_err();
    assert!(error.to_string().contains("not a token of a lock"), "{error}");
}

#[tokio::test]
async fn limits_and_missing_container_are_reported() {
    let blob = blob("limits").await;
    let one = held(&blob, 1).await;
    for (upload, hint) in [
        (Upload::new(vec![0; (64 << 20) + 1]), "a fenced blob is 64 MiB"),
        (Upload::new("").metadata("Owner", "x"), "lowercase letters"),
        (Upload::new("").metadata("leaseholdtoken", "9"), "no name that begins with"),
        (Upload::new("").metadata("owner", "é"), "printable ASCII"),
        (Upload::new("").metadata("owner", "x".repeat(6000)), "6005 bytes"),
        (Upload::new("").content_type("a\nb"), "printable ASCII"),
    ] {
        let error = one.write(upload).await.unwrap_err();
        assert!(matches!(error, Error::Invalid { .. }), "{error}");
        assert!(error.to_string().contains(hint), "{error}");
    }
    let missing = Blob::new(&account(), "no-such-container", "b").unwrap();
    for error in
        [missing.read().await.unwrap_err(), missing.fenced(lock_token(1)).await.unwrap_err()]
    {
        assert!(error.to_string().contains("no such container"), "{error}");
        assert!(matches!(error, Error::Invalid { .. }), "{error}");
    }
}
