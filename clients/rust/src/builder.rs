//! How a client introduces itself.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use crate::{Client, Endpoints, Error, Holder, connection::Connection, name, session::Profile};

const SHORTEST_TTL: Duration = Duration::from_secs(1);
const LONGEST_TTL: Duration = Duration::from_secs(60);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Sets up a [`Client`]. Made by [`Client::builder`].
#[derive(Clone, Debug)]
#[must_use = "nothing happens before `connect`"]
pub struct ClientBuilder {
    endpoints: Endpoints,
    namespace: String,
    ttl: Option<Duration>,
    client_name: Option<String>,
    labels: BTreeMap<String, String>,
    fenced: bool,
    connect_timeout: Duration,
}

impl ClientBuilder {
    pub(crate) fn new(endpoints: Endpoints) -> Self {
        Self {
            endpoints,
            namespace: "default".to_owned(),
            ttl: None,
            client_name: None,
            labels: BTreeMap::new(),
            fenced: false,
            connect_timeout: CONNECT_TIMEOUT,
        }
    }

    /// How long the session outlives the last sign of life: 1 to 60 s. The
    /// daemon's default (10 s) if it is not set.
    ///
    /// Shorter: others get the locks of a dead client sooner. Longer: a longer
    /// pause or outage is survived without losing a lock.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// The namespace that lock names belong to: a DNS label. `default` if it
    /// is not set.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = namespace.into();
        self
    }

    /// What others are shown as the holder, such as "billing 2.3". The
    /// program's file name if it is not set.
    pub fn client_name(mut self, name: impl Into<String>) -> Self {
        self.client_name = Some(name.into());
        self
    }

    /// Something else that helps a person who finds a lock taken.
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.insert(key.into(), value.into());
        self
    }

    /// Set this only if *everything* that this client does under a lock is
    /// checked by its token at the resource. The locks are then freed as soon
    /// as the connection ends, and not only when the ttl has passed; a broken
    /// connection loses them.
    pub fn fenced(mut self, fenced: bool) -> Self {
        self.fenced = fenced;
        self
    }

    /// How long to wait for a connection, and for answers that need no wait.
    /// 5 s if it is not set. Several endpoints share it in equal parts while the
    /// client looks for one that answers.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Connects.
    ///
    /// # Errors
    /// [`Error::Invalid`] if a setting is not acceptable, and
    /// [`Error::Unavailable`] if there is no daemon.
    pub async fn connect(self) -> Result<Client, Error> {
        let profile = self.profile()?;
        let connection = Connection::open(&self.endpoints, self.connect_timeout).await?;
        Ok(Client::new(Arc::new(connection), Arc::new(profile), self.namespace.into()))
    }

    fn profile(&self) -> Result<Profile, Error> {
        name::check_namespace(&self.namespace)?;
        if let Some(ttl) = self.ttl.filter(|ttl| !(SHORTEST_TTL..=LONGEST_TTL).contains(ttl)) {
            return Err(Error::invalid(
                "ttl",
                format!("a session's ttl is {SHORTEST_TTL:?} to {LONGEST_TTL:?}, not {ttl:?}"),
            ));
        }
        let mut holder = Holder::this_process();
        if let Some(name) = &self.client_name {
            holder.client.clone_from(name);
        }
        holder.labels.clone_from(&self.labels);
        Ok(Profile { ttl: self.ttl, holder: holder.encoded()?, fenced: self.fenced })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused_field(builder: ClientBuilder) -> Option<String> {
        match builder.profile() {
            Ok(_) => None,
            Err(Error::Invalid { field, .. }) => Some(field),
            Err(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn settings_are_checked_before_anything_is_sent() {
        let builder = || Client::builder("http://127.0.0.1:7420");
        assert_eq!(refused_field(builder()), None);
        assert_eq!(refused_field(builder().ttl(LONGEST_TTL)), None);
        let refused = |builder| refused_field(builder).unwrap_or_default();
        assert_eq!(refused(builder().ttl(Duration::ZERO)), "ttl");
        assert_eq!(refused(builder().ttl(LONGEST_TTL + Duration::from_millis(1))), "ttl");
        assert_eq!(refused(builder().namespace("No Label")), "namespace");
        assert_eq!(refused(builder().label("note", "x".repeat(1025))), "holder");
    }

    #[test]
    fn the_holder_is_what_was_said() {
        let builder = Client::builder("").client_name("billing 2.3").label("job", "nightly");
        let holder = Holder::from(builder.profile().expect("it is small").holder);
        assert_eq!(holder.client, "billing 2.3");
        assert_eq!(holder.labels["job"], "nightly");
        assert_eq!(holder.pid, Some(std::process::id()));
    }
}
