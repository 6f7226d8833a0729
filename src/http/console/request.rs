//! Parses the queries of the console. Sans-IO.

use super::super::request::{decode, invalid};
use leasehold_core::session::{LockFilter, LockKind};
use leasehold_types::{LockName, Namespace, name::InvalidName};

/// Default and maximum number of locks of a page.
const PAGE: (usize, usize) = (100, 500);

/// Requested view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum View {
    /// One page of the locks.
    Locks {
        /// Selected locks.
        filter: LockFilter,
        /// Maximum number of locks.
        limit: usize,
    },
    /// One lock in detail.
    Lock(LockName),
    /// The daemon and its storage.
    Daemon,
}

impl View {
    /// Parses the query of an event stream, which names its view.
    pub(super) fn parse(query: &str) -> Result<Self, InvalidName> {
        let parameters = Parameters::parse(query)?;
        match parameters.view.as_deref() {
            Some("locks") => parameters.locks(),
            Some("lock") => parameters.lock(),
            Some("daemon") => Ok(Self::Daemon),
            _ => Err(invalid("view", "must be \"locks\", \"lock\" or \"daemon\"")),
        }
    }

    /// Parses the query for a page of locks.
    pub(super) fn parse_locks(query: &str) -> Result<Self, InvalidName> {
        Parameters::parse(query)?.locks()
    }

    /// Parses the query for one lock.
    pub(super) fn parse_lock(query: &str) -> Result<Self, InvalidName> {
        Parameters::parse(query)?.lock()
    }
}

#[derive(Default)]
struct Parameters {
    view: Option<String>,
    namespace: String,
    name: String,
    prefix: String,
    after: String,
    filter: String,
    limit: String,
}

impl Parameters {
    fn parse(query: &str) -> Result<Self, InvalidName> {
        let mut parameters = Self::default();
        for part in query.split('&').filter(|part| !part.is_empty()) {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            // A form encodes a space as a plus sign.
            let value = value.replace('+', " ");
            let (target, field) = match key {
                "view" => (parameters.view.insert(String::new()), "view"),
                "namespace" => (&mut parameters.namespace, "namespace"),
                "name" => (&mut parameters.name, "name"),
                "prefix" => (&mut parameters.prefix, "prefix"),
                "after" => (&mut parameters.after, "after"),
                "filter" => (&mut parameters.filter, "filter"),
                "limit" => (&mut parameters.limit, "limit"),
                _ => return Err(invalid("query", "has an unknown parameter")),
            };
            *target = decode(field, &value)?;
        }
        Ok(parameters)
    }

    fn lock(self) -> Result<View, InvalidName> {
        LockName::parse(&self.namespace, &self.name).map(View::Lock)
    }

    fn locks(self) -> Result<View, InvalidName> {
        let namespace = match self.namespace.as_str() {
            "" => None,
            text => Some(Namespace::parse(text)?),
        };
        let after = match self.after.split_once('/') {
            None if self.after.is_empty() => None,
            None => return Err(invalid("after", "must be NAMESPACE/NAME")),
            Some((namespace, name)) => Some(LockName::parse(namespace, name)?),
        };
        let kind = match self.filter.as_str() {
            "" | "all" => LockKind::All,
            "elections" => LockKind::Elections,
            "waiters" => LockKind::WithWaiters,
            "at_risk" => LockKind::AtRisk,
            _ => {
                let problem = "must be \"all\", \"elections\", \"waiters\" or \"at_risk\"";
                return Err(invalid("filter", problem));
            }
        };
        let limit = match self.limit.as_str() {
            "" => PAGE.0,
            text => {
                let limit = text.parse().ok().filter(|limit| (1..=PAGE.1).contains(limit));
                limit.ok_or_else(|| invalid("limit", "must be from 1 to 500"))?
            }
        };
        let filter = LockFilter { namespace, prefix: self.prefix, after, kind };
        Ok(View::Locks { filter, limit })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_are_parsed() {
        let Ok(View::Locks { filter, limit }) = View::parse(
            "view=locks&prefix=a%2Fb+c&namespace=team&after=team/a%2Fb&filter=waiters&limit=7",
        ) else {
            panic!()
        };
        assert_eq!((filter.prefix.as_str(), limit), ("a/b c", 7));
        assert_eq!(filter.namespace, Some(Namespace::parse("team").unwrap()));
        assert_eq!(filter.after, Some(LockName::parse("team", "a/b").unwrap()));
        assert_eq!(filter.kind, LockKind::WithWaiters);
        let lock = View::parse("view=lock&namespace=default&name=%E9%8E%96");
        assert_eq!(lock, Ok(View::Lock(LockName::parse("", "鎖").unwrap())));
        assert_eq!(View::parse("view=daemon"), Ok(View::Daemon));
    }

    #[test]
    fn invalid_queries_are_refused() {
        for (query, field) in [
            ("", "view"),
            ("view=all", "view"),
            ("view=lock", "name"),
            ("view=lock&name=a%07", "name"),
            ("view=locks&limit=0", "limit"),
            ("view=locks&limit=501", "limit"),
            ("view=locks&filter=x", "filter"),
            ("view=locks&after=x", "after"),
            ("view=locks&namespace=A", "namespace"),
            ("view=locks&prefix=%", "prefix"),
            ("view=locks&lease=1", "query"),
        ] {
            assert_eq!(View::parse(query).unwrap_err().field, field, "{query}");
        }
    }
}
