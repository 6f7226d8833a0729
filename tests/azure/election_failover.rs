//! Five workers, two daemons on one Azurite, and the leader killed again and
//! again: at most one leads at a time, tokens rise, and every observer is told
//! an unbroken story.

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

/// Says again and again who leads, until it is killed.
const WORK: &str =
    r#"while :; do echo "$LEASEHOLD_TOKEN $(date +%s%N)" >> "$LOG"; sleep 0.02; done"#;

struct Cast {
    daemons: Vec<Daemon>,
    workers: Vec<Running>,
    log: PathBuf,
    _dir: TempDir,
}

impl Cast {
    async fn enter() -> Self {
        let azurite = Azurite::shared();
        Rest::new(azurite).container("failover").create().await.ok();
        let connection = azurite.connection_string();
        let store = ["--store", "azure", "--azure-container", "failover"];
        let secret = ["--azure-connection-string", &connection];
        let timing = ["--lease-duration", "15s", "--poll-interval", "1s"];
        let arguments = [&store[..], &secret[..], &timing[..]].concat();
        let dir = TempDir::new().unwrap();
        let mut cast = Self {
            daemons: (0..2).map(|_| Daemon::start_with(&arguments)).collect(),
            workers: Vec::new(),
            log: dir.path().join("log"),
            _dir: dir,
        };
        fs::write(&cast.log, "").unwrap();
        for number in 0..WORKERS {
            let worker = cast.worker(number);
            cast.workers.push(worker);
        }
        cast
    }

    fn worker(&self, number: usize) -> Running {
        let daemon = &self.daemons[number % self.daemons.len()];
        let value = number.to_string();
        let arguments = ["elect", NAME, "--ttl", "1s", "--value", &value];
        let mut command = daemon.command(&arguments);
        command.args(["--", "sh", "-c", WORK]).env("LOG", &self.log);
        Running::start(&mut command)
    }

    /// Ends whoever leads, at once, and lets another worker take its place.
    fn kill(&mut self, number: usize) {
        self.workers[number].signal(Signal::SIGKILL);
        self.workers[number].child.wait().unwrap();
        self.workers[number] = self.worker(number);
    }
}

/// What an observer was told, in order.
type Story = Arc<Mutex<Vec<Option<u64>>>>;

fn observe(client: &Client) -> Story {
    let story = Story::default();
    let (mut observer, told) = (client.election(NAME).observe(), Arc::clone(&story));
    tokio::spawn(async move {
        loop {
            let state: ElectionState = observer.next().await.expect("the stream goes on");
            told.lock().unwrap().push(state.leader.map(|leader| leader.token.unwrap().get()));
        }
    });
    story
}

/// When each leader was at work: from its first word to its last.
fn at_work(log: &Path) -> BTreeMap<u64, (u128, u128)> {
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
async fn one_leads_at_a_time_through_twenty_deaths() {
    let mut cast = Cast::enter().await;
    let mut clients = Vec::new();
    for daemon in &cast.daemons {
        clients.push(Client::connect(&daemon.endpoint).await.unwrap());
    }
    let stories: Vec<_> = clients.iter().map(observe).collect();
    let mut tokens = Vec::new();
    while tokens.len() <= KILLS {
        let before = tokens.last().copied().unwrap_or_default();
        // A leader that is new, is at work, and is known at both daemons.
        let (token, worker) = until(async || {
            let leader = clients[0].election(NAME).leader().await.ok()?.leader?;
            let token = leader.token.map(u64::from).filter(|token| *token > before)?;
            let told = |story: &Story| story.lock().unwrap().contains(&Some(token));
            let known = stories.iter().all(told) && at_work(&cast.log).contains_key(&token);
            let worker: usize = String::from_utf8(leader.value).unwrap().parse().unwrap();
            known.then_some((token, worker))
        })
        .await;
        tokens.push(token);
        if tokens.len() <= KILLS {
            cast.kill(worker);
        }
    }

    let spans = at_work(&cast.log);
    assert!(spans.len() > KILLS, "{} led", spans.len());
    let mut last: Option<(u64, u128)> = None;
    for (token, (begin, end)) in spans {
        if let Some((earlier, ended)) = last {
            assert!(begin > ended, "{token} began to work before {earlier} had ended");
        }
        last = Some((token, end));
    }
    for (number, story) in stories.iter().enumerate() {
        let story = story.lock().unwrap().clone();
        assert!(story.windows(2).all(|pair| pair[0] != pair[1]), "{number}: {story:?}");
        let led: Vec<u64> = story.iter().copied().flatten().collect();
        assert!(led.is_sorted(), "observer {number} saw tokens fall: {story:?}");
        assert!(tokens.iter().all(|token| led.contains(token)), "{number}: {story:?}");
        assert_eq!(story.last(), Some(&tokens.last().copied()), "the last state is not missed");
    }
    // Nothing is left running when the workers are gone.
    for worker in &mut cast.workers {
        worker.signal(Signal::SIGTERM);
        worker.end();
    }
    until(async || {
        let state = clients[0].election(NAME).leader().await.ok()?;
        state.leader.is_none().then_some(())
    })
    .await;
    leasehold_runtime::sleep(Duration::from_millis(100)).await;
    let spans = at_work(&cast.log).len();
    leasehold_runtime::sleep(Duration::from_millis(200)).await;
    assert_eq!(at_work(&cast.log).len(), spans);
}
