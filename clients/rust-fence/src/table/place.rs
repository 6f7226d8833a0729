//! Tables, partitions and rows: their names, and where they are.

use std::fmt;

use leasehold_client::Token;

use super::Error;
use crate::escape::escape;

/// Row keys that begin so are the fence's own.
pub(super) const RESERVED: &str = "~leasehold.";

/// The row that knows the highest token.
pub(super) const HEAD: &str = "~leasehold.head";

/// The longest key, in bytes.
const LONGEST_KEY: usize = 1024;

/// The row whose presence lets the holder of this token write. Padded, so that
/// they sort by token.
pub(super) fn fence_row(token: u64) -> String {
    format!("{RESERVED}fence.{token:020}")
}

/// The token of a fence's row; none if it is no fence's.
pub(super) fn fence_token(row: &str) -> Option<u64> {
    let token = row.strip_prefix(RESERVED)?.strip_prefix("fence.")?.parse().ok()?;
    (fence_row(token) == row).then_some(token)
}

/// What an error is about: as much of it as is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The table's name.
    pub table: String,
    /// The partition key.
    pub partition: Option<String>,
    /// The row key.
    pub row: Option<String>,
    /// The token with which it was tried, if it was tried with one.
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
                write!(f, ", {name} {}", shown(key))?;
            }
        }
        self.token.map_or(Ok(()), |token| write!(f, ", token {token}"))
    }
}

/// Escaped, and cut if it is a book.
fn shown(key: &str) -> String {
    match key.char_indices().nth(80) {
        Some((end, _)) => format!("{:?}…", &key[..end]),
        None => format!("{key:?}"),
    }
}

/// The path of an entity, escaped. A quote is doubled, as in OData.
pub(super) fn entity_path(table: &str, partition: &str, row: &str) -> String {
    let (partition, row) = (escape(&quoted(partition), b"'"), escape(&quoted(row), b"'"));
    format!("{table}(PartitionKey={partition},RowKey={row})")
}

/// A text as it is written in a [filter](super::Query::filter): in quotes, and
/// those within it doubled. Without this, a text that comes from elsewhere can
/// change what the filter means.
///
/// ```
/// # use leasehold_fence::table::quoted;
/// assert_eq!(format!("Name eq {}", quoted("O'Hara")), "Name eq 'O''Hara'");
/// ```
#[must_use]
pub fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// Whether a partition key or a row key can be one.
pub(super) fn check_key(kind: &'static str, key: &str, place: &Place) -> Result<(), Error> {
    let wrong = if key.len() > LONGEST_KEY {
        format!("it has {} bytes; at most {LONGEST_KEY} are allowed", key.len())
    } else if let Some(c) = key.chars().find(|c| c.is_control() || "/\\#?".contains(*c)) {
        format!("it has {c:?} in it; no control character and none of / \\ # ? is allowed")
    } else {
        return Ok(());
    };
    Err(Error::invalid(place, format!("the {kind} key can't be one: {wrong}. Choose another")))
}

/// Whether a row is one that users may have.
pub(super) fn check_row(row: &str, place: &Place) -> Result<(), Error> {
    if row.starts_with(RESERVED) {
        let why = format!("row keys that begin with {RESERVED:?} are the guard's own");
        return Err(Error::invalid(place, format!("{why}. Choose another")));
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
    fn what_can_t_be_a_key_is_refused() {
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
    fn places_are_told_as_far_as_they_are_known() {
        let place = Place::table("orders").partition("p\n");
        assert_eq!(place.to_string(), r#"table "orders", partition "p\n""#);
        let place = place.row(&"r".repeat(100)).token(7);
        assert!(place.to_string().ends_with("rrr\"…, token 7"), "{place}");
    }
}
