//! A lock as people and programs are shown it.

use std::time::Duration;

use leasehold_client::{Holder, LockInfo, StoredInfo};
use serde_json::{Value, json};

use super::output::{holder_json, length, millis, printable};

/// What is shown of a lock.
#[derive(Debug, Clone)]
pub(super) struct Shown {
    namespace: String,
    name: String,
    held: bool,
    holder: Option<Holder>,
    session_id: Option<String>,
    token: Option<u64>,
    held_for: Option<Duration>,
    waiting: u32,
    ending: bool,
}

impl From<LockInfo> for Shown {
    fn from(lock: LockInfo) -> Self {
        Self {
            namespace: lock.namespace,
            name: lock.name,
            held: lock.held,
            holder: lock.holder,
            session_id: lock.session_id,
            token: lock.token.map(u64::from),
            held_for: lock.held_for,
            waiting: lock.waiting,
            ending: lock.ending,
        }
    }
}

impl Shown {
    /// For programs. What is not known is null, so that the keys are always
    /// the same.
    pub(super) fn json(&self) -> Value {
        json!({
            "namespace": self.namespace,
            "name": self.name,
            "held": self.held,
            "holder": self.holder.as_ref().map(holder_json),
            "session_id": self.session_id,
            "token": self.token,
            "held_for_ms": self.held_for.map(millis),
            "waiting": self.waiting,
            "ending": self.ending,
        })
    }

    /// For people, on one line.
    pub(super) fn line(&self) -> String {
        let mut parts = vec![format!("{}: {}", printable(&self.name), self.state())];
        if self.held {
            parts[0].push_str(&format!(" by {}", self.holder()));
        }
        parts.extend(self.held_for.map(|held_for| format!("held for {}", length(held_for))));
        parts.extend(self.token.map(|token| format!("token {token}")));
        parts.extend((self.waiting > 0).then(|| format!("{} waiting", self.waiting)));
        parts.join(", ")
    }

    /// For people, all that is known.
    pub(super) fn paragraph(&self) -> String {
        let mut lines = vec![
            ("name", printable(&self.name)),
            ("namespace", self.namespace.clone()),
            ("state", self.state().to_owned()),
        ];
        if self.held {
            lines.push(("holder", self.holder()));
        }
        lines.extend(self.held_for.map(|held_for| ("held for", length(held_for))));
        lines.extend(self.token.map(|token| ("token", token.to_string())));
        lines.extend(self.session_id.as_ref().map(|id| ("session", printable(id))));
        lines.push(("waiting", self.waiting.to_string()));
        let lines = lines.into_iter().map(|(key, value)| format!("{key:<10} {value}"));
        lines.collect::<Vec<_>>().join("\n")
    }

    fn state(&self) -> &'static str {
        match (self.held, self.ending) {
            (true, true) => "ending, still held",
            (true, false) => "held",
            (false, _) => "free",
        }
    }

    fn holder(&self) -> String {
        let known = self.holder.as_ref().map(|holder| printable(&holder.to_string()));
        known.unwrap_or_else(|| "an unknown holder".to_owned())
    }

    fn columns(&self) -> [String; 6] {
        let unknown = || "-".to_owned();
        [
            printable(&self.name),
            if self.ending { "ending" } else { self.state() }.to_owned(),
            self.held_for.map_or_else(unknown, length),
            self.token.map_or_else(unknown, |token| token.to_string()),
            self.waiting.to_string(),
            if self.held { self.holder() } else { unknown() },
        ]
    }
}

/// A lock and how it is stored, for people.
pub(super) fn stored_paragraph(stored: &StoredInfo) -> String {
    let mut lines = vec![
        Shown::from(stored.lock.clone()).paragraph(),
        format!("{:<10} {}", "store", printable(&stored.store)),
    ];
    if let Some(place) = &stored.place {
        lines.push(format!("{:<10} {}", "place", printable(place)));
    }
    if let Some((by, reason)) = &stored.last_break {
        let note = format!("by {by}: {reason}");
        lines.push(format!("{:<10} {}", "last break", printable(&note)));
    }
    if !stored.calls.is_empty() {
        lines.push(format!("\n{:<10} {:<10} {:>10}", "CALL", "CAUSE", "COUNT"));
        for calls in &stored.calls {
            let (kind, cause) = (printable(&calls.kind), printable(&calls.cause));
            lines.push(format!("{kind:<10} {cause:<10} {:>10}", calls.count));
        }
    }
    lines.join("\n")
}

