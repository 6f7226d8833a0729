//! Status line of a wait, on a terminal.

use std::{
    env, fmt,
    io::{self, IsTerminal},
    time::Duration,
};

use leasehold_client::Progress;

use super::notes::Notes;
use crate::cli::{output::printable, output::quoted, output::short_duration, times};
use leasehold_time::Moment;

/// Clears the line, and cuts long lines instead of wrapping them.
const CLEAR_WITHOUT_WRAP: &str = "\r\x1b[2K\x1b[?7l";
const WRAP: &str = "\x1b[?7h";
const CLEAR: &str = "\r\x1b[2K";

/// Line on a terminal that is rewritten in place. Prints nothing elsewhere.
#[derive(Debug)]
pub(super) struct StatusLine {
    notes: Notes,
    is_enabled: bool,
    is_visible: bool,
}

impl StatusLine {
    /// Creates the line on standard error.
    pub(super) fn on_stderr(notes: Notes) -> Self {
        let is_capable = env::var_os("TERM").is_some_and(|kind| kind != "dumb");
        Self { notes, is_enabled: is_capable && io::stderr().is_terminal(), is_visible: false }
    }

    /// Creates a line that is never printed.
    pub(super) const fn disabled(notes: Notes) -> Self {
        Self { notes, is_enabled: false, is_visible: false }
    }

    /// Returns whether the line is printed.
    pub(super) const fn is_enabled(&self) -> bool {
        self.is_enabled
    }

    /// Replaces the line by `text`.
    pub(super) fn update(&mut self, text: &str) {
        if self.is_enabled {
            self.is_visible = true;
            self.notes.write(format!("{CLEAR_WITHOUT_WRAP}{text}{WRAP}"));
        }
    }

    /// Removes the line, so that other output can follow.
    pub(super) async fn clear(&mut self) {
        if std::mem::take(&mut self.is_visible) {
            self.notes.write(CLEAR.to_owned());
            self.notes.flush().await;
        }
    }
}

/// Purpose of a wait.
#[derive(Debug, Clone, Copy)]
pub(in crate::cli) enum WaitTarget<'a> {
    /// Hold the lock with this name.
    Hold(&'a str),
    /// Lead the election with this name.
    Lead(&'a str),
}

/// Last known state of the queue.
#[derive(Debug, Clone, Default)]
pub(in crate::cli) struct WaitState {
    /// Last report of the daemon, with the time of its arrival.
    pub(in crate::cli) progress: Option<(Progress, Moment)>,
    /// Value of the leader as text.
    pub(in crate::cli) value: Option<String>,
}

impl fmt::Display for WaitTarget<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hold(name) => write!(f, "lock {name:?}"),
            Self::Lead(name) => write!(f, "election {name:?}"),
        }
    }
}

/// Returns why no daemon has the request, if that is known. Reports of a daemon have a
/// position, which counts from 1.
pub(super) fn disconnect_cause(state: &WaitState) -> Option<&str> {
    let (progress, _) = state.progress.as_ref()?;
    let is_queued = progress.position > 0 || progress.holder.is_some();
    Some(progress.note.as_str()).filter(|note| !note.is_empty() && !is_queued)
}

/// Text of the status line.
pub(super) fn text(
    target: &WaitTarget<'_>,
    state: &WaitState,
    waited: Duration,
    limit: Option<Duration>,
    now: Moment,
) -> String {
    let (start, by) = match target {
        WaitTarget::Hold(_) => (format!("waiting for {target}"), "held by"),
        WaitTarget::Lead(name) => (format!("waiting to lead {name:?}"), "led by"),
    };
    let mut parts = vec![match disconnect_cause(state) {
        Some(cause) => format!("{start}: {cause}"),
        None => start,
    }];
    if let Some((progress, at)) = &state.progress {
        if let Some(holder) = &progress.holder {
            let held_for = progress.held_for.map(|held_for| held_for + now.since(*at));
            let held_for = held_for.map(|held_for| format!(" {}", times::since(held_for)));
            let value = state.value.as_ref().map(|value| format!(" ({value})"));
            let [value, held_for] = [value, held_for].map(Option::unwrap_or_default);
            parts.push(format!("{by} {}{value}{held_for}", quoted(holder)));
        }
        parts.extend((progress.position > 0).then(|| format!("position {}", progress.position)));
        let is_note = !progress.note.is_empty() && disconnect_cause(state).is_none();
        parts.extend(is_note.then(|| progress.note.clone()));
    }
    let limit = limit.map(|limit| format!(" of {}", short_duration(limit))).unwrap_or_default();
    // Whole seconds, because the line is rewritten once per second.
    let waited = short_duration(Duration::from_secs(waited.as_secs()));
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

    fn waiting() -> WaitState {
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
        WaitState { progress: Some((progress, moment(100))), value: None }
    }

    fn waiting_with(change: impl FnOnce(&mut Progress)) -> WaitState {
        let mut state = waiting();
        change(&mut state.progress.as_mut().unwrap().0);
        state
    }

    const ORDERS: WaitTarget<'static> = WaitTarget::Hold("orders");

    #[test]
    fn line_has_holder_start_position_and_wait() {
        let line = text(&ORDERS, &waiting(), SECOND * 5, Some(SECOND * 30), moment(103));
        let start = "waiting for lock \"orders\", held by \"billing 2.3\" on web-1 since ";
        assert!(line.starts_with(start), "{line}");
        assert!(line.ends_with(" (15s), position 2, waited 5s of 30s"), "{line}");
    }

    #[test]
    fn line_has_leader_and_value() {
        let mut state = waiting();
        state.value = Some("10.0.0.7:80".to_owned());
        let line = text(&WaitTarget::Lead("jobs"), &state, SECOND * 5, None, moment(103));
        let start =
            "waiting to lead \"jobs\", led by \"billing 2.3\" on web-1 (10.0.0.7:80) since ";
        assert!(line.starts_with(start), "{line}");
        assert!(line.ends_with(" (15s), position 2, waited 5s"), "{line}");
    }

    #[test]
    fn unknown_facts_are_left_out() {
        let waited = Duration::from_millis(1_900);
        assert_eq!(
            text(&ORDERS, &WaitState::default(), waited, None, moment(1)),
            "waiting for lock \"orders\", waited 1s"
        );
        let state = waiting_with(|progress| {
            progress.holder = None;
            progress.note = "recovering".to_owned();
        });
        assert_eq!(
            text(&ORDERS, &state, SECOND * 60, None, moment(100)),
            "waiting for lock \"orders\", position 2, recovering, waited 1m"
        );
    }

    #[test]
    fn disconnect_is_printed_with_cause() {
        let cause = "can't connect to the daemon at unix:/s: no such socket".to_owned();
        let lost = Progress { note: cause.clone(), ..Progress::default() };
        let state = WaitState { progress: Some((lost, moment(100))), value: None };
        assert_eq!(disconnect_cause(&state), Some(cause.as_str()));
        assert_eq!(
            text(&ORDERS, &state, SECOND, None, moment(100)),
            format!("waiting for lock \"orders\": {cause}, waited 1s")
        );
        assert_eq!(disconnect_cause(&waiting_with(|progress| progress.note = cause)), None);
    }

    #[test]
    fn control_characters_stay_on_line() {
        let state = waiting_with(|progress| progress.note = "a\nb\x1b[2J".to_owned());
        let line = text(&ORDERS, &state, SECOND, None, moment(100));
        assert!(!line.chars().any(char::is_control), "{line:?}");
    }
}
