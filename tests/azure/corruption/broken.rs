//! Leases are broken: by hand, past the daemons, and with `leasehold break`.

use std::{process::Output, time::Duration};

use leasehold_client::Reason;
use leasehold_test_support::{
    Daemon,
    proxy::{Fault, Kind, Seen},
};
use leasehold_time::Moment;
use serde_json::Value;

use super::{break_by_hand, connect, lost};
use crate::scene::{Scene, comes};

/// For what no event tells.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

pub(crate) async fn a_lease_broken_by_hand_is_lost_at_the_next_renewal() {
    let scene = Scene::new().await;
    let (daemon, elsewhere) = (scene.daemon(&[]), scene.daemon_past(&[]));
    let client = connect(&daemon).await;
    let guard = client.lock("a").acquire().await.unwrap();
    let queued = tokio::spawn(client.new_session().lock("a").acquire());
    break_by_hand(&scene.blob("a")).await;
    let other = connect(&elsewhere).await.lock("a").no_wait().acquire().await.unwrap();
    assert!(other.token() > guard.token());
    let message = lost(&guard).await;
    assert!(message.contains("\"a\"") && message.contains("broken"), "{message}");
    drop(guard);
    assert!(!queued.is_finished(), "the other holds it");
    let token = other.token();
    other.release().await.unwrap();
    let next = comes("the grant", queued).await.unwrap().unwrap();
    assert!(next.token() > token);
}

pub(crate) async fn a_lease_broken_with_a_period_goes_on_to_the_next_after_it() {
    let scene = Scene::new().await;
    let (daemon, elsewhere) = (scene.daemon(&[]), scene.daemon_past(&[]));
    let guard = connect(&daemon).await.lock("a").acquire().await.unwrap();
    let other = tokio::spawn(connect(&elsewhere).await.lock("a").acquire());
    let period = 8;
    let broken_at = Moment::now();
    scene.blob("a").break_lease(Some(period)).await.ok();
    lost(&guard).await;
    assert_eq!(scene.lease_state("a").await, "breaking");
    let next = comes("the grant", other).await.unwrap().unwrap();
    assert!(Moment::now().since(broken_at).as_secs() + 1 >= u64::from(period));
    assert!(next.token() > guard.token());
}

/// Who broke the lock last, as `get --verbose` shows it.
fn last_break(daemon: &Daemon) -> Value {
    let output = daemon.run(&["get", "a", "--verbose", "--output", "json"]);
    let shown: Value = serde_json::from_slice(&output.stdout).unwrap();
    shown["last_break"].clone()
}

async fn noted(daemon: &Daemon, reason: &str) {
    let note = async {
        while last_break(daemon)["reason"] != reason {
            leasehold_runtime::sleep(LOOK_AGAIN).await;
        }
    };
    comes("the note", note).await;
}

fn printed(output: Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Also if the next holder is faster than the note.
pub(crate) async fn a_break_of_a_lock_held_elsewhere_is_told_noted_and_followed_by_a_greater_token()
{
    const REASON: &str = "stuck, see incident 4711";
    let scene = Scene::new().await;
    let (daemon, elsewhere) = (scene.daemon(&[]), scene.daemon_past(&[]));
    let client = connect(&elsewhere).await;
    let guard = client.lock("a").acquire().await.unwrap();
    assert!(last_break(&daemon).is_null());
    scene.proxy.when(Kind::Write).times(1).then(Fault::Hold);
    let said = printed(daemon.run(&["break", "a", "--reason", REASON]));
    assert!(said.contains("broken; free within") && said.contains("test 1"), "{said}");
    let loss = comes("the loss", guard.lost()).await;
    assert_eq!(loss.reason, Reason::Broken, "{loss:?}");
    assert_eq!(loss.operator.unwrap().reason, REASON);
    assert!(!guard.deadline().has_passed(), "it was not told but found out");
    let eager = client.new_session().lock("a").wait(Duration::from_secs(1)).acquire().await;
    assert!(eager.is_err(), "granted although the one before has not let go");
    let token = guard.token();
    drop(guard);

    let next = comes("the grant", client.lock("a").acquire()).await.unwrap();
    assert!(next.token() > token);
    comes("the note", scene.proxy.wait_for(|seen| seen.kind == Kind::Write)).await;
    scene.proxy.let_go();
    next.release().await.unwrap();
    noted(&daemon, REASON).await;
    for daemon in [&daemon, &elsewhere] {
        assert_eq!(last_break(daemon)["reason"], REASON);
        assert!(!last_break(daemon)["by"].as_str().unwrap().is_empty());
        let text = printed(daemon.run(&["get", "a", "--verbose"]));
        assert!(text.contains("last break") && text.contains(REASON), "{text}");
    }

    // It stays with the lock, and a lock that nobody holds is left alone.
    let last = client.lock("a").acquire().await.unwrap();
    assert!(last.token() > token);
    last.release().await.unwrap();
    while scene.lease_state("a").await != "available" {
        leasehold_runtime::sleep(LOOK_AGAIN).await;
    }
    let said = printed(daemon.run(&["break", "a", "--reason", "again"]));
    assert!(said.contains("nothing to break"), "{said}");
    assert_eq!(last_break(&daemon)["reason"], REASON);
}

/// Whether the holder lets go before the note is written, or after that.
pub(crate) async fn a_break_at_the_holders_own_daemon_is_told_at_once_and_noted() {
    let scene = Scene::new().await;
    let daemon = scene.daemon(&[]);
    let client = connect(&daemon).await;
    for faster in [false, true] {
        let guard = client.lock("a").acquire().await.unwrap();
        let token = guard.token();
        scene.proxy.clear();
        if faster {
            scene.proxy.when(Kind::Write).times(1).then(Fault::Hold);
        }
        let reason = format!("stuck, faster: {faster}");
        let mut breaking = daemon.begin(&["break", "a", "--reason", &reason]);
        let loss = comes("the loss", guard.lost()).await;
        assert_eq!(loss.reason, Reason::Broken);
        assert!(loss.message.contains(&reason), "{}", loss.message);
        if !faster {
            noted(&daemon, &reason).await;
        }
        comes("the note", scene.proxy.wait_for(|seen| seen.kind == Kind::Write)).await;
        drop(guard);
        let released = |seen: &Seen| seen.kind == Kind::Release && seen.is_over();
        comes("the release", scene.proxy.wait_for(released)).await;
        scene.proxy.let_go();
        assert_eq!(breaking.code(), Some(0));
        noted(&daemon, &reason).await;
        let next = comes("the grant", client.lock("a").acquire()).await.unwrap();
        assert!(next.token() > token);
        next.release().await.unwrap();
        while scene.lease_state("a").await != "available" {
            leasehold_runtime::sleep(LOOK_AGAIN).await;
        }
    }
}
