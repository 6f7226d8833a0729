//! The log of a daemon: its lines about locks, and changes of its filter.

use std::{
    fs::{self, File},
    path::PathBuf,
    sync::Arc,
};

use leasehold_test_support::{Daemon, Running, http_endpoint::LONG, serve, until};
use nix::sys::signal::Signal;
use serde_json::Value;
use tempfile::TempDir;

/// A daemon whose log and configuration are files.
struct Logged {
    daemon: Daemon,
    config: PathBuf,
    log: PathBuf,
}

impl Logged {
    fn start(config: &str) -> Self {
        let dir = Arc::new(TempDir::new().unwrap());
        let (path, log) = (dir.path().join("leasehold.toml"), dir.path().join("log"));
        fs::write(&path, config).unwrap();
        let mut command = serve(dir.path(), "127.0.0.1:0", &["--config", path.to_str().unwrap()]);
        command.stderr(File::create(&log).unwrap());
        let mut process = Running::start(&mut command);
        let endpoint = process.line().replace("listening on ", "http://");
        Self { daemon: Daemon { process, endpoint, dir }, config: path, log }
    }

    fn text(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    /// Writes another configuration, and waits for the line about it.
    async fn reload(&self, config: &str, line: &str) {
        fs::write(&self.config, config).unwrap();
        let before = self.text().len();
        self.daemon.process.signal(Signal::SIGHUP);
        until(async || self.text()[before..].contains(line).then_some(())).await;
    }

    async fn acquire_and_release(&self, name: &str) {
        let lock = self.daemon.run(&["lock", name, "--", "true"]);
        assert!(lock.status.success(), "{}", String::from_utf8_lossy(&lock.stderr));
    }
}

#[tokio::test]
async fn sighup_applies_log_filter() {
    let logged = Logged::start("log = \"info\"\n");
    logged.acquire_and_release("silent").await;
    logged.reload("log = \"info,leasehold::lock=debug\"\n", "configuration read again").await;
    logged.acquire_and_release("loud").await;
    let granted = |name: &str| {
        let lock = format!("lock=\"{name}\"");
        logged.text().lines().any(|line| line.contains("granted") && line.contains(&lock))
    };
    until(async || granted("loud").then_some(())).await;
    assert!(!granted("silent"), "{}", logged.text());

    // An invalid file keeps the filter.
    logged.reload("log = \"loud\"\nmax_locks = 0\n", "nothing changed").await;
    let text = logged.text();
    assert!(text.contains("log") && text.contains("max_locks"), "{text}");
    logged.acquire_and_release("still-loud").await;
    until(async || granted("still-loud").then_some(())).await;

    logged.reload("log = \"info\"\nmax_locks = 7\n", "changed settings need a restart").await;
    assert!(logged.text().contains("settings=\"max_locks\""), "{}", logged.text());
    logged.acquire_and_release("silent-again").await;
    assert!(!granted("silent-again"), "{}", logged.text());
}

#[tokio::test]
async fn lines_about_a_lock_have_the_same_fields() {
    let logged = Logged::start("log = \"info,leasehold::lock=debug\"\nlog_format = \"json\"\n");
    let client = leasehold_client::Client::builder(&logged.daemon.endpoint).ttl(LONG);
    let client = client.client_name("worker").connect().await.unwrap();
    let guard = client.lock("a").acquire().await.unwrap();
    let token = guard.token().get();
    let broken = logged.daemon.run(&["break", "a", "--reason", "test"]);
    assert!(broken.status.success());
    guard.lost().await;
    let lines = until(async || {
        let text = logged.text();
        let lines: Vec<Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        lines.iter().any(|line| line["message"] == "lock broken").then_some(lines)
    })
    .await;
    for (message, level) in [("granted", "DEBUG"), ("lock broken", "WARN")] {
        let line: Vec<_> = lines.iter().filter(|line| line["message"] == message).collect();
        assert_eq!(line.len(), 1, "{message}: {lines:#?}");
        assert_eq!(line[0]["level"], level);
        assert_eq!((&line[0]["namespace"], &line[0]["lock"]), (&"default".into(), &"a".into()));
        assert_eq!(line[0]["token"], token.to_string(), "{line:?}");
        assert!(line[0]["holder"].as_str().unwrap().contains("worker"), "{line:?}");
    }
    assert!(lines.iter().any(|line| line["message"] == "daemon started"));
}

#[tokio::test]
async fn default_log_has_no_line_per_grant() {
    let logged = Logged::start("");
    for name in ["a", "b", "c"] {
        logged.acquire_and_release(name).await;
    }
    let lines = logged.text().lines().count();
    assert_eq!(lines, 1, "only the start: {}", logged.text());
}