/// The same for programs.
pub(super) fn stored_json(stored: &StoredInfo) -> Value {
    let mut object = Shown::from(stored.lock.clone()).json();
    object["store"] = stored.store.as_str().into();
    object["place"] = stored.place.as_deref().into();
    let last_break = stored.last_break.as_ref();
    object["last_break"] =
        last_break.map_or(Value::Null, |(by, reason)| json!({ "by": by, "reason": reason }));
    let calls = stored
        .calls
        .iter()
        .map(|calls| json!({ "kind": calls.kind, "cause": calls.cause, "count": calls.count }));
    object["calls"] = calls.collect();
    object
}

const HEADINGS: [&str; 6] = ["NAME", "STATE", "HELD FOR", "TOKEN", "WAITING", "HOLDER"];

/// Lines with aligned columns. The widths follow from the first rows and stay,
/// so that a long list can be shown while it is fetched.
#[derive(Debug)]
pub(super) struct Table {
    widths: [usize; 6],
}

impl Table {
    /// A table that fits these rows.
    pub(super) fn fitting(rows: &[Shown]) -> Self {
        let mut widths = HEADINGS.map(str::len);
        for row in rows {
            for (width, text) in widths.iter_mut().zip(row.columns()) {
                *width = text.chars().count().max(*width);
            }
        }
        Self { widths }
    }

    /// The headings.
    pub(super) fn head(&self) -> String {
        self.align(HEADINGS.map(str::to_owned))
    }

    /// One lock.
    pub(super) fn row(&self, row: &Shown) -> String {
        self.align(row.columns())
    }

    fn align(&self, columns: [String; 6]) -> String {
        let padded = columns.iter().zip(self.widths).map(|(text, width)| format!("{text:<width$}"));
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held() -> Shown {
        let holder = Holder {
            client: "billing 2.3".to_owned(),
            host: "web-1".to_owned(),
            ..Holder::default()
        };
        Shown {
            namespace: "default".to_owned(),
            name: "orders".to_owned(),
            held: true,
            holder: Some(holder),
            session_id: Some("s1".to_owned()),
            token: Some(1_048_577),
            held_for: Some(Duration::from_secs(12)),
            waiting: 2,
            ending: false,
        }
    }

    fn free() -> Shown {
        Shown {
            name: "a-longer-name".to_owned(),
            held: false,
            holder: None,
            session_id: None,
            token: None,
            held_for: None,
            waiting: 0,
            ..held()
        }
    }

    #[test]
    fn a_line_says_what_is_known() {
        let line = "orders: held by billing 2.3 on web-1, held for 12s, token 1048577, 2 waiting";
        assert_eq!(held().line(), line);
        assert_eq!(free().line(), "a-longer-name: free");
        assert!(Shown { ending: true, ..held() }.line().starts_with("orders: ending, still held"));
    }

    #[test]
    fn columns_are_aligned() {
        let rows = [held(), free()];
        let table = Table::fitting(&rows);
        assert_eq!(
            [table.head(), table.row(&rows[0]), table.row(&rows[1])],
            [
                "NAME           STATE  HELD FOR  TOKEN    WAITING  HOLDER",
                "orders         held   12s       1048577  2        billing 2.3 on web-1",
                "a-longer-name  free   -         -        0        -",
            ]
        );
    }

    #[test]
    fn the_keys_for_programs_are_always_the_same() {
        let keys = |shown: Shown| -> Vec<String> {
            shown.json().as_object().unwrap().keys().cloned().collect()
        };
        assert_eq!(keys(held()), keys(free()));
        assert_eq!(held().json()["held_for_ms"], 12_000);
        assert_eq!(held().json()["holder"]["client"], "billing 2.3");
        assert!(free().json()["holder"].is_null());
    }

    #[test]
    fn the_paragraph_has_a_line_per_fact() {
        let text = held().paragraph();
        assert!(text.contains("held for   12s\n"), "{text}");
        assert!(text.contains("holder     billing 2.3 on web-1\n"), "{text}");
        assert!(!free().paragraph().contains("token"));
    }
}
