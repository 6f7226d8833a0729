//! Waiting for the lock.

use std::{pin::pin, time::Duration};

use leasehold_client::{Error, Guard, LockRequest};
use tokio::sync::watch;

use super::{
    notes::Notes,
    status_line::{self, Seen, StatusLine},
};
use crate::{
    cli::{
        output::Output,
        process::{self, Signal, Signals},
    },
    clock::{self, Moment},
};

/// How often the waiting time is shown anew.
const TICK: Duration = Duration::from_secs(1);

/// Why there is no lock.
#[derive(Debug)]
pub(super) enum Denied {
    /// It was not granted.
    Refused(Box<Error>),
    /// A signal asked us to end.
    Interrupted(Signal),
}

/// A wait, shown to people.
#[derive(Debug)]
pub(super) struct Waiting<'a> {
    name: &'a str,
    limit: Option<Duration>,
    began: Moment,
    line: StatusLine,
}

impl<'a> Waiting<'a> {
    /// Begins now. `limit` is only shown.
    pub(super) fn new(
        name: &'a str,
        limit: Option<Duration>,
        output: Output,
        notes: Notes,
    ) -> Self {
        let line = match output {
            Output::Text => StatusLine::on_stderr(notes),
            Output::Json => StatusLine::disabled(notes),
        };
        Self { name, limit, began: Moment::now(), line }
    }

    /// Waits until the lock is granted or refused, or a signal ends the wait;
    /// then the request is taken back.
    pub(super) async fn acquire(
        mut self,
        request: LockRequest,
        signals: &mut Signals,
    ) -> Result<Guard, Denied> {
        let (sender, mut news) = watch::channel(None);
        let request = request.on_progress(move |progress| {
            sender.send_replace(Some(Seen { progress, at: Moment::now() }));
        });
        let mut acquired = pin!(request.acquire());
        loop {
            tokio::select! {
                biased;
                answer = &mut acquired => {
                    self.line.clear().await;
                    return answer.map_err(|error| Denied::Refused(Box::new(error)));
                }
                signal = signals.next() => {
                    self.line.clear().await;
                    on_signal(signal)?;
                }
                Ok(()) = news.changed() => {}
                () = clock::sleep(TICK), if self.line.is_enabled() => {}
            }
            self.show(news.borrow_and_update().as_ref());
        }
    }

    fn show(&mut self, seen: Option<&Seen>) {
        let now = Moment::now();
        let waited = now.since(self.began);
        self.line.show(&status_line::text(self.name, seen, waited, self.limit, now));
    }
}

/// Until a signal asks us to end. Other signals have nobody to go to any more.
pub(super) async fn asked_to_end(signals: &mut Signals) {
    while on_signal(signals.next().await).is_ok() {}
}

fn on_signal(signal: Signal) -> Result<(), Denied> {
    match signal {
        // If it can't be stopped, it waits on.
        Signal::SIGTSTP => drop(process::stop_self()),
        Signal::SIGTERM | Signal::SIGINT | Signal::SIGHUP | Signal::SIGQUIT => {
            return Err(Denied::Interrupted(signal));
        }
        // The others are for the command, which does not run.
        _ => {}
    }
    Ok(())
}
