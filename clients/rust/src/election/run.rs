//! Repeated campaigns with work for the leader.

use std::{sync::PoisonError, time::Duration};

use super::{Election, Leadership};
use crate::{Error, Reason, backoff::Backoff, value::Value};
use leasehold_time::Moment;

const MIN_DELAY: Duration = Duration::from_millis(100);
const MAX_DELAY: Duration = Duration::from_secs(5);
/// Duration of a leadership after which the next delay is the minimum.
const BACKOFF_RESET_AFTER: Duration = Duration::from_secs(10);
/// Minimum delay after a step-down. It lets another candidate lead, also one whose
/// daemon polls.
const STEP_DOWN_DELAY: Duration = Duration::from_secs(5);

impl Election {
    /// Campaigns, and runs `work` while leading. When the leadership is lost, drops
    /// `work`, waits for a delay, and campaigns again with the same value. When `work`
    /// returns, resigns and returns its result.
    ///
    /// The delay grows from 0.1 s to 5 s, with jitter, and is reset by a leadership of
    /// 10 s. After a step-down it is at least 5 s, so that another candidate leads.
    ///
    /// `work` is notified of a planned end and can drain:
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
    ///                         finish().await; // in less than risk.ends_in
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
    /// In a spawned task, let the closure own its captures:
    /// `async move |leadership: &Leadership| …`.
    ///
    /// # Errors
    /// [`Error::Invalid`], [`Error::NeedsOperator`] and [`Error::Incompatible`], which
    /// a retry does not resolve; [`Error::NotGranted`] if a campaign reached the
    /// configured [wait](Self::wait). After [`Error::Lost`] and
    /// [`Error::Unavailable`] it campaigns again; see
    /// [`on_error`](Self::on_error).
    ///
    /// # Cancel safety
    /// Dropping the future drops `work` and resigns in the background. Then call
    /// [`Client::close`](crate::Client::close), because the next candidate may
    /// otherwise have to wait for the session TTL if the program ends.
    pub async fn run_as_leader<T>(
        mut self,
        mut work: impl AsyncFnMut(&Leadership) -> T,
    ) -> Result<T, Error> {
        let value = Value::new(std::mem::take(&mut self.value))?;
        let mut backoff = CampaignBackoff::new();
        loop {
            let error = match self.acquire_leadership(value.clone()).await {
                Ok(leadership) => {
                    let started = Moment::now();
                    match lead(leadership, &mut work).await {
                        Ok(done) => return Ok(done),
                        Err(lost) => {
                            backoff.record_leadership(Moment::now().since(started));
                            lost
                        }
                    }
                }
                Err(error) => error,
            };
            let Some(delay) = backoff.delay_after(&error) else { return Err(error) };
            self.report_error(&error);
            leasehold_runtime::sleep(delay).await;
        }
    }

    fn report_error(&self, error: &Error) {
        if let Some(report) = &self.on_error {
            report.lock().unwrap_or_else(PoisonError::into_inner)(error);
        }
    }
}

/// Runs the work until it returns or the leadership is lost.
async fn lead<T>(
    leadership: Leadership,
    work: &mut impl AsyncFnMut(&Leadership) -> T,
) -> Result<T, Error> {
    match leadership.until_lost(work(&leadership)).await {
        Ok(done) => {
            // The result is valid even if the release is not confirmed; it is
            // retried in the background.
            let _ = leadership.resign().await;
            Ok(done)
        }
        Err(loss) => Err(loss.into_error(leadership.name())),
    }
}

/// Delay before the next campaign.
struct CampaignBackoff {
    backoff: Backoff,
}

impl CampaignBackoff {
    fn new() -> Self {
        Self { backoff: Backoff::new(MIN_DELAY, MAX_DELAY) }
    }

    fn record_leadership(&mut self, length: Duration) {
        if length >= BACKOFF_RESET_AFTER {
            self.backoff.reset();
        }
    }

    /// Returns the delay; `None` if a retry does not resolve the error.
    fn delay_after(&mut self, error: &Error) -> Option<Duration> {
        let at_least = match error {
            Error::Lost { reason: Reason::StepDown | Reason::SteppedDown, .. } => STEP_DOWN_DELAY,
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
    use crate::Loss;

    fn lost(reason: Reason) -> Error {
        Loss::new(reason, "").into_error("scheduler")
    }

    #[test]
    fn campaign_is_delayed_after_step_down() {
        for reason in [Reason::StepDown, Reason::SteppedDown] {
            assert!(CampaignBackoff::new().delay_after(&lost(reason)) >= Some(STEP_DOWN_DELAY));
        }
        assert!(CampaignBackoff::new().delay_after(&lost(Reason::ShuttingDown)) <= Some(MIN_DELAY));
    }

    #[test]
    fn delays_grow_until_leadership_lasts() {
        let mut backoff = CampaignBackoff::new();
        for _ in 0..9 {
            backoff.record_leadership(BACKOFF_RESET_AFTER / 2);
            backoff.delay_after(&lost(Reason::Broken));
        }
        assert!(backoff.delay_after(&lost(Reason::Broken)) >= Some(MAX_DELAY / 2));
        backoff.record_leadership(BACKOFF_RESET_AFTER);
        assert!(backoff.delay_after(&lost(Reason::Broken)) <= Some(MIN_DELAY));
    }

    #[test]
    fn permanent_errors_end_campaigns() {
        let requested = Duration::from_secs(7);
        let unavailable =
            Error::Unavailable { message: String::new(), retry_after: Some(requested) };
        assert!(CampaignBackoff::new().delay_after(&unavailable) >= Some(requested));
        let (lock, message) = (String::new(), String::new());
        for error in [
            Error::invalid("name", ""),
            Error::NeedsOperator { lock, message: message.clone() },
            Error::Incompatible { message },
        ] {
            assert_eq!(CampaignBackoff::new().delay_after(&error), None, "{error:?}");
        }
    }
}
