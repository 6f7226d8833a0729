//! `bench storage`: number of storage calls of locks, and renewal of many leases.

use std::{process::ExitCode, time::Duration};

use serde_json::{Value, json};
use tonic::transport::Channel;

use super::stream::{Stream, broken, connect, unexpected};
use crate::cli::{
    exit::{FAILED, Failure},
    output::{Output, line, note},
};
use leasehold_protocol::v1::{
    self as pb, attach_request::Message as ToDaemon, attach_response::Message as ToClient,
    lock_service_client::LockServiceClient,
};
use leasehold_runtime::sleep_until;
use leasehold_time::Moment;

/// TTL of the sessions.
const TTL: Duration = Duration::from_secs(30);

/// Interval of keep-alives.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(3);

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Uses the daemon at --endpoint, which should have no other clients, because \
    calls are counted for the whole daemon. First measures single grants, handoffs and releases one \
    after the other. Then one session holds many locks, whose leases the daemon renews. A renewal is \
    due after a quarter to a third of the lease duration. Exits with 1 if a lock was lost.

Examples:
  leasehold bench storage
  leasehold bench storage --locks 2000 --length 2m --lease-duration 15s"
)]
pub(super) struct Storage {
    /// Number of locks held at once
    #[arg(long, default_value_t = 2000)]
    locks: u64,
    /// Time for which the locks are held
    #[arg(long, default_value = "2m", value_parser = crate::cli::times::parse_duration)]
    length: Duration,
    /// Duration of the leases
    #[arg(long, default_value = "15s", value_parser = crate::cli::times::parse_duration)]
    lease_duration: Duration,
    /// Number of single cycles
    #[arg(long, default_value_t = 50)]
    cycles: u32,
}

/// Counters of storage calls, by operation and purpose.
type Calls = Vec<(String, String, u64)>;

/// Result of holding many locks.
#[derive(Default)]
struct Held {
    granted: u64,
    at_risk: u64,
    lost: u64,
    keep_alives: u64,
    acquired_in: Duration,
    calls: Calls,
}

impl Storage {
    pub(super) async fn run(self, endpoint: &str, output: Output) -> Result<ExitCode, Failure> {
        let channel = connect(endpoint).await?;
        let (description, before) = calls(&channel).await?;
        if output == Output::Text {
            line(format_args!("store: {description}"))?;
        }
        if before.is_empty() {
            let why = "this daemon's store makes no calls: nothing to measure";
            return Err(Failure::new(FAILED, "bench", why));
        }
        self.single(output, &channel).await?;
        let held = self.hold(output, &channel).await?;
        self.report(output, &held)?;
        Ok(ExitCode::from(if held.lost == 0 { 0 } else { FAILED }))
    }

    /// Measures, one after the other: grants of locks that were used before, handoffs
    /// to another session of the same daemon, and releases.
    async fn single(&self, output: Output, channel: &Channel) -> Result<(), Failure> {
        let ttl = TTL.as_millis() as u32;
        let mut one = Stream::open(channel, ttl).await?;
        let mut other = Stream::open(channel, ttl).await?;
        let names: Vec<_> = (0..self.cycles).map(|number| format!("bench-{number}")).collect();
        for name in &names {
            let (handle, _) = one.acquire(name).await?;
            one.release(handle).await?;
        }
        let settled = || leasehold_runtime::sleep(Duration::from_millis(200));
        settled().await;

        let mut rows = Vec::new();
        let (_, start) = calls(channel).await?;
        let mut times = Vec::new();
        let mut handles = Vec::new();
        for name in &names {
            let from = Moment::now();
            handles.push(one.acquire(name).await?.0);
            times.push(Moment::now().since(from));
        }
        let (_, granted) = calls(channel).await?;
        rows.push(("grant, warm", difference(&start, &granted), median(&mut times)));

        let mut next = Vec::new();
        for (name, handle) in names.iter().zip(handles) {
            let request = other.send_acquire(name);
            other.queued().await?;
            let from = Moment::now();
            one.release(handle).await?;
            next.push(other.granted(request).await?);
            times.push(Moment::now().since(from));
        }
        let (_, handed) = calls(channel).await?;
        rows.push(("handoff, local", difference(&granted, &handed), median(&mut times)));

        for handle in next {
            let from = Moment::now();
            other.release(handle).await?;
            times.push(Moment::now().since(from));
        }
        settled().await;
        let (_, released) = calls(channel).await?;
        rows.push(("release", difference(&handed, &released), median(&mut times)));

        self.report_single(output, &rows)
    }

    fn report_single(
        &self,
        output: Output,
        rows: &[(&str, Calls, Duration)],
    ) -> Result<(), Failure> {
        if output == Output::Text {
            line(format_args!("\n{:<20}{:>14}{:>14}", "", "calls each", "median"))?;
        }
        for (name, calls, time) in rows {
            let each = total(calls) as f64 / f64::from(self.cycles);
            match output {
                Output::Text => {
                    let time = time.as_secs_f64() * 1e3;
                    line(format_args!("{name:<20}{each:>14.2}{time:>11.2} ms"))?;
                }
                Output::Json => line(json!({
                    "case": name, "calls_each": each, "median_us": time.as_micros() as u64,
                    "calls": calls_json(calls),
                }))?,
            }
        }
        Ok(())
    }

