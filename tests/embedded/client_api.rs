//! The Rust client's API against a real daemon: requests that can be awaited,
//! streams, and the events that it logs.

use std::{
    io,
    sync::{Arc, Mutex},
    time::Duration,
};

use leasehold_client::{Client, Error, Reason, Watch};
use leasehold_test_support::{Daemon, logging, relay::Relay};
use nix::sys::signal::Signal;
use tokio_stream::StreamExt as _;

/// Exceeds the duration of every test.
const LONG: Duration = Duration::from_secs(60);

async fn connect(endpoint: &str) -> Client {
    Client::builder(endpoint).client_name("test 1").ttl(LONG).connect().await.unwrap()
}

#[tokio::test]
async fn try_acquire_returns_none_if_lock_is_held() {
    let daemon = Daemon::start();
    let client = connect(&daemon.endpoint).await;
    let other = client.new_session();
    let guard = client.lock("orders").await.unwrap();
    // `try_acquire` ignores the wait of the request.
    assert!(other.lock("orders").wait_forever().try_acquire().await.unwrap().is_none());
    let leader = client.election("scheduler").campaign("one").await.unwrap();
    assert!(other.election("scheduler").campaign("two").try_lead().await.unwrap().is_none());
    let (first, leading) = (guard.token(), leader.token());
    guard.release().await.unwrap();
    leader.resign().await.unwrap();
    let second = other.lock("orders").try_acquire().await.unwrap().expect("it is free");
    assert!(second.token() > first);
    let lead = other.election("scheduler").campaign("two").try_lead().await.unwrap();
    assert!(lead.expect("it has no leader").token() > leading);
    let Err(Error::Invalid { field, .. }) = other.lock("").try_acquire().await else {
        panic!("a lock without a name")
    };
    assert_eq!(field, "name");
}

#[tokio::test]
async fn remaining_ends_with_grant() {
    let daemon = Daemon::start();
    let client = connect(&daemon.endpoint).await;
    let guard = client.lock("orders").await.unwrap();
    assert!((Duration::from_secs(1)..=LONG).contains(&guard.remaining()), "{guard:?}");
    client.close().await;
    assert_eq!(guard.remaining(), Duration::ZERO);
}

/// The holder receives the operator and the reason as separate texts.
#[tokio::test]
async fn break_and_step_down_name_operator_and_reason() {
    let daemon = Daemon::start();
    let client = connect(&daemon.endpoint).await;
    let guard = client.lock("orders").await.unwrap();
    client.break_lock("orders").reason("stuck").by("root@vm").send().await.unwrap();
    let operator = guard.lost().await.operator.unwrap();
    assert_eq!((&*operator.by, &*operator.reason), ("root@vm", "stuck"));
    let election = client.election("scheduler");
    let leader = client.election("scheduler").campaign("one").await.unwrap();
    election.step_down().by("root@vm").reason("upgrade").timeout(LONG).await.unwrap();
    let operator = leader.at_risk().await.operator.unwrap();
    assert_eq!((&*operator.by, &*operator.reason), ("root@vm", "upgrade"));
}

#[tokio::test]
async fn list_watch_and_observe_are_streams_of_results() {
    let daemon = Daemon::start();
    let client = connect(&daemon.endpoint).await;
    let mut guards = Vec::new();
    // The number of locks exceeds one page.
    for number in 0..501 {
        guards.push(client.lock(format!("job/{number:03}")).await.unwrap());
    }
    let listed: Vec<_> = client.list("job/").map(|lock| lock.unwrap().name).collect().await;
    assert!(listed.iter().eq(guards.iter().map(|guard| guard.name())), "{listed:?}");
    let failed: Vec<_> = client.in_namespace("No Label").list("").collect().await;
    assert!(matches!(&failed[..], [Err(Error::Invalid { .. })]), "{failed:?}");

    let watched = client.watch(Watch::Name("orders".into())).await.unwrap();
    let mut watched = std::pin::pin!(watched.map(|change| change.unwrap().lock.token));
    assert_eq!(watched.as_mut().next().await, Some(None));
    let guard = client.lock("orders").await.unwrap();
    assert_eq!(watched.next().await, Some(Some(guard.token())));

    let observed = client.election("scheduler").observe();
    let mut observed = std::pin::pin!(observed.map(|state| state.unwrap().leader));
    assert_eq!(observed.as_mut().next().await, Some(None));
    let leader = client.election("scheduler").campaign("one").await.unwrap();
    let seen = observed.next().await.unwrap().unwrap();
    assert_eq!((seen.token, &*seen.value), (Some(leader.token()), &b"one"[..]));
}

/// Text of the events logged on this thread.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn lines(&self, wanted: &str) -> usize {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        text.lines().filter(|line| line.contains(wanted)).count()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Logs the client's events on this thread until the guard is dropped.
fn logging() -> (Log, tracing::subscriber::DefaultGuard) {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_env_filter("leasehold_client=info")
        .with_writer(move || writer.clone())
        .finish();
    (log, logging::capture(subscriber))
}

#[tokio::test]
async fn unanswered_keep_alive_is_logged() {
    let (log, _logging) = logging();
    let daemon = Daemon::start();
    let ttl = Duration::from_secs(2);
    let client = Client::builder(&daemon.endpoint).ttl(ttl).connect().await.unwrap();
    let guard = client.lock("orders").await.unwrap();
    daemon.process.signal(Signal::SIGSTOP);
    guard.lost().await;
    daemon.process.signal(Signal::SIGCONT);
    assert!(log.lines("WARN leasehold_client: no response to the last keep-alive") >= 1);
    assert_eq!(log.lines("lock is lost lock=\"orders\" reason=Expired"), 1);
}

#[tokio::test]
async fn reconnect_risk_and_loss_are_logged_once() {
    let (log, _logging) = logging();
    let daemon = Daemon::start();
    let relay = Relay::to(&daemon);
    let client = connect(&relay.endpoint).await;
    let leader = client.election("scheduler").campaign("one").await.unwrap();
    assert_eq!(log.lines(""), 0, "nothing has happened");

    relay.cut();
    // The acquire is granted after the client has reconnected.
    client.lock("next").await.unwrap().release().await.unwrap();
    assert!(log.lines("WARN leasehold_client: reconnecting delay=") >= 1);
    assert_eq!(log.lines("is at risk") + log.lines("is lost"), 0);

    let operator = connect(&daemon.endpoint).await;
    let election = operator.election("scheduler");
    election.step_down().by("root@vm").reason("upgrade").timeout(LONG).await.unwrap();
    assert_eq!(leader.at_risk().await.reason, Reason::StepDown);
    operator.break_lock("scheduler").by("root@vm").reason("stuck").await.unwrap();
    assert_eq!(leader.lost().await.reason, Reason::Broken);
    leader.lost().await;
    drop(leader);
    client.close().await;
    assert_eq!(log.lines("lock is at risk lock=\"scheduler\" reason=StepDown"), 1);
    assert_eq!(log.lines("lock is lost lock=\"scheduler\" reason=Broken"), 1);
}
