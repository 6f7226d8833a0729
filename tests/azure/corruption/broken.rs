//! Broken leases: by a REST call that bypasses the daemons, and with
//! `leasehold break`.

use std::{process::Output, time::Duration};

use leasehold_client::Reason;
use leasehold_test_support::{
    Daemon,
    proxy::{Fault, Kind, RecordedCall},
};
use leasehold_time::Moment;
use serde_json::Value;

use super::{break_manually, connect, lost};
use crate::fixture::{Fixture, wait_for};

/// Interval of checks for changes that no event reports.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

pub(crate) async fn manually_broken_lease_is_lost_at_next_renewal() {
    let fixture = Fixture::new().await;
    let (daemon, peer) = (fixture.daemon(&[]), fixture.daemon_direct(&[]));
    let client = connect(&daemon).await;
    let guard = client.lock("a").acquire().await.unwrap();
    let queued = tokio::spawn(client.new_session().lock("a").acquire());
    break_manually(&fixture.blob("a")).await;
    let other = connect(&peer).await.lock("a").no_wait().acquire().await.unwrap();
    assert!(other.token() > guard.token());
    let message = lost(&guard).await;
    assert!(message.contains("\"a\"") && message.contains("broken"), "{message}");
    drop(guard);
    assert!(!queued.is_finished(), "the peer holds the lock");
    let token = other.token();
    other.release().await.unwrap();
    let next = wait_for("the grant", queued).await.unwrap().unwrap();
    assert!(next.token() > token);
}

pub(crate) async fn lease_broken_with_period_is_granted_after_period() {
    let fixture = Fixture::new().await;
    let (daemon, peer) = (fixture.daemon(&[]), fixture.daemon_direct(&[]));
    let guard = connect(&daemon).await.lock("a").acquire().await.unwrap();
    let other = tokio::spawn(connect(&peer).await.lock("a").acquire());
    let period = 8;
    let broken_at = Moment::now();
    fixture.blob("a").break_lease(Some(period)).await.ok();
    lost(&guard).await;
    assert_eq!(fixture.lease_state("a").await, "breaking");
    let next = wait_for("the grant", other).await.unwrap().unwrap();
    assert!(Moment::now().since(broken_at).as_secs() + 1 >= u64::from(period));
    assert!(next.token() > guard.token());
}

/// Last break of the lock in the output of `get --verbose`.
fn last_break(daemon: &Daemon) -> Value {
    let output = daemon.run(&["get", "a", "--verbose", "--output", "json"]);
    let lock: Value = serde_json::from_slice(&output.stdout).unwrap();
    lock["last_break"].clone()
}

async fn wait_for_last_break(daemon: &Daemon, reason: &str) {
    let recorded = async {
        while last_break(daemon)["reason"] != reason {
            leasehold_runtime::sleep(CHECK_INTERVAL).await;
        }
    };
    wait_for("the record of the break", recorded).await;
}

fn stdout(output: Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The break is recorded even if the next holder is granted the lock first.
pub(crate) async fn peer_break_notifies_holder_and_records_operator() {
    const REASON: &str = "stuck, see incident 4711";
    let fixture = Fixture::new().await;
    let (daemon, peer) = (fixture.daemon(&[]), fixture.daemon_direct(&[]));
    let client = connect(&peer).await;
    let guard = client.lock("a").acquire().await.unwrap();
    assert!(last_break(&daemon).is_null());
    fixture.proxy.when(Kind::Write).times(1).then(Fault::Hold);
    let output = stdout(daemon.run(&["break", "a", "--reason", REASON]));
    assert!(
        output.contains("broke lock \"a\"; free within") && output.contains("test 1"),
        "{output}"
    );
    let loss = wait_for("the loss", guard.lost()).await;
    assert_eq!(loss.reason, Reason::Broken, "{loss:?}");
    assert_eq!(loss.operator.unwrap().reason, REASON);
    assert!(!guard.deadline().has_passed(), "the holder was not notified");
    let early = client.new_session().lock("a").wait(Duration::from_secs(1)).acquire().await;
    assert!(early.is_err(), "granted before the former holder released");
    let token = guard.token();
    drop(guard);

    let next = wait_for("the grant", client.lock("a").acquire()).await.unwrap();
    assert!(next.token() > token);
    wait_for("the write", fixture.proxy.wait_for(|call| call.kind == Kind::Write)).await;
    fixture.proxy.release_held();
    next.release().await.unwrap();
    wait_for_last_break(&daemon, REASON).await;
    for daemon in [&daemon, &peer] {
        assert_eq!(last_break(daemon)["reason"], REASON);
        assert!(!last_break(daemon)["by"].as_str().unwrap().is_empty());
        let text = stdout(daemon.run(&["get", "a", "--verbose"]));
        assert!(text.contains("last break") && text.contains(REASON), "{text}");
    }

    // Later grants keep the record, and a break of a free lock does not change
    // it.
    let last = client.lock("a").acquire().await.unwrap();
    assert!(last.token() > token);
    last.release().await.unwrap();
    while fixture.lease_state("a").await != "available" {
        leasehold_runtime::sleep(CHECK_INTERVAL).await;
    }
    let output = stdout(daemon.run(&["break", "a", "--reason", "again"]));
    assert!(output.contains("nothing to break"), "{output}");
    assert_eq!(last_break(&daemon)["reason"], REASON);
}

/// The holder releases after the break is recorded, or before.
pub(crate) async fn local_break_notifies_holder_and_records_operator() {
    let fixture = Fixture::new().await;
    let daemon = fixture.daemon(&[]);
    let client = connect(&daemon).await;
    for release_first in [false, true] {
        let guard = client.lock("a").acquire().await.unwrap();
        let token = guard.token();
        fixture.proxy.clear();
        if release_first {
            fixture.proxy.when(Kind::Write).times(1).then(Fault::Hold);
        }
        let reason = format!("stuck, release first: {release_first}");
        let mut breaking = daemon.begin(&["break", "a", "--reason", &reason]);
        let loss = wait_for("the loss", guard.lost()).await;
        assert_eq!(loss.reason, Reason::Broken);
        assert!(loss.message.contains(&reason), "{}", loss.message);
        if !release_first {
            wait_for_last_break(&daemon, &reason).await;
        }
        wait_for("the write", fixture.proxy.wait_for(|call| call.kind == Kind::Write)).await;
        drop(guard);
        let released = |call: &RecordedCall| call.kind == Kind::Release && call.is_done();
        wait_for("the release", fixture.proxy.wait_for(released)).await;
        fixture.proxy.release_held();
        assert_eq!(breaking.code(), Some(0));
        wait_for_last_break(&daemon, &reason).await;
        let next = wait_for("the grant", client.lock("a").acquire()).await.unwrap();
        assert!(next.token() > token);
        next.release().await.unwrap();
        while fixture.lease_state("a").await != "available" {
            leasehold_runtime::sleep(CHECK_INTERVAL).await;
        }
    }
}