    async fn hold(&self, output: Output, channel: &Channel) -> Result<Held, Failure> {
        let mut stream = Stream::open(channel, TTL.as_millis() as u32).await?;
        let mut held = Held::default();
        let start = Moment::now();
        for number in 0..self.locks {
            let lock = pb::LockRef { namespace: String::new(), name: format!("held-{number:06}") };
            stream.send(ToDaemon::Acquire(pb::Acquire {
                request: number + 1,
                lock: Some(lock),
                lease_duration_ms: Some(self.lease_duration.as_millis() as u32),
                ..pb::Acquire::default()
            }));
        }
        let (mut keep_alives, mut keep_alive_at) = (0, start);
        let (mut before, mut end) = (None, None);
        loop {
            if Moment::now() >= keep_alive_at {
                keep_alives += 1;
                stream.send(ToDaemon::KeepAlive(pb::KeepAlive { keep_alive_number: keep_alives }));
                keep_alive_at = keep_alive_at + KEEP_ALIVE_INTERVAL;
            }
            if held.granted == self.locks && end.is_none() {
                held.acquired_in = Moment::now().since(start);
                if output == Output::Text {
                    note(format_args!("holding {} locks", self.locks));
                }
                before = Some(calls(channel).await?.1);
                end = Some(Moment::now() + self.length);
            }
            if end.is_some_and(Moment::has_passed) {
                break;
            }
            let until = end.map_or(keep_alive_at, |end| end.min(keep_alive_at));
            let message = tokio::select! {
                message = stream.next() => message?,
                () = sleep_until(until) => continue,
            };
            match message {
                ToClient::Granted(_) => held.granted += 1,
                ToClient::Queued(_) => {}
                ToClient::AtRisk(_) => held.at_risk += 1,
                ToClient::Lost(_) => held.lost += 1,
                ToClient::KeptAlive(_) => held.keep_alives += 1,
                other => return Err(unexpected(&other)),
            }
        }
        held.calls = difference(&before.unwrap_or_default(), &calls(channel).await?.1);
        stream.send(ToDaemon::Close(pb::Close {}));
        Ok(held)
    }

    fn report(&self, output: Output, held: &Held) -> Result<(), Failure> {
        let renewals = held.calls.iter().filter(|(operation, ..)| operation == "renew");
        let renewals: u64 = renewals.map(|(.., count)| count).sum();
        // A renewal is due after three quarters to the whole of a third of the duration.
        let renewals_per = |wait: Duration| {
            (self.length.as_secs_f64() / wait.as_secs_f64() * self.locks as f64) as u64
        };
        let due = (renewals_per(self.lease_duration / 3), renewals_per(self.lease_duration / 4));
        if output == Output::Json {
            line(json!({
                "case": "hold", "locks": self.locks, "length_s": self.length.as_secs(),
                "lease_duration_s": self.lease_duration.as_secs(),
                "acquired_in_ms": held.acquired_in.as_millis() as u64,
                "renewals": renewals, "renewals_due": [due.0, due.1],
                "at_risk": held.at_risk, "lost": held.lost, "calls": calls_json(&held.calls),
            }))?;
            return Ok(());
        }
        let (length, duration) = (
            humantime::format_duration(self.length),
            humantime::format_duration(self.lease_duration),
        );
        line(format_args!("\n{} locks, held for {length}, leases of {duration}", self.locks))?;
        let took = held.acquired_in.as_secs_f64();
        line(format_args!("  acquired in            {took:>10.1} s"))?;
        let share = renewals as f64 / self.length.as_secs_f64();
        line(format_args!("  renewals               {renewals:>10}   {share:.0} per second"))?;
        line(format_args!("  renewals due           {:>10}   to {}", due.0, due.1))?;
        line(format_args!("  keep-alives            {:>10}", held.keep_alives))?;
        line(format_args!("  at-risk warnings       {:>10}", held.at_risk))?;
        line(format_args!("  lost                   {:>10}", held.lost))?;
        for (operation, purpose, count) in &held.calls {
            line(format_args!("  calls: {:<15} {count:>10}", format!("{operation} ({purpose})")))?;
        }
        Ok(())
    }
}

async fn calls(channel: &Channel) -> Result<(String, Calls), Failure> {
    let lock = Some(pb::LockRef { namespace: String::new(), name: "bench-0".to_owned() });
    let request = pb::InspectRequest { lock, include_storage: true };
    let answer = LockServiceClient::new(channel.clone()).inspect(request).await.map_err(broken)?;
    let store = answer.into_inner().store.unwrap_or_default();
    let calls = store.calls.into_iter();
    let calls =
        calls.map(|pb::StorageCalls { operation, purpose, count }| (operation, purpose, count));
    Ok((store.description, calls.collect()))
}

/// Returns the calls between two readings, except for reads of the counters.
fn difference(before: &Calls, after: &Calls) -> Calls {
    let earlier = |operation: &str, purpose: &str| {
        let same = before.iter().find(|calls| calls.0 == operation && calls.1 == purpose);
        same.map_or(0, |calls| calls.2)
    };
    let all = after.iter().map(|(operation, purpose, count)| {
        (operation.clone(), purpose.clone(), count - earlier(operation, purpose).min(*count))
    });
    all.filter(|(_, purpose, count)| *count > 0 && purpose != "inspect").collect()
}

fn total(calls: &Calls) -> u64 {
    calls.iter().map(|calls| calls.2).sum()
}

fn calls_json(calls: &Calls) -> Value {
    let rows = calls
        .iter()
        .map(|(operation, purpose, count)| json!({ "operation": operation, "purpose": purpose, "count": count }));
    rows.collect()
}

fn median(times: &mut Vec<Duration>) -> Duration {
    times.sort_unstable();
    let median = times.get(times.len() / 2).copied().unwrap_or_default();
    times.clear();
    median
}
