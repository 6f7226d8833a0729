//! Consumer of a queue that holds the queue's lock.

use std::{
    fmt,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use leasehold_azure_account::Fault;
use leasehold_client::{Guard, Token};
use leasehold_time::Moment;

use super::{Error, Place, Queue, rest::Received};
use crate::retry::Retries;

/// Minimum visibility timeout of the service.
const MIN_VISIBILITY_TIMEOUT: Duration = Duration::from_secs(1);

/// Message that was received and is not deleted yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Message ID, the same in each delivery. **Use it to make effects
    /// idempotent.**
    pub id: String,
    /// Text as stored in the queue.
    pub text: String,
    /// Number of deliveries, including this one.
    pub attempt: u32,
    /// Token of the holder. Pass it to every resource that the handler changes, so
    /// that the resource can refuse a token lower than the highest seen.
    pub token: Token,
}

/// Outcome of [`Consumer::next`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Handled<E> {
    /// No message is visible.
    Empty,
    /// The message was handled and deleted.
    Done(Message),
    /// The message was delivered too often. The poison handler has handled it, and it
    /// was deleted.
    Poison(Message),
    /// The handler failed. The message is visible again.
    Failed(Message, E),
}

/// Receives messages one at a time while the lock is held. Returned by
/// [`Queue::consumer`].
#[derive(Clone)]
pub struct Consumer<'a> {
    queue: Queue,
    guard: &'a Guard,
    visibility_timeout: Duration,
    max_deliveries: u32,
}

/// Received message that is hidden from other consumers.
struct HiddenMessage {
    id: String,
    receipt: Mutex<String>,
    /// Earliest time at which it may be visible again.
    hidden_until: Mutex<Moment>,
}

impl<'a> Consumer<'a> {
    pub(super) fn new(queue: Queue, guard: &'a Guard) -> Self {
        Self { queue, guard, visibility_timeout: Duration::from_secs(30), max_deliveries: 5 }
    }

    /// Sets the visibility timeout of a received message (default 30 s). The timeout
    /// is extended while the handler runs. It never exceeds the remaining validity
    /// of the grant, in whole seconds (minimum 1 s).
    #[must_use]
    pub fn visibility_timeout(mut self, timeout: Duration) -> Self {
        self.visibility_timeout = timeout;
        self
    }

    /// Sets the number of deliveries after which a message is passed to the poison
    /// handler (default 5).
    #[must_use]
    pub fn max_deliveries(mut self, max_deliveries: u32) -> Self {
        self.max_deliveries = max_deliveries;
        self
    }

    /// Receives the next message and passes it to `handle`, or to `poison` if it was
    /// delivered too often. If the handler succeeds and the grant is valid, the
    /// message is deleted. If the handler fails, the message becomes visible at once.
    ///
    /// The handler is dropped when the lock is lost, or when the message can't stay
    /// hidden.
    ///
    /// # Errors
    /// - [`Error::Lost`]: stop, the lock is lost.
    /// - [`Error::VisibilityLost`]: continue with the next message.
    /// - [`Error::Unavailable`]: continue after `retry_after`. If the outcome of the
    ///   receive is unknown, `retry_after` covers the visibility timeout, so that no
    ///   later message overtakes the one that may be hidden.
    pub async fn next<E>(
        &self,
        handle: impl AsyncFnOnce(&Message) -> Result<(), E>,
        poison: impl AsyncFnOnce(&Message) -> Result<(), E>,
    ) -> Result<Handled<E>, Error> {
        let place = Place { token: Some(self.guard.token()), ..self.queue.place().clone() };
        self.check(&place).await?;
        let (sent, hide) = (Moment::now(), self.effective_timeout());
        let received = match self.queue.receive(self.guard.token(), hide).await {
            Ok(Some(received)) => received,
            Ok(None) => return Ok(Handled::Empty),
            Err(fault) => return Err(delayed(Error::of(&fault, &place, false), &fault, hide)),
        };
        let Received { message, receipt } = received;
        let place = Place { message: Some(message.id.clone()), ..place };
        let hidden = HiddenMessage {
            id: message.id.clone(),
            receipt: Mutex::new(receipt),
            hidden_until: Mutex::new(sent + hide),
        };
        let is_poison = message.attempt > self.max_deliveries;
        let work =
            async { if is_poison { poison(&message).await } else { handle(&message).await } };
        match self.run(&place, &hidden, work).await? {
            Ok(()) => {
                self.delete(&place, &hidden).await?;
                Ok(if is_poison { Handled::Poison(message) } else { Handled::Done(message) })
            }
            Err(error) => {
                // If this fails, the message becomes visible after its timeout.
                let receipt = hidden.receipt();
                _ = self.queue.set_timeout(&hidden.id, &receipt, Duration::ZERO).await;
                Ok(Handled::Failed(message, error))
            }
        }
    }

