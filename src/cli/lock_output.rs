//! State of a lock as text and JSON.

use std::time::Duration;

use leasehold_client::{Holder, LockInfo, StoredInfo};
use serde_json::{Value, json};

use super::{
    output::{holder_json, millis, printable, quoted, short_duration},
    palette::Palette,
    times,
};

/// State of a lock, for output.
#[derive(Debug, Clone)]
pub(super) struct LockOutput {
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

impl From<LockInfo> for LockOutput {
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

impl LockOutput {
    /// JSON object. Unknown values are null, so that all keys are always present.
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

    /// Text on one line.
    pub(super) fn line(&self, palette: Palette) -> String {
        let name = palette.bold(&printable(&self.name));
        let mut parts = vec![format!("{name}: {}", self.painted(self.state(), palette))];
        if self.held {
            parts[0].push_str(&format!(" by {}", self.holder()));
        }
        if let Some(held_for) = self.held_for {
            parts[0].push_str(&format!(" {}", times::since(held_for)));
        }
        parts.extend(self.token.map(|token| format!("token {token}")));
        parts.extend((self.waiting > 0).then(|| format!("{} waiting", self.waiting)));
        parts.join(", ")
    }

    /// Returns whether the lock is held.
    pub(super) const fn is_held(&self) -> bool {
        self.held
    }

    /// Holder with the start of its grant, its token and the number of waiters, for a
    /// sentence.
    pub(super) fn grant(&self) -> String {
        let holder = self.holder.as_ref().map(|holder| printable(&quoted(holder)));
        let mut parts = vec![holder.unwrap_or_else(|| "an unknown holder".to_owned())];
        if let Some(held_for) = self.held_for {
            parts[0].push_str(&format!(" {}", times::since(held_for)));
        }
        parts.extend(self.token.map(|token| format!("token {token}")));
        parts.extend((self.waiting > 0).then(|| format!("{} waiting", self.waiting)));
        parts.join(", ")
    }

    /// Returns the `get` output: one line per property, without absent ones.
    pub(super) fn paragraph(&self, palette: Palette) -> String {
        let mut lines = vec![
            ("name", palette.bold(&printable(&self.name))),
            ("namespace", self.namespace.clone()),
            ("state", self.painted(self.state(), palette)),
        ];
        if self.held {
            lines.push(("holder", self.holder()));
        }
        lines.extend(self.held_for.map(|held_for| ("held", times::since(held_for))));
        lines.extend(self.token.map(|token| ("token", token.to_string())));
        lines.extend(self.session_id.as_ref().map(|id| ("session", printable(id))));
        lines.push(("waiting", self.waiting.to_string()));
        let lines = lines.into_iter().map(|(key, value)| entry(key, &value, palette));
        lines.collect::<Vec<_>>().join("\n")
    }

    /// Formats a text in the color of the state.
    fn painted(&self, text: &str, palette: Palette) -> String {
        match (self.held, self.ending) {
            (true, true) => palette.bad(text),
            (true, false) => palette.notable(text),
            (false, _) => palette.good(text),
        }
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

    fn columns(&self) -> [String; 7] {
        let unknown = || "-".to_owned();
        [
            self.namespace.clone(),
            printable(&self.name),
            if self.ending { "ending" } else { self.state() }.to_owned(),
            self.held_for.map_or_else(unknown, short_duration),
            self.token.map_or_else(unknown, |token| token.to_string()),
            self.waiting.to_string(),
            if self.held { self.holder() } else { unknown() },
        ]
    }
}

/// Formats one line of a paragraph.
pub(super) fn entry(key: &str, value: &str, palette: Palette) -> String {
    format!("{} {value}", palette.dim(&format!("{key:<10}")))
}

/// Lock and its storage as text.
pub(super) fn stored_paragraph(stored: &StoredInfo, palette: Palette) -> String {
    let mut lines = vec![
        LockOutput::from(stored.lock.clone()).paragraph(palette),
        entry("store", &printable(&stored.store), palette),
    ];
    if let Some(location) = &stored.location {
        lines.push(entry("location", &printable(location), palette));
    }
    if let Some((by, reason)) = &stored.last_break {
        let note = format!("by {by} ({reason:?})");
        lines.push(entry("last break", &printable(&note), palette));
    }
    if !stored.calls.is_empty() {
        let head = format!("{:<10} {:<10} {:>10}", "OPERATION", "PURPOSE", "COUNT");
        lines.push(format!("\n{}", palette.bold(&head)));
        for calls in &stored.calls {
            let (operation, purpose) = (printable(&calls.operation), printable(&calls.purpose));
            lines.push(format!("{operation:<10} {purpose:<10} {:>10}", calls.count));
        }
    }
    lines.join("\n")
}

/// Lock and its storage as a JSON object.
pub(super) fn stored_json(stored: &StoredInfo) -> Value {
    let mut object = LockOutput::from(stored.lock.clone()).json();
    object["store"] = stored.store.as_str().into();
    object["location"] = stored.location.as_deref().into();
    let last_break = stored.last_break.as_ref();
    object["last_break"] =
        last_break.map_or(Value::Null, |(by, reason)| json!({ "by": by, "reason": reason }));
    let calls = stored
        .calls
        .iter()
        .map(|calls| json!({ "operation": calls.operation, "purpose": calls.purpose, "count": calls.count }));
    object["calls"] = calls.collect();
    object
}

const HEADINGS: [&str; 7] =
    ["NAMESPACE", "NAME", "STATE", "HELD FOR", "TOKEN", "WAITING", "HOLDER"];

/// Index of the colored column.
const STATE_COLUMN: usize = 2;

/// Lines with aligned columns. The first rows determine the widths, so that a long
/// list can be printed while it is fetched.
#[derive(Debug)]
pub(super) struct Table {
    first_column: usize,
    palette: Palette,
    /// Widths of the columns; `None` before the first rows.
    widths: Option<[usize; 7]>,
}

impl Table {
    /// Creates a table without rows.
    pub(super) const fn new(has_namespaces: bool, palette: Palette) -> Self {
        let first_column = if has_namespaces { 0 } else { 1 };
        Self { first_column, palette, widths: None }
    }

