//! Names of blobs, and their addresses.

use std::fmt;

use leasehold_client::{Token, designated::Resource};

use super::Error;
use crate::escape::escape;

/// Blob and token that an error refers to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The container's name.
    pub container: String,
    /// The blob's name.
    pub blob: String,
    /// Token that the call presented, if any.
    pub token: Option<Token>,
}

impl Place {
    /// Checks the names against the rules of the service.
    pub(super) fn new(account: &str, container: &str, blob: &str) -> Result<Self, Error> {
        let place = Self { container: container.to_owned(), blob: blob.to_owned(), token: None };
        let resource = Resource::Blob { account, container, blob };
        if let Err(leasehold_client::Error::Invalid { message, .. }) = resource.lock_name() {
            return Err(Error::invalid(&place, message));
        }
        // URL parsers resolve these segments, so the URL would name another blob.
        if blob.split('/').any(|part| [".", ".."].contains(&part)) {
            let message = "a blob name can't have the segments \".\" and \"..\"";
            return Err(Error::invalid(&place, message));
        }
        Ok(place)
    }

    pub(super) fn with_token(&self, token: Token) -> Self {
        Self { token: Some(token), ..self.clone() }
    }

    /// Returns the escaped path of the blob's URL.
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
    fn blob_names_are_escaped_in_paths() {
        let place =
            Place::new("acme", "reports", "2026/a b+ü?.csv").unwrap().with_token(Token::new(7));
        assert_eq!(place.path(), "reports/2026/a%20b%2B%C3%BC%3F.csv");
        let displayed = "blob \"2026/a b+ü?.csv\" in container \"reports\", token 7";
        assert_eq!(place.to_string(), displayed);
    }

    #[test]
    fn invalid_blob_names_are_refused() {
        for (container, blob) in [("Reports", "a"), ("reports", ""), ("reports", "a/../b")] {
            let error = Place::new("acme", container, blob).unwrap_err();
            assert!(matches!(error, Error::Invalid { .. }), "{error}");
        }
    }
}
