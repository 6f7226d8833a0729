//! What is kept with a blob is emptied, edited, lowered, or put back.

use leasehold_test_support::{
    proxy::Kind,
    rest::{Blob, Call},
};
use std::collections::BTreeMap;

use super::{
    break_by_hand, connect, frozen, granted, lost, the_services_clock_goes_on, told, use_once,
};
use crate::scene::{Scene, comes};

/// Replaces all that is kept with a blob.
fn with(call: Call, record: &BTreeMap<String, String>) -> Call {
    record.iter().fold(call, |call, (key, value)| call.metadata(key, value))
}

pub(crate) async fn rewrite(blob: &Blob, record: &BTreeMap<String, String>) {
    with(blob.set_metadata(), record).await.ok();
}

/// The same record with another value for a key, or without it.
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
async fn what_can_not_be_read_freezes_the_lock_until_it_is_repaired() {
    let scene = Scene::new().await;
    let (daemon, other) = (scene.daemon(&[]), scene.daemon(&[]));
    let (client, newcomer) = (connect(&daemon).await, connect(&other).await);
    let mut highest = use_once(&scene, &client, "a").await;
    let blob = scene.blob("a");
    for (key, value, says) in [
        ("token", None, "has no token"),
        ("token", Some("12x"), "its token is \"12x\", which is none"),
        ("token", Some("-5"), "its token is \"-5\", which is none"),
        ("token", Some("99999999999999999999"), "which is none"),
        ("nonce", None, "has no nonce"),
        ("nonce", Some("?"), "its nonce is not a number"),
    ] {
        let record = scene.record("a").await;
        rewrite(&blob, &edited(&record, key, value)).await;
        let damaged = scene.record("a").await;
        // Whether it has seen the lock before, or has not.
        for client in [&client, &newcomer] {
            let message = frozen(client, "a").await;
            assert!(message.contains(says), "{message}");
            let refused = client.lock("a").no_wait().acquire().await;
            told(refused, "a");
        }
        assert_eq!(scene.record("a").await, damaged, "nothing was written");
        assert_eq!(scene.lease_state("a").await, "available", "nothing is kept from the operator");

        rewrite(&blob, &record).await;
        for client in [&client, &newcomer] {
            let token = use_once(&scene, client, "a").await;
            assert!(token > highest);
            highest = token;
        }
    }
}

#[tokio::test]
async fn an_emptied_lock_goes_on_once_its_blob_is_deleted() {
    let scene = Scene::new().await;
    let daemon = scene.daemon(&[]);
    let client = connect(&daemon).await;
    let before = use_once(&scene, &client, "a").await;
    scene.blob("a").set_metadata().await.ok();
    assert!(frozen(&client, "a").await.contains("has no token"));
    // The command line says the same, and fails.
    let output = daemon.run(&["lock", "a", "--", "true"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("locks/default/a") && said.contains("delete it"), "{said}");

    scene.blob("a").delete().await.ok();
    assert!(granted(&client, "a").await > before);
}

pub(crate) async fn a_token_that_went_back_freezes_the_lock_where_a_greater_one_was_seen() {
    let scene = Scene::new().await;
    let daemon = scene.daemon(&[]);
    let client = connect(&daemon).await;
    use_once(&scene, &client, "a").await;
    let old = scene.record("a").await;
    let highest = use_once(&scene, &client, "a").await;
    let blob = scene.blob("a");
    let lowered = edited(&old, "token", Some("1048576"));
    // Edited by hand, and restored as a whole.
    let damages = [with(blob.set_metadata(), &lowered), with(blob.put(), &old)];
    for (damage, found) in damages.into_iter().zip([&lowered, &old]) {
        damage.await.ok();
        let message = frozen(&client, "a").await;
        assert!(message.contains("went back"), "{message}");
        assert!(message.contains(&format!("its token is {}", found["token"])), "{message}");
        assert!(message.contains(&highest.to_string()), "{message}");
        assert_eq!(scene.record("a").await, *found, "nothing was written");
        assert_eq!(scene.lease_state("a").await, "available");
    }

    // Who never saw the greater token goes by the service's clock, which is
    // past it; and what it wrote heals the lock for the others.
    the_services_clock_goes_on().await;
    let other = scene.daemon(&[]);
    let newcomer = connect(&other).await;
    let token = use_once(&scene, &newcomer, "a").await;
    assert!(token > highest);
    assert!(granted(&client, "a").await > token);
}

#[tokio::test]
async fn a_token_that_went_back_goes_on_once_it_is_repaired_or_the_blob_deleted() {
    let scene = Scene::new().await;
    let daemon = scene.daemon(&[]);
    let client = connect(&daemon).await;
    let mut highest = use_once(&scene, &client, "a").await;
    let blob = scene.blob("a");
    for delete in [false, true] {
        let record = scene.record("a").await;
        rewrite(&blob, &edited(&record, "token", Some("1048576"))).await;
        frozen(&client, "a").await;
        if delete {
            blob.delete().await.ok();
        } else {
            rewrite(&blob, &record).await;
        }
        let token = use_once(&scene, &client, "a").await;
        assert!(token > highest);
        highest = token;
    }
}

/// What is there for people only is no reason to refuse anything.
#[tokio::test]
async fn garbage_in_what_is_for_people_is_ignored() {
    let scene = Scene::new().await;
    let daemon = scene.daemon(&[]);
    let client = connect(&daemon).await;
    let before = use_once(&scene, &client, "a").await;
    let record = edited(&scene.record("a").await, "holder", Some("{"));
    let record = edited(&record, "brokenby", Some("%1b%5b2J"));
    rewrite(&scene.blob("a"), &edited(&record, "daemon", None)).await;
    assert!(granted(&client, "a").await > before);
}

pub(crate) async fn what_is_damaged_under_a_holder_is_lost_and_then_frozen() {
    let scene = Scene::new().await;
    let daemon = scene.daemon(&[]);
    let client = connect(&daemon).await;
    let mut held = Vec::new();
    for name in ["emptied", "garbage", "lowered"] {
        use_once(&scene, &client, name).await;
        held.push((name, client.lock(name).acquire().await.unwrap()));
    }
    for (name, guard) in &held {
        let blob = scene.blob(name);
        let protected = blob.set_metadata().await;
        assert_eq!(protected.is(), (412, "LeaseIdMissing"), "its lease protects it");
        break_by_hand(&blob).await;
        let record = scene.record(name).await;
        match *name {
            "emptied" => _ = blob.set_metadata().await.ok(),
            "garbage" => rewrite(&blob, &edited(&record, "token", Some("12x"))).await,
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
        scene.blob(name).delete().await.ok();
        assert!(granted(&client, name).await > token, "{name}");
    }
}

/// A waiter is not left to wait for a lock that nobody will be granted.
pub(crate) async fn those_who_wait_elsewhere_are_told_too() {
    let scene = Scene::new().await;
    let elsewhere = scene.daemon_past(&[]);
    let guard = connect(&elsewhere).await.lock("a").acquire().await.unwrap();
    let daemon = scene.daemon(&[]);
    let client = connect(&daemon).await;
    let waiters = [(); 3].map(|()| tokio::spawn(client.new_session().lock("a").acquire()));
    comes("a poll", scene.proxy.wait_for_many(3, |seen| seen.kind == Kind::Read)).await;
    break_by_hand(&scene.blob("a")).await;
    scene.blob("a").set_metadata().await.ok();
    for waiter in waiters {
        told(comes("the refusal", waiter).await.unwrap(), "a");
    }
    lost(&guard).await;
}
