//! Corrupted records: emptied, edited, with a lower token, or restored.

use leasehold_test_support::{
    proxy::Kind,
    rest::{Blob, Call},
};
use std::collections::BTreeMap;

use super::{
    break_manually, connect, frozen, frozen_message, granted, lost, use_once,
    wait_for_storage_clock,
};
use crate::fixture::{Fixture, wait_for};

/// Adds a record to a call as metadata.
fn with(call: Call, record: &BTreeMap<String, String>) -> Call {
    record.iter().fold(call, |call, (key, value)| call.metadata(key, value))
}

pub(crate) async fn rewrite(blob: &Blob, record: &BTreeMap<String, String>) {
    with(blob.set_metadata(), record).await.ok();
}

/// Returns the record with another value for a key, or without the key.
pub(crate) fn edited(
    record: &BTreeMap<String, String>,
    key: &str,
    value: Option<&str>,
) -> BTreeMap<String, String> {
    let mut record = record.clone();
    record.remove(key);
    record.extend(value.map(|value| (key.to_owned(), value.to_owned())));
    record
}

#[tokio::test]
async fn invalid_record_freezes_lock_until_repaired() {
    let fixture = Fixture::new().await;
    let (daemon, other) = (fixture.daemon(&[]), fixture.daemon(&[]));
    let (client, newcomer) = (connect(&daemon).await, connect(&other).await);
    let mut highest = use_once(&fixture, &client, "a").await;
    let blob = fixture.blob("a");
    for (key, value, expected) in [
        ("token", None, "has no token"),
        ("token", Some("12x"), "its token is \"12x\", which is not a token"),
        ("token", Some("-5"), "its token is \"-5\", which is not a token"),
        ("token", Some("99999999999999999999"), "which is not a token"),
        ("nonce", None, "has no nonce"),
        ("nonce", Some("?"), "its nonce is not a number"),
    ] {
        let record = fixture.record("a").await;
        rewrite(&blob, &edited(&record, key, value)).await;
        let corrupted = fixture.record("a").await;
        // The first daemon has seen the lock before.
        for client in [&client, &newcomer] {
            let message = frozen(client, "a").await;
            assert!(message.contains(expected), "{message}");
            let refused = client.lock("a").no_wait().acquire().await;
            frozen_message(refused, "a");
        }
        assert_eq!(fixture.record("a").await, corrupted, "nothing was written");
        assert_eq!(fixture.lease_state("a").await, "available", "the operator can repair the blob");

        rewrite(&blob, &record).await;
        for client in [&client, &newcomer] {
            let token = use_once(&fixture, client, "a").await;
            assert!(token > highest);
            highest = token;
        }
    }
}

#[tokio::test]
async fn lock_with_emptied_record_recovers_after_blob_delete() {
    let fixture = Fixture::new().await;
    let daemon = fixture.daemon(&[]);
    let client = connect(&daemon).await;
    let before = use_once(&fixture, &client, "a").await;
    fixture.blob("a").set_metadata().await.ok();
    assert!(frozen(&client, "a").await.contains("has no token"));
    // The command fails with the same message.
    let output = daemon.run(&["lock", "a", "--", "true"]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("locks/default/a") && error.contains("delete it"), "{error}");

    fixture.blob("a").delete().await.ok();
    assert!(granted(&client, "a").await > before);
}

pub(crate) async fn regressed_token_freezes_lock_where_higher_was_seen() {
    let fixture = Fixture::new().await;
    let daemon = fixture.daemon(&[]);
    let client = connect(&daemon).await;
    use_once(&fixture, &client, "a").await;
    let old = fixture.record("a").await;
    let highest = use_once(&fixture, &client, "a").await;
    let blob = fixture.blob("a");
    let lowered = edited(&old, "token", Some("1048576"));
    // Edited metadata, and a restored old blob.
    let corruptions = [with(blob.set_metadata(), &lowered), with(blob.put(), &old)];
    for (corruption, found) in corruptions.into_iter().zip([&lowered, &old]) {
        corruption.await.ok();
        let message = frozen(&client, "a").await;
        assert!(message.contains("went back"), "{message}");
        assert!(message.contains(&format!("its token is {}", found["token"])), "{message}");
        assert!(message.contains(&highest.to_string()), "{message}");
        assert_eq!(fixture.record("a").await, *found, "nothing was written");
        assert_eq!(fixture.lease_state("a").await, "available");
    }

    // A daemon that has not seen the higher token starts at the service's Date,
    // which is past that token. Its record repairs the lock for the first daemon.
    wait_for_storage_clock().await;
    let other = fixture.daemon(&[]);
    let newcomer = connect(&other).await;
    let token = use_once(&fixture, &newcomer, "a").await;
    assert!(token > highest);
    assert!(granted(&client, "a").await > token);
}

