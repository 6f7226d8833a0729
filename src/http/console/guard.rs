//! Refuses requests that another web site may have caused. Sans-IO.
//!
//! A site can let its own name resolve to the address of this daemon (DNS
//! rebinding). The browser then takes both for the same origin, and only the `Host` header
//! tells them apart.

use std::net::IpAddr;

use axum::http::{
    HeaderMap, Uri,
    header::{HOST, ORIGIN},
};

/// Header in which browsers describe the origin of a request.
const FETCH_SITE: &str = "sec-fetch-site";

/// Names under which the console may be requested, besides IP addresses and
/// `localhost`.
#[derive(Clone, Debug, Default)]
pub(super) struct Guard {
    names: Vec<String>,
}

/// Reason why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// The `Host` header is absent, or its name is not expected.
    Host,
    /// The request was caused by a page of another site.
    Origin,
}

impl Refused {
    /// Cause and fix.
    pub(super) const fn message(self) -> &'static str {
        match self {
            Self::Host => {
                "the console is not served under this host name; use an IP address or localhost, \
                 or add the name to console_hosts"
            }
            Self::Origin => "the request was caused by a page of another site",
        }
    }
}

impl Guard {
    /// Creates a guard that also accepts these host names.
    pub(super) fn new(names: impl IntoIterator<Item = String>) -> Self {
        Self { names: names.into_iter().map(|name| name.to_ascii_lowercase()).collect() }
    }

    /// Checks the request. The address of the page itself may be followed from
    /// another site.
    pub(super) fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), Refused> {
        let mut hosts = headers.get_all(HOST).iter();
        let host = hosts.next().and_then(|host| host.to_str().ok()).ok_or(Refused::Host)?;
        if hosts.next().is_some() || !self.accepts(host) {
            return Err(Refused::Host);
        }
        if uri.authority().is_some_and(|authority| !authority.as_str().eq_ignore_ascii_case(host)) {
            return Err(Refused::Host);
        }
        let mut origins = headers.get_all(ORIGIN).iter();
        if !origins.all(|origin| origin.to_str().is_ok_and(|origin| is_origin_of(origin, host))) {
            return Err(Refused::Origin);
        }
        let site = headers.get(FETCH_SITE).and_then(|site| site.to_str().ok());
        if uri.path() != "/" && matches!(site, Some("cross-site" | "same-site")) {
            return Err(Refused::Origin);
        }
        Ok(())
    }

    fn accepts(&self, host: &str) -> bool {
        let name = name_of(host).to_ascii_lowercase();
        name == "localhost"
            || name.trim_matches(['[', ']']).parse::<IpAddr>().is_ok()
            || self.names.contains(&name)
    }
}

/// Returns the name in `NAME:PORT`, `NAME` or `[IPV6]:PORT`.
pub(super) fn name_of(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => {
            // An IPv6 address without brackets is not valid in a host.
            name
        }
        _ => host,
    }
}

/// Returns whether the origin is the host itself, over HTTP, or over HTTPS by a proxy.
fn is_origin_of(origin: &str, host: &str) -> bool {
    let authority = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    authority.is_some_and(|authority| authority.eq_ignore_ascii_case(host))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, headers: &[(&'static str, &'static str)]) -> Result<(), Refused> {
        let guard = Guard::new(["Locks.example.com".to_owned()]);
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        guard.check(&path.parse().unwrap(), &map)
    }

    #[test]
    fn addresses_and_configured_names_are_accepted() {
        for host in [
            "127.0.0.1:7421",
            "10.1.2.3",
            "[::1]:7421",
            "[fe80::1]",
            "localhost",
            "LocalHost:80",
            "locks.example.com:443",
            "LOCKS.EXAMPLE.COM",
        ] {
            assert_eq!(check("/", &[("host", host)]), Ok(()), "{host}");
        }
    }

    #[test]
    fn unexpected_hosts_are_refused() {
        for host in [
            "evil.example",
            "evil.example:7421",
            "127.0.0.1.evil.example",
            "locks.example.com.evil.example",
            "localhost.evil.example",
            "",
            ":80",
            "localhost@evil.example",
        ] {
            assert_eq!(check("/", &[("host", host)]), Err(Refused::Host), "{host}");
        }
        assert_eq!(check("/", &[]), Err(Refused::Host));
        let twice = [("host", "127.0.0.1"), ("host", "evil.example")];
        assert_eq!(check("/", &twice), Err(Refused::Host));
        let other = check("http://evil.example/", &[("host", "127.0.0.1")]);
        assert_eq!(other, Err(Refused::Host));
    }

    #[test]
    fn foreign_origins_are_refused() {
        let host = ("host", "127.0.0.1:7421");
        for origin in ["http://127.0.0.1:7421", "https://127.0.0.1:7421"] {
            assert_eq!(check("/console/api/locks", &[host, ("origin", origin)]), Ok(()));
        }
        for origin in ["null", "http://evil.example", "http://127.0.0.1:80", "http://127.0.0.1"] {
            let checked = check("/console/api/locks", &[host, ("origin", origin)]);
            assert_eq!(checked, Err(Refused::Origin), "{origin}");
        }
        let caused = [host, ("sec-fetch-site", "cross-site")];
        assert_eq!(check("/console/app.js", &caused), Err(Refused::Origin));
        assert_eq!(check("/", &caused), Ok(()), "a link to the page");
        let own = [host, ("sec-fetch-site", "same-origin")];
        assert_eq!(check("/console/app.js", &own), Ok(()));
    }
}
