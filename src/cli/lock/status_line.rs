//! The line that is shown to people who wait.

use std::{
    env,
    io::{self, IsTerminal},
    time::Duration,
};

use leasehold_client::Progress;

use super::notes::Notes;
use crate::{
    cli::output::{length, printable},
    clock::Moment,
};

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

/// What was last heard of the queue, and when.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    pub(super) progress: Progress,
    pub(super) at: Moment,
}

/// What a waiting person is told.
pub(super) fn text(
    name: &str,
    seen: Option<&Seen>,
    waited: Duration,
    limit: Option<Duration>,
    now: Moment,
) -> String {
    let mut parts = vec![format!("waiting for {name}")];
    if let Some(Seen { progress, at }) = seen {
        if let Some(holder) = &progress.holder {
            let held_for = progress.held_for.map(|held_for| held_for + now.since(*at));
            let held_for = held_for.map(|held_for| format!(" for {}", length(held_for)));
            parts.push(format!("held by {holder}{}", held_for.unwrap_or_default()));
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
            note: String::new(),
        };
        Seen { progress, at: moment(100) }
    }

    #[test]
    fn it_says_who_holds_the_lock_for_how_long_and_how_long_we_waited() {
        assert_eq!(
            text("orders", Some(&seen()), SECOND * 5, Some(SECOND * 30), moment(103)),
            "waiting for orders, held by billing 2.3 on web-1 for 15s, position 2, waited 5s of 30s"
        );
    }

    #[test]
    fn what_is_not_known_is_left_out() {
        let waited = Duration::from_millis(1_900);
        assert_eq!(text("orders", None, waited, None, moment(1)), "waiting for orders, waited 1s");
        let mut seen = seen();
        seen.progress.holder = None;
        seen.progress.note = "recovering".to_owned();
        assert_eq!(
            text("orders", Some(&seen), SECOND * 60, None, moment(100)),
            "waiting for orders, position 2, recovering, waited 1m"
        );
    }

    #[test]
    fn it_stays_one_line_that_no_holder_can_escape_from() {
        let mut seen = seen();
        seen.progress.note = "a\nb\x1b[2J".to_owned();
        let line = text("orders", Some(&seen), SECOND, None, moment(100));
        assert!(!line.chars().any(char::is_control), "{line:?}");
    }
}
