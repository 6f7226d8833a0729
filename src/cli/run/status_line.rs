//! The line that is shown to people who wait.

use std::{
    env,
    io::{self, IsTerminal},
    time::Duration,
};

use leasehold_client::Progress;

use super::notes::Notes;
use crate::cli::{output::length, output::printable, times};
use leasehold_time::Moment;

/// Begins at the left, removes what was there, and cuts what does not fit
/// instead of wrapping it.
const REWRITE: &str = "\r\x1b[2K\x1b[?7l";
const WRAP_AGAIN: &str = "\x1b[?7h";
const REMOVE: &str = "\r\x1b[2K";

/// One line on a terminal, rewritten in place. Elsewhere, nothing.
#[derive(Debug)]
pub(super) struct StatusLine {
    notes: Notes,
    enabled: bool,
    shown: bool,
}

impl StatusLine {
    /// On standard error.
    pub(super) fn on_stderr(notes: Notes) -> Self {
        let obeys = env::var_os("TERM").is_some_and(|kind| kind != "dumb");
        Self { notes, enabled: obeys && io::stderr().is_terminal(), shown: false }
    }

    /// Nowhere.
    pub(super) const fn disabled(notes: Notes) -> Self {
        Self { notes, enabled: false, shown: false }
    }

    /// Whether anybody sees it.
    pub(super) const fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// Shows `text` instead of what was shown before.
    pub(super) fn show(&mut self, text: &str) {
        if self.enabled {
            self.shown = true;
            self.notes.write(format!("{REWRITE}{text}{WRAP_AGAIN}"));
        }
    }

    /// Removes it, before anybody else writes there.
    pub(super) async fn clear(&mut self) {
        if std::mem::take(&mut self.shown) {
            self.notes.write(REMOVE.to_owned());
            self.notes.written().await;
        }
    }
}

/// What is waited for.
#[derive(Debug, Clone, Copy)]
pub(in crate::cli) enum WaitTarget<'a> {
    /// To hold the lock of this name.
    Hold(&'a str),
    /// To lead the election of this name.
    Lead(&'a str),
}

/// What was last heard of the queue, and when.
#[derive(Debug, Clone, Default)]
pub(in crate::cli) struct Seen {
    pub(in crate::cli) progress: Option<(Progress, Moment)>,
    /// What the leader shows, for people.
    pub(in crate::cli) value: Option<String>,
}

/// What a waiting person is told.
pub(super) fn text(
    target: &WaitTarget<'_>,
    seen: &Seen,
    waited: Duration,
    limit: Option<Duration>,
    now: Moment,
) -> String {
    let (begin, by) = match target {
        WaitTarget::Hold(name) => (format!("waiting for {name}"), "held by"),
        WaitTarget::Lead(name) => (format!("waiting to lead {name}"), "led by"),
    };
    let mut parts = vec![begin];
    if let Some((progress, at)) = &seen.progress {
        if let Some(holder) = &progress.holder {
            let held_for = progress.held_for.map(|held_for| held_for + now.since(*at));
            let held_for = held_for.map(|held_for| format!(" {}", times::since(held_for)));
            let value = seen.value.as_ref().map(|value| format!(" ({value})"));
            let [value, held_for] = [value, held_for].map(Option::unwrap_or_default);
            parts.push(format!("{by} {holder}{value}{held_for}"));
        }
        parts.extend((progress.position > 0).then(|| format!("position {}", progress.position)));
        parts.extend((!progress.note.is_empty()).then(|| progress.note.clone()));
    }
    let limit = limit.map(|limit| format!(" of {}", length(limit))).unwrap_or_default();
    // Whole seconds: the line is not shown more often.
    let waited = length(Duration::from_secs(waited.as_secs()));
    parts.push(format!("waited {waited}{limit}"));
    printable(&parts.join(", ").replace('\n', " "))
}

#[cfg(test)]
mod tests {
    use leasehold_client::Holder;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn moment(seconds: u32) -> Moment {
        Moment::from_boot(SECOND * seconds)
    }

    fn seen() -> Seen {
        let holder = Holder {
            client: "billing 2.3".to_owned(),
            host: "web-1".to_owned(),
            ..Holder::default()
        };
        let progress = Progress {
            position: 2,
            holder: Some(holder),
            held_for: Some(SECOND * 12),
            held_by_same_session: false,
            note: String::new(),
        };
        Seen { progress: Some((progress, moment(100))), value: None }
    }

    fn seen_with(change: impl FnOnce(&mut Progress)) -> Seen {
        let mut seen = seen();
        change(&mut seen.progress.as_mut().unwrap().0);
        seen
    }

    const ORDERS: WaitTarget<'static> = WaitTarget::Hold("orders");

    #[test]
    fn it_says_who_holds_the_lock_for_how_long_and_how_long_we_waited() {
        let line = text(&ORDERS, &seen(), SECOND * 5, Some(SECOND * 30), moment(103));
        let begin = "waiting for orders, held by billing 2.3 on web-1 since ";
        assert!(line.starts_with(begin), "{line}");
        assert!(line.ends_with(" (15s), position 2, waited 5s of 30s"), "{line}");
    }

    #[test]
    fn it_says_who_leads_and_what_the_leader_shows() {
        let mut seen = seen();
        seen.value = Some("10.0.0.7:80".to_owned());
        let line = text(&WaitTarget::Lead("jobs"), &seen, SECOND * 5, None, moment(103));
        let begin = "waiting to lead jobs, led by billing 2.3 on web-1 (10.0.0.7:80) since ";
        assert!(line.starts_with(begin), "{line}");
        assert!(line.ends_with(" (15s), position 2, waited 5s"), "{line}");
    }

    #[test]
    fn what_is_not_known_is_left_out() {
        let waited = Duration::from_millis(1_900);
        assert_eq!(
            text(&ORDERS, &Seen::default(), waited, None, moment(1)),
            "waiting for orders, waited 1s"
        );
        let seen = seen_with(|progress| {
            progress.holder = None;
            progress.note = "recovering".to_owned();
        });
        assert_eq!(
            text(&ORDERS, &seen, SECOND * 60, None, moment(100)),
            "waiting for orders, position 2, recovering, waited 1m"
        );
    }

    #[test]
    fn it_stays_one_line_that_no_holder_can_escape_from() {
        let seen = seen_with(|progress| progress.note = "a\nb\x1b[2J".to_owned());
        let line = text(&ORDERS, &seen, SECOND, None, moment(100));
        assert!(!line.chars().any(char::is_control), "{line:?}");
    }
}
