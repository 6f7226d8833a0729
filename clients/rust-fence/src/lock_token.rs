//! Lock and token that a write presents to a fenced resource.

use std::{env, fmt};

use leasehold_client::{Error, Guard, Leadership, ParseTokenError, Token};

/// Lock under which a write is made, and the token of its holder. A fenced
/// resource refuses a token that is lower than the highest it has seen of this
/// lock. Tokens of different locks can't be compared.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LockToken {
    namespace: String,
    lock: String,
    token: Token,
}

impl LockToken {
    /// By name. An empty namespace is the default one.
    pub fn new(namespace: impl Into<String>, lock: impl Into<String>, token: Token) -> Self {
        let namespace = Some(namespace.into()).filter(|namespace| !namespace.is_empty());
        let namespace = namespace.unwrap_or_else(|| "default".to_owned());
        Self { namespace, lock: lock.into(), token }
    }

    /// From what `leasehold lock` and `leasehold elect` tell the command that
    /// they run: `LEASEHOLD_NAMESPACE`, `LEASEHOLD_LOCK` and `LEASEHOLD_TOKEN`.
    ///
    /// # Errors
    /// [`Error::Invalid`] if one of them is not there: then this process was
    /// not started under a lock.
    pub fn from_env() -> Result<Self, Error> {
        Self::from_variables(|variable| env::var(variable).ok())
    }

    fn from_variables(lookup: impl Fn(&str) -> Option<String>) -> Result<Self, Error> {
        let read = |variable: &str| {
            lookup(variable).ok_or_else(|| {
                let why = "is not set: run this program by `leasehold lock NAME -- PROGRAM`";
                invalid(variable, format!("{variable} {why}"))
            })
        };
        let token = read("LEASEHOLD_TOKEN")?;
        let token = token.parse().map_err(|error: ParseTokenError| {
            invalid("LEASEHOLD_TOKEN", format!("LEASEHOLD_TOKEN: {error}"))
        })?;
        Ok(Self::new(read("LEASEHOLD_NAMESPACE")?, read("LEASEHOLD_LOCK")?, token))
    }

    /// The namespace that the lock's name belongs to.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The lock's name.
    #[must_use]
    pub fn lock(&self) -> &str {
        &self.lock
    }

    /// The holder's token.
    #[must_use]
    pub const fn token(&self) -> Token {
        self.token
    }

    /// The lock as resources remember it. A namespace has no slash, so the
    /// first one divides.
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
    fn variables_are_taken_as_they_are_or_refused() {
        // A line for each variable.
        const VARIABLES: [&str; 3] = ["LEASEHOLD_TOKEN", "LEASEHOLD_NAMESPACE", "LEASEHOLD_LOCK"];
        Fuzz::new("fence-environment").run(|input| {
            let text = String::from_utf8_lossy(input);
            let lines: Vec<_> = text.split('\n').collect();
            let lookup = |variable: &str| {
                let at = VARIABLES.iter().position(|known| *known == variable)?;
                lines.get(at).map(|line| (*line).to_owned())
            };
            match LockToken::from_variables(lookup) {
                Ok(fence) => {
                    let namespace = if lines[1].is_empty() { "default" } else { lines[1] };
                    let token = fence.token().to_string();
                    assert_eq!(
                        [&*token, fence.namespace(), fence.lock()],
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
