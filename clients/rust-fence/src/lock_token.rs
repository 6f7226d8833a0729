//! Lock and token that a write presents to a fenced resource.

use std::{env, fmt};

use leasehold_client::{Error, Guard, Leadership, ParseTokenError, Token};

/// Lock under which a write is made, and the token of its holder. A fenced
/// resource refuses a token lower than the highest it has seen of this lock.
/// Tokens of different locks can't be compared.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LockToken {
    namespace: String,
    lock: String,
    token: Token,
}

impl LockToken {
    /// Creates it from the lock's name and the token. An empty namespace means
    /// `default`.
    pub fn new(namespace: impl Into<String>, lock: impl Into<String>, token: Token) -> Self {
        let namespace = Some(namespace.into()).filter(|namespace| !namespace.is_empty());
        let namespace = namespace.unwrap_or_else(|| "default".to_owned());
        Self { namespace, lock: lock.into(), token }
    }

    /// Reads it from the environment variables that `leasehold lock` and
    /// `leasehold elect` set for their command: `LEASEHOLD_NAMESPACE`,
    /// `LEASEHOLD_LOCK` and `LEASEHOLD_TOKEN`.
    ///
    /// # Errors
    /// [`Error::Invalid`] if a variable is not set or not valid. Then this process
    /// does not run under a lock.
    pub fn from_env() -> Result<Self, Error> {
        Self::from_variables(|variable| env::var(variable).ok())
    }

    fn from_variables(lookup: impl Fn(&str) -> Option<String>) -> Result<Self, Error> {
        let read = |variable: &str| {
            lookup(variable).ok_or_else(|| {
                let why = "is not set; run this program with `leasehold lock NAME -- PROGRAM`";
                invalid(variable, format!("{variable} {why}"))
            })
        };
        let token = read("LEASEHOLD_TOKEN")?;
        let token = token.parse().map_err(|error: ParseTokenError| {
            invalid("LEASEHOLD_TOKEN", format!("LEASEHOLD_TOKEN: {error}"))
        })?;
        Ok(Self::new(read("LEASEHOLD_NAMESPACE")?, read("LEASEHOLD_LOCK")?, token))
    }

    /// Namespace of the lock.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Name of the lock.
    #[must_use]
    pub fn lock(&self) -> &str {
        &self.lock
    }

    /// Token of the holder.
    #[must_use]
    pub const fn token(&self) -> Token {
        self.token
    }

    /// Returns namespace, slash and name: the text that fenced resources store. A
    /// namespace contains no slash, so the first slash is the separator.
    #[cfg(any(feature = "azure", feature = "http"))]
    pub(crate) fn qualified_lock(&self) -> String {
        format!("{}/{}", self.namespace, self.lock)
    }
}

fn invalid(variable: &str, message: String) -> Error {
    Error::Invalid { field: variable.to_owned(), message }
}

impl From<&Guard> for LockToken {
    fn from(guard: &Guard) -> Self {
        Self::new(guard.namespace(), guard.name(), guard.token())
    }
}

impl From<&Leadership> for LockToken {
    fn from(leadership: &Leadership) -> Self {
        Self::new(leadership.namespace(), leadership.name(), leadership.token())
    }
}

impl fmt::Display for LockToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lock {:?} in namespace {}, token {}", self.lock, self.namespace, self.token)
    }
}

#[cfg(test)]
mod fuzz {
    use leasehold_fuzz::Fuzz;

    use super::*;

    #[test]
    fn environment_is_parsed_exactly_fuzzed() {
        // The input has one line per variable.
        const VARIABLES: [&str; 3] = ["LEASEHOLD_TOKEN", "LEASEHOLD_NAMESPACE", "LEASEHOLD_LOCK"];
        Fuzz::new("fence-environment").run(|input| {
            let text = String::from_utf8_lossy(input);
            let lines: Vec<_> = text.split('\n').collect();
            let lookup = |variable: &str| {
                let at = VARIABLES.iter().position(|known| *known == variable)?;
                lines.get(at).map(|line| (*line).to_owned())
            };
            match LockToken::from_variables(lookup) {
                Ok(lock_token) => {
                    let namespace = if lines[1].is_empty() { "default" } else { lines[1] };
                    let token = lock_token.token().to_string();
                    assert_eq!(
                        [&*token, lock_token.namespace(), lock_token.lock()],
                        [lines[0], namespace, lines[2]]
                    );
                    "taken".to_owned()
                }
                Err(Error::Invalid { field, message }) => {
                    assert!(VARIABLES.contains(&&*field), "{field}");
                    assert!(!message.chars().any(char::is_control), "{message:?}");
                    message
                }
                Err(error) => panic!("{error}"),
            }
        });
    }
}
