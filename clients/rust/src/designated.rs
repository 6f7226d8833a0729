//! Designated locks for resources of a storage account.
//!
//! The name of a designated lock is derived from the resource. All programs that
//! access the resource therefore use the same lock, without coordination and in
//! any language. This page specifies the derivation; the file
//! `clients/designated-locks.json` contains test vectors.
//!
//! | Resource | Lock name |
//! |---|---|
//! | table | `azure/ACCOUNT/table/TABLE` |
//! | partition of a table | `azure/ACCOUNT/table/TABLE/PARTITION` |
//! | blob | `azure/ACCOUNT/blob/CONTAINER/BLOB` |
//! | container | `azure/ACCOUNT/container/CONTAINER` |
//! | queue | `azure/ACCOUNT/queue/QUEUE` |
//! | file share | `azure/ACCOUNT/share/SHARE` |
//!
//! 1. `ACCOUNT` is the account name: 1 to 63 of a-z, 0-9 and hyphens. Uppercase
//!    letters (A-Z) are converted to lowercase.
//! 2. `TABLE` is the table name: 3 to 63 ASCII letters and digits, starting with
//!    a letter. Uppercase letters are converted to lowercase, because table names
//!    are case-insensitive.
//! 3. `CONTAINER`, `QUEUE` and `SHARE` have 3 to 63 of a-z, 0-9 and hyphens. The
//!    first and the last character and those next to a hyphen are letters or
//!    digits. A container may also be `$root`, `$web` or `$logs`. Uppercase
//!    letters are an error, as they are for the storage service.
//! 4. `PARTITION` is a partition key, which may be empty. `BLOB` is a blob name of
//!    1 to 1,024 characters, without URL encoding. Both are case-sensitive. Each
//!    byte of their UTF-8 encoding other than `A-Z`, `a-z`, `0-9`, `-`, `.`, `_`
//!    and `/` is written as `%` and two uppercase hexadecimal digits.
//! 5. A name of more than 256 bytes is truncated to its first 191 bytes, or to
//!    fewer bytes if an escape would be split. Then follow `~` and the SHA-256 of
//!    the whole name in 64 lowercase hexadecimal digits.
//!
//! Different resources have different names. **The lock of a table and the lock of
//! one of its partitions do not exclude each other.** All programs that write to a
//! table must use the same kind. They must also use the same namespace, because
//! the lock belongs to the namespace of the client.

use leasehold_types::percent_encode;
use sha2::{Digest, Sha256};

use crate::{Client, Error, LockRequest};

/// Limit of the protocol.
const MAX_NAME_BYTES: usize = 256;
/// Length of a truncated name before `~` and the digest.
const MAX_PREFIX_BYTES: usize = MAX_NAME_BYTES - 1 - 64;

/// Resource of a storage account with a designated lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Resource<'a> {
    /// Table with all of its entities.
    Table {
        /// Account name.
        account: &'a str,
        /// Table name.
        table: &'a str,
    },
    /// Entities of a table with one partition key.
    Partition {
        /// Account name.
        account: &'a str,
        /// Table name.
        table: &'a str,
        /// Partition key.
        partition: &'a str,
    },
    /// Blob.
    Blob {
        /// Account name.
        account: &'a str,
        /// Container name.
        container: &'a str,
        /// Blob name.
        blob: &'a str,
    },
    /// Container with all of its blobs.
    Container {
        /// Account name.
        account: &'a str,
        /// Container name.
        container: &'a str,
    },
    /// Queue.
    Queue {
        /// Account name.
        account: &'a str,
        /// Queue name.
        queue: &'a str,
    },
    /// File share with all of its files.
    Share {
        /// Account name.
        account: &'a str,
        /// Share name.
        share: &'a str,
    },
}

impl Resource<'_> {
    /// Returns the name of the designated lock, as specified in the
    /// [module](crate::designated).
    ///
    /// # Errors
    /// [`Error::Invalid`] if the name of the account or the resource is invalid.
    pub fn lock_name(&self) -> Result<String, Error> {
        Ok(truncate(match *self {
            Self::Table { account, table } => {
                format!("azure/{}/table/{}", self::account(account)?, self::table(table)?)
            }
            Self::Partition { account, table, partition } => {
                let (account, table) = (self::account(account)?, self::table(table)?);
                format!("azure/{account}/table/{table}/{}", escape(partition))
            }
            Self::Blob { account, container, blob } => {
                let (account, container) = (self::account(account)?, self::container(container)?);
                if blob.is_empty() || blob.chars().count() > 1024 {
                    let length = blob.chars().count();
                    let rule = format!("it must have 1 to 1,024 characters, not {length}");
                    return Err(refused("blob", &rule));
                }
                format!("azure/{account}/blob/{container}/{}", escape(blob))
            }
            Self::Container { account, container } => {
                let (account, container) = (self::account(account)?, self::container(container)?);
                format!("azure/{account}/container/{container}")
            }
            Self::Queue { account, queue } => {
                format!("azure/{}/queue/{}", self::account(account)?, label("queue", queue)?)
            }
            Self::Share { account, share } => {
                format!("azure/{}/share/{}", self::account(account)?, label("share", share)?)
            }
        }))
    }
}

