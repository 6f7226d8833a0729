//! Blobs that refuse a stale holder.
//!
//! # Use
//!
//! ```no_run
//! use leasehold_client::Client;
//! use leasehold_fence::{azure::Account, blob::Blob};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let account = Account::from_connection_string(&std::env::var("AZURE_STORAGE_CONNECTION_STRING")?)?;
//! let client = Client::connect("http://127.0.0.1:7420").await?;
//!
//! // All programs that write to this blob get the same lock, without a word.
//! let guard = client.blob_lock(account.name(), "reports", "2026.csv")?.acquire().await?;
//!
//! // From here on, no earlier holder can write to this blob.
//! let report = Blob::new(&account, "reports", "2026.csv")?.fenced(&guard).await?;
//! if let Some(content) = report.read().await? {
//!     let longer = [&content.bytes[..], b"one more line\n"].concat();
//!     // Refused if a newer holder has taken over meanwhile.
//!     report.write(content.with(longer)).await?;
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Which of three
//!
//! - [`Blob::fenced`]: a lock protects the blob, perhaps together with other
//!   things, and all who write have the lock's token.
//! - [`Blob::lease`]: one writer has this blob alone, for long, without a daemon
//!   and without a lock.
//! - [`Blob::update`]: many change it now and then, and nobody needs to have it
//!   for longer than one write.
//!
//! They do not mix: the last two refuse a blob that is fenced.
//!
//! # What is guaranteed, and what not
//!
//! **No write with an older token lands in a blob after a newer holder has
//! called [`Blob::fenced`] for it**, however long the older one was paused and
//! whatever its clock says.
//!
//! - This holds for writes through a [`FencedBlob`]. A program that writes past it
//!   ([`Blob::overwrite`], other programs) is not stopped, and takes the fence
//!   away. The holder of then notices and stops ([`Error::NeedsOperator`]); the
//!   next that comes is believed to be the newest.
//! - A blob that is deleted [leaves an empty one](FencedBlob::delete), because
//!   a fence must be somewhere.
//! - Tokens of different locks can't be compared. The blob remembers which lock
//!   guards it, and refuses holders of another.
//! - A blob is written as a whole, by one call: [`LARGEST`] is the limit, and
//!   [`Account::call_timeout`](crate::azure::Account::call_timeout) must leave
//!   enough time.
//!
//! # How it works
//!
//! The blob's metadata has the highest token, the name of the lock and the
//! numbers of the last writes. Each write names the version (ETag) that it
//! starts from, and makes another; so does a new holder's fence. So a write that
//! was sent before a newer fence was up, and comes later, does not fit: 412. If
//! an answer is lost, the numbers tell whether the write was done, also after a
//! newer holder has come.

mod content;
mod error;
mod fenced;
mod install;
mod lease;
mod place;
mod record;
mod rest;
mod update;
mod write;

pub use super::{ETag, Written};
pub use content::{Content, LARGEST, Upload};
pub use error::{Conflict, Error};
pub use fenced::FencedBlob;
pub use lease::LeasedBlob;
pub use place::Place;
pub use rest::Blob;

/// What content is made of.
pub use azure_core::Bytes;
