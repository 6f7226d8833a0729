//! Description of a holder.

use std::{collections::BTreeMap, env, fmt, path::Path};

use prost::Message;

use crate::{Error, pb};

/// Maximum size of the encoded description, set by the protocol.
const MAX_HOLDER_BYTES: usize = 1024;

/// Human-readable description of a holder, as the holder's client sent it. Not
/// authenticated: never base a decision on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holder {
    /// Program or client library, for example "billing 2.3".
    pub client: String,
    /// Host name.
    pub host: String,
    /// Process ID, if known.
    pub pid: Option<u32>,
    /// Kubernetes pod, if any.
    pub pod: Option<String>,
    /// Further labels.
    pub labels: BTreeMap<String, String>,
}

impl Holder {
    /// Returns the description of this process.
    pub(crate) fn this_process() -> Self {
        Self {
            client: format!("{} (leasehold-client {})", program(), env!("CARGO_PKG_VERSION")),
            host: host(),
            pid: Some(std::process::id()),
            pod: pod(|key| env::var(key).ok().filter(|value| !value.is_empty())),
            labels: BTreeMap::new(),
        }
    }

    /// Encodes the description. Fails if it exceeds the limit of the protocol.
    pub(crate) fn encoded(&self) -> Result<pb::Holder, Error> {
        let holder = pb::Holder {
            client: self.client.clone(),
            host: self.host.clone(),
            pid: self.pid.unwrap_or_default(),
            pod: self.pod.clone().unwrap_or_default(),
            labels: self.labels.clone().into_iter().collect(),
        };
        let bytes = holder.encoded_len();
        if bytes > MAX_HOLDER_BYTES {
            let message = format!(
                "the holder description (client name, host, pod, labels) is too large: {bytes} \
                 bytes; the maximum is {MAX_HOLDER_BYTES}"
            );
            return Err(Error::invalid("holder", message));
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
    /// For example `billing 2.3 on web-1 (pid 712, pod web-1-x)`.
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

/// Returns the pod of this process: `POD_NAME`, or else the host name if the
/// process runs in Kubernetes. With the host network, the host name is that of
/// the node.
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
    fn display_lists_known_details() {
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
    fn holder_round_trips_through_protocol() {
        let mut holder = Holder::this_process();
        holder.labels.insert("job".into(), "nightly".into());
        let wire = holder.encoded().expect("within the limit");
        assert_eq!(Holder::from(wire), holder);
        assert_eq!(Holder::from(pb::Holder::default()), Holder::default());
    }

    #[test]
    fn description_over_limit_is_refused() {
        let holder = Holder { client: "x".repeat(MAX_HOLDER_BYTES), ..Holder::default() };
        let Err(Error::Invalid { field, message }) = holder.encoded() else {
            panic!("the description was accepted")
        };
        assert_eq!(field, "holder");
        assert!(message.contains("1024"), "{message}");
    }

    #[test]
    fn host_name_is_pod_only_in_kubernetes() {
        let with = |known: &'static [(&str, &str)]| {
            pod(move |key| known.iter().find(|(k, _)| *k == key).map(|(_, v)| (*v).to_owned()))
        };
        assert_eq!(with(&[("HOSTNAME", "laptop")]), None);
        assert_eq!(with(&[("HOSTNAME", "p"), ("KUBERNETES_SERVICE_HOST", "k")]), Some("p".into()));
        assert_eq!(with(&[("HOSTNAME", "p"), ("POD_NAME", "q")]), Some("q".into()));
    }
}
