//! Shell examples of the documentation run against a daemon.
//!
//! A block tagged `sh` is a script. In a block tagged `console`, the lines that
//! begin with `$ ` are the script; its output is not compared. A block that can't
//! run here has the tag `sh not-run` or `console not-run`.

use std::{
    env,
    fmt::Write,
    fs::{self, File},
    path::Path,
    process::Stdio,
    time::Duration,
};

use leasehold_test_support::{Daemon, leasehold};
use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use tempfile::TempDir;
use tokio::process::Command;

use crate::markdown::{Block, pages_in, read, split};

/// Time that one block may take.
const BLOCK_TIMEOUT: Duration = Duration::from_secs(60);

/// Tags of shell blocks that would escape the test.
const OTHER_SHELLS: [&str; 7] =
    ["bash", "zsh", "shell", "shell-session", "sh-session", "shellsession", "terminal"];

/// Returns the script of a block; `None` if it is not to run. Fails with the
/// problem of its tag.
fn script(block: &Block<'_>) -> Result<Option<String>, String> {
    let words: Vec<&str> = block.tag.split_whitespace().collect();
    match words[..] {
        [] => Err("has no tag; use `text` for plain text".to_owned()),
        [shell, ..] if OTHER_SHELLS.contains(&shell) => {
            Err(format!("is tagged {shell:?}; use `sh` or `console`"))
        }
        ["sh"] => Ok(Some(block.lines.join("\n"))),
        ["console"] => {
            let commands: Vec<&str> = block
                .lines
                .iter()
                .filter_map(|line| line.trim_start().strip_prefix("$ "))
                .collect();
            if commands.is_empty() {
                return Err("has no line that begins with \"$ \"".to_owned());
            }
            Ok(Some(commands.join("\n")))
        }
        ["sh" | "console", "not-run"] => Ok(None),
        ["sh" | "console", ..] => Err(format!("has the unknown tag {:?}", block.tag)),
        _ => Ok(None),
    }
}

/// Process groups of the blocks of a page. Killed when this is dropped, with what
/// the blocks left in the background.
#[derive(Default)]
struct Groups(Vec<Pid>);

impl Drop for Groups {
    fn drop(&mut self) {
        for group in &self.0 {
            _ = killpg(*group, Signal::SIGKILL);
        }
    }
}

/// Runs a script in a directory. Fails with its end and its output.
async fn run(
    script: &str,
    directory: &Path,
    endpoint: &str,
    groups: &mut Groups,
) -> Result<(), String> {
    let programs = leasehold().parent().unwrap();
    let path = env::var_os("PATH").unwrap_or_default();
    let path = [programs.to_owned()].into_iter().chain(env::split_paths(&path));
    let log = TempDir::new().unwrap();
    let log = log.path().join("log");
    let output = File::create(&log).unwrap();
    let mut command = Command::new("sh");
    // Printing each command before it runs names the one that fails.
    command.args(["-eux", "-c", script]).current_dir(directory);
    for (key, _) in env::vars_os() {
        if key.to_string_lossy().starts_with("LEASEHOLD_") {
            command.env_remove(key);
        }
    }
    command.env("PATH", env::join_paths(path).unwrap()).env("LEASEHOLD_ENDPOINT", endpoint);
    command.stdin(Stdio::null()).stdout(output.try_clone().unwrap()).stderr(output);
    let mut child = command.process_group(0).spawn().unwrap();
    groups.0.push(Pid::from_raw(child.id().unwrap().cast_signed()));
    let end = tokio::select! {
        status = child.wait() => match status.unwrap() {
            status if status.success() => return Ok(()),
            status => status.to_string(),
        },
        () = leasehold_runtime::sleep(BLOCK_TIMEOUT) => {
            format!("did not end within {} s", BLOCK_TIMEOUT.as_secs())
        }
    };
    let output = fs::read(&log).unwrap();
    Err(format!("{end}; commands and output:\n{}", String::from_utf8_lossy(&output)))
}

/// Runs the blocks of a page in order. Returns how many ran, and the problems.
async fn run_page(page: &str, text: &str) -> (usize, String) {
    let mut problems = String::new();
    let directory = TempDir::new().unwrap();
    let mut groups = Groups::default();
    let mut daemon = None;
    let mut runs = 0;
    for block in split(text).0 {
        let outcome = match script(&block) {
            Ok(None) => continue,
            Ok(Some(script)) => {
                let daemon = daemon.get_or_insert_with(Daemon::start);
                runs += 1;
                let outcome = run(&script, directory.path(), &daemon.endpoint, &mut groups).await;
                outcome.map_err(|problem| format!("```sh\n{script}\n```\n{problem}"))
            }
            Err(problem) => Err(format!("the block {problem}")),
        };
        if let Err(problem) = outcome {
            _ = writeln!(problems, "{page}:{}: {problem}", block.line);
        }
    }
    (runs, problems)
}

#[tokio::test]
async fn examples_run() {
    let mut pages = vec!["README.md".to_owned()];
    pages.extend(pages_in("docs"));
    let mut problems = String::new();
    let mut total = 0;
    for page in pages {
        let text = read(&page);
        let (runs, found) = run_page(&page, &text).await;
        problems.push_str(&found);
        total += runs;
        let is_plain = |block: &Block<'_>| ["sh", "console"].contains(&block.tag);
        if runs == 0 && split(&text).0.iter().any(is_plain) {
            _ = writeln!(problems, "{page}: no block ran");
        }
    }
    assert!(problems.is_empty(), "{problems}");
    assert!(total > 0, "no example ran");
}

#[test]
fn tags_decide_what_runs() {
    let run = |tag, lines: &[&'static str]| script(&Block { line: 1, tag, lines: lines.to_vec() });
    assert_eq!(run("sh", &["a", "b"]), Ok(Some("a\nb".to_owned())));
    assert_eq!(run("console", &["$ a", "out", "  $ b"]), Ok(Some("a\nb".to_owned())));
    for tag in ["sh not-run", "console not-run", "rust", "toml", "text"] {
        assert_eq!(run(tag, &["a"]), Ok(None), "{tag}");
    }
    for tag in ["", "bash", "console", "sh no-run", "sh not-run twice"] {
        assert!(run(tag, &["a"]).is_err(), "{tag:?}");
    }
}

#[tokio::test]
async fn failing_blocks_are_reported_with_line_and_output() {
    let page = "# A\n```sh\necho one > file\nleasehold lock a -- cat file\n```\n\
                ```sh\ncat file; false; echo never\n```\n```\n```\n\
                ```console\n$ test \"$(cat file)\" = one\n```\n";
    let (runs, problems) = run_page("a.md", page).await;
    assert_eq!(runs, 3);
    let starts: Vec<_> = problems.lines().filter(|line| line.starts_with("a.md:")).collect();
    assert_eq!(starts.len(), 2, "{problems}");
    assert!(starts[0].starts_with("a.md:6: ") && starts[1].starts_with("a.md:9: "), "{problems}");
    assert!(problems.contains("exit status: 1") && problems.contains("one\n+ false"), "{problems}");
    assert!(!problems.contains("+ echo never"), "{problems}");
}
