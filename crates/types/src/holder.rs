//! Who holds a lock, as the holder tells it about itself.

use std::{collections::BTreeMap, fmt};

use crate::name::{InvalidName, check_text};

/// The largest description, in bytes of all its texts together.
pub const LARGEST: usize = 1024;

/// A description of a holder, for people. Proves nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holder {
    client: Box<str>,
    host: Box<str>,
    pid: u32,
    pod: Box<str>,
    labels: BTreeMap<Box<str>, Box<str>>,
}

impl Holder {
    /// Checks sizes, and that no text holds control characters. A `pid` of 0
    /// means that it is not known; empty texts likewise.
    pub fn try_new(
        client: &str,
        host: &str,
        pid: u32,
        pod: &str,
        labels: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, InvalidName> {
        check_text("holder.client", client, LARGEST)?;
        check_text("holder.host", host, LARGEST)?;
        check_text("holder.pod", pod, LARGEST)?;
        let mut size = client.len() + host.len() + pod.len();
        let mut kept = BTreeMap::new();
        for (key, value) in labels {
            check_text("holder.labels", &key, LARGEST)?;
            check_text("holder.labels", &value, LARGEST)?;
            size += key.len() + value.len();
            kept.insert(key.into(), value.into());
        }
        if size > LARGEST {
            return Err(InvalidName {
                field: "holder",
                problem: format!("has {size} bytes in all; at most {LARGEST} are allowed"),
            });
        }
        Ok(Self { client: client.into(), host: host.into(), pid, pod: pod.into(), labels: kept })
    }

    /// The program.
    #[must_use]
    pub fn client(&self) -> &str {
        &self.client
    }

    /// The machine.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The process, 0 if not known.
    #[must_use]
    pub const fn pid(&self) -> u32 {
        self.pid
    }

    /// The pod, or empty.
    #[must_use]
    pub fn pod(&self) -> &str {
        &self.pod
    }

    /// Anything else.
    pub fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        self.labels.iter().map(|(key, value)| (&**key, &**value))
    }
}

impl Holder {
    /// Formats it for a sentence, with the client's name in quotes: a name may
    /// consist of several words.
    #[must_use]
    pub fn quoted(&self) -> impl fmt::Display + '_ {
        fmt::from_fn(move |f| match &*self.client {
            "" => write!(f, "{self}"),
            client => {
                write!(f, "{client:?}")?;
                self.whereabouts(f)
            }
        })
    }

    fn whereabouts(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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

/// As in "held by billing 2.3 on web-1 (pid 712)".
impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.client.is_empty() { "an unnamed client" } else { &self.client })?;
        self.whereabouts(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_well() {
        let holder = Holder::try_new("billing 2.3", "web-1", 712, "", []).unwrap();
        assert_eq!(holder.to_string(), "billing 2.3 on web-1 (pid 712)");
        assert_eq!(holder.quoted().to_string(), "\"billing 2.3\" on web-1 (pid 712)");
        assert_eq!(Holder::default().to_string(), "an unnamed client");
        assert_eq!(Holder::default().quoted().to_string(), "an unnamed client");
    }

    #[test]
    fn too_much_is_refused_with_the_limit() {
        let labels = (0..20).map(|n| (format!("key{n}"), "v".repeat(60)));
        let error = Holder::try_new("c", "h", 1, "", labels).unwrap_err();
        assert_eq!(error.field, "holder");
        assert!(error.to_string().contains("at most 1024"), "{error}");
    }

    #[test]
    fn nothing_that_a_terminal_obeys() {
        assert!(Holder::try_new("\u{1b}[2J", "", 0, "", []).is_err());
        assert!(Holder::try_new("", "", 0, "", [("k".into(), "\n".into())]).is_err());
    }
}
