//! Waits for a grant.

use std::{pin::pin, time::Duration};

use leasehold_client::Error;
use tokio::sync::watch;

use super::{
    notes::Notes,
    status_line::{self, StatusLine, WaitState, WaitTarget},
};
use crate::cli::{output::Output, process, process::Signal, process::Signals};
use leasehold_time::Moment;

/// Interval at which the status line is rewritten.
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);

/// End of a wait without a grant.
#[derive(Debug)]
pub(in crate::cli) enum Denied {
    /// The request was refused.
    Refused(Box<Error>),
    /// A signal asked this process to exit.
    Interrupted(Signal),
}

/// Wait with a status line.
#[derive(Debug)]
pub(in crate::cli) struct Waiting<'a> {
    target: WaitTarget<'a>,
    limit: Option<Duration>,
    start: Moment,
    line: StatusLine,
    notes: Notes,
    /// True from the note about a lost connection until a daemon has the request again.
    is_noted: bool,
}

impl<'a> Waiting<'a> {
    /// Starts a wait. `limit` is only printed.
    pub(in crate::cli) fn new(
        target: WaitTarget<'a>,
        limit: Option<Duration>,
        output: Output,
        notes: Notes,
    ) -> Self {
        let line = match output {
            Output::Text => StatusLine::on_stderr(notes.clone()),
            Output::Json => StatusLine::disabled(notes.clone()),
        };
        Self { target, limit, start: Moment::now(), line, notes, is_noted: false }
    }

    /// Returns whether the status line is printed.
    pub(in crate::cli) const fn is_visible(&self) -> bool {
        self.line.is_enabled()
    }

    /// Waits until the request is granted or refused, or a signal ends the wait. The
    /// request is then canceled.
    pub(in crate::cli) async fn wait_for<T>(
        mut self,
        granted: impl Future<Output = Result<T, Error>>,
        mut updates: watch::Receiver<WaitState>,
        signals: &mut Signals,
    ) -> Result<T, Denied> {
        let mut granted = pin!(granted);
        loop {
            tokio::select! {
                biased;
                answer = &mut granted => {
                    self.line.clear().await;
                    return answer.map_err(|error| Denied::Refused(Box::new(error)));
                }
                signal = signals.next() => {
                    self.line.clear().await;
                    on_signal(signal)?;
                }
                Ok(()) = updates.changed() => {}
                () = leasehold_runtime::sleep(REFRESH_INTERVAL), if self.line.is_enabled() => {}
            }
            self.update(&updates.borrow_and_update());
        }
    }

    fn update(&mut self, state: &WaitState) {
        if !self.line.is_enabled() {
            self.note_disconnect(state);
            return;
        }
        let now = Moment::now();
        let waited = now.since(self.start);
        self.line.update(&status_line::text(&self.target, state, waited, self.limit, now));
    }
}

impl Waiting<'_> {
    /// Reports a lost connection once, where no status line is printed.
    fn note_disconnect(&mut self, state: &WaitState) {
        let cause = status_line::disconnect_cause(state);
        if let Some(cause) = cause.filter(|_| !self.is_noted) {
            self.notes.note(format_args!("{cause}; still waiting for {}", self.target));
        }
        self.is_noted = cause.is_some();
    }
}

/// Waits for `delay`, unless a signal asks this process to exit.
pub(in crate::cli) async fn pause(delay: Duration, signals: &mut Signals) -> Result<(), Signal> {
    tokio::select! {
        biased;
        signal = exit_signal(signals) => Err(signal),
        () = leasehold_runtime::sleep(delay) => Ok(()),
    }
}

/// Waits until a signal asks this process to exit. Signals for the command are
/// ignored, because it does not run.
pub(super) async fn exit_signal(signals: &mut Signals) -> Signal {
    loop {
        if let Err(Denied::Interrupted(signal)) = on_signal(signals.next().await) {
            return signal;
        }
    }
}

/// Returns whether this signal asks a process to exit.
pub(super) const fn is_exit_signal(signal: Signal) -> bool {
    matches!(signal, Signal::SIGTERM | Signal::SIGINT | Signal::SIGHUP | Signal::SIGQUIT)
}

fn on_signal(signal: Signal) -> Result<(), Denied> {
    match signal {
        // A failed stop is ignored.
        Signal::SIGTSTP => drop(process::stop_self()),
        signal if is_exit_signal(signal) => return Err(Denied::Interrupted(signal)),
        // For the command, which does not run.
        _ => {}
    }
    Ok(())
}
