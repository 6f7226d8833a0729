//! Runs as one of several workers, of which one leads.
//!
//! Start a daemon, then in two terminals:
//!
//! ```sh
//! cargo run -p leasehold-client --example worker -- [NAME] [--ttl SECONDS]
//! ```
//!
//! One worker leads, the other waits. If you end the leader with Ctrl-C or `kill`, the
//! other leads at once. If you end it with `kill -9`, the other leads when the session has
//! expired. To ask the leader to step down, run
//! `leasehold step-down worker --reason test`.

#![allow(clippy::print_stdout, reason = "an example prints its progress")]
#![allow(clippy::disallowed_methods, reason = "an example uses tokio like a program")]

use std::{env, process, time::Duration};

use leasehold_client::{Client, Holder, Leadership, Token};
use tokio::signal::unix::{SignalKind, signal};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let endpoint = env::var("LEASEHOLD_ENDPOINT").unwrap_or("http://127.0.0.1:7420".to_owned());
    let (name, ttl) = arguments()?;
    let client = Client::builder(endpoint).client_name("worker example").ttl(ttl).connect().await?;
    // Value that observers see. A service would publish its address.
    let me = format!("{}:{}", nix::unistd::gethostname()?.to_string_lossy(), process::id());
    println!("{me} campaigns in {name}");

    let mut terminate = signal(SignalKind::terminate())?;
    let leading = client
        .election(name)
        .value(me)
        .on_progress(|progress| {
            let leads = |leader: Holder| format!("{leader} leads");
            let why = progress.holder.map_or(progress.note, leads);
            println!("waiting at {}: {why}", progress.position);
        })
        .on_error(|error| println!("stopped: {error}"))
        .run_as_leader(work);
    tokio::select! {
        done = leading => done?,
        _ = tokio::signal::ctrl_c() => println!("stopped: Ctrl-C"),
        _ = terminate.recv() => println!("stopped: terminated"),
    }
    // The leadership, if any, has been dropped. Closing the session ensures that the
    // daemon releases it, so that the next candidate does not wait for the TTL.
    client.close().await;
    Ok(())
}

/// Work of the leader. Dropped when the leadership is lost.
async fn work(leadership: &Leadership) {
    println!("leading with token {}", leadership.token());
    // A step takes one second. After ten seconds without progress, the leader is stuck.
    leadership.expect_progress(Duration::from_secs(10));
    loop {
        tokio::select! {
            () = step(leadership.token()) => leadership.progress(),
            risk = leadership.at_risk() => {
                println!("at risk: {} (ends in {:?})", risk.message, risk.ends_in);
                if risk.is_step_down_request() {
                    // A service finishes its pending work here, within that time.
                    leadership.step_down().await;
                }
            }
        }
    }
}

/// A resource that must be safe takes the token, and refuses one that is lower
/// than the highest it has seen.
async fn step(_token: Token) {
    tokio::time::sleep(Duration::from_secs(1)).await;
}

fn arguments() -> Result<(String, Duration), Box<dyn std::error::Error>> {
    let (mut name, mut ttl) = ("worker".to_owned(), Duration::from_secs(10));
    let mut arguments = env::args().skip(1);
    while let Some(argument) = arguments.next() {
        if argument == "--ttl" {
            let seconds = arguments.next().ok_or("--ttl needs a number of seconds")?;
            ttl = Duration::from_secs(seconds.parse()?);
        } else {
            name = argument;
        }
    }
    Ok((name, ttl))
}
