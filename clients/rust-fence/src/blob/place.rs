//! Blobs: their names, and where they are.

use std::fmt;

use leasehold_client::{Token, designated::Resource};

use super::Error;
use crate::escape::escape;

/// What an error is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The container's name.
    pub container: String,
    /// The blob's name.
    pub blob: String,
    /// The token with which it was tried, if it was tried with one.
    pub token: Option<Token>,
}

impl Place {
    /// A blob of this name, if there can be one.
    pub(super) fn new(account: &str, container: &str, blob: &str) -> Result<Self, Error> {
        let place = Self { container: container.to_owned(), blob: blob.to_owned(), token: None };
        let resource = Resource::Blob { account, container, blob };
        if let Err(leasehold_client::Error::Invalid { message, .. }) = resource.lock_name() {
            return Err(Error::invalid(&place, message));
        }
        // Addresses with these in them mean other addresses.
        if blob.split('/').any(|part| [".", ".."].contains(&part)) {
            let message = "no part of a blob's name can be \".\" or \"..\". Choose another";
            return Err(Error::invalid(&place, message));
        }
        Ok(place)
    }

    pub(super) fn with_token(&self, token: Token) -> Self {
        Self { token: Some(token), ..self.clone() }
    }

    /// The path in its address, escaped.
    pub(super) fn path(&self) -> String {
        format!("{}/{}", self.container, escape(&self.blob, b"/"))
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "blob {:?} in container {:?}", self.blob, self.container)?;
        self.token.map_or(Ok(()), |token| write!(f, ", token {token}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_and_told() {
        let place =
            Place::new("acme", "reports", "2026/a b+ü?.csv").unwrap().with_token(Token::new(7));
        assert_eq!(place.path(), "reports/2026/a%20b%2B%C3%BC%3F.csv");
        let told = "blob \"2026/a b+ü?.csv\" in container \"reports\", token 7";
        assert_eq!(place.to_string(), told);
    }

    #[test]
    fn what_can_t_be_a_blob_is_refused() {
        for (container, blob) in [("Reports", "a"), ("reports", ""), ("reports", "a/../b")] {
            let error = Place::new("acme", container, blob).unwrap_err();
            assert!(matches!(error, Error::Invalid { .. }), "{error}");
        }
    }
}
