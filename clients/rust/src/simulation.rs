//! For simulations: time, tasks and the way to the daemon, made up. Each thread
//! is in one simulated world at most.

use std::{
    cell::RefCell,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    time::{Duration, SystemTime},
};

use tokio_stream::Stream;
use tonic::{
    Status,
    transport::{Channel, Endpoint},
};

use crate::{Client, ClientBuilder, Error, clock::Moment, connection::Connection};

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

/// A client whose sessions go this way. Other calls find nobody.
///
/// # Errors
/// As [`ClientBuilder::connect`].
pub fn client(builder: ClientBuilder, link: Arc<dyn Link>) -> Result<Client, Error> {
    builder.over(|_, timeout| Connection::simulated(link, timeout))
}

/// Makes connections in a simulated network.
pub trait Dial: Send + Sync {
    /// A connection that is made when it is first needed, and again whenever it
    /// has ended.
    fn channel(&self, endpoint: &Endpoint) -> Channel;
}

/// A client that connects through a simulated network, for all its calls.
///
/// # Errors
/// As [`ClientBuilder::connect`], but a daemon that is not there is found out
/// later.
pub fn client_through(builder: ClientBuilder, dial: Arc<dyn Dial>) -> Result<Client, Error> {
    builder.over(|endpoint, timeout| Connection::dialled(endpoint, timeout, dial))
}
