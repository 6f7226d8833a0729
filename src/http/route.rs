//! What a request asks for. Pure.

use hyper::{Method, Uri};
use percent_encoding::percent_decode_str;

use leasehold_types::{LockName, name::InvalidName};

/// What can be asked for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// Whether the daemon answers.
    Health,
    /// Whether it can grant locks.
    Ready,
    /// Who leads.
    Election {
        /// The election.
        name: LockName,
        /// Whether only a client of this daemon counts.
        own: bool,
    },
}

/// Why a request is none.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// There is nothing of that path.
    NotFound,
    /// There is, but only to be read.
    Method,
    /// A part of the path or of the query is not acceptable.
    Invalid(InvalidName),
}

impl Route {
    pub(super) fn of(method: &Method, uri: &Uri) -> Result<Self, Refusal> {
        let path = uri.path();
        // A name may hold slashes, written as such or as %2F; a namespace none.
        let election = path.strip_prefix("/v1/elections/").and_then(|rest| rest.split_once('/'));
        if !matches!(path, "/healthz" | "/readyz") && election.is_none() {
            return Err(Refusal::NotFound);
        }
        if !matches!(*method, Method::GET | Method::HEAD) {
            return Err(Refusal::Method);
        }
        match election {
            Some((namespace, name)) => {
                Self::election(namespace, name, uri.query()).map_err(Refusal::Invalid)
            }
            None if path == "/healthz" => Ok(Self::Health),
            None => Ok(Self::Ready),
        }
    }

    fn election(namespace: &str, name: &str, query: Option<&str>) -> Result<Self, InvalidName> {
        let namespace = decode("namespace", namespace)?;
        let name = LockName::parse(&namespace, &decode("name", name)?)?;
        Ok(Self::Election { name, own: own(query)? })
    }
}

/// Reads the query. A word that is not known is refused: a probe that asks for
/// `?slef=1` would else be told that all is well, for ever.
fn own(query: Option<&str>) -> Result<bool, InvalidName> {
    let mut own = false;
    for part in query.unwrap_or_default().split('&').filter(|part| !part.is_empty()) {
        own = match part.split_once('=').unwrap_or((part, "")) {
            ("self", "1" | "true") => true,
            ("self", "0" | "false") => false,
            ("self", _) => return Err(invalid("self", "must be 1 or 0")),
            _ => return Err(invalid("query", "has an unknown parameter; there is only \"self\"")),
        };
    }
    Ok(own)
}

fn decode(field: &'static str, text: &str) -> Result<String, InvalidName> {
    // The decoder takes a lone percent sign for itself; then a name that was
    // not encoded would quietly be another one.
    let mut escapes = text.split('%').skip(1);
    if !escapes.all(|after| after.bytes().take_while(u8::is_ascii_hexdigit).take(2).count() == 2) {
        return Err(invalid(field, "has a '%' without two hexadecimal digits; write it as %25"));
    }
    let decoded = percent_decode_str(text).decode_utf8();
    decoded.map(Into::into).map_err(|_| invalid(field, "is not UTF-8 once it is decoded"))
}

fn invalid(field: &'static str, problem: &str) -> InvalidName {
    InvalidName { field, problem: problem.to_owned() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn get(uri: &str) -> Result<Route, Refusal> {
        Route::of(&Method::GET, &uri.parse().unwrap())
    }

    fn election(namespace: &str, name: &str, own: bool) -> Result<Route, Refusal> {
        Ok(Route::Election { name: LockName::parse(namespace, name).unwrap(), own })
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
    fn only_a_clear_word_asks_for_a_client_of_this_daemon() {
        for (query, own) in
            [("self=1", true), ("self=true", true), ("self=0", false), ("", false), ("&", false)]
        {
            assert_eq!(get(&format!("/v1/elections/default/a?{query}")), election("", "a", own));
        }
        for (query, field) in
            [("self", "self"), ("self=", "self"), ("self=yes", "self"), ("slef=1", "query")]
        {
            let Err(Refusal::Invalid(invalid)) = get(&format!("/v1/elections/default/a?{query}"))
            else {
                panic!("{query}");
            };
            assert_eq!(invalid.field, field, "{query}");
        }
    }

    #[test]
    fn what_is_no_name_is_refused() {
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
            let Err(Refusal::Invalid(invalid)) = get(&format!("/v1/elections/{path}")) else {
                panic!("{path}");
            };
            assert_eq!(invalid.field, field, "{path}");
        }
    }

    #[test]
    fn there_is_nothing_else_and_nothing_to_write() {
        for path in ["/", "/v1/elections", "/v1/elections/a", "/healthz/", "/v2/elections/a/b"] {
            assert_eq!(get(path), Err(Refusal::NotFound), "{path}");
        }
        for path in ["/healthz", "/readyz", "/v1/elections/default/a"] {
            let uri = path.parse().unwrap();
            assert_eq!(Route::of(&Method::PUT, &uri), Err(Refusal::Method), "{path}");
            assert!(Route::of(&Method::HEAD, &uri).is_ok(), "{path}");
        }
    }

    proptest! {
        #[test]
        fn every_name_can_be_asked_for(name in "\\PC{1,60}") {
            use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
            let encoded = utf8_percent_encode(&name, NON_ALPHANUMERIC);
            prop_assert_eq!(
                get(&format!("/v1/elections/default/{encoded}")),
                election("default", &name, false)
            );
        }
    }
}
