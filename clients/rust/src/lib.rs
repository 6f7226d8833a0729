//! Client for the Leasehold daemon: distributed locks and leader elections with
//! fencing tokens.
//!
//! # What a lock does not guarantee
//!
//! **A lock can't stop a paused process.** A process can be paused past its
//! deadline by the scheduler, a debugger or a suspended machine, and resume
//! before it checks a clock. By then another client may hold the lock. No lock
//! service prevents that. Therefore **pass the [token](Guard::token) to the
//! protected resource**, and let the resource refuse a token lower than the
//! highest it has seen. The token of a grant is higher than the tokens of all
//! earlier grants of the lock.
//!
//! **Locks are not reentrant.** Every acquire competes separately, also within
//! one [`Client`]. Two tasks that acquire the same lock exclude each other, and
//! a task that acquires a lock it already holds deadlocks. The progress of such
//! an acquire reports that the holder is the
//! [same session](Progress::held_by_same_session).
//!
//! **Pending messages are not flushed at exit.** Call [`Guard::release`] or
//! [`Client::close`] before the program ends. Otherwise the lock may stay held
//! until the session TTL has elapsed.
//!
//! # What it guarantees
//!
//! - **Mutual exclusion**, as long as clocks drift by less than 1/500 and each
//!   holder stops at its [deadline](Guard::deadline).
//! - **Timely loss.** A holder learns of a [loss](Guard::lost) no later than at
//!   its deadline, from its own clock, even if the daemon and the network are
//!   unreachable.
//! - **Automatic recovery.** The client sends keep-alives, reconnects and
//!   resumes its session. A disconnect shorter than the session TTL loses no
//!   lock.
//!
//! # Locks
//!
//! ```no_run
//! # async fn write_orders(token: leasehold_client::Token) {}
//! # async fn example() -> Result<(), leasehold_client::Error> {
//! let client = leasehold_client::Client::connect("http://127.0.0.1:7420").await?;
//! let guard = client.lock("orders").await?;
//! write_orders(guard.token()).await;
//! guard.release().await?;
//! # Ok(())
//! # }
//! ```
//!
//! [`Client::with_lock`] runs an async closure under a lock, and drops its
//! future if the lock is lost:
//!
//! ```no_run
//! # async fn write_orders(token: leasehold_client::Token) -> usize { 0 }
//! # async fn example(client: leasehold_client::Client) -> Result<(), leasehold_client::Error> {
//! let written = client.with_lock("orders", async |guard| write_orders(guard.token()).await).await?;
//! # Ok(())
//! # }
//! ```
//!
//! An acquire with a time limit:
//!
//! ```no_run
//! use std::time::Duration;
//! use leasehold_client::{Client, Error};
//!
//! # async fn example(client: Client) -> Result<(), Error> {
//! match client.lock("orders").wait(Duration::from_secs(30)).acquire().await {
//!     Ok(guard) => println!("held with token {}", guard.token()),
//!     Err(Error::NotGranted { holder: Some(holder), .. }) => println!("still held by {holder}"),
//!     Err(error) => return Err(error),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Resources of a storage account
//!
//! The name of the lock [designated] for a table, a blob, a container, a queue or
//! a file share is derived from the resource. All programs that access
//! the resource therefore use the same lock, without further configuration:
//!
//! ```no_run
//! # async fn example(client: leasehold_client::Client) -> Result<(), leasehold_client::Error> {
//! let guard = client.table_lock("acme", "orders")?.acquire().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Fenced resources
//!
//! The crate `leasehold-fence` provides resources that refuse a stale holder:
//! tables and blobs of a storage account, HTTP and gRPC servers, databases, and
//! the comparison of tokens itself.
//!
//! # Elections
//!
//! An election is a lock whose holder publishes a value: exactly one replica
//! does the work, and all others can read which one. The limits of locks apply:
//! pass the [token](Guard::token) to the protected resources.
//!
//! ```no_run
//! # async fn schedule(token: leasehold_client::Token) {}
//! # async fn example(client: leasehold_client::Client) -> Result<(), leasehold_client::Error> {
//! let election = client.election("scheduler").value("10.0.0.7:8080");
//! // Runs `schedule` in each leadership of this replica, until it returns.
//! election.run_as_leader(async |leadership| schedule(leadership.token()).await).await?;
//! # Ok(())
//! # }
//! ```
//!
//! ```no_run
//! # async fn example(client: leasehold_client::Client) -> Result<(), leasehold_client::Error> {
//! let mut observer = client.election("scheduler").observe();
//! loop {
//!     match observer.next().await?.leader {
//!         Some(leader) => println!("leader: {}", String::from_utf8_lossy(&leader.value)),
//!         None => println!("no leader"),
//!     }
//! }
//! # }
//! ```
//!
//! # Errors and runtime
//!
//! The variants of [`Error`] correspond to the caller's next step. The crate
//! requires a tokio runtime with timers and I/O enabled.
#![forbid(unsafe_code)]

pub mod designated;
pub mod diagnostics;

use leasehold_protocol::v1 as pb;

mod admin;
mod backoff;
mod break_request;
mod builder;
mod client;
mod connection;
mod election;
mod endpoints;
mod error;
mod guard;
mod holder;
mod info;
mod name;
mod request;
mod session;
mod status;
mod trace;
mod value;
mod wait_options;

pub use admin::{List, WatchStream};
pub use break_request::BreakRequest;
pub use builder::ClientBuilder;
pub use client::Client;
pub use election::{
    Campaign, Election, ElectionState, Leader, Leadership, Observer, StepDownRequest,
    StepDownResult,
};
pub use endpoints::Endpoints;
pub use error::Error;
pub use guard::{Guard, Loss, Operator, Risk};
pub use holder::Holder;
pub use info::{
    BreakResult, Change, Check, DaemonInfo, LockInfo, StorageCalls, StoredInfo, TokenState, Watch,
};
#[doc(inline)]
pub use leasehold_time::Moment;
pub use leasehold_types::{ParseTokenError, Reason, Token};
pub use request::{LockRequest, Progress};
pub use session::SessionInfo;
