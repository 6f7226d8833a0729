//! A browser as a process, controlled by `browser.mjs`.

use std::{
    env, fs,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use leasehold_test_support::npm;
use serde_json::{Value, json};

const DIRECTORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/console");
const REMEDY: &str = "install Node.js 20 or newer with npm (https://nodejs.org): \
                      the tests control a browser with it";

/// Variable that selects what happens without a browser: `require` fails, `skip` skips
/// the tests in any case. By default they are skipped with a warning, except in CI.
const VARIABLE: &str = "BROWSER_TESTS";

/// A running browser with one page.
pub(crate) struct Browser {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Browser {
    /// Starts the browser. None if there is none and the tests may be skipped.
    pub(crate) fn start() -> Option<Self> {
        let mode = env::var(VARIABLE).unwrap_or_default();
        if mode == "skip" {
            eprintln!("skipped: {VARIABLE}=skip");
            return None;
        }
        let Some(program) = program() else {
            let is_required = mode == "require" || env::var("CI").is_ok_and(|ci| ci == "true");
            assert!(!is_required, "chromium is not installed");
            eprintln!("WARNING: skipped, because chromium is not installed");
            return None;
        };
        npm::install(Path::new(DIRECTORY), REMEDY);
        let mut command = Command::new("node");
        command.arg("browser.mjs").arg(program).current_dir(DIRECTORY);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = npm::spawn(&mut command, REMEDY);
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut browser = Self { child, input, output };
        browser.reply();
        Some(browser)
    }

    fn reply(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        let mut reply: Value = serde_json::from_str(&line).expect("a reply of the browser");
        assert_eq!(reply["error"], Value::Null, "{}", reply["error"].as_str().unwrap_or_default());
        reply["ok"].take()
    }

    fn run(&mut self, command: &str, mut parameters: Value) -> Value {
        parameters["command"] = json!(command);
        writeln!(self.input, "{parameters}").unwrap();
        self.reply()
    }

    /// Opens an address in a fresh context, and returns the milliseconds until the first
    /// view.
    pub(crate) fn open(&mut self, url: &str) -> u64 {
        self.run("open", json!({ "url": url })).as_u64().unwrap()
    }

    /// Like [`Self::open`], with a color scheme and a width.
    pub(crate) fn open_as(&mut self, url: &str, scheme: &str, (width, height): (u32, u32)) {
        let parameters = json!({ "url": url, "scheme": scheme, "width": width, "height": height });
        self.run("open", parameters);
    }

    /// Waits until an expression is true in the page, and returns the milliseconds.
    pub(crate) fn until(&mut self, condition: &str) -> u64 {
        self.run("until", json!({ "condition": condition })).as_u64().unwrap()
    }

    /// Waits until the text of the main part contains this text.
    pub(crate) fn until_text(&mut self, text: &str) -> u64 {
        self.until(&format!("document.querySelector('main').innerText.includes({})", json!(text)))
    }

    pub(crate) fn evaluate(&mut self, expression: &str) -> Value {
        self.run("evaluate", json!({ "expression": expression }))
    }

    pub(crate) fn press(&mut self, keys: &[&str]) {
        self.run("press", json!({ "keys": keys }));
    }

    pub(crate) fn write(&mut self, text: &str) {
        self.run("type", json!({ "text": text }));
    }

    pub(crate) fn click(&mut self, selector: &str) {
        self.run("click", json!({ "selector": selector }));
    }

    /// Checks that axe-core finds no violation, and that the page has no horizontal
    /// scroll bar.
    pub(crate) fn check_view(&mut self, view: &str) {
        let violations = self.run("axe", json!({}));
        let violations: Vec<&str> =
            violations.as_array().unwrap().iter().filter_map(Value::as_str).collect();
        assert!(violations.is_empty(), "{view}:\n{}", violations.join("\n"));
        let excess = self.evaluate("document.documentElement.scrollWidth - innerWidth");
        assert!(excess.as_i64().unwrap() <= 0, "{view} is wider than the screen: {excess}");
    }

    /// Writes a screenshot to `target/console-screenshots`.
    pub(crate) fn screenshot(&mut self, name: &str) {
        let directory = screenshots();
        fs::create_dir_all(&directory).unwrap();
        let path = directory.join(format!("{name}.png"));
        self.run("screenshot", json!({ "path": path, "fullPage": true }));
    }

    /// Checks that there was no error, and no request to another origin.
    pub(crate) fn check_problems(&mut self) {
        assert_eq!(self.run("problems", json!({})), json!([]));
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

fn screenshots() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("target/console-screenshots")
}

fn program() -> Option<PathBuf> {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let path = env::var_os("PATH")?;
    let candidates =
        env::split_paths(&path).flat_map(|directory| names.map(|name| directory.join(name)));
    candidates.into_iter().find(|candidate| candidate.is_file())
}
