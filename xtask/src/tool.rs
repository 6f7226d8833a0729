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
            Self::Valgrind => valgrind(),
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

fn valgrind() -> Result<(), Unavailable> {
    if cfg!(not(all(target_os = "linux", target_arch = "x86_64"))) {
        let why = "instruction counts require Linux on x86-64".to_owned();
        return Err(Unavailable::Optional(why));
    }
    if Cmd::new("valgrind").arg("--version").succeeds() {
        return Ok(());
    }
    let is_root = Cmd::new("id").arg("-u").output(Path::new(".")).is_ok_and(|id| id.trim() == "0");
    let has_apt = Cmd::new("apt-get").arg("--version").succeeds();
    if !(is_root && has_apt) {
        let why = "valgrind is not installed; install the package `valgrind`, for instance with \
                   `sudo apt-get install valgrind`";
        return Err(Unavailable::Missing(why.to_owned()));
    }
    let apt = |arguments: &[&str]| {
        Cmd::new("apt-get").args(arguments.iter().copied()).env("DEBIAN_FRONTEND", "noninteractive")
    };
    install(&apt(&["update", "--quiet=2"]))
        .and_then(|()| {
            install(&apt(&["install", "--quiet=2", "--yes", "--no-install-recommends", "valgrind"]))
        })
        .map_err(|why| Unavailable::Missing(format!("valgrind can't be installed: {why}")))
}
