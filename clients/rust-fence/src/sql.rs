//! SQL statements that make PostgreSQL and SQLite refuse a stale holder. Send
//! them with any database library.
//!
//! # One fence per lock
//!
//! Begin each transaction with [`raise`]. If it changes no row, a newer holder has
//! written: roll back, and stop. Otherwise make the changes and commit. The row of
//! the fence is locked until the commit, so a newer holder waits for this
//! transaction, and a stale holder can't write after that newer holder.
//!
//! ```
//! use leasehold_fence::sql::{CREATE, Dialect, raise};
//!
//! assert!(CREATE.starts_with("CREATE TABLE IF NOT EXISTS leasehold_fence"));
//! // Parameters: 1 the name of the lock, 2 the token. Run it in the transaction of
//! // the writes. One changed row: continue. No changed row: stop.
//! let statement = raise(Dialect::Postgres);
//! ```
//!
//! **Call it before the first read**, because a stale holder can still change data
//! that was read before the fence was raised. In PostgreSQL, the default isolation
//! level READ COMMITTED is sufficient. At higher levels, a transaction that waited
//! for another one's fence fails with a serialization error; retry it. In SQLite,
//! begin with `BEGIN IMMEDIATE`.
//!
//! # A fence in each row
//!
//! If the rows have a column `fence`, [`update`] makes the comparison part of the
//! statement. That needs no other table and no transaction, but stops an older
//! holder only at rows that a newer one has written.
//!
//! **Tokens of different locks can't be compared**: use one lock per fence. A token
//! is less than 2^53 and fits into a BIGINT.

/// Database whose parameter syntax is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// PostgreSQL: `$1`, `$2`, …
    Postgres,
    /// SQLite: `?1`, `?2`, …
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

/// Statement that creates the table for [`raise`], if it does not exist. For both
/// dialects.
pub const CREATE: &str = "CREATE TABLE IF NOT EXISTS leasehold_fence \
                          (lock TEXT PRIMARY KEY, token BIGINT NOT NULL)";

/// Returns the statement that raises the fence. Parameters: 1 the name of the lock,
/// with its namespace if you use several; 2 the token. It changes one row, or no row
/// if a newer holder has raised the fence.
#[must_use]
pub fn raise(dialect: Dialect) -> String {
    let (lock, token) = (dialect.parameter(1), dialect.parameter(2));
    format!(
        "INSERT INTO leasehold_fence (lock, token) VALUES ({lock}, {token}) \
         ON CONFLICT (lock) DO UPDATE SET token = excluded.token \
         WHERE leasehold_fence.token <= excluded.token"
    )
}

/// Returns a statement that changes rows whose column `fence` has no higher token,
/// and stores this token there. `set` and `condition` are SQL with your own
/// parameters; `token_parameter` is the number of the parameter with the token. If
/// the statement changes no row, read the row: it does not exist, or a newer holder
/// has written it.
///
/// **`table`, `set` and `condition` are inserted verbatim**: never build them from
/// untrusted input.
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
