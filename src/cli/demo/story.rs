//! The story of the demo: its state, and the events that it prints. Sans-IO.

use std::time::Duration;

use serde::Serialize;
use serde_json::Value;

use super::{
    ELECTION, LOCK, TTL,
    cast::name,
    fault::Fault,
    worker::{Answer, Report},
};
use crate::cli::{
    output::{printable, short_duration},
    palette::Palette,
    times,
};

/// Minimum width of a sentence, on a narrow terminal.
const MIN_WIDTH: usize = 20;

/// Worker and its token.
type Place = Option<(usize, u64)>;

/// Event of the demo. The names of variants and fields are the keys of its JSON output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum Event {
    /// The daemon accepts connections.
    Started { endpoint: String, http: String, directory: String, pid: u32 },
    /// A worker was started.
    Joined { worker: String, pid: u32, again: bool },
    /// A worker holds the lock.
    Granted { worker: String, lock: &'static str, token: u64, waited_ms: u64, waiting: Vec<String> },
    /// A worker leads the election.
    Leads { worker: String, election: &'static str, token: u64 },
    /// A worker has noticed the loss of the lock.
    Lost { worker: String, lock: &'static str, token: u64, message: String },
    /// A worker has noticed the loss of its leadership.
    LeadershipLost { worker: String, election: &'static str, message: String },
    /// A worker reports an error.
    Trouble { worker: String, message: String },
    /// A fault was injected.
    Fault { round: u32, fault: Fault, worker: String, pid: u32, token: u64 },
    /// A paused worker was continued.
    Continued { worker: String, lock: &'static str },
    /// The resource has refused a write.
    Refused { worker: String, token: u64, highest_token: u64 },
    /// The demo has ended.
    Ended(Totals),
}

/// Numbers of events.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(super) struct Totals {
    grants: u64,
    leaders: u64,
    accepted_writes: u64,
    refused_writes: u64,
}

/// State of the play. The story is also the resource: it compares tokens.
#[derive(Debug)]
pub(super) struct Story {
    holder: Place,
    leader: Place,
    /// Positions of the waiters, by worker.
    waiting: Vec<Option<u32>>,
    /// Highest token of a write.
    highest_token: u64,
    totals: Totals,
}

impl Story {
    pub(super) fn new(workers: usize) -> Self {
        Self {
            holder: None,
            leader: None,
            waiting: vec![None; workers],
            highest_token: 0,
            totals: Totals::default(),
        }
    }

    /// Holder of the lock, as far as it is known.
    pub(super) const fn holder(&self) -> Place {
        self.holder
    }

    /// Leader of the election, as far as it is known.
    pub(super) const fn leader(&self) -> Place {
        self.leader
    }

    /// Highest token that the resource has accepted.
    pub(super) const fn highest_token(&self) -> u64 {
        self.highest_token
    }

    /// Removes a worker that was killed.
    pub(super) fn forget(&mut self, worker: usize) {
        self.set_waiting(worker, None);
        self.holder.take_if(|(holder, _)| *holder == worker);
        self.leader.take_if(|(leader, _)| *leader == worker);
    }

    /// Event with the totals.
    pub(super) const fn totals(&self) -> Event {
        Event::Ended(self.totals)
    }

    /// Processes a report. Returns the event to print, and the answer to a write.
    pub(super) fn on(&mut self, worker: usize, report: &Report) -> (Option<Event>, Option<Answer>) {
        let event = match report {
            Report::Waiting { position } => {
                self.set_waiting(worker, Some(*position));
                None
            }
            Report::Granted { token, waited_ms } => Some(self.granted(worker, *token, *waited_ms)),
            Report::Working { .. } => None,
            Report::Write { token } => {
                let refusal = self.write(worker, *token);
                let answer = refusal.as_ref().map_or(Answer::Accepted, |_| Answer::Refused);
                return (refusal, Some(answer));
            }
            Report::Released { token } => {
                self.holder.take_if(|holder| *holder == (worker, *token));
                None
            }
            Report::Lost { token, message } => {
                self.holder.take_if(|holder| *holder == (worker, *token));
                let message = message.clone();
                Some(Event::Lost { worker: name(worker), lock: LOCK, token: *token, message })
            }
            Report::Leads { token } => {
                self.leader = Some((worker, *token));
                self.totals.leaders += 1;
                Some(Event::Leads { worker: name(worker), election: ELECTION, token: *token })
            }
            Report::LeadershipLost { message } => {
                self.leader.take_if(|(leader, _)| *leader == worker);
                let (worker, message) = (name(worker), message.clone());
                Some(Event::LeadershipLost { worker, election: ELECTION, message })
            }
            Report::Trouble { message } => {
                Some(Event::Trouble { worker: name(worker), message: message.clone() })
            }
        };
        (event, None)
    }

    fn granted(&mut self, worker: usize, token: u64, waited_ms: u64) -> Event {
        self.holder = Some((worker, token));
        self.set_waiting(worker, None);
        self.totals.grants += 1;
        let positions = self.waiting.iter().enumerate();
        let mut waiting: Vec<_> =
            positions.filter_map(|(index, position)| Some((*position.as_ref()?, index))).collect();
        waiting.sort_unstable();
        let waiting = waiting.into_iter().map(|(_, index)| name(index)).collect();
        Event::Granted { worker: name(worker), lock: LOCK, token, waited_ms, waiting }
    }

    /// Accepts a write, or refuses it if its token is lower than the highest one so far.
    fn write(&mut self, worker: usize, token: u64) -> Option<Event> {
        let highest_token = self.highest_token;
        if token < highest_token {
            self.totals.refused_writes += 1;
            return Some(Event::Refused { worker: name(worker), token, highest_token });
        }
        self.highest_token = token;
        self.totals.accepted_writes += 1;
        None
    }

    fn set_waiting(&mut self, worker: usize, position: Option<u32>) {
        if let Some(waiting) = self.waiting.get_mut(worker) {
            *waiting = position;
        }
    }
}

impl Event {
    /// JSON object, with the time.
    pub(super) fn json(&self) -> Value {
        let mut object = serde_json::to_value(self).unwrap_or_default();
        object["time"] = times::utc_now().into();
        object
    }

    /// Text: a line with the time, the subject and a sentence, wrapped to the width of the
    /// terminal if there is one. The first event is a paragraph.
    pub(super) fn text(&self, palette: Palette, width: Option<usize>) -> String {
        if let Self::Started { endpoint, http, directory, .. } = self {
            return introduction(endpoint, http, directory, palette, width);
        }
        let time = times::start(Duration::ZERO).unwrap_or_default();
        let (subject, sentence) = self.sentence();
        let subject = format!("{subject:<9}");
        let indent = time.len() + subject.len() + 2;
        let sentence = wrap(&printable(&sentence.replace('\n', " ")), width, indent);
        let (subject, sentence) = match self {
            Self::Fault { .. } => (palette.bad(&subject), palette.bad(&sentence)),
            Self::Refused { .. } => (palette.bold(&subject), palette.notable(&sentence)),
            Self::Granted { .. } | Self::Leads { .. } => {
                (palette.bold(&subject), palette.good(&sentence))
            }
            _ => (palette.bold(&subject), sentence),
        };
        // A fault begins a paragraph.
        let gap = if matches!(self, Self::Fault { .. } | Self::Ended(_)) { "\n" } else { "" };
        let time = palette.dim(&time);
        format!("{gap}{time} {subject} {sentence}")
    }

    fn sentence(&self) -> (&str, String) {
        match self {
            Self::Started { .. } => ("demo", String::new()),
            Self::Joined { worker, pid, again } => {
                let again = if *again { " again" } else { "" };
                (worker, format!("started{again} (pid {pid})"))
            }
            Self::Granted { worker, lock, token, waited_ms, waiting } => {
                let after = match waited_ms {
                    0..100 => String::new(),
                    ms => format!(" after {}.{}s", ms / 1_000, ms % 1_000 / 100),
                };
                let queue = match &waiting[..] {
                    [] => String::new(),
                    [one] => format!("; {one} waits"),
                    many => format!("; {} wait", many.join(" and ")),
                };
                (worker, format!("holds lock {lock:?} with token {token}{after}{queue}"))
            }
            Self::Leads { worker, election, token } => {
                (worker, format!("leads {election:?} with token {token}"))
            }
            Self::Lost { worker, lock, message, .. } => {
                let is_complete = message.contains(&format!("{lock:?}"));
                let what = if is_complete { "" } else { " the loss of the lock" };
                (worker, format!("notices{what}: {message}"))
            }
            Self::LeadershipLost { worker, election, message } => {
                (worker, format!("no longer leads {election:?}: {message}"))
            }
            Self::Trouble { worker, message } => (worker, message.clone()),
            Self::Fault { round, fault, worker, .. } => {
                ("fault", format!("{round}: {}", fault_sentence(*fault, worker)))
            }
            Self::Continued { worker, lock } => {
                (worker, format!("continues (SIGCONT), as if it still held lock {lock:?}"))
            }
            Self::Refused { worker, token, highest_token } => (
                worker,
                format!(
                    "writes with token {token}: refused as stale, because the resource has seen \
                     token {highest_token}"
                ),
            ),
            Self::Ended(totals) => ("end", totals.sentence()),
        }
    }
}

impl Totals {
    fn sentence(&self) -> String {
        let Self { grants, leaders, accepted_writes, refused_writes } = self;
        let count = |number: &u64, noun: &str| match number {
            1 => format!("1 {noun}"),
            _ => format!("{number} {noun}s"),
        };
        format!(
            "{}, {}; the resource accepted {} and refused {}",
            count(grants, "grant"),
            count(leaders, "leader"),
            count(accepted_writes, "write"),
            count(refused_writes, "stale write"),
        )
    }
}

fn fault_sentence(fault: Fault, worker: &str) -> String {
    let ttl = short_duration(TTL);
    match fault {
        Fault::KillLeader => format!(
            "{worker} leads {ELECTION:?} and is killed (SIGKILL); its session expires \
             within {ttl}, then the next candidate leads"
        ),
        Fault::KillHolder => format!(
            "{worker} holds lock {LOCK:?} and is killed (SIGKILL); its session expires \
             within {ttl}, then the next waiter gets the lock"
        ),
        Fault::Pause => format!(
            "{worker} holds lock {LOCK:?} and is paused before a write (SIGSTOP); its \
             session expires within {ttl}, and it can't notice"
        ),
        Fault::Break => format!(
            "an operator breaks lock {LOCK:?}; {worker} is notified at once, and the lock goes to \
             the next waiter"
        ),
    }
}

/// Breaks a text into lines of at most `width` characters. It begins after `indent`
/// columns, as do the further lines.
fn wrap(text: &str, width: Option<usize>, indent: usize) -> String {
    let width = width.map_or(usize::MAX, |width| width.saturating_sub(indent).max(MIN_WIDTH));
    let mut wrapped = String::new();
    let mut column = 0;
    for word in text.split(' ') {
        let length = word.chars().count();
        if column > 0 && column + 1 + length > width {
            wrapped.push('\n');
            wrapped.extend(std::iter::repeat_n(' ', indent));
            column = 0;
        } else if column > 0 {
            wrapped.push(' ');
            column += 1;
        }
        wrapped.push_str(word);
        column += length;
    }
    wrapped
}

/// Text of the first event.
fn introduction(
    endpoint: &str,
    http: &str,
    directory: &str,
    palette: Palette,
    width: Option<usize>,
) -> String {
    const TITLE: &str = "leasehold demo";
    let text = format!(
        "{TITLE}: three workers compete for lock {LOCK:?} and elect the leader of {ELECTION:?}, \
         while faults hit them."
    );
    let row = |key: &str, value: &str| format!("  {} {value}", palette.dim(&format!("{key:<8}")));
    [
        wrap(&text, width, 0).replacen(TITLE, &palette.bold(TITLE), 1),
        String::new(),
        row("console", &palette.bold(http)),
        row("daemon", endpoint),
        row("data", &format!("{directory} (removed at the end)")),
        row("try", &format!("leasehold top -e {endpoint}")),
        row("", &format!("leasehold explain {LOCK} -e {endpoint}")),
        row("stop", "Ctrl-C"),
        String::new(),
    ]
    .join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn granted(story: &mut Story, worker: usize, token: u64) -> Event {
        story.on(worker, &Report::Granted { token, waited_ms: 2_140 }).0.unwrap()
    }

    #[test]
    fn grant_names_waiters_in_order() {
        let mut story = Story::new(3);
        story.on(0, &Report::Waiting { position: 2 });
        story.on(2, &Report::Waiting { position: 1 });
        let event = granted(&mut story, 1, 7);
        let sentence = "holds lock \"orders\" with token 7 after 2.1s; worker-3 and worker-1 wait";
        assert_eq!(event.sentence(), ("worker-2", sentence.to_owned()));
        let event = granted(&mut story, 2, 8);
        assert!(event.sentence().1.ends_with("; worker-1 waits"), "{event:?}");
        story.forget(0);
        let event = granted(&mut story, 1, 9);
        assert!(event.sentence().1.ends_with(" after 2.1s"), "{event:?}");
    }

    #[test]
    fn resource_refuses_lower_tokens() {
        let mut story = Story::new(3);
        let write = |story: &mut Story, worker, token| story.on(worker, &Report::Write { token });
        assert_eq!(write(&mut story, 0, 5), (None, Some(Answer::Accepted)));
        assert_eq!(write(&mut story, 0, 5), (None, Some(Answer::Accepted)));
        assert_eq!(write(&mut story, 1, 6), (None, Some(Answer::Accepted)));
        let (event, answer) = write(&mut story, 0, 5);
        let refused = Event::Refused { worker: "worker-1".to_owned(), token: 5, highest_token: 6 };
        assert_eq!((event, answer), (Some(refused), Some(Answer::Refused)));
        let Event::Ended(totals) = story.totals() else { panic!("no totals") };
        assert_eq!((totals.accepted_writes, totals.refused_writes), (3, 1));
        let sentence = totals.sentence();
        assert!(sentence.ends_with("accepted 3 writes and refused 1 stale write"), "{sentence}");
    }

    #[test]
    fn killed_worker_has_no_place() {
        let mut story = Story::new(3);
        granted(&mut story, 1, 7);
        story.on(1, &Report::Leads { token: 8 });
        assert_eq!((story.holder(), story.leader()), (Some((1, 7)), Some((1, 8))));
        story.forget(1);
        assert_eq!((story.holder(), story.leader()), (None, None));
    }

    #[test]
    fn late_release_does_not_end_newer_hold() {
        let mut story = Story::new(3);
        granted(&mut story, 0, 7);
        granted(&mut story, 1, 8);
        story.on(0, &Report::Released { token: 7 });
        assert_eq!(story.holder(), Some((1, 8)));
    }

    #[test]
    fn sentences_are_wrapped_between_words() {
        assert_eq!(wrap("one two three", None, 4), "one two three");
        let text = "worker-1 continues as if it still held the lock";
        assert_eq!(wrap(text, Some(34), 4), "worker-1 continues as if it\n    still held the lock");
        assert_eq!(wrap(text, Some(0), 0).lines().next(), Some("worker-1 continues"));
        let lost = |message: &str| {
            let (worker, message) = ("worker-1".to_owned(), message.to_owned());
            Event::Lost { worker, lock: LOCK, token: 1, message }.sentence().1
        };
        assert_eq!(lost("lost lock \"orders\": why"), "notices: lost lock \"orders\": why");
        assert_eq!(lost("why"), "notices the loss of the lock: why");
    }

    #[test]
    fn events_are_tagged_json_objects() {
        let fault = Event::Fault {
            round: 1,
            fault: Fault::KillLeader,
            worker: "worker-1".to_owned(),
            pid: 4,
            token: 9,
        };
        let object = fault.json();
        assert_eq!((&object["event"], &object["fault"]), (&"fault".into(), &"kill_leader".into()));
        assert!(object["time"].as_str().unwrap().ends_with('Z'));
        let totals = Story::new(3).totals().json();
        assert_eq!((&totals["event"], &totals["grants"]), (&"ended".into(), &0.into()));
    }
}
