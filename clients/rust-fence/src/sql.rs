//! Databases that refuse a stale holder: the statements for it, as
//! plain SQL for PostgreSQL and SQLite. Which library sends them is up to you.
//!
//! # One fence for a lock
//!
//! Begin each transaction with [`raise`]. If it changes no row, a newer holder
//! was there: roll back, and stop. Else go on and commit. The fence's row is
//! locked until then, so a newer holder waits for this transaction, and one that
//! was overtaken can't write after it.
//!
//! ```
//! use leasehold_fence::sql::{CREATE, Dialect, raise};
//!
//! assert!(CREATE.starts_with("CREATE TABLE IF NOT EXISTS leasehold_fence"));
//! // With the lock's name and the token as parameters 1 and 2, within the
//! // transaction of the writes: one row changed means go on, none means stop.
//! let statement = raise(Dialect::Postgres);
//! ```
//!
//! **Before the first read too**: what was read before the fence was raised may
//! be changed by who was overtaken. In PostgreSQL the level READ COMMITTED, which
//! is the default, is enough; at the levels above it, a transaction that waited
//! for another's fence fails with a serialization error, and is to be repeated.
//! In SQLite begin with `BEGIN IMMEDIATE`.
//!
//! # A fence in each row
//!
//! Where a statement changes one row that has a column for it, [`update`] makes
//! the comparison part of the statement. That needs no other table and no
//! transaction, but stops an older holder only at rows that a newer one has
//! written.
//!
//! **Tokens of different locks can't be compared**: let one lock protect what
//! has one fence. A token is less than 2^53: a BIGINT holds it.

/// Whose parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// `$1`, `$2`, …
    Postgres,
    /// `?1`, `?2`, …
    Sqlite,
}

impl Dialect {
    fn parameter(self, number: usize) -> String {
        match self {
            Self::Postgres => format!("${number}"),
            Self::Sqlite => format!("?{number}"),
        }
    }
}

/// Makes the table that [`raise`] needs, once. For both dialects.
pub const CREATE: &str = "CREATE TABLE IF NOT EXISTS leasehold_fence \
                          (lock TEXT PRIMARY KEY, token BIGINT NOT NULL)";

/// Puts up the fence. Parameters: 1 the lock's name, with its namespace if there
/// are several; 2 the token. It changes one row, or none if a newer holder was
/// there.
#[must_use]
pub fn raise(dialect: Dialect) -> String {
    let (lock, token) = (dialect.parameter(1), dialect.parameter(2));
    format!(
        "INSERT INTO leasehold_fence (lock, token) VALUES ({lock}, {token}) \
         ON CONFLICT (lock) DO UPDATE SET token = excluded.token \
         WHERE leasehold_fence.token <= excluded.token"
    )
}

/// Changes rows whose column `fence` has no greater token, and leaves this one
/// there. `set` and `condition` are SQL with parameters of your own; the token
/// is the parameter of the number that you give. If it changes no row, read why:
/// there is none, or a newer holder has written to it.
///
/// **`table`, `set` and `condition` become a part of the statement as they
/// are**: never put values of others into them.
///
/// ```
/// use leasehold_fence::sql::{Dialect, update};
///
/// assert_eq!(
///     update(Dialect::Postgres, "stock", "amount = $1", "id = $2", 3),
///     "UPDATE stock SET amount = $1, fence = $3 WHERE (id = $2) AND fence <= $3"
/// );
/// ```
#[must_use]
pub fn update(
    dialect: Dialect,
    table: &str,
    set: &str,
    condition: &str,
    token_parameter: usize,
) -> String {
    let token = dialect.parameter(token_parameter);
    format!("UPDATE {table} SET {set}, fence = {token} WHERE ({condition}) AND fence <= {token}")
}
