//! State of an election as text and JSON.

use base64::prelude::{BASE64_STANDARD, Engine};
use leasehold_client::{ElectionState, Leader};
use serde_json::{Map, Value, json};

use crate::cli::{
    output::{holder_json, millis, printable},
    palette::Palette,
    times,
};

/// State of an election, for output.
#[derive(Debug)]
pub(super) struct ElectionOutput(pub(super) ElectionState);

impl ElectionOutput {
    /// JSON object. Unknown values are null, so that all keys are always present.
    pub(super) fn json(&self) -> Value {
        json!({
            "namespace": self.0.namespace,
            "name": self.0.name,
            "leader": self.0.leader.as_ref().map(leader_json),
            "candidates": self.0.candidates,
        })
    }

    /// Text on one line.
    pub(super) fn line(&self, palette: Palette) -> String {
        let name = palette.bold(&printable(&self.0.name));
        let mut parts = Vec::new();
        match &self.0.leader {
            None => parts.push(format!("{name}: {}", palette.notable("no leader"))),
            Some(leader) => {
                let state = match leader.ending {
                    true => palette.bad("ending, still led"),
                    false => palette.good("led"),
                };
                let since = leader.leading_for.map(|period| format!(" {}", times::since(period)));
                let since = since.unwrap_or_default();
                parts.push(format!("{name}: {state} by {}{since}", holder(leader)));
                parts.extend(value(leader).map(|value| format!("value {value}")));
                parts.extend(leader.token.map(|token| format!("token {token}")));
                parts.extend((!leader.local).then(|| peer(leader)));
            }
        }
        let candidates = self.0.candidates;
        parts.extend((candidates > 0).then(|| format!("{candidates} waiting")));
        parts.join(", ")
    }

    /// Text with one line per known fact.
    pub(super) fn paragraph(&self, palette: Palette) -> String {
        let state = &self.0;
        let name = palette.bold(&printable(&state.name));
        let mut lines = vec![("name", name), ("namespace", state.namespace.clone())];
        match &state.leader {
            None => lines.push(("leader", palette.notable("no leader"))),
            Some(leader) => {
                lines.push(("leader", holder(leader)));
                lines.extend(value(leader).map(|value| ("value", value)));
                lines.extend(leader.token.map(|token| ("token", token.to_string())));
                lines.extend(leader.leading_for.map(|period| ("leads", times::since(period))));
                let local = || "a client of this daemon".to_owned();
                lines.push(("where", if leader.local { local() } else { peer(leader) }));
                lines.extend(leader.session_id.as_ref().map(|id| ("session", printable(id))));
                let ending = "has lost the leadership and has not resigned yet".to_owned();
                lines.extend(leader.ending.then_some(("ending", ending)));
            }
        }
        lines.push(("waiting", state.candidates.to_string()));
        let entry = |(key, value): (&str, String)| {
            format!("{} {value}", palette.dim(&format!("{key:<10}")))
        };
        let lines = lines.into_iter().map(entry);
        lines.collect::<Vec<_>>().join("\n")
    }
}

fn leader_json(leader: &Leader) -> Value {
    let mut object = Map::new();
    object.insert("holder".to_owned(), json!(leader.holder.as_ref().map(holder_json)));
    insert_value(&mut object, &leader.value);
    object.insert("token".to_owned(), json!(leader.token.map(u64::from)));
    object.insert("leading_for_ms".to_owned(), json!(leader.leading_for.map(millis)));
    object.insert("local".to_owned(), json!(leader.local));
    object.insert("session_id".to_owned(), json!(leader.session_id));
    object.insert("ending".to_owned(), json!(leader.ending));
    object.insert("daemon".to_owned(), json!(leader.daemon));
    let endpoint = leader.peer.as_ref().and_then(|peer| peer.endpoint.as_ref());
    object.insert("endpoint".to_owned(), json!(endpoint));
    object.into()
}

fn holder(leader: &Leader) -> String {
    let known = leader.holder.as_ref().map(|holder| printable(&holder.to_string()));
    known.unwrap_or_else(|| "an unknown leader".to_owned())
}

fn value(leader: &Leader) -> Option<String> {
    Some(&leader.value).filter(|value| !value.is_empty()).map(|value| value_text(value))
}

/// Formats the value of a leader on one line: unchanged if it is printable, else as
/// `base64:…`.
pub(in crate::cli) fn value_text(value: &[u8]) -> String {
    match std::str::from_utf8(value) {
        Ok(text) if !text.chars().any(char::is_control) => text.to_owned(),
        _ => format!("base64:{}", BASE64_STANDARD.encode(value)),
    }
}

/// Adds the value of a leader to a JSON object: as text if it is UTF-8, and always
/// as base64.
fn insert_value(object: &mut Map<String, Value>, value: &[u8]) {
    object.insert("value".to_owned(), json!(std::str::from_utf8(value).ok()));
    object.insert("value_base64".to_owned(), json!(BASE64_STANDARD.encode(value)));
}

