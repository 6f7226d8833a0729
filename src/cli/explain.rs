//! `explain`: one lock in detail, and why its queue does or does not advance.

use std::{num::NonZeroUsize, process::ExitCode};

use leasehold_client::diagnostics::{
    Explanation, GrantDetails, LeaseDetails, LockEvent, Renewal, Waiter,
};
use serde_json::{Value, json};

use super::{
    Globals,
    exit::Failure,
    lock_output::{LockOutput, align, entry},
    options::parse_count,
    output::{Output, holder_json, line, millis, printable, short_duration},
    palette::Palette,
    peer, times,
};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Prints the holder with the time that it has left, the lease with its last \
renewals, the waiters in order, why the queue does or does not advance with the commands that may \
help, and the recent events of the lock at this daemon. The daemon keeps events in memory: see its \
setting history.

If the lock is held through another daemon, the holder, the renewals and the events there are printed \
too, if that daemon can be reached from here. With --output json, \"peer\" has them.

Examples:
  leasehold explain orders
  leasehold explain orders --output json | jq -r .summary"
)]
pub(super) struct Explain {
    /// Name of the lock
    name: String,
    /// Maximum number of events to print
    #[arg(long, value_name = "COUNT", default_value = "20", value_parser = parse_count::<NonZeroUsize>)]
    events: NonZeroUsize,
}

