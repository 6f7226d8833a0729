//! Locks that several programs share and leaders that they elect, from a
//! Leasehold daemon.
//!
//! # What is not guaranteed
//!
//! **A paused holder may still act.** A process can be stopped for longer than
//! its grant lasts (by the scheduler, a debugger, a suspended machine), and go
//! on after somebody else was granted the lock, before it has had a chance to
//! look at the clock. No lock service can prevent that. So **pass the
//! [token](Guard::token) to the resource** that the lock protects, and let the
//! resource refuse a token that is lower than the greatest it has seen: every
//! grant of a lock carries a greater token than all grants before.
//!
//! **Locks are not reentrant.** Every acquire competes on its own, also within
//! one [`Client`]: two tasks that acquire the same lock exclude each other, and
//! a task that acquires a lock which it already holds waits for itself. The
//! progress of such a wait says that the holder is the
//! [same session](Progress::held_by_same_session).
//!
//! **The end of the program does not wait for what is still on its way.** Call
//! [`Guard::release`] or [`Client::close`] before, or the lock stays taken until
//! the session's ttl has passed.
//!
//! # What is
//!
//! As long as clocks drift by less than 1/500 and a holder stops at its
//! [deadline](Guard::deadline), one holder at a time. A holder learns
//! [that it lost](Guard::lost) no later than its deadline, from its own clock,
//! even if the daemon and the network are gone. Keep-alive, reconnecting and
//! taking up the session again are automatic: a connection that breaks for less
//! than the ttl costs no lock.
//!
//! # Use
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
//! Or with work that is dropped where it stands when the lock is lost:
//!
//! ```no_run
//! # async fn write_orders(token: leasehold_client::Token) -> usize { 0 }
//! # async fn example(client: leasehold_client::Client) -> Result<(), leasehold_client::Error> {
//! let written = client.with_lock("orders", async |guard| write_orders(guard.token()).await).await?;
//! # Ok(())
//! # }
//! ```
//!
//! How long to wait, and what to do if it was in vain:
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
//! The lock that is [designated] for a table, a blob, a container,
//! a queue or a file share has a name that follows from the resource, so that
//! all programs that touch it agree without talking:
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
//! The crate `leasehold-fence` has resources that refuse a stale holder, as the
//! first section asks for: tables and blobs of a storage account, servers of HTTP
//! and gRPC, databases, and the comparison of tokens itself.
//!
//! # Elections
//!
//! An election is a lock whose holder shows a value: "exactly one of my
//! replicas does this, and the others know which". What is not guaranteed for
//! locks is not guaranteed here: pass the [token](Guard::token) on.
//!
//! ```no_run
//! # async fn schedule(token: leasehold_client::Token) {}
//! # async fn example(client: leasehold_client::Client) -> Result<(), leasehold_client::Error> {
//! let election = client.election("scheduler").value("10.0.0.7:8080");
//! // Whenever this worker leads, until the work ends by itself.
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
//!         Some(leader) => println!("{} leads", String::from_utf8_lossy(&leader.value)),
//!         None => println!("nobody leads"),
//!     }
//! }
//! # }
//! ```
//!
//! The [errors](Error) are sorted by what to do about them. Everything here
//! needs a tokio runtime with its timers and I/O enabled.
#![forbid(unsafe_code)]

pub mod designated;

use leasehold_protocol::v1 as pb;

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
mod look;
mod name;
mod request;
mod session;
mod status;
mod value;
mod wait_options;

pub use break_request::BreakRequest;
pub use builder::ClientBuilder;
pub use client::Client;
pub use election::{
    Campaign, Election, ElectionState, Leader, Leadership, Observer, StepDownRequest, SteppedDown,
};
pub use endpoints::Endpoints;
pub use error::Error;
pub use guard::{Guard, Loss, Operator, Risk};
pub use holder::Holder;
pub use info::{
    Broken, Change, Check, DaemonInfo, LockInfo, StorageCalls, StoredInfo, TokenState, Watch,
};
#[doc(inline)]
pub use leasehold_time::Moment;
pub use leasehold_types::{ParseTokenError, Reason, Token};
pub use look::{List, Watching};
pub use request::{LockRequest, Progress};
pub use session::SessionInfo;
