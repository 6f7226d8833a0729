//! One consumer of a queue at a time.
//!
//! # What it gives, and what it does not
//!
//! **A queue can't refuse a stale holder.** It has no conditional
//! writes, so no token can be compared there. What is left is this:
//!
//! - **One consumer at a time**, as long as a holder stops at its deadline: each
//!   holds the queue's lock, and the callback is dropped when the lock is lost.
//!   A process that is paused can't keep that promise.
//! - **A message is deleted only with a valid grant and its receipt.** The
//!   service refuses a receipt once the message was given to somebody else (404
//!   or 400), so a message that another works on is not deleted by who was late.
//! - **No message is lost**: one that was not deleted is delivered again, once
//!   it is visible. It is never hidden for longer than is left of the grant (in
//!   whole seconds, one at least), so the next holder need not wait for it.
//! - **Each message is handled at least once, not exactly once.** The callback
//!   may have done its work when the lock is lost, or the answer to the delete.
//!   So make effects idempotent by [`Message::id`], and pass [`Message::token`]
//!   to what they change: a [table](super::table), a [blob](super::blob) or a
//!   database that compares it.
//! - **In order, as far as the service keeps it.** The next message is taken
//!   when this one was deleted or shown again. But Azure does not promise to
//!   deliver in order, and one that failed comes again after those that are
//!   visible by then.
//!
//! # Use
//!
//! ```no_run
//! use leasehold_client::Client;
//! use leasehold_fence::{azure::Account, queue::{Handled, Message, Queue}};
//!
//! # async fn apply(id: &str, token: leasehold_client::Token, text: &str) -> Result<(), std::io::Error> { Ok(()) }
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let account = Account::from_connection_string(&std::env::var("AZURE_STORAGE_CONNECTION_STRING")?)?;
//! let client = Client::connect("http://127.0.0.1:7420").await?;
//! let guard = client.queue_lock(account.name(), "jobs")?.acquire().await?;
//! let queue = Queue::new(&account, "jobs")?;
//! let consumer = queue.consumer(&guard).max_deliveries(3);
//! loop {
//!     let handle = async |job: &Message| apply(&job.id, job.token, &job.text).await;
//!     let poison = async |job: &Message| Ok(println!("given up: {job:?}"));
//!     match consumer.next(handle, poison).await? {
//!         Handled::Empty => tokio::time::sleep(std::time::Duration::from_secs(1)).await,
//!         Handled::Failed(job, error) => println!("{}: {error}", job.id),
//!         Handled::Done(_) | Handled::Poison(_) => {}
//!     }
//! }
//! # }
//! ```

mod consumer;
mod error;
mod rest;

pub use super::Written;
pub use consumer::{Consumer, Handled, Message};
pub use error::{Error, Place};
pub use rest::Queue;