    /// Runs the handler and extends the visibility timeout.
    async fn run<T>(
        &self,
        place: &Place,
        hidden: &HiddenMessage,
        work: impl Future<Output = T>,
    ) -> Result<T, Error> {
        let work = async {
            tokio::select! {
                done = work => Ok(done),
                loss = self.guard.lost() => Err(Error::Lost {
                    place: Box::new(place.clone()),
                    message: loss.message,
                }),
                () = hidden.expired() => {
                    Err(Error::visibility_lost(place, "its visibility timeout could not be extended"))
                }
            }
        };
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return done,
                () = leasehold_runtime::sleep(hidden.hidden_until().remaining() / 2) => {}
            }
            // An extension must complete, because it changes the receipt.
            let mut extension = std::pin::pin!(self.extend(place, hidden));
            tokio::select! {
                extended = &mut extension => extended?,
                done = &mut work => {
                    let done = done?;
                    extension.await?;
                    return Ok(done);
                }
            }
        }
    }

    /// Extends the visibility timeout.
    async fn extend(&self, place: &Place, hidden: &HiddenMessage) -> Result<(), Error> {
        let (sent, hide) = (Moment::now(), self.effective_timeout());
        let receipt = hidden.receipt();
        match self.queue.set_timeout(&hidden.id, &receipt, hide).await {
            Ok(receipt) => {
                *hidden.receipt.lock().unwrap_or_else(PoisonError::into_inner) = receipt;
                *hidden.hidden_until.lock().unwrap_or_else(PoisonError::into_inner) = sent + hide;
                Ok(())
            }
            // The caller retries after half of the remaining time. If the service has
            // applied this extension, its receipt is lost, and the retry fails with
            // PopReceiptMismatch.
            Err(fault) if fault.may_pass() => {
                leasehold_runtime::sleep(
                    (hidden.hidden_until().remaining() / 4).min(MIN_VISIBILITY_TIMEOUT),
                )
                .await;
                Ok(())
            }
            Err(fault) => Err(Error::of(&fault, place, false)),
        }
    }

    async fn delete(&self, place: &Place, hidden: &HiddenMessage) -> Result<(), Error> {
        let mut retries = Retries::for_service();
        let mut unclear = false;
        loop {
            self.check(place).await?;
            match self.queue.delete(&hidden.id, &hidden.receipt()).await {
                Ok(()) => return Ok(()),
                // The earlier attempt was applied.
                Err(Fault::Refused { status: 404, code, .. })
                    if unclear && code == "MessageNotFound" =>
                {
                    return Ok(());
                }
                Err(fault) => {
                    unclear |= fault.is_unclear();
                    if !(fault.may_pass() && retries.next_attempt(fault.retry_after()).await) {
                        return Err(Error::of(&fault, place, true));
                    }
                }
            }
        }
    }

    /// Returns the visibility timeout, at most the remaining validity of the grant, so
    /// that the next holder receives an unhandled message.
    fn effective_timeout(&self) -> Duration {
        let left = self.guard.deadline().remaining().min(self.visibility_timeout);
        Duration::from_secs(left.as_secs()).max(MIN_VISIBILITY_TIMEOUT)
    }

    async fn check(&self, place: &Place) -> Result<(), Error> {
        if self.guard.is_valid() {
            return Ok(());
        }
        let message = self.guard.lost().await.message;
        Err(Error::Lost { place: Box::new(place.clone()), message })
    }
}

/// Adds the visibility timeout to `retry_after` if a message may have been received.
fn delayed(error: Error, fault: &Fault, hide: Duration) -> Error {
    match error {
        Error::Unavailable { place, message, written, retry_after } if fault.is_unclear() => {
            let retry_after = retry_after.max(hide);
            Error::Unavailable { place, message, written, retry_after }
        }
        error => error,
    }
}

impl HiddenMessage {
    fn receipt(&self) -> String {
        self.receipt.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn hidden_until(&self) -> Moment {
        *self.hidden_until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the message may be visible again.
    async fn expired(&self) {
        while !self.hidden_until().has_passed() {
            leasehold_runtime::sleep_until(self.hidden_until()).await;
        }
    }
}

impl fmt::Debug for Consumer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer")
            .field("queue", &self.queue.name())
            .field("guard", self.guard)
            .finish_non_exhaustive()
    }
}
