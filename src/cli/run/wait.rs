//! Waiting for the grant.

use std::{pin::pin, time::Duration};

use leasehold_client::Error;
use tokio::sync::watch;

use super::{
    notes::Notes,
    status_line::{self, Seen, StatusLine, WaitTarget},
};
use crate::cli::{output::Output, process, process::Signal, process::Signals};
use leasehold_time::Moment;

/// How often the waiting time is shown anew.
const TICK: Duration = Duration::from_secs(1);

/// Why there is no grant.
#[derive(Debug)]
pub(in crate::cli) enum Denied {
    /// It was not granted.
    Refused(Box<Error>),
    /// A signal asked us to end.
    Interrupted(Signal),
}

/// A wait, shown to people.
#[derive(Debug)]
pub(in crate::cli) struct Waiting<'a> {
    target: WaitTarget<'a>,
    limit: Option<Duration>,
    began: Moment,
    line: StatusLine,
}

impl<'a> Waiting<'a> {
    /// Begins now. `limit` is only shown.
    pub(in crate::cli) fn new(
        target: WaitTarget<'a>,
        limit: Option<Duration>,
        output: Output,
        notes: Notes,
    ) -> Self {
        let line = match output {
            Output::Text => StatusLine::on_stderr(notes),
            Output::Json => StatusLine::disabled(notes),
        };
        Self { target, limit, began: Moment::now(), line }
    }

    /// Whether anybody sees the news.
    pub(in crate::cli) const fn is_shown(&self) -> bool {
        self.line.is_enabled()
    }

    /// Waits until the grant is given or refused, or a signal ends the wait;
    /// then the request is taken back.
    pub(in crate::cli) async fn until<T>(
        mut self,
        granted: impl Future<Output = Result<T, Error>>,
        mut news: watch::Receiver<Seen>,
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
                Ok(()) = news.changed() => {}
                () = leasehold_runtime::sleep(TICK), if self.line.is_enabled() => {}
            }
            self.show(&news.borrow_and_update());
        }
    }

    fn show(&mut self, seen: &Seen) {
        let now = Moment::now();
        let waited = now.since(self.began);
        self.line.show(&status_line::text(&self.target, seen, waited, self.limit, now));
    }
}

/// Waits for this long, unless a signal asks us to end.
pub(in crate::cli) async fn pause(length: Duration, signals: &mut Signals) -> Result<(), Signal> {
    tokio::select! {
        biased;
        signal = asked_to_end(signals) => Err(signal),
        () = leasehold_runtime::sleep(length) => Ok(()),
    }
}

/// Until a signal asks us to end. Other signals have nobody to go to.
pub(super) async fn asked_to_end(signals: &mut Signals) -> Signal {
    loop {
        if let Err(Denied::Interrupted(signal)) = on_signal(signals.next().await) {
            return signal;
        }
    }
}

/// Whether this signal asks a process to end.
pub(super) const fn asks_to_end(signal: Signal) -> bool {
    matches!(signal, Signal::SIGTERM | Signal::SIGINT | Signal::SIGHUP | Signal::SIGQUIT)
}

fn on_signal(signal: Signal) -> Result<(), Denied> {
    match signal {
        // If it can't be stopped, it waits on.
        Signal::SIGTSTP => drop(process::stop_self()),
        signal if asks_to_end(signal) => return Err(Denied::Interrupted(signal)),
        // The others are for the command, which does not run.
        _ => {}
    }
    Ok(())
}
