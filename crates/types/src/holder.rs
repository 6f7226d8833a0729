//! Holder's description of itself.

use std::{collections::BTreeMap, fmt};

use crate::name::{InvalidName, check_text};

/// Maximum size of a description: sum over all its texts.
pub const MAX_HOLDER_BYTES: usize = 1024;

/// Human-readable description of a holder. It comes from the client and is not
/// verified.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holder {
    client: Box<str>,
    host: Box<str>,
    pid: u32,
    pod: Box<str>,
    labels: BTreeMap<Box<str>, Box<str>>,
}

impl Holder {
    /// Creates a description. A `pid` of 0 means unknown, as does an empty text.
    ///
    /// # Errors
    /// If the texts are too long, or one has a control character.
    pub fn try_new(
        client: &str,
        host: &str,
        pid: u32,
        pod: &str,
        labels: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, InvalidName> {
        check_text("holder.client", client, MAX_HOLDER_BYTES)?;
        check_text("holder.host", host, MAX_HOLDER_BYTES)?;
        check_text("holder.pod", pod, MAX_HOLDER_BYTES)?;
        let mut size = client.len() + host.len() + pod.len();
        let mut checked = BTreeMap::new();
        for (key, value) in labels {
            check_text("holder.labels", &key, MAX_HOLDER_BYTES)?;
            check_text("holder.labels", &value, MAX_HOLDER_BYTES)?;
            size += key.len() + value.len();
            checked.insert(key.into(), value.into());
        }
        if size > MAX_HOLDER_BYTES {
            return Err(InvalidName {
                field: "holder",
                problem: format!("has {size} bytes in all; at most {MAX_HOLDER_BYTES} are allowed"),
            });
        }
        Ok(Self { client: client.into(), host: host.into(), pid, pod: pod.into(), labels: checked })
    }

    /// Returns the name of the program.
    #[must_use]
    pub fn client(&self) -> &str {
        &self.client
    }

    /// Returns the name of the host.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns the process ID; 0 if unknown.
    #[must_use]
    pub const fn pid(&self) -> u32 {
        self.pid
    }

    /// Returns the name of the pod; empty if there is none.
    #[must_use]
    pub fn pod(&self) -> &str {
        &self.pod
    }

    /// Returns the labels, sorted by key.
    pub fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        self.labels.iter().map(|(key, value)| (&**key, &**value))
    }
}

impl Holder {
    /// Formats the description for a sentence, with the client's name in quotes,
    /// because a name may consist of several words.
    #[must_use]
    pub fn quoted(&self) -> impl fmt::Display + '_ {
        fmt::from_fn(move |f| match &*self.client {
            "" => write!(f, "{self}"),
            client => {
                write!(f, "{client:?}")?;
                self.fmt_location(f)
            }
        })
    }

    fn fmt_location(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.host.is_empty() {
            write!(f, " on {}", self.host)?;
        }
        match (self.pid, &*self.pod) {
            (0, "") => Ok(()),
            (0, pod) => write!(f, " (pod {pod})"),
            (pid, "") => write!(f, " (pid {pid})"),
            (pid, pod) => write!(f, " (pid {pid}, pod {pod})"),
        }
    }
}

/// Example: "billing 2.3 on web-1 (pid 712)".
impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.client.is_empty() { "an unnamed client" } else { &self.client })?;
        self.fmt_location(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_names_client_host_and_pid() {
        let holder = Holder::try_new("billing 2.3", "web-1", 712, "", []).unwrap();
        assert_eq!(holder.to_string(), "billing 2.3 on web-1 (pid 712)");
        assert_eq!(holder.quoted().to_string(), "\"billing 2.3\" on web-1 (pid 712)");
        assert_eq!(Holder::default().to_string(), "an unnamed client");
        assert_eq!(Holder::default().quoted().to_string(), "an unnamed client");
    }

    #[test]
    fn oversized_description_is_refused_with_limit() {
        let labels = (0..20).map(|n| (format!("key{n}"), "v".repeat(60)));
        let error = Holder::try_new("c", "h", 1, "", labels).unwrap_err();
        assert_eq!(error.field, "holder");
        assert!(error.to_string().contains("at most 1024"), "{error}");
    }

    #[test]
    fn control_characters_are_refused() {
        assert!(Holder::try_new("\u{1b}[2J", "", 0, "", []).is_err());
        assert!(Holder::try_new("", "", 0, "", [("k".into(), "\n".into())]).is_err());
    }
}