impl Explain {
    pub(super) async fn run(self, globals: &Globals) -> Result<ExitCode, Failure> {
        let client = globals.connect().await?;
        let mut explanation = client.explain(&self.name).await?;
        let mut at_peer = client.explain_at_peer(&explanation).await;
        for explanation in std::iter::once(&mut explanation).chain(&mut at_peer) {
            let earlier = explanation.events.len().saturating_sub(self.events.get());
            explanation.events.drain(..earlier);
        }
        match globals.output {
            Output::Json => {
                let mut object = explanation_json(&explanation);
                object["peer"] = at_peer.as_ref().map_or(Value::Null, explanation_json);
                line(object)?;
            }
            Output::Text => {
                let palette = Palette::stdout(globals.output);
                line(paragraphs(&explanation, globals.given_endpoint(), palette))?;
                if let Some(daemon) = &explanation.lock.daemon {
                    let at = match (&at_peer, printable(&daemon.description)) {
                        (Some(_), name) if !name.is_empty() => format!("at daemon {name}"),
                        (Some(_), _) => "at the holder's daemon".to_owned(),
                        (None, _) => peer::advice(Some(daemon)),
                    };
                    line(format_args!("\n{}", palette.bold(&at)))?;
                }
                if let Some(at_peer) = &at_peer {
                    let endpoint = explanation.lock.daemon.as_ref();
                    let endpoint = endpoint.and_then(|daemon| daemon.endpoint.as_deref());
                    line(paragraphs(at_peer, endpoint, palette))?;
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Text of an explanation. `endpoint` is added to the commands that it advises.
fn paragraphs(explanation: &Explanation, endpoint: Option<&str>, palette: Palette) -> String {
    let lock = LockOutput::from(explanation.lock.clone());
    let mut lines = vec![lock.paragraph(palette)];
    let mut add = |key: &str, value: &str| lines.push(entry(key, &printable(value), palette));
    if let Some(grant) = &explanation.grant {
        add("left", &grant_text(grant));
    }
    add("lease", &lease_text(&explanation.lease));
    if let Some(error) = &explanation.store_error {
        add("store", &format!("could not be read: {error}"));
    }
    lines.push(entry("reason", &palette.notable(&printable(&explanation.summary)), palette));
    for advice in &explanation.advice {
        let advice = with_endpoint(advice, endpoint);
        lines.push(entry("try", &palette.bold(&printable(&advice)), palette));
    }
    lines.extend(section("waiters", waiter_rows(&explanation.waiters), palette));
    let hidden = (explanation.lock.waiting as usize).saturating_sub(explanation.waiters.len());
    lines.extend((hidden > 0).then(|| format!("and {hidden} more")));
    lines.extend(section("renewals", renewal_rows(&explanation.lease.renewals), palette));
    lines.extend(section("events", event_rows(&explanation.events), palette));
    lines.join("\n")
}

/// Adds `--endpoint` to the command of an advice, before the name of the lock, because no
/// option may follow `-- NAME`.
fn with_endpoint(advice: &str, endpoint: Option<&str>) -> String {
    let parts = advice.split_once(": leasehold ").and_then(|(aim, command)| {
        let (verb, rest) = command.split_once(' ')?;
        ["break", "step-down"].contains(&verb).then_some((aim, verb, rest))
    });
    match (parts, endpoint) {
        (Some((aim, verb, rest)), Some(endpoint)) => {
            format!("{aim}: leasehold {verb} --endpoint {endpoint} {rest}")
        }
        _ => advice.to_owned(),
    }
}

fn grant_text(grant: &GrantDetails) -> String {
    let GrantDetails { time_left, last_keep_alive, ttl, ends_in, is_connected, .. } = grant;
    let [left, last, ttl] = [*time_left, *last_keep_alive, *ttl].map(short_duration);
    let limit = ends_in.map(|ends_in| format!("; ends in {} in any case", short_duration(ends_in)));
    let connected = if *is_connected { "" } else { "; the holder is not connected" };
    format!("{left}, last keep-alive {last} ago, TTL {ttl}{}{connected}", limit.unwrap_or_default())
}

fn lease_text(lease: &LeaseDetails) -> String {
    let mut parts = vec![lease.state.clone()];
    // A poll of a lease that a peer holds is an attempt, but no failure.
    match lease.attempts {
        0 => {}
        failures if lease.state == "releasing" => parts.push(count(failures, "failed attempt")),
        attempt => parts.push(format!("attempt {attempt}")),
    }
    if let (Some(valid_for), Some(duration)) = (lease.valid_for, lease.duration) {
        let [valid_for, duration] = [valid_for, duration].map(short_duration);
        parts.push(format!("valid for {valid_for} of {duration}"));
    }
    let mut add = |text: &str, time| {
        parts.extend(Option::map(time, |time| format!("{text} {}", short_duration(time))));
    };
    add("next renewal in", lease.renew_in);
    add("next attempt in", lease.next_attempt_in);
    add("unused, kept for another", lease.lingers_for);
    let failures = lease.failed_renewals;
    parts.extend((failures > 0).then(|| count(failures, "failed renewal")));
    parts.extend(lease.is_at_risk.then(|| "at risk".to_owned()));
    parts.join(", ")
}

/// Number and noun, as in "1 failed renewal".
fn count(number: u32, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

/// Table with a title, unless it has no rows.
fn section<const N: usize>(title: &str, rows: Vec<[String; N]>, palette: Palette) -> Vec<String> {
    if rows.is_empty() {
        return Vec::new();
    }
    let mut widths = [0; N];
    for row in &rows {
        for (width, text) in widths.iter_mut().zip(row) {
            *width = text.chars().count().max(*width);
        }
    }
    let title = format!("\n{}", palette.bold(title));
    let lines = rows.iter().map(|row| format!("  {}", align(row, &widths)));
    std::iter::once(title).chain(lines).collect()
}

fn waiter_rows(waiters: &[Waiter]) -> Vec<[String; 4]> {
    let row = |(index, waiter): (usize, &Waiter)| {
        let limit = waiter.times_out_in.map(|left| format!("for another {}", short_duration(left)));
        let state = match (&limit, waiter.is_connected) {
            (_, false) => "not connected",
            (Some(limit), true) => limit,
            (None, true) => "",
        };
        [
            (index + 1).to_string(),
            times::since(waiter.waiting_for),
            printable(&waiter.holder.to_string()),
            state.to_owned(),
        ]
    };
    waiters.iter().enumerate().map(row).collect()
}

fn renewal_rows(renewals: &[Renewal]) -> Vec<[String; 4]> {
    let row = |renewal: &Renewal| {
        [
            times::start(renewal.ago).unwrap_or_default(),
            if renewal.is_renewed { "renewed" } else { "failed" }.to_owned(),
            format!("in {}", short_duration(renewal.took)),
            format!("with {} left", short_duration(renewal.left)),
        ]
    };
    renewals.iter().map(row).collect()
}

fn event_rows(events: &[LockEvent]) -> Vec<[String; 2]> {
    let row = |event: &LockEvent| {
        let detail = printable(&event.detail).replace('\n', " ");
        [times::start(event.ago).unwrap_or_default(), detail]
    };
    events.iter().map(row).collect()
}

/// JSON object. Unknown values are null, so that all keys are always present.
fn explanation_json(explanation: &Explanation) -> Value {
    let mut object = LockOutput::from(explanation.lock.clone()).json();
    object["diagnosis"] = explanation.diagnosis.as_str().into();
    object["summary"] = explanation.summary.as_str().into();
    object["advice"] = explanation.advice.clone().into();
    object["grant"] = explanation.grant.as_ref().map_or(Value::Null, grant_json);
    object["lease"] = lease_json(&explanation.lease);
    object["waiters"] = explanation.waiters.iter().map(waiter_json).collect();
    object["events"] = explanation.events.iter().map(event_json).collect();
    object["store_error"] = explanation.store_error.as_deref().into();
    object
}

fn grant_json(grant: &GrantDetails) -> Value {
    json!({
        "time_left_ms": millis(grant.time_left),
        "last_keep_alive_ms": millis(grant.last_keep_alive),
        "ttl_ms": millis(grant.ttl),
        "ends_in_ms": grant.ends_in.map(millis),
        "connected": grant.is_connected,
        "leader": grant.is_leader,
    })
}

fn lease_json(lease: &LeaseDetails) -> Value {
    let renewals = lease.renewals.iter().map(|renewal| {
        json!({
            "time": times::utc(renewal.ago),
            "took_ms": millis(renewal.took),
            "left_ms": millis(renewal.left),
            "renewed": renewal.is_renewed,
        })
    });
    json!({
        "state": lease.state,
        "duration_ms": lease.duration.map(millis),
        "valid_for_ms": lease.valid_for.map(millis),
        "renew_in_ms": lease.renew_in.map(millis),
        "failed_renewals": lease.failed_renewals,
        "at_risk": lease.is_at_risk,
        "lingers_for_ms": lease.lingers_for.map(millis),
        "next_attempt_in_ms": lease.next_attempt_in.map(millis),
        "attempts": lease.attempts,
        "renewals": renewals.collect::<Vec<_>>(),
    })
}

fn waiter_json(waiter: &Waiter) -> Value {
    json!({
        "holder": holder_json(&waiter.holder),
        "session_id": waiter.session_id,
        "waiting_for_ms": millis(waiter.waiting_for),
        "times_out_in_ms": waiter.times_out_in.map(millis),
        "connected": waiter.is_connected,
        "candidate": waiter.is_candidate,
    })
}

fn event_json(event: &LockEvent) -> Value {
    json!({
        "number": event.number,
        "time": times::utc(event.ago),
        "kind": event.kind,
        "holder": event.holder.as_ref().map(holder_json),
        "token": event.token.map(u64::from),
        "waited_ms": event.waited.map(millis),
        "held_for_ms": event.held_for.map(millis),
        "cause": Some(&event.cause).filter(|cause| !cause.is_empty()),
        "detail": event.detail,
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn commands_get_endpoint() {
        let advice = "if the holder is stuck, break the lock: leasehold break a --reason REASON";
        assert_eq!(with_endpoint(advice, None), advice);
        let expected = "if the holder is stuck, break the lock: \
                        leasehold break --endpoint unix:/s a --reason REASON";
        assert_eq!(with_endpoint(advice, Some("unix:/s")), expected);
        let advice = "ask the leader to step down: \
                      leasehold step-down -n b --reason REASON -- '-: leasehold break a'";
        let expected = advice.replace("step-down ", "step-down --endpoint unix:/s ");
        assert_eq!(with_endpoint(advice, Some("unix:/s")), expected);
        for other in ["check the store: leasehold doctor", "ask: leasehold explain a -e http://a:1"]
        {
            assert_eq!(with_endpoint(other, Some("unix:/s")), other);
        }
    }

    #[test]
    fn lease_line_has_known_facts() {
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        let lease = LeaseDetails {
            state: "held".to_owned(),
            duration: seconds(30),
            valid_for: seconds(24),
            renew_in: seconds(4),
            failed_renewals: 2,
            is_at_risk: true,
            ..LeaseDetails::default()
        };
        let expected = "held, valid for 24s of 30s, next renewal in 4s, 2 failed renewals, at risk";
        assert_eq!(lease_text(&lease), expected);
        let tried = |state: &str, attempts| LeaseDetails {
            state: state.to_owned(),
            next_attempt_in: seconds(2).filter(|_| state == "blocked"),
            attempts,
            ..LeaseDetails::default()
        };
        let blocked = lease_text(&tried("blocked", 3));
        assert_eq!(blocked, "blocked, attempt 3, next attempt in 2s");
        assert_eq!(lease_text(&tried("releasing", 1)), "releasing, 1 failed attempt");
        let none = LeaseDetails { state: "none".to_owned(), ..LeaseDetails::default() };
        assert_eq!(lease_text(&none), "none");
    }

    #[test]
    fn renewals_are_printed_with_latency() {
        let renewal = Renewal {
            ago: Duration::ZERO,
            took: Duration::from_millis(12),
            left: Duration::from_secs(20),
            is_renewed: true,
        };
        let lines = section("renewals", renewal_rows(&[renewal]), Palette::PLAIN);
        assert_eq!(lines[0], "\nrenewals");
        assert!(lines[1].ends_with("  renewed  in 12ms  with 20s left"), "{lines:?}");
        assert!(section("renewals", renewal_rows(&[]), Palette::PLAIN).is_empty());
    }
}