    /// Formats the next rows, with the headings before the first.
    pub(super) fn lines(&mut self, rows: &[LockOutput]) -> Vec<String> {
        let mut lines = Vec::with_capacity(rows.len() + 1);
        let widths = *self.widths.get_or_insert_with(|| {
            let mut widths = HEADINGS.map(str::len);
            for row in rows {
                for (width, text) in widths.iter_mut().zip(row.columns()) {
                    *width = text.chars().count().max(*width);
                }
            }
            let head = align(
                &HEADINGS.map(str::to_owned)[self.first_column..],
                &widths[self.first_column..],
            );
            lines.push(self.palette.bold(&head));
            widths
        });
        lines.extend(rows.iter().map(|row| {
            let mut columns = row.columns();
            let state = &columns[STATE_COLUMN];
            let padding = " ".repeat(widths[STATE_COLUMN].saturating_sub(state.chars().count()));
            columns[STATE_COLUMN] = format!("{}{padding}", row.painted(state, self.palette));
            align(&columns[self.first_column..], &widths[self.first_column..])
        }));
        lines
    }
}

/// Joins columns that are filled to these widths.
pub(super) fn align(columns: &[String], widths: &[usize]) -> String {
    let padded = columns.iter().zip(widths).map(|(text, width)| format!("{text:<width$}"));
    padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Palette = Palette::PLAIN;

    fn held() -> LockOutput {
        let holder = Holder {
            client: "billing 2.3".to_owned(),
            host: "web-1".to_owned(),
            ..Holder::default()
        };
        LockOutput {
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

    fn free() -> LockOutput {
        LockOutput {
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
    fn line_has_known_facts() {
        let line = held().line(PLAIN);
        assert!(line.starts_with("orders: held by billing 2.3 on web-1 since "), "{line}");
        assert!(line.ends_with(" (12s), token 1048577, 2 waiting"), "{line}");
        assert_eq!(free().line(PLAIN), "a-longer-name: free");
        let ending = LockOutput { ending: true, ..held() }.line(PLAIN);
        assert!(ending.starts_with("orders: ending, still held"), "{ending}");
    }

    #[test]
    fn columns_are_aligned() {
        let mut table = Table::new(false, PLAIN);
        assert_eq!(
            table.lines(&[held(), free()]),
            [
                "NAME           STATE  HELD FOR  TOKEN    WAITING  HOLDER",
                "orders         held   12s       1048577  2        billing 2.3 on web-1",
                "a-longer-name  free   -         -        0        -",
            ]
        );
        assert_eq!(table.lines(&[free()]).len(), 1, "headings are printed once");
        let mut table = Table::new(true, PLAIN);
        assert_eq!(
            table.lines(&[free()]),
            [
                "NAMESPACE  NAME           STATE  HELD FOR  TOKEN  WAITING  HOLDER",
                "default    a-longer-name  free   -         -      0        -",
            ]
        );
    }

    #[test]
    fn json_keys_are_always_present() {
        let keys = |lock: LockOutput| -> Vec<String> {
            lock.json().as_object().unwrap().keys().cloned().collect()
        };
        assert_eq!(keys(held()), keys(free()));
        assert_eq!(held().json()["held_for_ms"], 12_000);
        assert_eq!(held().json()["holder"]["client"], "billing 2.3");
        assert!(free().json()["holder"].is_null());
    }

    #[test]
    fn paragraph_has_line_per_fact() {
        let text = held().paragraph(PLAIN);
        assert!(text.contains("held       since ") && text.contains(" (12s)\n"), "{text}");
        assert!(text.contains("holder     billing 2.3 on web-1\n"), "{text}");
        assert!(!free().paragraph(PLAIN).contains("token"));
    }
}
