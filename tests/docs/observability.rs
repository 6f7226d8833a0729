//! Dashboard and alerts: their queries use only existing metrics, and each alert has a
//! section of the runbook.

use std::{collections::BTreeSet, fs};

use leasehold::telemetry::metrics::{Kind, METRICS};
use leasehold_test_support::metrics::promtool;
use serde_json::Value;

use crate::markdown::{anchors, read, repository};

const DIRECTORY: &str = "deploy/observability";
const ALERTS: &str = "deploy/observability/alerts.yaml";
const RUNBOOK: &str = "docs/runbook.md";

/// Words of the query language that are followed by labels in parentheses.
const GROUPINGS: [&str; 6] = ["by", "without", "on", "ignoring", "group_left", "group_right"];

/// Words of the query language that are operators.
const OPERATORS: [&str; 5] = ["and", "or", "unless", "bool", "offset"];

/// Names of all series that a daemon can have, and of the one that Prometheus adds.
fn series() -> BTreeSet<String> {
    let mut names = BTreeSet::from(["up".to_owned()]);
    for metric in METRICS {
        let name = metric.sample_name();
        if metric.kind == Kind::Histogram {
            names.extend(["bucket", "sum", "count"].map(|part| format!("{name}_{part}")));
        } else {
            names.insert(name);
        }
    }
    names
}

/// Removes all text between two characters, without nesting.
fn without(text: &str, open: char, close: char) -> String {
    let mut depth = false;
    let mut kept = String::new();
    for c in text.chars() {
        if depth {
            depth = c != close;
        } else if c == open {
            depth = true;
        } else {
            kept.push(c);
        }
    }
    kept
}

/// Returns the names of the metrics of a query.
fn metrics_of(query: &str) -> Vec<String> {
    let mut query = without(query, '"', '"');
    query = without(&without(&query, '{', '}'), '[', ']');
    let mut names = Vec::new();
    let mut rest = query.as_str();
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':' || c == '.';
    while let Some(start) = rest.find(is_part) {
        rest = &rest[start..];
        let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        rest = after.trim_start();
        if GROUPINGS.contains(&word) {
            rest = rest.split_once(')').unwrap().1;
        } else if !rest.starts_with('(')
            && !OPERATORS.contains(&word)
            && !word.starts_with(|c: char| c.is_ascii_digit())
        {
            // A grouping can stand between a function and its arguments.
            let is_function =
                GROUPINGS.iter().any(|grouping| rest.starts_with(&format!("{grouping} (")))
                    && ["sum", "count", "max", "min", "avg"].contains(&word);
            names.extend((!is_function).then(|| word.to_owned()));
        }
    }
    names
}

/// Queries of the dashboard, with its variables replaced.
fn dashboard_queries() -> Vec<String> {
    let text = read(&format!("{DIRECTORY}/leasehold.json"));
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.filter_map(|panel| panel["targets"].as_array()).flatten();
    let queries = targets.map(|target| target["expr"].as_str().unwrap());
    let queries = queries.map(|query| query.replace("$__rate_interval", "1m").replace('$', ""));
    queries.collect()
}

/// Name, query and address of the runbook of each alert.
fn alerts() -> Vec<(String, String, String)> {
    let text = read(ALERTS);
    let alerts = text.split("- alert: ").skip(1).map(|alert| {
        let (name, rest) = alert.split_once('\n').unwrap();
        let query = rest.split_once("expr: ").unwrap().1;
        let query = query.split("\n        labels:").next().unwrap();
        let query = query.split("\n        for:").next().unwrap().trim_start_matches(">-");
        let runbook = rest.split_once("runbook_url: ").unwrap().1.lines().next().unwrap();
        (name.to_owned(), query.to_owned(), runbook.to_owned())
    });
    alerts.collect()
}

#[test]
fn metrics_of_queries_are_found() {
    for (query, expected) in [
        ("a > 0 or increase(b_total{c=~\"d|e\"}[5m]) > 1.5", vec!["a", "b_total"]),
        ("sum by (x, y) (rate(a[1m])) / on (z) b", vec!["a", "b"]),
        ("histogram_quantile(0.5, sum by (le) (rate(a_bucket[1m])))", vec!["a_bucket"]),
        ("time() - a{b=\"c (d)\"} unless on (e) f", vec!["a", "f"]),
    ] {
        assert_eq!(metrics_of(query), expected, "{query}");
    }
}

#[test]
fn dashboard_queries_use_existing_metrics() {
    let (known, queries) = (series(), dashboard_queries());
    let mut used = BTreeSet::new();
    for query in &queries {
        let names = metrics_of(query);
        assert!(!names.is_empty(), "{query}");
        for name in names {
            assert!(known.contains(&name), "{name} does not exist: {query}");
            used.insert(name);
        }
    }
    let has_rows = ["Locks", "Losses and risk", "Renewals", "Storage", "Sessions", "Process"];
    let text = read(&format!("{DIRECTORY}/leasehold.json"));
    for row in has_rows {
        assert!(text.contains(&format!("\"title\": {row:?}")), "no row {row}");
    }
    // Metrics of single locks, and those that others include, are not shown.
    let missing: Vec<_> = METRICS
        .iter()
        .filter(|metric| !used.iter().any(|name| name.starts_with(metric.name)))
        .map(|metric| metric.name)
        .filter(|name| !name.starts_with("leasehold_lock_") && *name != "leasehold_locks")
        .filter(|name| *name != "process_threads")
        .collect();
    assert!(missing.is_empty(), "not on the dashboard: {missing:?}");
}

#[test]
fn dashboard_queries_are_valid() {
    let directory = tempfile::tempdir().unwrap();
    let mut rules = "groups:\n  - name: dashboard\n    rules:\n".to_owned();
    for (number, query) in dashboard_queries().iter().enumerate() {
        rules += &format!("      - {{ record: \"q{number}\", expr: {query:?} }}\n");
    }
    fs::write(directory.path().join("rules.yaml"), rules).unwrap();
    promtool(directory.path(), &["check", "rules", "rules.yaml"], "");
}

#[test]
fn alerts_use_existing_metrics_and_have_a_runbook() {
    let (known, sections) = (series(), anchors(&read(RUNBOOK)));
    let tests = read(&format!("{DIRECTORY}/alerts_test.yaml"));
    let alerts = alerts();
    for (name, query, runbook) in &alerts {
        let names = metrics_of(query);
        assert!(!names.is_empty(), "{name}");
        for metric in names {
            assert!(known.contains(&metric), "{name}: {metric} does not exist");
        }
        assert_eq!(*runbook, format!("{RUNBOOK}#{}", name.to_lowercase()), "{name}");
        assert!(sections.contains(&name.to_lowercase()), "{RUNBOOK} has no section {name}");
        assert!(tests.contains(name), "{name} has no test");
    }
    let described = read(RUNBOOK);
    let described = described.lines().filter_map(|line| line.strip_prefix("## "));
    let names: Vec<_> = alerts.iter().map(|(name, ..)| name.as_str()).collect();
    assert!(described.eq(names.iter().copied()), "other sections than alerts: {names:?}");
}

#[test]
fn alert_rules_pass_their_tests() {
    let directory = repository().join(DIRECTORY);
    promtool(&directory, &["check", "rules", "alerts.yaml"], "");
    promtool(&directory, &["test", "rules", "alerts_test.yaml"], "");
}
