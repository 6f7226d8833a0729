//! Metrics of a daemon: values of a scrape, and the programs that check its format.

use std::{
    collections::BTreeMap,
    env,
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::http_endpoint::{HttpDaemon, Reply, head, send_request};

/// Accept header of Prometheus.
pub const OPEN_METRICS: &str = "application/openmetrics-text;version=1.0.0,text/plain;q=0.5";

/// Version of the Python package `prometheus_client`.
const PYTHON_CLIENT: &str = "prometheus_client==0.26.0";

/// Values of a scrape, by name and labels as in `leasehold_grants_total{source="lease"}`.
#[derive(Clone, Debug)]
pub struct Scrape {
    pub text: String,
    values: BTreeMap<String, f64>,
}

impl Scrape {
    /// Scrapes a daemon in the format that Prometheus requests.
    pub async fn of(served: &HttpDaemon) -> Self {
        let reply = scrape(served, OPEN_METRICS).await;
        let value = |line: &str| {
            let line = line.split(" # ").next().unwrap();
            let (series, value) = line.rsplit_once(' ').unwrap();
            (series.to_owned(), value.parse().unwrap())
        };
        let lines = reply.body.lines().filter(|line| !line.starts_with('#'));
        Self { values: lines.map(value).collect(), text: reply.body.clone() }
    }

    /// Value of a series; 0 if it does not exist, as for a counter without increments.
    pub fn value(&self, series: &str) -> f64 {
        self.values.get(series).copied().unwrap_or_default()
    }

    /// Names and types of the metrics, without suffixes.
    pub fn types(&self) -> BTreeMap<&str, &str> {
        let lines = self.text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        lines.map(|line| line.split_once(' ').unwrap()).collect()
    }

    /// Names of the labels of a metric's samples, without `le`.
    pub fn labels(&self, sample: &str) -> Vec<&str> {
        let series =
            self.values.keys().find_map(|series| series.strip_prefix(sample)?.strip_prefix('{'));
        let pairs = series.unwrap_or_default().split("\",");
        let names = pairs.filter_map(|pair| Some(pair.split_once('=')?.0));
        names.filter(|name| *name != "le").collect()
    }

    /// Differences from an earlier scrape, of the series with whole numbers whose value
    /// has changed. Distributions are represented by their counts.
    pub fn changes_since(&self, before: &Self) -> BTreeMap<&str, i64> {
        let is_counted = |series: &str| {
            series.starts_with("leasehold_")
                && !["_bucket", "_sum", "_seconds"]
                    .iter()
                    .any(|part| name_of(series).ends_with(part))
        };
        let changes = self.values.iter().filter(|(series, _)| is_counted(series));
        let changes =
            changes.map(|(series, value)| (series.as_str(), (value - before.value(series)) as i64));
        changes.filter(|(_, change)| *change != 0).collect()
    }
}

fn name_of(series: &str) -> &str {
    series.split('{').next().unwrap_or_default()
}

/// Requests the metrics of a daemon with an Accept header.
pub async fn scrape(served: &HttpDaemon, accept: &str) -> Reply {
    let headers = format!("Accept: {accept}\r\nConnection: close\r\n");
    let reply = send_request(served.connect().await, &head("GET", "/metrics", &headers)).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    reply
}

/// Runs `promtool` of Prometheus. Prints a warning and returns false if it is missing.
///
/// # Panics
/// If it reports an error.
pub fn promtool(directory: &Path, arguments: &[&str], input: &str) -> bool {
    let mut promtool = Command::new("promtool");
    promtool.args(arguments).current_dir(directory);
    let Some(output) = run(&mut promtool, input) else {
        warn("promtool is missing; install it from the Debian package prometheus");
        return false;
    };
    assert!(output.is_empty(), "promtool {arguments:?}: {output}");
    true
}

/// Parses OpenMetrics with the parser of the Python client of Prometheus, which is
/// installed on first use. Prints a warning and returns false if that fails.
///
/// # Panics
/// If it reports an error.
pub fn parse_with_python(text: &str) -> bool {
    let Some(python) = python() else {
        warn("Python 3 with venv, pip and prometheus_client is missing");
        return false;
    };
    let script = "import sys; from prometheus_client.openmetrics import parser; \
                  [None for _ in parser.text_string_to_metric_families(sys.stdin.read())]";
    let output = run(Command::new(python).args(["-c", script]), text);
    assert_eq!(output.as_deref(), Some(""), "the OpenMetrics parser refused the text");
    true
}

/// Prints a warning in the output of a test.
#[allow(clippy::print_stderr, reason = "a check is skipped")]
fn warn(why: &str) {
    eprintln!("warning: the format of metrics was not checked: {why}");
}

/// Runs a program with input. Returns its errors, empty if it succeeds; `None` if it is
/// missing.
fn run(command: &mut Command, input: &str) -> Option<String> {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().ok()?;
    let mut pipe = child.stdin.take().unwrap();
    let input = input.to_owned();
    let writer = std::thread::spawn(move || _ = pipe.write_all(input.as_bytes()));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let is_good = output.status.success();
    Some(if is_good { String::new() } else { text(&output.stdout) + &text(&output.stderr) })
}

/// Python of an environment with the client of Prometheus, in the target directory.
fn python() -> Option<PathBuf> {
    let mut directory = env::current_exe().unwrap();
    while !directory.join("CACHEDIR.TAG").exists() {
        assert!(directory.pop(), "the test is not in a target directory");
    }
    // Another test or process may install at the same time.
    let lock = File::create(directory.join("python.lock")).unwrap();
    lock.lock().unwrap();
    let (home, mark) = (directory.join("python"), directory.join("python/prometheus_client"));
    let python = home.join("bin/python");
    if fs::read_to_string(&mark).is_ok_and(|version| version == PYTHON_CLIENT) {
        return Some(python);
    }
    let venv = run(Command::new("python3").args(["-m", "venv"]).arg(&home), "")?;
    let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", PYTHON_CLIENT];
    let installed = venv.is_empty() && run(Command::new(&python).args(pip), "")?.is_empty();
    if installed {
        fs::write(mark, PYTHON_CLIENT).unwrap();
    }
    installed.then_some(python)
}
