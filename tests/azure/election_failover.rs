//! Five workers and two daemons on one Azurite, with the leader killed
//! repeatedly. There is at most one leader at a time, tokens increase, and every
//! observer receives all leaders in order.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use leasehold_client::{Client, ElectionState};
use leasehold_test_support::{Daemon, Running, azurite::Azurite, rest::Rest, until};
use nix::sys::signal::Signal;
use tempfile::TempDir;

const NAME: &str = "scheduler";
const WORKERS: usize = 5;
const KILLS: usize = 20;

/// Command that logs its token repeatedly until it is killed.
const WORK: &str =
    r#"while :; do echo "$LEASEHOLD_TOKEN $(date +%s%N)" >> "$LOG"; sleep 0.02; done"#;

struct Cluster {
    daemons: Vec<Daemon>,
    workers: Vec<Running>,
    log: PathBuf,
    _dir: TempDir,
}

impl Cluster {
    async fn start() -> Self {
        let azurite = Azurite::shared();
        Rest::new(azurite).container("failover").create().await.ok();
        let connection = azurite.connection_string();
        let store = ["--store", "azure", "--azure-container", "failover"];
        let secret = ["--azure-connection-string", &connection];
        let timing = ["--lease-duration", "15s", "--poll-interval", "1s"];
        let arguments = [&store[..], &secret[..], &timing[..]].concat();
        let dir = TempDir::new().unwrap();
        let mut cluster = Self {
            daemons: (0..2).map(|_| Daemon::start_with(&arguments)).collect(),
            workers: Vec::new(),
            log: dir.path().join("log"),
            _dir: dir,
        };
        fs::write(&cluster.log, "").unwrap();
        for number in 0..WORKERS {
            let worker = cluster.worker(number);
            cluster.workers.push(worker);
        }
        cluster
    }

    fn worker(&self, number: usize) -> Running {
        let daemon = &self.daemons[number % self.daemons.len()];
        let value = number.to_string();
        let arguments = ["elect", NAME, "--ttl", "1s", "--value", &value];
        let mut command = daemon.command(&arguments);
        command.args(["--", "sh", "-c", WORK]).env("LOG", &self.log);
        Running::start(&mut command)
    }

    /// Kills a worker and starts another one in its place.
    fn kill(&mut self, number: usize) {
        self.workers[number].signal(Signal::SIGKILL);
        self.workers[number].child.wait().unwrap();
        self.workers[number] = self.worker(number);
    }
}

/// Tokens of the leaders that an observer received, in order; None for no leader.
type ObservedTokens = Arc<Mutex<Vec<Option<u64>>>>;

fn observe(client: &Client) -> ObservedTokens {
    let tokens = ObservedTokens::default();
    let (mut observer, received) = (client.election(NAME).observe(), Arc::clone(&tokens));
    tokio::spawn(async move {
        loop {
            let state: ElectionState = observer.next().await.expect("the stream continues");
            received.lock().unwrap().push(state.leader.map(|leader| leader.token.unwrap().get()));
        }
    });
    tokens
}

/// Times of the first and the last log line of each leader, by token.
fn activity(log: &Path) -> BTreeMap<u64, (u128, u128)> {
    let mut spans = BTreeMap::new();
    for line in fs::read_to_string(log).unwrap().lines() {
        let (token, at) = line.split_once(' ').unwrap();
        let (token, at): (u64, u128) = (token.parse().unwrap(), at.parse().unwrap());
        let span = spans.entry(token).or_insert((at, at));
        *span = (span.0.min(at), span.1.max(at));
    }
    spans
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn single_leader_through_twenty_kills() {
    let mut cluster = Cluster::start().await;
    let mut clients = Vec::new();
    for daemon in &cluster.daemons {
        clients.push(Client::connect(&daemon.endpoint).await.unwrap());
    }
    let observed: Vec<_> = clients.iter().map(observe).collect();
    let mut tokens = Vec::new();
    while tokens.len() <= KILLS {
        let before = tokens.last().copied().unwrap_or_default();
        // Wait for a new leader that works and is known at both daemons.
        let (token, worker) = until(async || {
            let leader = clients[0].election(NAME).leader().await.ok()?.leader?;
            let token = leader.token.map(u64::from).filter(|token| *token > before)?;
            let received = |tokens: &ObservedTokens| tokens.lock().unwrap().contains(&Some(token));
            let known =
                observed.iter().all(received) && activity(&cluster.log).contains_key(&token);
            let worker: usize = String::from_utf8(leader.value).unwrap().parse().unwrap();
            known.then_some((token, worker))
        })
        .await;
        tokens.push(token);
        if tokens.len() <= KILLS {
            cluster.kill(worker);
        }
    }

    let spans = activity(&cluster.log);
    assert!(spans.len() > KILLS, "{} leaders", spans.len());
    let mut last: Option<(u64, u128)> = None;
    for (token, (start, end)) in spans {
        if let Some((earlier, earlier_end)) = last {
            assert!(start > earlier_end, "leaders {earlier} and {token} overlap");
        }
        last = Some((token, end));
    }
    for (number, observed) in observed.iter().enumerate() {
        let observed = observed.lock().unwrap().clone();
        assert!(observed.windows(2).all(|pair| pair[0] != pair[1]), "{number}: {observed:?}");
        let leaders: Vec<u64> = observed.iter().copied().flatten().collect();
        assert!(leaders.is_sorted(), "tokens decreased for observer {number}: {observed:?}");
        assert!(tokens.iter().all(|token| leaders.contains(token)), "{number}: {observed:?}");
        assert_eq!(observed.last(), Some(&tokens.last().copied()), "the last state is missing");
    }
    // After the workers end, no command is left running.
    for worker in &mut cluster.workers {
        worker.signal(Signal::SIGTERM);
        worker.end();
    }
    until(async || {
        let state = clients[0].election(NAME).leader().await.ok()?;
        state.leader.is_none().then_some(())
    })
    .await;
    leasehold_runtime::sleep(Duration::from_millis(100)).await;
    let spans = activity(&cluster.log).len();
    leasehold_runtime::sleep(Duration::from_millis(200)).await;
    assert_eq!(activity(&cluster.log).len(), spans);
}
