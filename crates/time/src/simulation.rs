//! For simulations: time, tasks and the route to the daemon, simulated. Each
//! thread is in one simulated world at most.

use std::{
    cell::RefCell,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::{Duration, SystemTime},
};

use tokio_stream::Stream;
use tonic::{
    Status,
    transport::{Channel, Endpoint},
};

use crate::clock::Moment;

/// Something that runs by itself.
pub type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A simulated world, as seen by the process that is running in it at present.
pub trait World {
    /// The clock that counts through suspend.
    fn now(&self) -> Moment;
    /// The wall clock.
    fn wall(&self) -> SystemTime;
    /// A number that differs from process to process.
    fn seed(&self) -> u64;
    /// Waits; none if the runtime's own timers will do.
    fn sleep(&self, length: Duration) -> Option<Task>;
    /// Starts a task; gives it back if the runtime is to do that.
    fn spawn(&self, task: Task) -> Option<Task>;
}

thread_local! {
    static WORLD: RefCell<Option<Rc<dyn World>>> = const { RefCell::new(None) };
}

/// This thread is in a world until this is dropped.
#[must_use]
pub struct Inside(());

/// Enters a world.
pub fn enter(world: Rc<dyn World>) -> Inside {
    WORLD.set(Some(world));
    Inside(())
}

impl Drop for Inside {
    fn drop(&mut self) {
        WORLD.set(None);
    }
}

/// Asks the world, if there is one.
pub(crate) fn ask<T>(question: impl FnOnce(&dyn World) -> T) -> Option<T> {
    WORLD.with_borrow(|world| world.as_deref().map(question))
}

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
