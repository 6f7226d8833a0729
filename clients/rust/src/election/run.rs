//! Work that only a leader does.

use std::{sync::PoisonError, time::Duration};

use super::{Election, Leadership};
use crate::{Error, Loss, Reason, backoff::Backoff, value::Value};
use leasehold_time::Moment;

const SHORTEST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Who has led for this long did not fail at once.
const PROOF: Duration = Duration::from_secs(10);
/// Who was asked to hand over lets others have a turn, also those whose
/// daemons only poll.
const STEP_ASIDE: Duration = Duration::from_secs(5);

impl Election {
    /// Campaigns, and does `work` while leading. When the leadership is lost,
    /// `work` is dropped where it stands; after a pause it campaigns again,
    /// with the same value, and calls `work` anew. Ends when `work` ends by
    /// itself while it leads: then it resigns and gives what `work` gave.
    ///
    /// Pauses grow from 0.1 s to 5 s, with jitter, as long as it does not lead
    /// for 10 s at a stretch. After a step-down they are at least 5 s, so that
    /// others get their turn.
    ///
    /// Before a planned end, `work` is told and can drain:
    ///
    /// ```no_run
    /// # async fn next_job(token: leasehold_client::Token) {}
    /// # async fn finish() {}
    /// use leasehold_client::{Client, Error};
    ///
    /// # async fn example(client: Client) -> Result<(), Error> {
    /// client
    ///     .election("scheduler")
    ///     .value("10.0.0.7:8080")
    ///     .run_as_leader(async |leadership| {
    ///         loop {
    ///             tokio::select! {
    ///                 () = next_job(leadership.token()) => {}
    ///                 risk = leadership.at_risk() => {
    ///                     if risk.is_step_down_request() {
    ///                         finish().await; // within risk.ends_in
    ///                         leadership.step_down().await;
    ///                     }
    ///                 }
    ///             }
    ///         }
    ///     })
    ///     .await
    /// # }
    /// ```
    ///
    /// In a task that is spawned, let the closure own what it uses:
    /// `async move |leadership: &Leadership| …`.
    ///
    /// To end it from outside, drop the future; then
    /// [`Client::close`](crate::Client::close), so that the next candidate does
    /// not have to wait for this session's ttl.
    ///
    /// # Errors
    /// What trying again is no help against: [`Error::Invalid`],
    /// [`Error::NeedsOperator`], [`Error::Incompatible`]; and
    /// [`Error::NotGranted`] if a [wait](Self::wait) was set and a campaign has
    /// lasted for that long. Losses and [`Error::Unavailable`] are overcome:
    /// see [`on_error`](Self::on_error).
    pub async fn run_as_leader<T>(
        mut self,
        mut work: impl AsyncFnMut(&Leadership) -> T,
    ) -> Result<T, Error> {
        let value = Value::new(std::mem::take(&mut self.value))?;
        let mut pauses = Pauses::new();
        loop {
            let trouble = match self.stand(value.clone()).await {
                Ok(leadership) => {
                    let began = Moment::now();
                    match lead(leadership, &mut work).await {
                        Ok(done) => return Ok(done),
                        Err(lost) => {
                            pauses.led_for(Moment::now().since(began));
                            lost
                        }
                    }
                }
                Err(error) => error,
            };
            let Some(pause) = pauses.after(&trouble) else { return Err(trouble) };
            self.tell(&trouble);
            leasehold_runtime::sleep(pause).await;
        }
    }

    fn tell(&self, trouble: &Error) {
        if let Some(tell) = &self.on_error {
            tell.lock().unwrap_or_else(PoisonError::into_inner)(trouble);
        }
    }
}

/// Does the work until it ends, or until the leadership does.
async fn lead<T>(
    leadership: Leadership,
    work: &mut impl AsyncFnMut(&Leadership) -> T,
) -> Result<T, Error> {
    let outcome: Result<T, Loss> = tokio::select! {
        biased;
        loss = leadership.lost() => Err(loss),
        done = work(&leadership) => leadership.loss().map_or(Ok(done), Err),
    };
    match outcome {
        Ok(done) => {
            // What was done is done, whether or not this is confirmed; it is
            // tried again in the background.
            let _ = leadership.resign().await;
            Ok(done)
        }
        Err(loss) => Err(loss.of(leadership.name())),
    }
}

/// How long to wait before campaigning again.
struct Pauses {
    backoff: Backoff,
}

impl Pauses {
    fn new() -> Self {
        Self { backoff: Backoff::new(SHORTEST_PAUSE, LONGEST_PAUSE) }
    }

    fn led_for(&mut self, length: Duration) {
        if length >= PROOF {
            self.backoff.start_over();
        }
    }

    /// None if it is better not to.
    fn after(&mut self, trouble: &Error) -> Option<Duration> {
        let at_least = match trouble {
            Error::Lost { reason: Reason::StepDown | Reason::SteppedDown, .. } => STEP_ASIDE,
            Error::Lost { .. } => Duration::ZERO,
            Error::Unavailable { retry_after, .. } => retry_after.unwrap_or_default(),
            _ => return None,
        };
        Some(self.backoff.next(at_least))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(reason: Reason) -> Error {
        Loss::new(reason, "").of("scheduler")
    }

    #[test]
    fn after_a_step_down_others_get_their_turn() {
        for reason in [Reason::StepDown, Reason::SteppedDown] {
            assert!(Pauses::new().after(&lost(reason)) >= Some(STEP_ASIDE));
        }
        assert!(Pauses::new().after(&lost(Reason::ShuttingDown)) <= Some(SHORTEST_PAUSE));
    }

    #[test]
    fn pauses_grow_until_it_has_led_for_a_while() {
        let mut pauses = Pauses::new();
        for _ in 0..9 {
            pauses.led_for(PROOF / 2);
            pauses.after(&lost(Reason::Broken));
        }
        assert!(pauses.after(&lost(Reason::Broken)) >= Some(LONGEST_PAUSE / 2));
        pauses.led_for(PROOF);
        assert!(pauses.after(&lost(Reason::Broken)) <= Some(SHORTEST_PAUSE));
    }

    #[test]
    fn what_trying_again_does_not_help_against_ends_it() {
        let asked = Duration::from_secs(7);
        let unavailable = Error::Unavailable { message: String::new(), retry_after: Some(asked) };
        assert!(Pauses::new().after(&unavailable) >= Some(asked));
        let (lock, message) = (String::new(), String::new());
        for error in [
            Error::invalid("name", ""),
            Error::NeedsOperator { lock, message: message.clone() },
            Error::Incompatible { message },
        ] {
            assert_eq!(Pauses::new().after(&error), None, "{error:?}");
        }
    }
}
