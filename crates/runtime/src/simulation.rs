//! For simulations: the route from a client to its daemon, and the state of a
//! grant. The clocks are in `leasehold_time::simulation`.

use std::{
    cell::RefCell,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use leasehold_time::Moment;
pub use leasehold_time::simulation::{Inside, Task, World, enter};
use tokio_stream::Stream;
use tonic::{
    Status,
    transport::{Channel, Endpoint},
};

/// What a stream brings from the other side: messages as they are on the wire.
pub type Incoming = Pin<Box<dyn Stream<Item = Result<Vec<u8>, Status>> + Send>>;

/// A stream that is about to begin.
pub type Attaching = Pin<Box<dyn Future<Output = Result<Incoming, Status>> + Send>>;

/// A way to a daemon.
pub trait Link: Send + Sync {
    /// Begins a stream.
    fn attach(&self, messages: Incoming) -> Attaching;
}

/// Makes connections in a simulated network.
pub trait Dial: Send + Sync {
    /// A connection that is made when it is first needed, and again whenever it
    /// has ended.
    fn channel(&self, endpoint: &Endpoint) -> Channel;
}

/// Route that a client uses instead of a real connection.
#[derive(Clone)]
pub enum Route {
    /// Carries sessions only; other calls find no daemon.
    Link(Arc<dyn Link>),
    /// Carries all calls.
    Dial(Arc<dyn Dial>),
}

thread_local! {
    static ROUTE: RefCell<Option<Route>> = const { RefCell::new(None) };
}

/// Polls `connecting` once, while clients that connect on this thread use
/// `route`. They are ready at once, because they do no I/O before their first
/// call. Returns `None` if the future is not ready.
pub fn connect<T>(route: Route, connecting: impl Future<Output = T>) -> Option<T> {
    ROUTE.set(Some(route));
    let polled = std::pin::pin!(connecting).poll(&mut Context::from_waker(Waker::noop()));
    ROUTE.set(None);
    match polled {
        Poll::Ready(connected) => Some(connected),
        Poll::Pending => None,
    }
}

/// Returns the route for a client that connects now, if there is one.
#[must_use]
pub fn route() -> Option<Route> {
    ROUTE.with_borrow(Clone::clone)
}

/// State of a grant that a test can read without changing it.
pub trait Peek {
    /// Returns the deadline, and whether the grant is valid. `None` if the
    /// session has no record of the grant.
    fn peek(&self) -> Option<(Moment, bool)>;
}
