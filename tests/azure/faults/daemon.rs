//! The same seen by clients of a daemon: what is granted, kept and given back
//! in spite of faults.

use std::time::Duration;

use leasehold_client::{Client, Error, Guard};
use leasehold_test_support::{
    Daemon,
    proxy::{Fault, Kind, Refusal, Seen},
};
use leasehold_time::Moment;
use nix::sys::signal::Signal;

use crate::scene::{COUNTED_ON, DURATION, Scene, comes};

/// A session that outlives everything here.
pub(crate) async fn connect(daemon: &Daemon) -> Client {
    let ttl = Duration::from_secs(60);
    Client::builder(&daemon.endpoint).client_name("test 1").ttl(ttl).connect().await.unwrap()
}

/// The lock is still held when what its holder counted on at first is over.
pub(crate) async fn outlives(guard: &Guard, first_deadline: Moment) {
    leasehold_runtime::sleep_until(first_deadline + Duration::from_millis(500)).await;
    assert!(guard.is_valid(), "{guard:?} was lost");
}

#[tokio::test]
async fn answers_that_are_lost_on_the_way_to_a_grant_cost_nothing_but_time() {
    let scene = Scene::new().await;
    let daemon = scene.daemon(&[]);
    let client = connect(&daemon).await;
    for kind in [Kind::Acquire, Kind::Create, Kind::Write] {
        scene.proxy.when(kind).times(1).then(Fault::DropAnswer);
    }
    let guard = client.lock("a").acquire().await.unwrap();
    assert_eq!(scene.token("a").await, guard.token().get());
    let first = scene.calls("a")[0].came;
    assert!(guard.deadline() <= first + COUNTED_ON, "it counts from the first attempt");
    guard.release().await.unwrap();
}

pub(crate) async fn an_acquisition_that_stays_unclear_is_released_before_another_begins() {
    let scene = Scene::new().await;
    let daemon = scene.daemon(&[]);
    let client = connect(&daemon).await;
    let before = client.lock("a").acquire().await.unwrap();
    let token = before.token();
    before.release().await.unwrap();
    comes("the release", scene.proxy.wait_for(|seen| seen.kind == Kind::Release)).await;
    scene.proxy.clear();

    scene.proxy.when(Kind::Write).times(1).then(Fault::Answer(Refusal::FORBIDDEN));
    let refused = client.lock("a").no_wait().acquire().await.unwrap_err();
    let Error::Unavailable { message, .. } = &refused else { panic!("{refused:?}") };
    assert!(message.contains("lock \"a\"") && message.contains("403"), "{message}");
    comes("the release", scene.proxy.wait_for(|seen| seen.kind == Kind::Release)).await;

    let guard = client.lock("a").acquire().await.unwrap();
    assert!(guard.token() > token);
    let kinds = scene.kinds("a");
    assert_eq!(kinds[..3], [Kind::Acquire, Kind::Write, Kind::Release]);
    let released = &scene.calls("a")[2];
    let again = scene.calls("a").into_iter().filter(|call| call.kind == Kind::Acquire).nth(1);
    assert!(released.ended.unwrap() <= again.unwrap().came);
}

pub(crate) async fn a_release_is_repeated_until_it_is_done() {
    let scene = Scene::new().await;
    let daemon = scene.daemon(&[]);
    let client = connect(&daemon).await;
    let guard = client.lock("a").acquire().await.unwrap();
    let token = guard.token();
    // The last of these is applied, and answered with 409 after that.
    for fault in [
        Fault::Reset,
        Fault::Answer(Refusal::INTERNAL_ERROR),
        Fault::Answer(Refusal::FORBIDDEN),
        Fault::DropAnswer,
    ] {
        scene.proxy.when(Kind::Release).times(1).then(fault);
    }
    guard.release().await.unwrap();
    let releases =
        scene.proxy.wait_for_many(5, |seen| seen.kind == Kind::Release && seen.is_over());
    let releases = comes("the last release", releases).await;
    assert_eq!(releases[4].status, Some(409));
    assert_eq!(scene.lease_state("a").await, "available");
    let other = scene.daemon_past(&[]);
    let guard = connect(&other).await.lock("a").no_wait().acquire().await.unwrap();
    assert!(guard.token() > token);
    assert_eq!(scene.proxy.count(Kind::Release), 5, "not once more");
}

pub(crate) async fn a_holder_keeps_its_lock_while_renewals_fail() {
    let scene = Scene::new().await;
    let daemon = scene.daemon(&[]);
    let client = connect(&daemon).await;
    let faults = [
        ("dropped", Fault::DropAnswer),
        ("reset", Fault::Reset),
        ("failed", Fault::Answer(Refusal::INTERNAL_ERROR)),
        ("throttled", Fault::Answer(Refusal::busy(Duration::from_secs(60)))),
        ("forbidden", Fault::Answer(Refusal::FORBIDDEN)),
    ];
    let mut held = Vec::new();
    for (name, fault) in faults {
        scene.proxy.when(Kind::Renew.of(name)).times(3).then(fault);
        let guard = client.lock(name).acquire().await.unwrap();
        held.push((name, guard.deadline(), guard));
    }
    for (name, first_deadline, guard) in &held {
        let renewed = |seen: &Seen| {
            seen.kind == Kind::Renew && seen.blob.ends_with(name) && seen.status == Some(200)
        };
        comes("a renewal", scene.proxy.wait_for(renewed)).await;
        assert!(guard.is_valid(), "{name}");
        outlives(guard, *first_deadline).await;
        assert_eq!(scene.proxy.count(Kind::Acquire.of(name)), 2, "{name}: one, and one to create");
    }
    for (_, _, guard) in held {
        guard.release().await.unwrap();
    }
}

/// The daemon is stopped after its record was written, and goes on when the
/// lease has run out: the answer is there, but whoever waited gets another
/// hold.
pub(crate) async fn a_grant_does_not_start_on_a_lease_that_ran_out_meanwhile() {
    let scene = Scene::new().await;
    let daemon = scene.daemon(&[]);
    let client = connect(&daemon).await;
    client.lock("a").acquire().await.unwrap().release().await.unwrap();
    comes("the release", scene.proxy.wait_for(|seen| seen.kind == Kind::Release)).await;
    scene.proxy.clear();

    scene.proxy.when(Kind::Write).times(1).then(Fault::HoldAnswer);
    let acquire = tokio::spawn(client.lock("a").acquire());
    let written = |seen: &Seen| seen.kind == Kind::Write && seen.upstream == Some(200);
    comes("the write", scene.proxy.wait_for(written)).await;
    daemon.process.signal(Signal::SIGSTOP);
    scene.proxy.let_go();
    let written = scene.token("a").await;
    leasehold_runtime::sleep_until(scene.calls("a")[0].came + DURATION).await;
    let resumed = Moment::now();
    daemon.process.signal(Signal::SIGCONT);
    let guard = comes("the grant", acquire).await.unwrap().unwrap();
    assert!(guard.token().get() > written, "granted on a lease that had run out");
    assert_eq!(scene.token("a").await, guard.token().get());
    let acquired: Vec<_> =
        scene.calls("a").into_iter().filter(|call| call.kind == Kind::Acquire).collect();
    assert!(acquired.last().unwrap().came >= resumed);
    assert!(guard.is_valid());
}
