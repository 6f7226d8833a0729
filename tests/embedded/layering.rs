//! The layers, held by reading the sources: who may import what, and who may
//! read a clock.

use std::{
    fs,
    path::{Path, PathBuf},
};

fn sources(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

/// Lines of code that contain one of the words, outside of comments, in files
/// that `covers` selects.
fn offenders(covers: impl Fn(&str) -> bool, words: &[&str]) -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = sources(&root.join("src"));
    files.extend(sources(&root.join("clients/rust/src")));
    files.extend(sources(&root.join("crates/time/src")));
    let mut found = Vec::new();
    for file in files {
        let name = file.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
        if !covers(&name) {
            continue;
        }
        for (number, line) in fs::read_to_string(&file).unwrap().lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            if words.iter().any(|word| code.contains(word)) {
                found.push(format!("{name}:{}: {}", number + 1, line.trim()));
            }
        }
    }
    found
}

#[track_caller]
fn none(found: Vec<String>) {
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

fn in_any(name: &str, places: &[&str]) -> bool {
    places.iter().any(|place| name.starts_with(place))
}

const CORE: [&str; 7] = [
    "src/lock/",
    "src/session/",
    "src/schedule.rs",
    "src/name.rs",
    "src/holder.rs",
    "src/error.rs",
    "src/watch.rs",
];

#[test]
fn grpc_stays_in_rpc_and_where_the_daemon_is_put_together() {
    let allowed = [
        "src/rpc/",
        "src/daemon.rs",
        "src/cli/bench/",
        "src/cli/elect/probe/grpc.rs",
        "clients/rust/",
        "crates/time/src/simulation.rs",
    ];
    none(offenders(|name| !in_any(name, &allowed), &["tonic", "prost"]));
}

#[test]
fn http_is_served_in_one_place() {
    let covers = |name: &str| name.starts_with("src/") && !name.starts_with("src/http/");
    none(offenders(covers, &["hyper", "http_body_util"]));
}

#[test]
fn azure_stays_where_the_storage_is() {
    let allowed = ["src/lease/azure/", "clients/rust/src/azure/", "clients/rust/src/guard_azure/"];
    none(offenders(|name| !in_any(name, &allowed), &["azure_core", "azure_storage", "reqwest"]));
}

#[test]
fn statuses_are_built_in_one_file() {
    let covers = |name: &str| name.starts_with("src/") && name != "src/rpc/status.rs";
    none(offenders(covers, &["Status::new", "Status::with_", "Status::invalid_", "Status::un"]));
}

#[test]
fn the_core_is_pure() {
    let impure = ["async ", ".await", "tokio", "std::fs", "std::net", "std::thread", "tracing"];
    none(offenders(|name| in_any(name, &CORE), &impure));
}

#[test]
fn only_clocks_read_time_and_draw_random_numbers() {
    let clocks = ["src/clock.rs", "crates/time/"];
    let words = [
        "Instant::now",
        "SystemTime",
        "tokio::time",
        "clock_gettime",
        "thread::sleep",
        "rand::",
        "getrandom",
    ];
    none(offenders(|name| !in_any(name, &clocks), &words));
    none(offenders(|name| in_any(name, &CORE) && !name.ends_with("tests.rs"), &["Moment::now"]));
}

#[test]
fn calls_go_down_the_layers_only() {
    let below = |layer: &str| match layer {
        "src/lease/" => vec!["crate::lock", "crate::session", "crate::driver", "crate::rpc"],
        "src/lock/" => vec!["crate::session", "crate::driver", "crate::rpc", "crate::daemon"],
        "src/session/" => vec!["crate::driver", "crate::rpc", "crate::daemon", "crate::cli"],
        "src/driver" => vec!["crate::rpc", "crate::http", "crate::daemon", "crate::cli"],
        "src/rpc/" => vec!["crate::http", "crate::daemon", "crate::cli"],
        "src/http/" => vec!["crate::rpc", "crate::daemon", "crate::cli"],
        _ => vec!["crate::cli"],
    };
    for layer in [
        "src/lease/",
        "src/lock/",
        "src/session/",
        "src/driver",
        "src/rpc/",
        "src/http/",
        "src/daemon.rs",
    ] {
        none(offenders(|name| name.starts_with(layer), &below(layer)));
    }
}