#[tokio::test]
async fn regressed_lock_recovers_after_repair_or_blob_delete() {
    let fixture = Fixture::new().await;
    let daemon = fixture.daemon(&[]);
    let client = connect(&daemon).await;
    let mut highest = use_once(&fixture, &client, "a").await;
    let blob = fixture.blob("a");
    for delete in [false, true] {
        let record = fixture.record("a").await;
        rewrite(&blob, &edited(&record, "token", Some("1048576"))).await;
        frozen(&client, "a").await;
        if delete {
            blob.delete().await.ok();
        } else {
            rewrite(&blob, &record).await;
        }
        let token = use_once(&fixture, &client, "a").await;
        assert!(token > highest);
        highest = token;
    }
}

/// Invalid human-readable metadata is no reason to refuse an acquire.
#[tokio::test]
async fn invalid_informational_metadata_is_ignored() {
    let fixture = Fixture::new().await;
    let daemon = fixture.daemon(&[]);
    let client = connect(&daemon).await;
    let before = use_once(&fixture, &client, "a").await;
    let record = edited(&fixture.record("a").await, "holder", Some("{"));
    let record = edited(&record, "brokenby", Some("%1b%5b2J"));
    rewrite(&fixture.blob("a"), &edited(&record, "daemon", None)).await;
    assert!(granted(&client, "a").await > before);
}

pub(crate) async fn record_corrupted_while_held_loses_then_freezes_lock() {
    let fixture = Fixture::new().await;
    let daemon = fixture.daemon(&[]);
    let client = connect(&daemon).await;
    let mut held = Vec::new();
    for name in ["emptied", "invalid", "lowered"] {
        use_once(&fixture, &client, name).await;
        held.push((name, client.lock(name).acquire().await.unwrap()));
    }
    for (name, guard) in &held {
        let blob = fixture.blob(name);
        let protected = blob.set_metadata().await;
        assert_eq!(protected.is(), (412, "LeaseIdMissing"), "its lease protects it");
        break_manually(&blob).await;
        let record = fixture.record(name).await;
        match *name {
            "emptied" => _ = blob.set_metadata().await.ok(),
            "invalid" => rewrite(&blob, &edited(&record, "token", Some("12x"))).await,
            _ => rewrite(&blob, &edited(&record, "token", Some("1048576"))).await,
        }
        assert!(guard.is_valid());
    }
    for (name, guard) in held {
        let message = lost(&guard).await;
        assert!(message.contains(name) && message.contains("broken"), "{message}");
        let token = guard.token().get();
        drop(guard);
        frozen(&client, name).await;
        fixture.blob(name).delete().await.ok();
        assert!(granted(&client, name).await > token, "{name}");
    }
}

/// Waiters for a frozen lock are refused.
pub(crate) async fn waiters_at_peer_are_refused_when_lock_freezes() {
    let fixture = Fixture::new().await;
    let peer = fixture.daemon_direct(&[]);
    let guard = connect(&peer).await.lock("a").acquire().await.unwrap();
    let daemon = fixture.daemon(&[]);
    let client = connect(&daemon).await;
    let waiters = [(); 3].map(|()| tokio::spawn(client.new_session().lock("a").acquire()));
    wait_for("a poll", fixture.proxy.wait_for_many(3, |call| call.kind == Kind::Read)).await;
    break_manually(&fixture.blob("a")).await;
    fixture.blob("a").set_metadata().await.ok();
    for waiter in waiters {
        frozen_message(wait_for("the refusal", waiter).await.unwrap(), "a");
    }
    lost(&guard).await;
}
