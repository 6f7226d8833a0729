//! Taking messages from a queue under a lock.

use std::{
    fmt,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use leasehold_azure_account::Fault;
use leasehold_client::{Guard, Token};
use leasehold_time::Moment;

use super::{Error, Place, Queue, rest::Got};
use crate::retry::Retries;

/// Shortest visibility timeout of the service.
const MIN_VISIBILITY_TIMEOUT: Duration = Duration::from_secs(1);

/// A message that is being worked on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The same each time when it is delivered. **Make effects idempotent by
    /// it.**
    pub id: String,
    /// As it is stored.
    pub text: String,
    /// How often it was delivered, this time included.
    pub attempt: u32,
    /// The holder's token. Pass it to what the message changes, which refuses
    /// one that is lower than the highest it has seen.
    pub token: Token,
}

/// What became of one message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Handled<E> {
    /// There was none that is visible.
    Empty,
    /// It was handled, and deleted.
    Done(Message),
    /// It had come too often, was handed to the other callback, and deleted.
    Poison(Message),
    /// The callback failed. The message is visible again.
    Failed(Message, E),
}

/// Takes messages one by one, as long as the lock is held. Made by
/// [`Queue::consumer`].
#[derive(Clone)]
pub struct Consumer<'a> {
    queue: Queue,
    guard: &'a Guard,
    visibility_timeout: Duration,
    max_deliveries: u32,
}

/// How a message is held.
struct Hold {
    id: String,
    receipt: Mutex<String>,
    /// When it may be visible to others again, at the earliest.
    until: Mutex<Moment>,
}

impl<'a> Consumer<'a> {
    pub(super) fn new(queue: Queue, guard: &'a Guard) -> Self {
        Self { queue, guard, visibility_timeout: Duration::from_secs(30), max_deliveries: 5 }
    }

    /// For how long at a time a message is hidden while it is worked on; 30 s if
    /// nothing is said. It is never longer than what is left of the grant, in
    /// whole seconds, one at least; and is extended as long as the work goes on.
    #[must_use]
    pub fn visibility_timeout(mut self, timeout: Duration) -> Self {
        self.visibility_timeout = timeout;
        self
    }

    /// How often a message is delivered before it counts as poison; 5 if
    /// nothing is said.
    #[must_use]
    pub fn max_deliveries(mut self, attempts: u32) -> Self {
        self.max_deliveries = attempts;
        self
    }

    /// Takes the next message and hands it to `handle`, or to `poison` if it was
    /// delivered too often. If that succeeds, the message is deleted, with a
    /// valid grant only; if it fails, the message is shown again at once.
    ///
    /// The callback is dropped where it stands when the lock is lost, or the
    /// message can't be kept hidden.
    ///
    /// # Errors
    /// [`Error::Lost`]: stop. [`Error::VisibilityLost`]: go on. [`Error::Unavailable`]:
    /// go on after `retry_after`; if it is not known whether a message was
    /// taken, that is as long as it would be hidden, so that none overtakes it.
    pub async fn next<E>(
        &self,
        handle: impl AsyncFnOnce(&Message) -> Result<(), E>,
        poison: impl AsyncFnOnce(&Message) -> Result<(), E>,
    ) -> Result<Handled<E>, Error> {
        let place = Place { token: Some(self.guard.token()), ..self.queue.place().clone() };
        self.check(&place).await?;
        let (sent, hide) = (Moment::now(), self.hidden_for());
        let got = match self.queue.get(self.guard.token(), hide).await {
            Ok(Some(got)) => got,
            Ok(None) => return Ok(Handled::Empty),
            Err(fault) => return Err(after(Error::of(&fault, &place, false), &fault, hide)),
        };
        let Got { message, receipt } = got;
        let place = Place { message: Some(message.id.clone()), ..place };
        let hold = Hold {
            id: message.id.clone(),
            receipt: Mutex::new(receipt),
            until: Mutex::new(sent + hide),
        };
        let is_poison = message.attempt > self.max_deliveries;
        let work =
            async { if is_poison { poison(&message).await } else { handle(&message).await } };
        match self.work(&place, &hold, work).await? {
            Ok(()) => {
                self.delete(&place, &hold).await?;
                Ok(if is_poison { Handled::Poison(message) } else { Handled::Done(message) })
            }
            Err(error) => {
                // If this fails, it is visible a little later.
                _ = self.queue.hide(&hold.id, &hold.receipt(), Duration::ZERO).await;
                Ok(Handled::Failed(message, error))
            }
        }
    }

    /// Works, with the message kept hidden.
    async fn work<T>(
        &self,
        place: &Place,
        hold: &Hold,
        work: impl Future<Output = T>,
    ) -> Result<T, Error> {
        let work = async {
            tokio::select! {
                done = work => Ok(done),
                loss = self.guard.lost() => Err(Error::Lost {
                    place: Box::new(place.clone()),
                    message: loss.message,
                }),
                () = hold.over() => {
                    Err(Error::visibility_lost(place, "the message could not be kept hidden"))
                }
            }
        };
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return done,
                () = leasehold_runtime::sleep(hold.until().remaining() / 2) => {}
            }
            // Once begun, it is seen to its end: the receipt changes with it.
            let mut extension = std::pin::pin!(self.extend(place, hold));
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

    /// Hides the message for longer.
    async fn extend(&self, place: &Place, hold: &Hold) -> Result<(), Error> {
        let (sent, hide) = (Moment::now(), self.hidden_for());
        let receipt = hold.receipt();
        match self.queue.hide(&hold.id, &receipt, hide).await {
            Ok(receipt) => {
                *hold.receipt.lock().unwrap_or_else(PoisonError::into_inner) = receipt;
                *hold.until.lock().unwrap_or_else(PoisonError::into_inner) = sent + hide;
                Ok(())
            }
            // Tried again when half of what is left has passed. If it was done
            // all the same, its receipt is lost, and the next try says so.
            Err(fault) if fault.may_pass() => {
                leasehold_runtime::sleep(
                    (hold.until().remaining() / 4).min(MIN_VISIBILITY_TIMEOUT),
                )
                .await;
                Ok(())
            }
            Err(fault) => Err(Error::of(&fault, place, false)),
        }
    }

    async fn delete(&self, place: &Place, hold: &Hold) -> Result<(), Error> {
        let mut retries = Retries::for_service();
        let mut unclear = false;
        loop {
            self.check(place).await?;
            match self.queue.delete(&hold.id, &hold.receipt()).await {
                Ok(()) => return Ok(()),
                // The try before did it.
                Err(Fault::Refused { status: 404, code, .. })
                    if unclear && code == "MessageNotFound" =>
                {
                    return Ok(());
                }
                Err(fault) => {
                    unclear |= fault.is_unclear();
                    if !(fault.may_pass() && retries.again(fault.retry_after()).await) {
                        return Err(Error::of(&fault, place, true));
                    }
                }
            }
        }
    }

    /// No message is hidden for longer than the lock is known to be held: so
    /// the next holder finds it.
    fn hidden_for(&self) -> Duration {
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

/// What may have been taken is hidden for a while.
fn after(error: Error, fault: &Fault, hide: Duration) -> Error {
    match error {
        Error::Unavailable { place, message, written, retry_after } if fault.is_unclear() => {
            let retry_after = retry_after.max(hide);
            Error::Unavailable { place, message, written, retry_after }
        }
        error => error,
    }
}

impl Hold {
    fn receipt(&self) -> String {
        self.receipt.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn until(&self) -> Moment {
        *self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the message may be visible again.
    async fn over(&self) {
        while !self.until().has_passed() {
            leasehold_runtime::sleep_until(self.until()).await;
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
