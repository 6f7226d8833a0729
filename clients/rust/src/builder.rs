//! Settings of a client.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use crate::{
    Client, Endpoints, Error, Holder, connection::Connection, error::format_duration, name,
    session::Profile,
};

const MIN_TTL: Duration = Duration::from_secs(1);
const MAX_TTL: Duration = Duration::from_secs(60);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Builder of a [`Client`]. Created by [`Client::builder`].
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

    /// Sets the session TTL: the time that the session survives after its last
    /// keep-alive, 1 s to 60 s. Default: the daemon's `default_ttl` (10 s).
    ///
    /// With a shorter TTL, the locks of a dead client are free sooner. With a
    /// longer TTL, the session survives longer pauses and outages.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// Sets the namespace of lock names, a DNS label. Default: `default`.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = namespace.into();
        self
    }

    /// Sets the client name in the holder description, for example "billing 2.3".
    /// Default: the file name of the program and the version of this crate.
    pub fn client_name(mut self, name: impl Into<String>) -> Self {
        self.client_name = Some(name.into());
        self
    }

    /// Adds a label to the holder description. Repeatable.
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.insert(key.into(), value.into());
        self
    }

    /// Declares the session as fenced: its locks are released as soon as its
    /// stream ends, not only when the TTL has elapsed. A disconnect therefore
    /// loses them.
    ///
    /// Set this only if the resource checks the token of *every* operation that
    /// this client performs under a lock.
    pub fn fenced(mut self, fenced: bool) -> Self {
        self.fenced = fenced;
        self
    }

    /// Sets the timeout of a connection attempt and of calls that do not wait for
    /// a lock. Default: 5 s. Several endpoints share it in equal parts while the
    /// client searches for a daemon that responds.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Connects.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an invalid setting, and [`Error::Unavailable`] if no
    /// daemon responds.
    pub async fn connect(self) -> Result<Client, Error> {
        let profile = self.profile()?;
        let connection = Connection::open(&self.endpoints, self.connect_timeout).await?;
        Ok(Client::new(Arc::new(connection), Arc::new(profile), self.namespace.into()))
    }

    fn profile(&self) -> Result<Profile, Error> {
        name::check_namespace(&self.namespace)?;
        if let Some(ttl) = self.ttl.filter(|ttl| !(MIN_TTL..=MAX_TTL).contains(ttl)) {
            let ttl = format_duration(ttl);
            let message =
                format!("session TTL {ttl} is out of range: use {MIN_TTL:?} to {MAX_TTL:?}");
            return Err(Error::invalid("ttl", message));
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
    fn invalid_settings_are_refused_before_connecting() {
        let builder = || Client::builder("http://127.0.0.1:7420");
        assert_eq!(refused_field(builder()), None);
        assert_eq!(refused_field(builder().ttl(MAX_TTL)), None);
        let refused = |builder| refused_field(builder).unwrap_or_default();
        assert_eq!(refused(builder().ttl(Duration::ZERO)), "ttl");
        assert_eq!(refused(builder().ttl(MAX_TTL + Duration::from_millis(1))), "ttl");
        assert_eq!(refused(builder().namespace("No Label")), "namespace");
        assert_eq!(refused(builder().label("note", "x".repeat(1025))), "holder");
    }

    #[test]
    fn holder_has_configured_name_and_labels() {
        let builder = Client::builder("").client_name("billing 2.3").label("job", "nightly");
        let holder = Holder::from(builder.profile().expect("within the limit").holder);
        assert_eq!(holder.client, "billing 2.3");
        assert_eq!(holder.labels["job"], "nightly");
        assert_eq!(holder.pid, Some(std::process::id()));
    }
}
