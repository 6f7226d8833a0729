//! Capture of the events that the client library and the product log in the test process.

use std::sync::Once;

use tracing::subscriber::{
    DefaultGuard, NoSubscriber, Subscriber, set_default, set_global_default,
};

/// Sends the events of this thread to a subscriber until the guard is dropped.
///
/// While a process has only one subscriber, `tracing` asks the default subscriber of the
/// thread that first reaches an event whether the event is ever of interest. A thread of
/// another test has none, so the event would be lost. A process-wide subscriber that
/// discards all events prevents that.
pub fn capture(subscriber: impl Subscriber + Send + Sync + 'static) -> DefaultGuard {
    static SECOND: Once = Once::new();
    SECOND.call_once(|| set_global_default(NoSubscriber::new()).unwrap());
    set_default(subscriber)
}
