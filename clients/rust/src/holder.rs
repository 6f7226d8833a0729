//! Who holds a lock, as holders tell about themselves.

use std::{collections::BTreeMap, env, fmt, path::Path};

use prost::Message;

use crate::{Error, pb};

/// The protocol's limit for a description, in its encoded form.
const MOST_BYTES: usize = 1024;

/// A description of a holder, told by the holder itself: for people, never for
/// decisions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holder {
    /// The program or client library, such as "billing 2.3".
    pub client: String,
    /// The machine.
    pub host: String,
    /// The process, if it is known.
    pub pid: Option<u32>,
    /// The Kubernetes pod, if there is one.
    pub pod: Option<String>,
    /// Anything else that helps a person.
    pub labels: BTreeMap<String, String>,
}

impl Holder {
    /// This process.
    pub(crate) fn this_process() -> Self {
        Self {
            client: format!("{} (leasehold-client {})", program(), env!("CARGO_PKG_VERSION")),
            host: host(),
            pid: Some(std::process::id()),
            pod: pod(|key| env::var(key).ok().filter(|value| !value.is_empty())),
            labels: BTreeMap::new(),
        }
    }

    /// The description for the wire, refused if it is larger than the protocol
    /// allows.
    pub(crate) fn encoded(&self) -> Result<pb::Holder, Error> {
        let holder = pb::Holder {
            client: self.client.clone(),
            host: self.host.clone(),
            pid: self.pid.unwrap_or_default(),
            pod: self.pod.clone().unwrap_or_default(),
            labels: self.labels.clone().into_iter().collect(),
        };
        let bytes = holder.encoded_len();
        if bytes > MOST_BYTES {
            return Err(Error::invalid(
                "holder",
                format!(
                    "the description of the holder (client name, host, pod, labels) takes {bytes} bytes; at most {MOST_BYTES} are allowed"
                ),
            ));
        }
        Ok(holder)
    }
}

impl From<pb::Holder> for Holder {
    fn from(holder: pb::Holder) -> Self {
        Self {
            client: holder.client,
            host: holder.host,
            pid: Some(holder.pid).filter(|pid| *pid != 0),
            pod: Some(holder.pod).filter(|pod| !pod.is_empty()),
            labels: holder.labels.into_iter().collect(),
        }
    }
}

impl fmt::Display for Holder {
    /// Such as `billing 2.3 on web-1 (pid 712, pod web-1-x)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.client.is_empty() { "an unnamed client" } else { &self.client })?;
        if !self.host.is_empty() {
            write!(f, " on {}", self.host)?;
        }
        let details: Vec<String> = (self.pid.map(|pid| format!("pid {pid}")).into_iter())
            .chain(self.pod.as_ref().map(|pod| format!("pod {pod}")))
            .chain(self.labels.iter().map(|(key, value)| format!("{key}={value}")))
            .collect();
        if !details.is_empty() {
            write!(f, " ({})", details.join(", "))?;
        }
        Ok(())
    }
}

#[cfg(unix)]
pub(crate) fn host() -> String {
    nix::unistd::gethostname().map(|host| host.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Windows sets COMPUTERNAME for every process.
#[cfg(not(unix))]
pub(crate) fn host() -> String {
    env::var("COMPUTERNAME").unwrap_or_default()
}

fn program() -> String {
    env::args_os()
        .next()
        .and_then(|path| {
            Path::new(&path).file_name().map(|name| name.to_string_lossy().into_owned())
        })
        .unwrap_or_else(|| "unnamed".to_owned())
}

/// The pod that this process runs in: told by `POD_NAME`; in Kubernetes the
/// host name is the pod's unless the pod uses its node's network.
fn pod(variable: impl Fn(&str) -> Option<String>) -> Option<String> {
    variable("POD_NAME").or_else(|| {
        variable("KUBERNETES_SERVICE_HOST")?;
        variable("HOSTNAME")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_reads_like_a_sentence() {
        let mut holder =
            Holder { client: "billing 2.3".into(), host: "web-1".into(), ..Holder::default() };
        assert_eq!(holder.to_string(), "billing 2.3 on web-1");
        holder.pid = Some(712);
        holder.pod = Some("web-1-x".into());
        assert_eq!(holder.to_string(), "billing 2.3 on web-1 (pid 712, pod web-1-x)");
        holder.labels.insert("job".into(), "nightly".into());
        assert_eq!(holder.to_string(), "billing 2.3 on web-1 (pid 712, pod web-1-x, job=nightly)");
        assert_eq!(Holder::default().to_string(), "an unnamed client");
    }

    #[test]
    fn it_survives_the_wire() {
        let mut holder = Holder::this_process();
        holder.labels.insert("job".into(), "nightly".into());
        let wire = holder.encoded().expect("it is small");
        assert_eq!(Holder::from(wire), holder);
        assert_eq!(Holder::from(pb::Holder::default()), Holder::default());
    }

    #[test]
    fn a_description_above_the_limit_is_refused() {
        let holder = Holder { client: "x".repeat(MOST_BYTES), ..Holder::default() };
        let Err(Error::Invalid { field, message }) = holder.encoded() else {
            panic!("it was accepted")
        };
        assert_eq!(field, "holder");
        assert!(message.contains("1024"), "{message}");
    }

    #[test]
    fn the_pod_is_taken_from_kubernetes_only() {
        let with = |known: &'static [(&str, &str)]| {
            pod(move |key| known.iter().find(|(k, _)| *k == key).map(|(_, v)| (*v).to_owned()))
        };
        assert_eq!(with(&[("HOSTNAME", "laptop")]), None);
        assert_eq!(with(&[("HOSTNAME", "p"), ("KUBERNETES_SERVICE_HOST", "k")]), Some("p".into()));
        assert_eq!(with(&[("HOSTNAME", "p"), ("POD_NAME", "q")]), Some("q".into()));
    }
}
