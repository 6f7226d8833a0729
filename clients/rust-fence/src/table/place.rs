//! Names of tables, partitions and rows, and their addresses.

use std::fmt;

use leasehold_client::Token;

use super::Error;
use crate::escape::escape;

/// Prefix of the row keys that are reserved for the fence.
pub(super) const RESERVED: &str = "~leasehold.";

/// Row key of the head row, which contains the highest token.
pub(super) const HEAD: &str = "~leasehold.head";

/// Maximum length of a key.
const MAX_KEY_BYTES: usize = 1024;

/// Returns the row key of a token's fence row. The token is padded, so that the rows
/// sort by token.
pub(super) fn fence_row(token: u64) -> String {
    format!("{RESERVED}fence.{token:020}")
}

/// Returns the token of a fence row; `None` for other row keys.
pub(super) fn fence_token(row: &str) -> Option<u64> {
    let token = row.strip_prefix(RESERVED)?.strip_prefix("fence.")?.parse().ok()?;
    (fence_row(token) == row).then_some(token)
}

/// Table, partition, row and token that an error refers to, as far as they are known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Name of the table.
    pub table: String,
    /// Partition key.
    pub partition: Option<String>,
    /// Row key.
    pub row: Option<String>,
    /// Token that the call presented, if any.
    pub token: Option<Token>,
}

impl Place {
    pub(super) fn table(table: &str) -> Self {
        Self { table: table.to_owned(), ..Self::default() }
    }

    pub(super) fn partition(mut self, partition: &str) -> Self {
        self.partition = Some(partition.to_owned());
        self
    }

    pub(super) fn row(mut self, row: &str) -> Self {
        self.row = Some(row.to_owned());
        self
    }

    pub(super) fn token(mut self, token: u64) -> Self {
        self.token = Some(Token::new(token));
        self
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "table {:?}", self.table)?;
        for (name, key) in [("partition", &self.partition), ("row", &self.row)] {
            if let Some(key) = key {
                write!(f, ", {name} {}", display_key(key))?;
            }
        }
        self.token.map_or(Ok(()), |token| write!(f, ", token {token}"))
    }
}

/// Returns the key in quotes, escaped and truncated to 80 characters.
fn display_key(key: &str) -> String {
    match key.char_indices().nth(80) {
        Some((end, _)) => format!("{:?}…", &key[..end]),
        None => format!("{key:?}"),
    }
}

/// Returns the escaped path of an entity. Quotes are doubled, as OData requires.
pub(super) fn entity_path(table: &str, partition: &str, row: &str) -> String {
    let (partition, row) = (escape(&quoted(partition), b"'"), escape(&quoted(row), b"'"));
    format!("{table}(PartitionKey={partition},RowKey={row})")
}

/// Returns a string literal for a [filter](super::Query::filter): in quotes, with
/// quotes in the text doubled. Use it for every untrusted text, which could otherwise
/// change the meaning of the filter.
///
/// ```
/// # use leasehold_fence::table::quoted;
/// assert_eq!(format!("Name eq {}", quoted("O'Hara")), "Name eq 'O''Hara'");
/// ```
#[must_use]
pub fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// Checks that a partition key or row key is valid.
pub(super) fn check_key(kind: &'static str, key: &str, place: &Place) -> Result<(), Error> {
    let problem = if key.len() > MAX_KEY_BYTES {
        format!("it has {} bytes; the maximum is {MAX_KEY_BYTES}", key.len())
    } else if let Some(c) = key.chars().find(|c| c.is_control() || "/\\#?".contains(*c)) {
        format!("it contains {c:?}; control characters and / \\ # ? are not allowed")
    } else {
        return Ok(());
    };
    Err(Error::invalid(place, format!("invalid {kind} key: {problem}")))
}

/// Checks that a row key is valid and not reserved for the fence.
pub(super) fn check_row(row: &str, place: &Place) -> Result<(), Error> {
    if row.starts_with(RESERVED) {
        let message = format!(
            "row keys that begin with {RESERVED:?} are reserved for the fence; use another"
        );
        return Err(Error::invalid(place, message));
    }
    check_key("row", row, place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_escaped_and_quotes_doubled() {
        assert_eq!(
            entity_path("orders", "O'Hara & Söhne", "a+b%~"),
            "orders(PartitionKey='O''Hara%20%26%20S%C3%B6hne',RowKey='a%2Bb%25~')"
        );
    }

    #[test]
    fn fences_sort_by_token() {
        assert_eq!(fence_row(17), "~leasehold.fence.00000000000000000017");
        assert!(fence_row(9) < fence_row(10));
        assert_eq!(fence_row(u64::MAX).len(), fence_row(0).len());
        for token in [0, 17, u64::MAX] {
            assert_eq!(fence_token(&fence_row(token)), Some(token));
        }
        for row in
            ["~leasehold.head", "~leasehold.fence.17", "~leasehold.fence.+0000000000000000017"]
        {
            assert_eq!(fence_token(row), None, "{row}");
        }
    }

    #[test]
    fn invalid_keys_are_refused() {
        let place = Place::table("orders");
        let long = "k".repeat(1025);
        for key in ["a/b", "a\\b", "#", "?", "\n", "\u{7f}", "\u{9f}", &long] {
            let error = check_row(key, &place).unwrap_err();
            assert!(matches!(error, Error::Invalid { .. }), "{error}");
            assert!(check_key("partition", key, &place).is_err());
        }
        assert!(check_row("~leasehold.head", &place).is_err());
        assert!(check_row("~leasehold.", &place).is_err());
        for key in ["", "~leasehold", "a b'%+é鎖", &long[1..]] {
            assert!(check_row(key, &place).is_ok(), "{key}");
        }
    }

    #[test]
    fn place_displays_known_parts() {
        let place = Place::table("orders").partition("p\n");
        assert_eq!(place.to_string(), r#"table "orders", partition "p\n""#);
        let place = place.row(&"r".repeat(100)).token(7);
        assert!(place.to_string().ends_with("rrr\"…, token 7"), "{place}");
    }
}
