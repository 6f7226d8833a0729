//! `docs/reference/metrics.md`, from the table of metrics.

use std::fmt::Write;

use leasehold::telemetry::metrics::{Kind, METRICS, Presence};

use super::{cell, compare, head};

const PAGE: &str = "docs/reference/metrics.md";

const READER: &str = "\
For operators who monitor daemons.

`GET /metrics` on an address of [`http_listen`](configuration.md#http_listen) returns all metrics
of a daemon. [Observability](../observability.md#metrics) describes their use, and the
[runbook](../runbook.md) the alerts.

A histogram has the series `…_bucket`, `…_sum` and `…_count`. Counters begin at 0 when the daemon
starts.
";

fn page() -> String {
    let mut page = head("Metrics", READER, "`METRICS` in src/telemetry/metrics/table.rs");
    page.push_str("\n| Metric | Type | Labels | Daemons | Description |\n|---|---|---|---|---|\n");
    for metric in METRICS {
        let kind = match metric.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        let labels: Vec<_> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
        let daemons = match metric.presence {
            Presence::Always => "all",
            Presence::Azure => "Azure store",
            Presence::Embedded => "embedded store",
            Presence::LockNames => "[`metrics_lock_names`](configuration.md#metrics_lock_names)",
            Presence::Linux => "on Linux",
        };
        _ = writeln!(
            page,
            "| `{}` | {kind} | {} | {daemons} | {}. |",
            metric.sample_name(),
            labels.join(", "),
            cell(metric.about),
        );
    }
    page
}

#[test]
fn metrics_page_is_up_to_date() {
    compare(PAGE, &page());
}