/// Designated locks. Each method is [`Client::lock`] with the name that
/// [`Resource::lock_name`] derives.
impl Client {
    /// Returns a request for the designated lock of a table.
    ///
    /// ```no_run
    /// # async fn example(client: leasehold_client::Client) -> Result<(), leasehold_client::Error> {
    /// let guard = client.table_lock("acme", "Orders")?.acquire().await?;
    /// assert_eq!(guard.name(), "azure/acme/table/orders");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`] if a name is invalid.
    pub fn table_lock(&self, account: &str, table: &str) -> Result<LockRequest, Error> {
        self.designated_lock(&Resource::Table { account, table })
    }

    /// Returns a request for the designated lock of one partition of a table. It
    /// does not exclude the holder of the [table's lock](Self::table_lock).
    ///
    /// # Errors
    /// [`Error::Invalid`] if a name is invalid.
    pub fn partition_lock(
        &self,
        account: &str,
        table: &str,
        partition: &str,
    ) -> Result<LockRequest, Error> {
        self.designated_lock(&Resource::Partition { account, table, partition })
    }

    /// Returns a request for the designated lock of a blob.
    ///
    /// # Errors
    /// [`Error::Invalid`] if a name is invalid.
    pub fn blob_lock(
        &self,
        account: &str,
        container: &str,
        blob: &str,
    ) -> Result<LockRequest, Error> {
        self.designated_lock(&Resource::Blob { account, container, blob })
    }

    /// Returns a request for the designated lock of a container. It does not
    /// exclude holders of its [blobs' locks](Self::blob_lock).
    ///
    /// # Errors
    /// [`Error::Invalid`] if a name is invalid.
    pub fn container_lock(&self, account: &str, container: &str) -> Result<LockRequest, Error> {
        self.designated_lock(&Resource::Container { account, container })
    }

    /// Returns a request for the designated lock of a queue.
    ///
    /// # Errors
    /// [`Error::Invalid`] if a name is invalid.
    pub fn queue_lock(&self, account: &str, queue: &str) -> Result<LockRequest, Error> {
        self.designated_lock(&Resource::Queue { account, queue })
    }

    /// Returns a request for the designated lock of a file share.
    ///
    /// # Errors
    /// [`Error::Invalid`] if a name is invalid.
    pub fn share_lock(&self, account: &str, share: &str) -> Result<LockRequest, Error> {
        self.designated_lock(&Resource::Share { account, share })
    }

    /// Returns a request for the designated lock of any resource.
    ///
    /// # Errors
    /// [`Error::Invalid`] if a name is invalid.
    pub fn designated_lock(&self, resource: &Resource<'_>) -> Result<LockRequest, Error> {
        Ok(self.lock(resource.lock_name()?))
    }
}

fn account(name: &str) -> Result<String, Error> {
    let folded = name.to_ascii_lowercase();
    let plain = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
    if (1..=63).contains(&folded.len()) && folded.bytes().all(plain) {
        return Ok(folded);
    }
    Err(refused("account", "it must have 1 to 63 letters, digits and hyphens"))
}

pub(crate) fn table(name: &str) -> Result<String, Error> {
    let good = (3..=63).contains(&name.len())
        && name.bytes().all(|c| c.is_ascii_alphanumeric())
        && name.starts_with(|c: char| c.is_ascii_alphabetic());
    if good {
        return Ok(name.to_ascii_lowercase());
    }
    Err(refused("table", "it must have 3 to 63 letters and digits, starting with a letter"))
}

fn container(name: &str) -> Result<&str, Error> {
    if ["$root", "$web", "$logs"].contains(&name) { Ok(name) } else { label("container", name) }
}

fn label<'a>(field: &'static str, name: &'a str) -> Result<&'a str, Error> {
    let plain = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    let good = (3..=63).contains(&name.len())
        && name.split('-').all(|part| !part.is_empty() && part.bytes().all(plain));
    if good {
        return Ok(name);
    }
    let rule = "it must have 3 to 63 lowercase letters, digits and single hyphens, starting and \
                ending with a letter or digit";
    Err(refused(field, rule))
}

/// Returns the error of an invalid name. It does not quote the name, because a
/// value passed by mistake, such as a connection string, may be a secret.
fn refused(field: &str, rule: &str) -> Error {
    Error::invalid(field, format!("invalid {field} name: {rule}"))
}

/// Escapes a partition key or a blob name (step 4).
fn escape(text: &str) -> String {
    percent_encode(text, b"-._/")
}

/// Truncates a name that is too long, and appends the digest of the whole name.
/// The name is ASCII, and `~` occurs only in truncated names.
fn truncate(name: String) -> String {
    if name.len() <= MAX_NAME_BYTES {
        return name;
    }
    let digest: String = Sha256::digest(&name).iter().map(|byte| format!("{byte:02x}")).collect();
    let mut prefix = &name[..MAX_PREFIX_BYTES];
    if let Some(at) = prefix.rfind('%').filter(|at| at + 3 > MAX_PREFIX_BYTES) {
        prefix = &prefix[..at];
    }
    format!("{prefix}~{digest}")
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
