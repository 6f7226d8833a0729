//! Endpoints of the daemons of a client.

/// Endpoints of the daemons that a [`Client`](crate::Client) may use, in order of
/// preference: `http://HOST:PORT` or, on Unix, `unix:/PATH`.
///
/// Converts from a comma-separated string or from a list:
///
/// ```
/// use leasehold_client::Endpoints;
///
/// let listed = Endpoints::from(["http://a:7420", "http://b:7420"]);
/// assert_eq!(Endpoints::from("http://a:7420, http://b:7420"), listed);
/// ```
///
/// All endpoints must belong to daemons on the same store. Daemons with separate
/// embedded stores do not share locks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Endpoints(Vec<String>);

impl Endpoints {
    pub(crate) fn as_slice(&self) -> &[String] {
        &self.0
    }
}

impl From<&str> for Endpoints {
    fn from(text: &str) -> Self {
        Self(text.split(',').map(|endpoint| endpoint.trim().to_owned()).collect())
    }
}

impl From<String> for Endpoints {
    fn from(text: String) -> Self {
        text.as_str().into()
    }
}

impl From<&String> for Endpoints {
    fn from(text: &String) -> Self {
        text.as_str().into()
    }
}

impl<S: Into<String>> From<Vec<S>> for Endpoints {
    fn from(endpoints: Vec<S>) -> Self {
        Self(endpoints.into_iter().map(Into::into).collect())
    }
}

impl<S: Into<String>, const N: usize> From<[S; N]> for Endpoints {
    fn from(endpoints: [S; N]) -> Self {
        Self(endpoints.into_iter().map(Into::into).collect())
    }
}

impl<S: AsRef<str>> From<&[S]> for Endpoints {
    fn from(endpoints: &[S]) -> Self {
        Self(endpoints.iter().map(|endpoint| endpoint.as_ref().to_owned()).collect())
    }
}
