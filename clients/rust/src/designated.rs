//! Locks that are designated for a resource of a storage account.
//!
//! The lock's name is derived from the resource alone, so that all programs
//! that touch it agree on the lock without talking to each other, in whatever
//! language they are written. This is how it is derived; the file
//! `clients/designated-locks.json` has examples for tests.
//!
//! | resource | name of the lock |
//! |---|---|
//! | table | `azure/ACCOUNT/table/TABLE` |
//! | partition of a table | `azure/ACCOUNT/table/TABLE/PARTITION` |
//! | blob | `azure/ACCOUNT/blob/CONTAINER/BLOB` |
//! | container | `azure/ACCOUNT/container/CONTAINER` |
//! | queue | `azure/ACCOUNT/queue/QUEUE` |
//! | file share | `azure/ACCOUNT/share/SHARE` |
//!
//! 1. `ACCOUNT` is the account's name: 1 to 63 of a-z, 0-9 and hyphens. Capital
//!    letters (A-Z) are made small.
//! 2. `TABLE` is the table's name: 3 to 63 letters and digits (ASCII), the first
//!    a letter. Capital letters are made small: the service does not tell them
//!    apart in names of tables.
//! 3. `CONTAINER`, `QUEUE` and `SHARE` have 3 to 63 of a-z, 0-9 and hyphens,
//!    with a letter or digit first, last, and on both sides of a hyphen. A
//!    container may also be `$root`, `$web` or `$logs`. Capital letters are an
//!    error, as they are to the service.
//! 4. `PARTITION` (a partition key, which may be empty) and `BLOB` (a blob's
//!    name as it is, not as URLs spell it, 1 to 1,024 characters) tell capital
//!    from small letters. Each byte of their UTF-8 that is not one of `A-Z`,
//!    `a-z`, `0-9`, `-`, `.`, `_` and `/` is written as `%` and two capital
//!    hexadecimal digits.
//! 5. A name of more than 256 bytes is cut to its first 191 bytes, without an
//!    escape that would be cut in the middle; then come `~` and the SHA-256 of
//!    the whole name, in 64 small hexadecimal digits.
//!
//! Different resources have different names. **The lock of a table and that of
//! one of its partitions are two locks**: they do not exclude each other, so
//! let all programs that write to a table use the one kind or the other. The
//! lock is one of the client's namespace, which they must have in common too.

use sha2::{Digest, Sha256};

use crate::{Client, Error, LockRequest};

const LONGEST: usize = 256;
const CUT: usize = LONGEST - 1 - 64;

/// A resource of a storage account that a lock is designated for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Resource<'a> {
    /// A table, with all that is in it.
    Table {
        /// The account's name.
        account: &'a str,
        /// The table's name.
        table: &'a str,
    },
    /// The entities of a table that have this partition key.
    Partition {
        /// The account's name.
        account: &'a str,
        /// The table's name.
        table: &'a str,
        /// The partition key.
        partition: &'a str,
    },
    /// A blob.
    Blob {
        /// The account's name.
        account: &'a str,
        /// The container's name.
        container: &'a str,
        /// The blob's name.
        blob: &'a str,
    },
    /// A container, with all that is in it.
    Container {
        /// The account's name.
        account: &'a str,
        /// The container's name.
        container: &'a str,
    },
    /// A queue.
    Queue {
        /// The account's name.
        account: &'a str,
        /// The queue's name.
        queue: &'a str,
    },
    /// A file share, with all that is in it.
    Share {
        /// The account's name.
        account: &'a str,
        /// The share's name.
        share: &'a str,
    },
}

impl Resource<'_> {
    /// The name of the lock that is designated for it, as the
    /// [module](crate::designated) specifies.
    ///
    /// # Errors
    /// [`Error::Invalid`] if no such resource can exist.
    pub fn lock_name(&self) -> Result<String, Error> {
        Ok(fit(match *self {
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
                    let message = "a blob's name has 1 to 1,024 characters; this one has";
                    let length = blob.chars().count();
                    return Err(Error::invalid("blob", format!("{message} {length}")));
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

/// Each is [`Client::lock`] with the name that [`Resource::lock_name`] derives.
impl Client {
    /// Asks for the lock that is designated for a table.
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
    /// [`Error::Invalid`] if there can be no such table.
    pub fn table_lock(&self, account: &str, table: &str) -> Result<LockRequest, Error> {
        self.designated_lock(&Resource::Table { account, table })
    }

    /// Asks for the lock that is designated for one partition of a table. It
    /// does not exclude the holder of the [table's lock](Self::table_lock).
    ///
    /// # Errors
    /// [`Error::Invalid`] if there can be no such table.
    pub fn partition_lock(
        &self,
        account: &str,
        table: &str,
        partition: &str,
    ) -> Result<LockRequest, Error> {
        self.designated_lock(&Resource::Partition { account, table, partition })
    }

    /// Asks for the lock that is designated for a blob.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there can be no such blob.
    pub fn blob_lock(
        &self,
        account: &str,
        container: &str,
        blob: &str,
    ) -> Result<LockRequest, Error> {
        self.designated_lock(&Resource::Blob { account, container, blob })
    }

    /// Asks for the lock that is designated for a container. It does not
    /// exclude holders of its [blobs' locks](Self::blob_lock).
    ///
    /// # Errors
    /// [`Error::Invalid`] if there can be no such container.
    pub fn container_lock(&self, account: &str, container: &str) -> Result<LockRequest, Error> {
        self.designated_lock(&Resource::Container { account, container })
    }

    /// Asks for the lock that is designated for a queue.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there can be no such queue.
    pub fn queue_lock(&self, account: &str, queue: &str) -> Result<LockRequest, Error> {
        self.designated_lock(&Resource::Queue { account, queue })
    }

    /// Asks for the lock that is designated for a file share.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there can be no such share.
    pub fn share_lock(&self, account: &str, share: &str) -> Result<LockRequest, Error> {
        self.designated_lock(&Resource::Share { account, share })
    }

    /// Asks for the lock that is designated for a resource of any kind.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there can be no such resource.
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
    Err(refused("account", "an account's name has 1 to 63 letters, digits and hyphens"))
}

pub(crate) fn table(name: &str) -> Result<String, Error> {
    let good = (3..=63).contains(&name.len())
        && name.bytes().all(|c| c.is_ascii_alphanumeric())
        && name.starts_with(|c: char| c.is_ascii_alphabetic());
    if good {
        return Ok(name.to_ascii_lowercase());
    }
    let rule = "a table's name has 3 to 63 letters and digits, the first a letter";
    Err(refused("table", rule))
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
    let rule = format!(
        "a {field}'s name has 3 to 63 small letters, digits and single hyphens, with a letter or \
         digit first and last"
    );
    Err(refused(field, &rule))
}

/// The name is not quoted: what was put in its place by mistake, such as a
/// connection string, may be a secret.
fn refused(field: &str, rule: &str) -> Error {
    Error::invalid(field, rule)
}

fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._/".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    escaped
}

/// What is too long for a lock's name ends with its digest. All of it is ASCII
/// here, and `~` is in no name that was not cut.
fn fit(name: String) -> String {
    if name.len() <= LONGEST {
        return name;
    }
    let digest: String = Sha256::digest(&name).iter().map(|byte| format!("{byte:02x}")).collect();
    let mut kept = &name[..CUT];
    if let Some(at) = kept.rfind('%').filter(|at| at + 3 > CUT) {
        kept = &kept[..at];
    }
    format!("{kept}~{digest}")
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
