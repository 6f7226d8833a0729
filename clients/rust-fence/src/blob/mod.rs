//! Blobs of Azure Storage that refuse a stale holder.
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
//! // All programs derive the same lock name from the blob, without configuration.
//! let guard = client.blob_lock(account.name(), "reports", "2026.csv")?.acquire().await?;
//!
//! // From now on, no earlier holder can write to this blob.
//! let report = Blob::new(&account, "reports", "2026.csv")?.fenced(&guard).await?;
//! if let Some(content) = report.read().await? {
//!     let longer = [&content.bytes[..], b"one more line\n"].concat();
//!     // Refused if a newer holder has taken over.
//!     report.write(content.with(longer)).await?;
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Choosing an API
//!
//! - [`Blob::fenced`]: a lock protects the blob, alone or together with other
//!   resources, and every writer presents the lock's token.
//! - [`Blob::lease`]: one writer holds this blob only, for a long time, without a
//!   daemon and without a lock.
//! - [`Blob::update`]: several clients change the blob occasionally, and none needs
//!   it for longer than one write.
//!
//! They can't be combined: the last two refuse a fenced blob.
//!
//! # Guarantees and limitations
//!
//! **After a newer holder has called [`Blob::fenced`], no write with a lower token
//! is applied to the blob**, regardless of pauses and clocks.
//!
//! - This holds for writes through a [`FencedBlob`]. A write that bypasses it
//!   ([`Blob::overwrite`], another program) is applied and removes the fence. The
//!   current holder detects that and stops ([`Error::NeedsOperator`]). The next
//!   holder is accepted with any token.
//! - [`FencedBlob::delete`] leaves an empty blob, because the fence needs a place.
//! - Tokens of different locks can't be compared. The blob stores the name of its
//!   lock, and refuses holders of other locks.
//! - A blob is written completely, by one call. Its maximum size is [`MAX_BLOB_BYTES`], and
//!   [`Account::call_timeout`](crate::azure::Account::call_timeout) must be long
//!   enough for the transfer.
//!
//! # How it works
//!
//! The blob's metadata contains the highest token, the name of the lock and the
//! IDs of the last writes. Each write requires the version (ETag) that it starts
//! from, and creates a new version; so does a new holder's fence. The storage
//! therefore refuses (412) a write sent before a newer fence was installed, if it
//! arrives later. If a response is lost, the IDs show whether the write was
//! applied, even after a newer holder has written.

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
pub use content::{Content, MAX_BLOB_BYTES, Upload};
pub use error::{Conflict, Error};
pub use fenced::FencedBlob;
pub use lease::LeasedBlob;
pub use place::Place;
pub use rest::Blob;

/// Bytes of a blob, as in [`Content`].
pub use azure_core::Bytes;