fn peer(leader: &Leader) -> String {
    match &leader.daemon {
        Some(daemon) => format!("at another daemon ({})", printable(daemon)),
        None => "at another daemon".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use leasehold_client::{Holder, Token};

    use super::*;

    const PLAIN: Palette = Palette::PLAIN;

    fn led() -> ElectionOutput {
        let holder = Holder {
            client: "billing 2.3".to_owned(),
            host: "web-1".to_owned(),
            ..Holder::default()
        };
        let leader = Leader {
            holder: Some(holder),
            value: b"10.0.0.7:80".to_vec(),
            token: Some(Token::new(1_048_577)),
            leading_for: Some(Duration::from_secs(12)),
            local: true,
            session_id: Some("s1".to_owned()),
            ending: false,
            daemon: None,
            peer: None,
        };
        ElectionOutput(ElectionState {
            namespace: "default".to_owned(),
            name: "jobs".to_owned(),
            leader: Some(leader),
            candidates: 2,
        })
    }

    fn led_by(change: impl FnOnce(&mut Leader)) -> ElectionOutput {
        let mut election = led();
        change(election.0.leader.as_mut().unwrap());
        election
    }

    fn vacant() -> ElectionOutput {
        ElectionOutput(ElectionState { leader: None, candidates: 0, ..led().0 })
    }

    #[test]
    fn line_has_known_facts() {
        let line = led().line(PLAIN);
        assert!(line.starts_with("jobs: led by billing 2.3 on web-1 since "), "{line}");
        assert!(line.ends_with(" (12s), value 10.0.0.7:80, token 1048577, 2 waiting"), "{line}");
        assert_eq!(vacant().line(PLAIN), "jobs: no leader");
        let unknown = led_by(|leader| {
            *leader = Leader {
                holder: None,
                value: Vec::new(),
                token: None,
                leading_for: None,
                local: false,
                session_id: None,
                ending: true,
                daemon: Some("node-7".to_owned()),
                peer: None,
            };
        });
        assert_eq!(
            unknown.line(PLAIN),
            "jobs: ending, still led by an unknown leader, at another daemon (node-7), 2 waiting"
        );
    }

    #[test]
    fn control_characters_stay_on_line() {
        let hostile = led_by(|leader| {
            leader.value = b"a\x1b[2J\nb".to_vec();
            leader.daemon = Some("x\x1b[2J".to_owned());
            leader.local = false;
        });
        assert!(!hostile.line(PLAIN).chars().any(char::is_control), "{}", hostile.line(PLAIN));
        assert_eq!(
            hostile.paragraph(PLAIN).lines().count(),
            led().paragraph(PLAIN).lines().count()
        );
    }

    #[test]
    fn json_keys_are_always_present() {
        let keys =
            |value: &Value| -> Vec<String> { value.as_object().unwrap().keys().cloned().collect() };
        let (led, vacant) = (led().json(), vacant().json());
        assert_eq!(keys(&led), keys(&vacant));
        assert!(vacant["leader"].is_null());
        let unknown = led_by(|leader| {
            leader.holder = None;
            leader.token = None;
        });
        assert_eq!(keys(&led["leader"]), keys(&unknown.json()["leader"]));
        assert_eq!(led["leader"]["value"], "10.0.0.7:80");
        assert_eq!(led["leader"]["leading_for_ms"], 12_000);
        assert_eq!(led["candidates"], 2);
    }

    #[test]
    fn paragraph_has_line_per_fact() {
        let text = led().paragraph(PLAIN);
        assert!(text.contains("leader     billing 2.3 on web-1\n"), "{text}");
        assert!(text.contains("value      10.0.0.7:80\n"), "{text}");
        assert!(text.contains("where      a client of this daemon\n"), "{text}");
        assert!(vacant().paragraph(PLAIN).contains("leader     no leader\n"));
    }

    #[test]
    fn unprintable_value_is_base64() {
        assert_eq!(value_text("10.0.0.7:80, Köln".as_bytes()), "10.0.0.7:80, Köln");
        assert_eq!(value_text(b"a\nb"), "base64:YQpi");
        assert_eq!(value_text(&[0xff]), "base64:/w==");
        assert_eq!(value_text(b""), "");
    }

    #[test]
    fn json_has_all_bytes_of_value() {
        let object = |value: &[u8]| {
            let mut object = Map::new();
            insert_value(&mut object, value);
            Value::from(object)
        };
        assert_eq!(object(b"a\n"), json!({ "value": "a\n", "value_base64": "YQo=" }));
        assert_eq!(object(&[0xff]), json!({ "value": null, "value_base64": "/w==" }));
    }
}
