//! Programs that parts need, and their installation.

use std::path::Path;

use crate::run::Cmd;

/// Program or part of the toolchain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tool {
    /// Component of the toolchain: its name and its cargo command.
    Component(&'static str, &'static str),
    /// Standard library for another target.
    Target(&'static str),
    Valgrind,
    /// Shell of SQLite, for the examples of the tutorial.
    Sqlite,
    /// Browser for the tests of the web console. Required in CI.
    Chromium,
    /// Checks of metrics, alerts and their tests. Optional.
    Promtool,
    /// Optional: a part without it is skipped.
    CargoDeny,
}

/// Reason why a tool can't be used.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unavailable {
    /// The tool is required. The text says how to install it.
    Missing(String),
    /// The tool is optional, or not available on this platform.
    Optional(String),
}

impl Tool {
    /// Installs the tool if it is missing.
    pub(crate) fn ensure(self) -> Result<(), Unavailable> {
        let missing = |why: String| Unavailable::Missing(why);
        match self {
            Self::Component(name, command) => {
                if Cmd::cargo(command).arg("--version").succeeds() {
                    return Ok(());
                }
                let add = Cmd::new("rustup").args(["component", "add", name]);
                install(&add).map_err(missing)
            }
            Self::Target(name) => {
                let installed = Cmd::new("rustup").args(["target", "list", "--installed"]);
                let installed = installed.output(Path::new(".")).unwrap_or_default();
                if installed.lines().any(|line| line == name) {
                    return Ok(());
                }
                install(&Cmd::new("rustup").args(["target", "add", name])).map_err(missing)
            }
            Self::Valgrind if cfg!(not(all(target_os = "linux", target_arch = "x86_64"))) => {
                let why = "instruction counts require Linux on x86-64".to_owned();
                Err(Unavailable::Optional(why))
            }
            Self::Valgrind => debian_package("valgrind"),
            Self::Sqlite => debian_package("sqlite3"),
            Self::Chromium => debian_package("chromium").map_err(|why| match why {
                Unavailable::Missing(why) if !is_ci() => Unavailable::Optional(why),
                why => why,
            }),
            Self::Promtool => promtool(),
            Self::CargoDeny => {
                let version = Cmd::cargo("deny").arg("--version");
                let hint = "cargo-deny is not installed: cargo install --locked cargo-deny";
                version.succeeds().then_some(()).ok_or(Unavailable::Optional(hint.to_owned()))
            }
        }
    }
}

fn install(command: &Cmd) -> Result<(), String> {
    command.run(Path::new(".")).map(|_| ()).map_err(|failure| failure.why)
}

/// Returns whether this is a run of continuous integration.
fn is_ci() -> bool {
    std::env::var("CI").is_ok_and(|ci| ci == "true")
}

/// Installs `promtool` alone, because its package starts a server.
fn promtool() -> Result<(), Unavailable> {
    if Cmd::new("promtool").arg("--version").succeeds() {
        return Ok(());
    }
    let hint = "promtool is not installed; it is in the Debian package prometheus".to_owned();
    if !can_install() {
        return Err(Unavailable::Optional(hint));
    }
    let script = "cd \"$(mktemp -d)\" && apt-get update --quiet=2 \
        && apt-get download --quiet=2 prometheus && dpkg-deb -x prometheus_*.deb . \
        && install -m 755 usr/bin/promtool /usr/local/bin/promtool";
    install(&Cmd::new("sh").args(["-c", script])).map_err(|_| Unavailable::Optional(hint))
}

/// Returns true if this user can install packages of Debian.
fn can_install() -> bool {
    let is_root = Cmd::new("id").arg("-u").output(Path::new(".")).is_ok_and(|id| id.trim() == "0");
    is_root && Cmd::new("apt-get").arg("--version").succeeds()
}

/// Installs a package that has a program of the same name, if the program is missing.
fn debian_package(name: &'static str) -> Result<(), Unavailable> {
    if Cmd::new(name).arg("--version").succeeds() {
        return Ok(());
    }
    if !can_install() {
        return Err(Unavailable::Missing(format!(
            "{name} is not installed; install the package, for instance with \
             `sudo apt-get install {name}`"
        )));
    }
    let apt = |arguments: &[&str]| {
        Cmd::new("apt-get").args(arguments.iter().copied()).env("DEBIAN_FRONTEND", "noninteractive")
    };
    install(&apt(&["update", "--quiet=2"]))
        .and_then(|()| {
            install(&apt(&["install", "--quiet=2", "--yes", "--no-install-recommends", name]))
        })
        .map_err(|why| Unavailable::Missing(format!("{name} can't be installed: {why}")))
}
