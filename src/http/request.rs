//! Parses the path and the query of a request for an election. Sans-IO.

use axum::http::Uri;
use percent_encoding::percent_decode_str;

use leasehold_types::{LockName, name::InvalidName};

/// Path prefix of all elections.
const ELECTIONS: &str = "/v1/elections/";

/// Request for an election.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ElectionRequest {
    /// Name of the election.
    pub(super) name: LockName,
    /// True if only a client of this daemon counts as the leader.
    pub(super) own: bool,
}

impl ElectionRequest {
    /// Parses a request. `None` if the path does not name an election.
    pub(super) fn parse(uri: &Uri) -> Option<Result<Self, InvalidName>> {
        // A name may contain slashes, as such or as %2F; a namespace may not.
        let (namespace, name) = uri.path().strip_prefix(ELECTIONS)?.split_once('/')?;
        Some(Self::of(namespace, name, uri.query()))
    }

    fn of(namespace: &str, name: &str, query: Option<&str>) -> Result<Self, InvalidName> {
        let namespace = decode("namespace", namespace)?;
        let name = LockName::parse(&namespace, &decode("name", name)?)?;
        Ok(Self { name, own: own(query)? })
    }
}

/// Parses the query. An unknown parameter is refused: a probe of `?slef=1` would
/// otherwise always succeed.
fn own(query: Option<&str>) -> Result<bool, InvalidName> {
    let mut own = false;
    for part in query.unwrap_or_default().split('&').filter(|part| !part.is_empty()) {
        own = match part.split_once('=').unwrap_or((part, "")) {
            ("self", "1" | "true") => true,
            ("self", "0" | "false") => false,
            ("self", _) => return Err(invalid("self", "must be 1 or 0")),
            _ => {
                return Err(invalid("query", "has an unknown parameter; the only one is \"self\""));
            }
        };
    }
    Ok(own)
}

pub(super) fn decode(field: &'static str, text: &str) -> Result<String, InvalidName> {
    // The decoder accepts a single percent sign as itself. A name that was not encoded
    // would then become another name.
    let mut escapes = text.split('%').skip(1);
    if !escapes.all(|after| after.bytes().take_while(u8::is_ascii_hexdigit).take(2).count() == 2) {
        return Err(invalid(field, "has a '%' without two hexadecimal digits; write it as %25"));
    }
    let decoded = percent_decode_str(text).decode_utf8();
    decoded.map(Into::into).map_err(|_| invalid(field, "is not UTF-8 after decoding"))
}

pub(super) fn invalid(field: &'static str, problem: &str) -> InvalidName {
    InvalidName { field, problem: problem.to_owned() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn get(uri: &str) -> Option<Result<ElectionRequest, InvalidName>> {
        ElectionRequest::parse(&uri.parse().unwrap())
    }

    fn election(
        namespace: &str,
        name: &str,
        own: bool,
    ) -> Option<Result<ElectionRequest, InvalidName>> {
        Some(Ok(ElectionRequest { name: LockName::parse(namespace, name).unwrap(), own }))
    }

    #[test]
    fn names_are_decoded_and_may_hold_slashes() {
        for (uri, namespace, name) in [
            ("/v1/elections/default/orders", "default", "orders"),
            ("/v1/elections/team-a/orders/eu", "team-a", "orders/eu"),
            ("/v1/elections/team-a/orders%2Feu", "team-a", "orders/eu"),
            ("/v1/elections/team-a/orders%2feu%20%E9%8E%96", "team-a", "orders/eu 鎖"),
            ("/v1/elections/default/100%25", "default", "100%"),
            ("/v1/elections/default/a+b", "default", "a+b"),
            ("/v1/elections/default//a/", "default", "/a/"),
            ("/v1/elections//orders", "default", "orders"),
            ("http://host/v1/elections/default/orders", "default", "orders"),
        ] {
            assert_eq!(get(uri), election(namespace, name, false), "{uri}");
        }
    }

    #[test]
    fn self_parameter_accepts_only_defined_values() {
        for (query, own) in
            [("self=1", true), ("self=true", true), ("self=0", false), ("", false), ("&", false)]
        {
            assert_eq!(get(&format!("/v1/elections/default/a?{query}")), election("", "a", own));
        }
        for (query, field) in
            [("self", "self"), ("self=", "self"), ("self=yes", "self"), ("slef=1", "query")]
        {
            let Some(Err(invalid)) = get(&format!("/v1/elections/default/a?{query}")) else {
                panic!("{query}");
            };
            assert_eq!(invalid.field, field, "{query}");
        }
    }

    #[test]
    fn invalid_name_is_refused() {
        let long = "x".repeat(257);
        for (path, field) in [
            ("default/", "name"),
            (&*format!("default/{long}"), "name"),
            ("default/a%07", "name"),
            ("default/%FF", "name"),
            ("default/%", "name"),
            ("default/%2", "name"),
            ("default/a%zz", "name"),
            ("Default/a", "namespace"),
            ("a%2Fb/c", "namespace"),
        ] {
            let Some(Err(invalid)) = get(&format!("/v1/elections/{path}")) else {
                panic!("{path}");
            };
            assert_eq!(invalid.field, field, "{path}");
        }
    }

    proptest! {
        #[test]
        fn every_name_can_be_requested(name in "\\PC{1,60}") {
            use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
            let encoded = utf8_percent_encode(&name, NON_ALPHANUMERIC);
            prop_assert_eq!(
                get(&format!("/v1/elections/default/{encoded}")),
                election("default", &name, false)
            );
        }
    }
}
