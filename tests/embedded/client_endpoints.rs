//! A client with several endpoints, against real daemons: dead and silent
//! endpoints, killed and draining daemons, and sessions that stay at their daemon.
//!
//! Each daemon has a separate embedded store, so that the same lock at two daemons is
//! independent, and the holder's session identifies the daemon of a grant.

use std::{
    net::{SocketAddr, TcpListener},
    time::Duration,
};

use leasehold_client::{Client, Error, Guard, Reason};
use leasehold_test_support::{Daemon, until};
use nix::sys::signal::Signal;
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener as AsyncListener, TcpStream},
    task::{JoinHandle, JoinSet},
};

/// Exceeds the duration of every test.
const LONG: Duration = Duration::from_secs(60);

/// An endpoint that refuses connections.
fn dead_endpoint() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

async fn connect(endpoints: &[&str], ttl: Duration) -> Client {
    Client::builder(endpoints).ttl(ttl).connect().await.unwrap()
}

/// Session that holds a lock, as a daemon reports it.
async fn holder(daemon: &Daemon, lock: &str) -> Option<String> {
    let observer = Client::connect(&daemon.endpoint).await.unwrap();
    observer.inspect(lock).await.unwrap().session_id
}

fn session(client: &Client) -> Option<String> {
    client.session().map(|session| session.id)
}

/// Forwards connections to a daemon. Connections are refused while it is closed.
struct Gate {
    address: SocketAddr,
    target: String,
    forwarding: Option<JoinHandle<()>>,
}

impl Gate {
    async fn to(daemon: &Daemon) -> Self {
        let listener = AsyncListener::bind("127.0.0.1:0").await.unwrap();
        let (address, target) = (listener.local_addr().unwrap(), daemon.address().to_owned());
        let forwarding = Some(tokio::spawn(forward(listener, target.clone())));
        Self { address, target, forwarding }
    }

    fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    async fn close(&mut self) {
        let forwarding = self.forwarding.take().unwrap();
        forwarding.abort();
        // The listener closes with the task.
        assert!(forwarding.await.unwrap_err().is_cancelled());
    }

    async fn open(&mut self) {
        let listener = AsyncListener::bind(self.address).await.unwrap();
        self.forwarding = Some(tokio::spawn(forward(listener, self.target.clone())));
    }
}

/// Forwards until it is aborted, which also ends its connections.
async fn forward(listener: AsyncListener, target: String) {
    let mut connections = JoinSet::new();
    loop {
        let (mut client, _) = listener.accept().await.unwrap();
        let target = target.clone();
        connections.spawn(async move {
            let mut daemon = TcpStream::connect(target).await.unwrap();
            _ = copy_bidirectional(&mut client, &mut daemon).await;
        });
    }
}

#[tokio::test]
async fn dead_endpoint_is_skipped() {
    let daemon = Daemon::start();
    let dead = dead_endpoint();
    let listed = connect(&[&dead, &daemon.endpoint], LONG).await;
    let separated = Client::connect(format!("{dead}, {}", daemon.endpoint)).await.unwrap();
    for (client, lock) in [(listed, "listed"), (separated, "separated")] {
        let guard = client.lock(lock).no_wait().await.unwrap();
        assert_eq!(holder(&daemon, lock).await, session(&client));
        assert_eq!(client.inspect(lock).await.unwrap().token, Some(guard.token()));
    }
}

#[tokio::test]
async fn connect_error_names_every_endpoint() {
    let (first, second) = (dead_endpoint(), dead_endpoint());
    let Err(Error::Unavailable { message, .. }) = Client::connect([&*first, &*second]).await else {
        panic!("there is no daemon")
    };
    assert!(message.contains(&first) && message.contains(&second), "{message}");
    let none: [&str; 0] = [];
    for endpoints in [none.as_slice(), &["http://127.0.0.1:1", "ftp://b"]] {
        let Err(Error::Invalid { field, .. }) = Client::connect(endpoints).await else {
            panic!("{endpoints:?} was accepted")
        };
        assert_eq!(field, "endpoint");
    }
}

/// A silent endpoint uses only a part of the timeout, so that the next endpoint grants an
/// acquire with `no_wait` in time.
#[tokio::test]
async fn silent_endpoint_leaves_time_for_next_endpoint() {
    let daemon = Daemon::start();
    // The system accepts connections, but no process reads from them.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = format!("http://{}", listener.local_addr().unwrap());
    let client = Client::builder([&*silent, &*daemon.endpoint])
        .connect_timeout(Duration::from_secs(4))
        .connect()
        .await
        .unwrap();
    let _guard = client.lock("orders").no_wait().await.unwrap();
    assert_eq!(holder(&daemon, "orders").await, session(&client));
}

#[tokio::test]
async fn waiting_acquire_moves_when_daemon_is_killed() {
    let (mut first, second) = (Daemon::start(), Daemon::start());
    let other = connect(&[&first.endpoint], LONG).await;
    let _held = other.lock("orders").await.unwrap();
    let client = connect(&[&first.endpoint, &second.endpoint], Duration::from_secs(1)).await;
    let own = client.lock("own").await.unwrap();
    let before = session(&client).unwrap();
    let waiting = tokio::spawn(client.lock("orders").into_future());
    until(async || (other.inspect("orders").await.unwrap().waiting == 1).then_some(())).await;

    first.process.signal(Signal::SIGKILL);
    first.process.end();
    let guard: Guard = waiting.await.unwrap().unwrap();
    assert!(!own.is_valid(), "the session at the first daemon has ended");
    assert!(own.deadline().has_passed(), "the session moved before the deadline of its grant");
    let now = session(&client).unwrap();
    assert_ne!(now, before);
    assert_eq!(holder(&second, "orders").await, Some(now));
    assert!(guard.is_valid());
    guard.release().await.unwrap();
}

/// While a session's daemon is unreachable, unary calls go to the next daemon. The session
/// still resumes at its daemon and keeps its grants.
#[tokio::test]
async fn session_resumes_at_same_daemon() {
    let (first, second) = (Daemon::start(), Daemon::start());
    let mut gate = Gate::to(&first).await;
    let client = connect(&[&gate.endpoint(), &second.endpoint], LONG).await;
    let guard = client.lock("orders").await.unwrap();
    let before = session(&client);

    gate.close().await;
    until(async || match client.inspect("orders").await {
        // The second daemon has no holder of the lock.
        Ok(lock) => (!lock.held).then_some(()),
        // The call was in flight when the connection broke.
        Err(_) => None,
    })
    .await;
    gate.open().await;
    // The acquire is granted after the client has reconnected.
    let _next = client.lock("next").await.unwrap();
    assert!(guard.is_valid());
    assert_eq!(session(&client), before);
    assert_eq!(holder(&first, "next").await, before);
    assert_eq!(holder(&first, "orders").await, before);
    assert_eq!(holder(&second, "orders").await, None);
    guard.release().await.unwrap();
}

#[tokio::test]
async fn draining_daemon_is_skipped_by_new_sessions() {
    let (first, second) = (Daemon::start(), Daemon::start());
    let other = connect(&[&first.endpoint], LONG).await;
    let held = other.lock("orders").await.unwrap();
    let client = connect(&[&first.endpoint, &second.endpoint], LONG).await;
    first.process.signal(Signal::SIGTERM);
    assert_eq!(held.at_risk().await.reason, Reason::ShuttingDown);
    let _guard = client.lock("orders").no_wait().await.unwrap();
    assert_eq!(holder(&second, "orders").await, session(&client));
}
