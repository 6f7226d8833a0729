//! Queues of Azure Storage with one consumer at a time.
//!
//! # Guarantees and limitations
//!
//! **A queue can't refuse a stale holder**, because it has no conditional writes and
//! so can't compare tokens. It has these properties instead:
//!
//! - **One consumer at a time.** Each consumer holds the queue's lock, and its handler
//!   is dropped when the lock is lost. A process that is paused past its deadline
//!   violates this.
//! - **A message is deleted only with a valid grant and its receipt.** The service
//!   refuses the receipt (404 or 400) after a later delivery, so a late consumer
//!   can't delete a message that another consumer is processing.
//! - **No message is lost.** A message that was not deleted is delivered again when it
//!   becomes visible. It is never hidden for longer than the remaining validity of
//!   the grant (in whole seconds, minimum 1 s), so the next holder does not wait.
//! - **Each message is handled at least once, not exactly once.** The handler may have
//!   finished when the lock, or the response to the delete, is lost. Make effects
//!   idempotent with [`Message::id`], and pass [`Message::token`] to the resource that
//!   the handler changes: a [table](super::table), a [blob](super::blob) or a database
//!   that compares it.
//! - **Order is best effort.** The next message is received after the current one was
//!   deleted or made visible. But Azure does not guarantee the order of delivery, and
//!   a failed message is delivered again after the messages that are visible by then.
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
//!     let poison = async |job: &Message| Ok(println!("poison message: {job:?}"));
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
