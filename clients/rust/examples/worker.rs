//! A worker of which several run, and one leads.
//!
//! Start a daemon, then in two terminals:
//!
//! ```sh
//! cargo run -p leasehold-client --example worker -- [NAME] [--ttl SECONDS]
//! ```
//!
//! One leads, the other waits for it. End the leader with Ctrl-C or `kill`, and
//! the other leads at once; end it with `kill -9`, and the other leads when the
//! session has expired. Try `leasehold step-down worker --reason test` too.

#![allow(clippy::print_stdout, reason = "an example talks to its user")]
#![allow(clippy::disallowed_methods, reason = "an example uses tokio as its reader does")]

use std::{env, process, time::Duration};

use leasehold_client::{Client, Holder, Leadership, Token};
use tokio::signal::unix::{SignalKind, signal};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let endpoint = env::var("LEASEHOLD_ENDPOINT").unwrap_or("http://127.0.0.1:7420".to_owned());
    let (name, ttl) = arguments()?;
    let client = Client::builder(endpoint).client_name("worker example").ttl(ttl).connect().await?;
    // What others see of the leader. In earnest: the address where it is reached.
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
        .on_error(|trouble| println!("stopped: {trouble}"))
        .run_as_leader(work);
    tokio::select! {
        done = leading => done?,
        _ = tokio::signal::ctrl_c() => println!("stopped: Ctrl-C"),
        _ = terminate.recv() => println!("stopped: terminated"),
    }
    // The leadership, if there was one, has been dropped. Closing sees to it
    // that the daemon knows, so that the next one need not wait.
    client.close().await;
    Ok(())
}

/// What only the leader does. It is dropped where it stands when the leadership
/// is lost.
async fn work(leadership: &Leadership) {
    println!("leading with token {}", leadership.token());
    // A step takes a second: after ten, something is wrong.
    leadership.expect_progress(Duration::from_secs(10));
    loop {
        tokio::select! {
            () = step(leadership.token()) => leadership.progress(),
            risk = leadership.at_risk() => {
                println!("at risk: {} (ends in {:?})", risk.message, risk.ends_in);
                if risk.is_step_down_request() {
                    // Here it would finish what it has begun, within that time.
                    leadership.step_down().await;
                }
            }
        }
    }
}

/// A resource that must be safe takes the token, and refuses one that is lower
/// than the greatest it has seen.
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
