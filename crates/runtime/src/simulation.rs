//! Hooks for simulations: the route from a client to its daemon, and the state of
//! a grant. The clocks are in `leasehold_time::simulation`.

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

/// Encoded messages that a stream receives.
pub type Incoming = Pin<Box<dyn Stream<Item = Result<Vec<u8>, Status>> + Send>>;

/// Pending start of a stream.
pub type Attaching = Pin<Box<dyn Future<Output = Result<Incoming, Status>> + Send>>;

/// Link to a daemon for session streams.
pub trait Link: Send + Sync {
    /// Starts a stream.
    fn attach(&self, messages: Incoming) -> Attaching;
}

/// Connector of a simulated network.
pub trait Dial: Send + Sync {
    /// Returns a channel that connects on first use and reconnects after a
    /// disconnect.
    fn channel(&self, endpoint: &Endpoint) -> Channel;
}

/// Route that a client uses instead of a real connection.
#[derive(Clone)]
pub enum Route {
    /// Sessions only; other calls fail because there is no daemon.
    Link(Arc<dyn Link>),
    /// All calls.
    Dial(Arc<dyn Dial>),
}

thread_local! {
    static ROUTE: RefCell<Option<Route>> = const { RefCell::new(None) };
}

/// Polls `connecting` once. Clients that connect on this thread meanwhile use
/// `route`; they are ready at once, because a client does no I/O before its first
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

/// Access of a test to the state of a grant.
pub trait Peek {
    /// Returns the deadline, and whether the grant is valid, without changing the
    /// grant. `None` if the session does not know the grant.
    fn peek(&self) -> Option<(Moment, bool)>;
}
