//! The Rust client against a real daemon: breaks, restarts, losses, and the progress that
//! waiters receive.

use std::{
    net::TcpListener,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use leasehold_client::{
    Client, Error, Guard, LockInfo, Progress, Reason, Token, TokenState, Watch,
};
use leasehold_test_support::{Daemon, relay::Relay, until};
use nix::sys::signal::Signal;
use tokio::sync::{mpsc, oneshot};

/// Exceeds the duration of every test.
const LONG: Duration = Duration::from_secs(60);

async fn connect(daemon: &Daemon) -> Client {
    Client::builder(&daemon.endpoint).client_name("test 1").ttl(LONG).connect().await.unwrap()
}

async fn inspect(client: &Client, name: &str) -> LockInfo {
    client.inspect(name).await.unwrap()
}

/// Acquires a lock in a background task and returns the task and its progress.
fn wait_in_background(
    client: &Client,
    name: &str,
) -> (tokio::task::JoinHandle<Result<Guard, Error>>, mpsc::UnboundedReceiver<Progress>) {
    let (sender, progress) = mpsc::unbounded_channel();
    let request = client.lock(name).on_progress(move |progress| {
        _ = sender.send(progress);
    });
    (tokio::spawn(request.acquire()), progress)
}

/// Next progress for which `wanted` is true.
async fn next_progress(
    progress: &mut mpsc::UnboundedReceiver<Progress>,
    wanted: impl Fn(&Progress) -> bool,
) -> Progress {
    loop {
        let progress = progress.recv().await.expect("the acquire still waits");
        if wanted(&progress) {
            return progress;
        }
    }
}

#[tokio::test]
async fn each_acquire_gets_higher_token() {
    let daemon = Daemon::start();
    let client = connect(&daemon).await;
    assert_eq!(client.session(), None);
    let mut last = Token::default();
    for _ in 0..3 {
        let guard = client.lock("orders").acquire().await.unwrap();
        assert!(guard.is_valid() && !guard.deadline().has_passed());
        assert_eq!((guard.namespace(), guard.name()), ("default", "orders"));
        assert!(guard.token() > last);
        last = guard.token();
        let lock = inspect(&client, "orders").await;
        assert!(lock.held && lock.token == Some(last));
        assert_eq!(lock.session_id, client.session().map(|session| session.id));
        assert_eq!(lock.holder.unwrap().client, "test 1");
        guard.release().await.unwrap();
        assert!(!inspect(&client, "orders").await.held);
    }
    assert_eq!(client.session().unwrap().ttl, LONG);
    assert_eq!(client.session().unwrap().protocol_version, 1);
}

#[tokio::test]
async fn lock_is_acquired_over_unix_socket() {
    let dir = Arc::new(tempfile::TempDir::new().unwrap());
    let socket = format!("unix:{}", dir.path().join("socket").display());
    let daemon = Daemon::start_in(dir, &socket, &[]);
    let client = connect(&daemon).await;
    client.lock("orders").acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn refused_acquire_names_holder() {
    let daemon = Daemon::start();
    let client = connect(&daemon).await;
    let guard = client.lock("orders").acquire().await.unwrap();
    let other = client.new_session();
    for (request, expected) in [
        (other.lock("orders").no_wait(), Reason::Held),
        (other.lock("orders").wait(Duration::from_millis(50)), Reason::TimedOut),
    ] {
        match request.acquire().await {
            Err(Error::NotGranted { lock, reason, holder, held_for, .. }) => {
                assert_eq!((lock.as_str(), reason), ("orders", expected));
                assert_eq!(holder.unwrap().client, "test 1");
                assert!(held_for.is_some());
            }
            other => panic!("{other:?}"),
        }
    }
    assert_ne!(client.session(), other.session());
    let token = guard.token();
    drop(guard);
    assert!(other.lock("orders").acquire().await.unwrap().token() > token);
}

#[tokio::test]
async fn invalid_requests_are_refused_by_client() {
    let daemon = Daemon::start();
    let client = connect(&daemon).await;
    let refused = async |request: leasehold_client::LockRequest| match request.acquire().await {
        Err(Error::Invalid { field, .. }) => field,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(client.lock("")).await, "name");
    assert_eq!(refused(client.lock("x".repeat(100_000))).await, "name");
    assert_eq!(refused(client.in_namespace("Not a label").lock("a")).await, "namespace");
    let brief = Duration::from_millis(1);
    assert!(!refused(client.lock("a").max_hold_time(brief)).await.is_empty());
    // The session still works.
    client.lock("a").acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn dropped_acquire_leaves_queue() {
    let daemon = Daemon::start();
    let client = connect(&daemon).await;
    let guard = client.lock("orders").acquire().await.unwrap();
    let dropped = client.new_session();
    let (waiter, mut progress) = wait_in_background(&dropped, "orders");
    assert_eq!(next_progress(&mut progress, |p| p.position > 0).await.position, 1);
    assert_eq!(inspect(&client, "orders").await.waiting, 1);
    waiter.abort();
    until(async || (inspect(&client, "orders").await.waiting == 0).then_some(())).await;
    drop(guard);
    let next = client.new_session();
    next.lock("orders").acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn waiters_receive_position_and_holder() {
    let daemon = Daemon::start();
    let client = connect(&daemon).await;
    let guard = client.lock("orders").acquire().await.unwrap();
    let other = client.new_session();
    let (waiter, mut progress) = wait_in_background(&other, "orders");
    let queued = next_progress(&mut progress, |progress| progress.position > 0).await;
    assert_eq!((queued.position, queued.holder.unwrap().client.as_str()), (1, "test 1"));
    let token = guard.token();
    guard.release().await.unwrap();
    assert!(waiter.await.unwrap().unwrap().token() > token);
}

#[tokio::test]
async fn acquires_of_one_session_exclude_each_other() {
    let daemon = Daemon::start();
    let client = connect(&daemon).await;
    let first = client.lock("orders").acquire().await.unwrap();
    match client.clone().lock("orders").no_wait().acquire().await {
        Err(Error::NotGranted { reason: Reason::Held, held_by_same_session: true, .. }) => {}
        other => panic!("{other:?}"),
    }
    let (sender, mut progress) = mpsc::unbounded_channel();
    let request = client.lock("orders").on_progress(move |progress| _ = sender.send(progress));
    let second = tokio::spawn(request.acquire());
    let queued = progress.recv().await.unwrap();
    assert!(queued.held_by_same_session && queued.position == 1, "{queued:?}");
    let token = first.token();
    first.release().await.unwrap();
    let second = second.await.unwrap().unwrap();
    assert!(second.is_valid() && second.token() > token);
    second.release().await.unwrap();
    assert!(!inspect(&client, "orders").await.held);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hundred_tasks_of_one_client_lose_no_update() {
    const TASKS: u64 = 100;
    let daemon = Daemon::start();
    let client = connect(&daemon).await;
    let counter = Arc::new(AtomicU64::new(0));
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| {
            let (client, counter) = (client.clone(), Arc::clone(&counter));
            tokio::spawn(async move {
                let guard = client.lock("counter").acquire().await.unwrap();
                // A pause separates the read and the write, so that a second holder would
                // overwrite the update.
                let before = counter.load(Ordering::SeqCst);
                tokio::task::yield_now().await;
                leasehold_runtime::sleep(Duration::from_millis(1)).await;
                counter.store(before + 1, Ordering::SeqCst);
                let token = guard.token();
                guard.release().await.unwrap();
                (before, token)
            })
        })
        .collect();
    let mut updates = Vec::new();
    for task in tasks {
        updates.push(task.await.unwrap());
    }
    assert_eq!(counter.load(Ordering::SeqCst), TASKS);
    updates.sort_unstable();
    let tokens: Vec<_> = updates.into_iter().map(|(_, token)| token).collect();
    assert!(tokens.is_sorted_by(|one, next| one < next), "each update has a higher token");
}

#[tokio::test]
async fn locks_in_different_namespaces_are_independent() {
    let daemon = Daemon::start();
    let client = connect(&daemon).await;
    let first = client.lock("orders").acquire().await.unwrap();
    let other = client.new_session().in_namespace("other");
    let second = other.lock("orders").no_wait().acquire().await.unwrap();
    assert_eq!((first.namespace(), second.namespace()), ("default", "other"));
}

#[tokio::test]
async fn reconnect_keeps_grant_and_queue_position() {
    let daemon = Daemon::start();
    let relay = Relay::to(&daemon);
    let client = Client::builder(&relay.endpoint).ttl(LONG).connect().await.unwrap();
    let guard = client.lock("orders").acquire().await.unwrap();
    let session = client.session().unwrap();
    let other = connect(&daemon).await;
    let taken = other.lock("taken").acquire().await.unwrap();
    let (waiter, mut progress) = wait_in_background(&client, "taken");
    next_progress(&mut progress, |progress| progress.position == 1).await;

    relay.cut();
    next_progress(&mut progress, |progress| !progress.note.is_empty()).await;
    next_progress(&mut progress, |progress| progress.position == 1).await;
    assert!(guard.is_valid());
    assert_eq!(client.session(), Some(session));
    let lock = inspect(&other, "orders").await;
    assert!(lock.held && lock.token == Some(guard.token()));
    taken.release().await.unwrap();
    let waited = waiter.await.unwrap().unwrap();
    assert!(waited.is_valid());
    guard.release().await.unwrap();
    waited.release().await.unwrap();
}

#[tokio::test]
async fn guard_dropped_while_disconnected_is_released_later() {
    let daemon = Daemon::start();
    let relay = Relay::to(&daemon);
    let client = Client::builder(&relay.endpoint).ttl(LONG).connect().await.unwrap();
    let guard = client.lock("orders").acquire().await.unwrap();
    relay.cut();
    drop(guard);
    let other = connect(&daemon).await;
    other.lock("orders").acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn daemon_pause_shorter_than_ttl_loses_no_grant() {
    let daemon = Daemon::start();
    let ttl = Duration::from_secs(6);
    let client = Client::builder(&daemon.endpoint).ttl(ttl).connect().await.unwrap();
    let taken = connect(&daemon).await.lock("taken").acquire().await.unwrap();
    let guard = client.lock("orders").acquire().await.unwrap();
    let (waiter, mut progress) = wait_in_background(&client, "taken");
    next_progress(&mut progress, |progress| progress.position == 1).await;
    daemon.process.signal(Signal::SIGSTOP);
    next_progress(&mut progress, |progress| !progress.note.is_empty()).await;
    daemon.process.signal(Signal::SIGCONT);
    next_progress(&mut progress, |progress| progress.position == 1).await;
    assert!(guard.is_valid());
    guard.release().await.unwrap();
    taken.release().await.unwrap();
    waiter.await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn killed_daemon_loses_grants_at_deadline() {
    let mut daemon = Daemon::start();
    let ttl = Duration::from_secs(2);
    let client = Client::builder(&daemon.endpoint).ttl(ttl).connect().await.unwrap();
    let guard = client.lock("orders").acquire().await.unwrap();
    let token = guard.token();
    daemon.process.signal(Signal::SIGKILL);
    daemon.process.end();
    let loss = guard.lost().await;
    assert_eq!(loss.reason, Reason::Expired);
    assert!(guard.deadline().has_passed() && !guard.is_valid());
    assert!(matches!(guard.release().await, Err(Error::Lost { .. })));

    // A wait that times out without a daemon returns Unavailable.
    let timed_out = client.lock("orders").wait(Duration::from_millis(100)).acquire().await;
    assert!(matches!(timed_out, Err(Error::Unavailable { .. })), "{timed_out:?}");

    let (waiter, mut progress) = wait_in_background(&client, "orders");
    let daemon = daemon.restart(&[]);
    next_progress(&mut progress, |progress| progress.position > 0).await;
    let again = waiter.await.unwrap().unwrap();
    assert!(again.token() > token);
    drop(daemon);
}

#[tokio::test]
async fn restarted_daemon_loses_grants_immediately() {
    let daemon = Daemon::start();
    let client = connect(&daemon).await;
    let guard = client.lock("orders").acquire().await.unwrap();
    let daemon = daemon.restart(&[]);
    assert_eq!(guard.lost().await.reason, Reason::UnknownSession);
    assert!(!guard.deadline().has_passed(), "the loss came before the deadline");
    drop(daemon);
}

#[tokio::test]
async fn broken_lock_is_free_after_holder_releases() {
    let daemon = Daemon::start();
    let client = connect(&daemon).await;
    let guard = client.lock("orders").acquire().await.unwrap();
    let operator = client.new_session();
    let (waiter, mut progress) = wait_in_background(&operator, "orders");
    next_progress(&mut progress, |progress| progress.position == 1).await;
    let broken = operator.break_lock("orders").by("test").reason("it is stuck").await.unwrap();
    assert!(broken.broken && broken.lock.token == Some(guard.token()));
    let loss = guard.lost().await;
    assert_eq!(loss.reason, Reason::Broken);
    assert!(loss.message.contains("it is stuck"), "{}", loss.message);
    assert!(!guard.is_valid() && !guard.deadline().has_passed());
    let lock = inspect(&client, "orders").await;
    assert!(lock.held && lock.ending);
    let token = guard.token();
    drop(guard);
    assert!(waiter.await.unwrap().unwrap().token() > token);
    assert!(!operator.break_lock("unused").by("test").reason("why not").await.unwrap().broken);
}

#[tokio::test]
async fn with_lock_drops_work_when_lock_is_lost() {
    /// Sends a message when it is dropped.
    struct Work(Option<oneshot::Sender<()>>);
    impl Drop for Work {
        fn drop(&mut self) {
            _ = self.0.take().map(|sender| sender.send(()));
        }
    }
    let daemon = Daemon::start();
    let client = connect(&daemon).await;
    let done = client.with_lock("orders", async |guard| guard.token()).await.unwrap();
    assert!(!inspect(&client, "orders").await.held);

    let (begin, begun) = oneshot::channel();
    let (end, ended) = oneshot::channel();
    let worker = client.clone();
    let work = tokio::spawn(async move {
        let work = Work(Some(end));
        worker
            .with_lock("orders", async move |guard: &Guard| {
                _ = begin.send(guard.token());
                std::future::pending::<()>().await;
                drop(work);
            })
            .await
    });
    assert!(begun.await.unwrap() > done);
    client.break_lock("orders").by("test").reason("enough").await.unwrap();
    ended.await.unwrap();
    match work.await.unwrap() {
        Err(Error::Lost { lock, reason, .. }) => {
            assert_eq!((lock.as_str(), reason), ("orders", Reason::Broken));
        }
        other => panic!("{other:?}"),
    }
    client.new_session().lock("orders").acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn fenced_session_ends_with_connection() {
    let daemon = Daemon::start();
    let relay = Relay::to(&daemon);
    let fenced = Client::builder(&relay.endpoint).ttl(LONG).fenced(true).connect().await.unwrap();
    let guard = fenced.lock("orders").acquire().await.unwrap();
    relay.cut();
    let next = connect(&daemon).await.lock("orders").acquire().await.unwrap();
    assert!(next.token() > guard.token());
    assert_eq!(guard.lost().await.reason, Reason::UnknownSession);
    assert!(guard.deadline().has_passed(), "another session holds the lock");
    next.release().await.unwrap();
    assert!(fenced.lock("orders").acquire().await.unwrap().token() > guard.token());
}

#[tokio::test]
async fn max_hold_time_ends_grant() {
    let daemon = Daemon::start();
    let client = connect(&daemon).await;
    let hold = Duration::from_secs(1);
    let guard = client.lock("orders").max_hold_time(hold).acquire().await.unwrap();
    let unlimited = client.lock("others").acquire().await.unwrap();
    assert!(guard.deadline() < unlimited.deadline());
    let loss = guard.lost().await;
    assert!(matches!(loss.reason, Reason::MaxHoldTime | Reason::Expired), "{loss:?}");
    assert!(unlimited.is_valid());
    client.new_session().lock("orders").acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn stopping_daemon_warns_holders_and_waits_for_release() {
    let mut daemon = Daemon::start();
    let client = connect(&daemon).await;
    let guard = client.lock("orders").acquire().await.unwrap();
    daemon.process.signal(Signal::SIGTERM);
    assert_eq!(guard.at_risk().await.reason, Reason::ShuttingDown);
    assert!(guard.is_valid());
    let refused = client.new_session().lock("others").no_wait().acquire().await;
    assert!(matches!(refused, Err(Error::Unavailable { .. })), "{refused:?}");
    // The next daemon grants the lock to the waiter.
    let waiting = client.new_session();
    let (waiter, mut progress) = wait_in_background(&waiting, "orders");
    next_progress(&mut progress, |progress| !progress.note.is_empty()).await;
    let token = guard.token();
    guard.release().await.unwrap();
    assert!(daemon.process.end().success());
    let daemon = daemon.restart(&[]);
    assert!(waiter.await.unwrap().unwrap().token() > token);
    drop(daemon);
}

#[tokio::test]
async fn close_ends_session_and_next_acquire_opens_new_one() {
    let daemon = Daemon::start();
    let client = connect(&daemon).await;
    let guard = client.lock("orders").acquire().await.unwrap();
    let session = client.session();
    client.close().await;
    assert!(!guard.is_valid() && !inspect(&client, "orders").await.held);
    assert!(guard.deadline().has_passed(), "another session may hold the lock");
    let again = client.lock("orders").acquire().await.unwrap();
    assert!(again.is_valid() && client.session() != session);
}

#[tokio::test]
async fn session_ends_with_last_clone_and_guard() {
    let daemon = Daemon::start();
    let observer = connect(&daemon).await;
    let client = connect(&daemon).await;
    let guard = client.lock("orders").acquire().await.unwrap();
    drop(client);
    assert!(guard.is_valid() && inspect(&observer, "orders").await.held);
    // A guard can also be dropped on a thread without a runtime.
    thread::spawn(move || drop(guard)).join().unwrap();
    observer.lock("orders").acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn session_dropped_without_daemon_leaves_no_tasks() {
    let mut daemon = Daemon::start();
    let ttl = Duration::from_secs(1);
    let client = Client::builder(&daemon.endpoint).ttl(ttl).connect().await.unwrap();
    let guard = client.lock("orders").acquire().await.unwrap();
    let tasks = tokio::runtime::Handle::current().metrics();
    assert_ne!(tasks.num_alive_tasks(), 0);
    daemon.process.signal(Signal::SIGKILL);
    daemon.process.end();
    drop((guard, client));
    until(async || (tasks.num_alive_tasks() == 0).then_some(())).await;
}

#[test]
fn client_without_runtime_returns_unavailable() {
    let daemon = Daemon::start();
    let [first, second] = [(); 2].map(|()| tokio::runtime::Runtime::new().unwrap());
    let client = first.block_on(connect(&daemon));
    let fresh = client.new_session();
    let guard = first.block_on(client.lock("orders").acquire()).unwrap();
    drop(first);
    second.block_on(async {
        for client in [&fresh, &client, &client] {
            let refused = client.lock("others").acquire().await;
            assert!(
                matches!(&refused, Err(Error::Unavailable { message, .. })
                    if message.contains("runtime")),
                "{refused:?}"
            );
        }
        let refused = guard.release().await;
        assert!(matches!(refused, Err(Error::Unavailable { .. })), "{refused:?}");
        client.close().await;
    });
}

#[tokio::test]
async fn locks_can_be_listed_watched_and_checked() {
    let daemon = Daemon::start();
    let client = connect(&daemon).await;
    let mut guards = Vec::new();
    for number in 0..1100 {
        guards.push(client.lock(format!("job/{number:04}")).acquire().await.unwrap());
    }
    let other = client.lock("other").acquire().await.unwrap();
    let mut list = client.list("job/");
    for guard in &guards {
        let lock = list.next().await.unwrap().unwrap();
        assert_eq!((lock.name.as_str(), lock.token), (guard.name(), Some(guard.token())));
    }
    assert!(list.next().await.is_none());

    let state = async |token| client.check("other", token).await.unwrap().state;
    assert_eq!(state(other.token()).await, TokenState::Current);
    assert_eq!(state(Token::new(other.token().get() - 1)).await, TokenState::Stale);
    assert_eq!(state(Token::new(other.token().get() + 1)).await, TokenState::NeverGranted);

    let mut watching = client.watch(Watch::Name("other".into())).await.unwrap();
    let first = watching.next().await.unwrap().unwrap();
    assert!(first.initial && first.lock.held);
    let token = other.token();
    other.release().await.unwrap();
    let change = watching.next().await.unwrap().unwrap();
    assert!(!change.initial && !change.lock.held);
    assert_eq!(state(token).await, TokenState::NotHeld);
}

#[tokio::test]
async fn connect_without_daemon_returns_unavailable() {
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let refused = Client::connect(format!("http://{gone}")).await;
    assert!(matches!(refused, Err(Error::Unavailable { .. })), "{refused:?}");
    for endpoint in ["https://localhost:1", "localhost:1"] {
        let refused = Client::connect(endpoint).await;
        assert!(matches!(refused, Err(Error::Invalid { .. })), "{refused:?}");
    }
}

#[tokio::test]
async fn tasks_and_sessions_never_hold_same_lock() {
    let daemon = Daemon::start();
    let client = connect(&daemon).await;
    let inside = Arc::new(Mutex::new((0_u32, Token::default())));
    let mut workers = Vec::new();
    for _ in 0..8 {
        let (session, inside) = (client.new_session(), Arc::clone(&inside));
        workers.push(tokio::spawn(async move {
            for _ in 0..25 {
                let guard = session.lock("orders").acquire().await.unwrap();
                {
                    let mut inside = inside.lock().unwrap();
                    assert_eq!(inside.0, 0, "two holders");
                    assert!(inside.1 < guard.token(), "the token did not increase");
                    *inside = (1, guard.token());
                }
                tokio::task::yield_now().await;
                inside.lock().unwrap().0 = 0;
                // A dropped guard is released in the background.
                if guard.token().get() % 2 == 0 {
                    guard.release().await.unwrap();
                }
            }
        }));
    }
    for worker in workers {
        worker.await.unwrap();
    }
}

#[tokio::test]
async fn debug_output_has_no_secret() {
    let daemon = Daemon::start();
    let client = connect(&daemon).await;
    let guard = client.lock("orders").acquire().await.unwrap();
    let text = format!("{client:?} {guard:?} {:?}", client.lock("x"));
    assert!(!text.contains("secret") && !text.contains("handle"), "{text}");
    assert!(text.contains(&guard.token().to_string()));
}
