//! The way between a client and a daemon: a stream of messages in each
//! direction, in order, which can stand still and break.

use std::{
    collections::VecDeque,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use leasehold::rpc::{self, pb};
use leasehold_client::simulation::{Attaching, Incoming, Link};
use prost::Message as _;
use tokio_stream::{Stream, StreamExt as _};
use tonic::Status;

use crate::{
    scene::{Running, scene},
    world::{Nanos, here},
};

type Item = Result<Vec<u8>, Status>;

/// One direction.
#[derive(Clone, Default)]
pub struct Pipe(Arc<Mutex<Flow>>);

#[derive(Default)]
struct Flow {
    /// What is under way, and when it arrives. None is the end.
    queue: VecDeque<(Nanos, Option<Item>)>,
    last: Nanos,
    stalled: bool,
    ended: bool,
    waker: Option<Waker>,
}

impl Pipe {
    fn flow(&self) -> MutexGuard<'_, Flow> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, item: Option<Item>) {
        let delay = scene().dice.borrow_mut().millis(1..10);
        let mut flow = self.flow();
        if flow.ended {
            return;
        }
        flow.ended = !matches!(item, Some(Ok(_)));
        flow.last = flow.last.max(here().now() + delay);
        let arrives = flow.last;
        flow.queue.push_back((arrives, item));
        if let Some(waker) = flow.waker.take() {
            waker.wake();
        }
    }

    /// Nothing arrives any more, until it does again.
    pub fn stall(&self, stalled: bool) {
        let mut flow = self.flow();
        flow.stalled = stalled;
        if let Some(waker) = flow.waker.take() {
            waker.wake();
        }
    }

    /// Everything that has not arrived is lost.
    pub fn reset(&self) {
        let mut flow = self.flow();
        flow.queue.clear();
        flow.ended = true;
        flow.stalled = false;
        flow.queue.push_back((0, Some(Err(Status::unavailable("connection reset")))));
        if let Some(waker) = flow.waker.take() {
            waker.wake();
        }
    }
}

impl Stream for Pipe {
    type Item = Item;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Item>> {
        let mut flow = self.flow();
        let arrives = flow.queue.front().map(|(arrives, _)| *arrives);
        match arrives.filter(|_| !flow.stalled) {
            Some(arrives) if arrives <= here().now() => {
                Poll::Ready(flow.queue.pop_front().and_then(|(_, item)| item))
            }
            Some(arrives) => {
                flow.waker = Some(cx.waker().clone());
                here().wake_at(arrives, cx.waker().clone());
                Poll::Pending
            }
            None => {
                flow.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

/// Ends a direction when whoever feeds it is gone.
struct Feed(Pipe);

impl Drop for Feed {
    fn drop(&mut self) {
        self.0.push(Some(Err(Status::unavailable("the other side is gone"))));
    }
}

/// A stream between a client and a daemon.
pub struct Connection {
    /// Whose.
    pub client: u32,
    /// To where.
    pub place: usize,
    /// From the client.
    pub up: Pipe,
    /// From the daemon.
    pub down: Pipe,
}

/// A client's way to the daemon at a place.
pub struct Way {
    /// Whose.
    pub client: u32,
    /// To where.
    pub place: usize,
}

impl Link for Way {
    fn attach(&self, messages: Incoming) -> Attaching {
        let (client, place) = (self.client, self.place);
        Box::pin(async move {
            let way = scene().dice.borrow_mut().length(1..10);
            leasehold::clock::sleep(way).await;
            match connect(client, place, messages) {
                Some(outcome) => outcome,
                // The client gives up by itself.
                None => std::future::pending().await,
            }
        })
    }
}

/// A new stream; none if nothing is heard from the other side.
fn connect(client: u32, place: usize, messages: Incoming) -> Option<Result<Incoming, Status>> {
    let scene = scene();
    let (cut_up, cut_down) = scene.cut.borrow().get(&(client, place)).copied().unwrap_or_default();
    if cut_up || cut_down {
        return None;
    }
    let Some(running) = scene.running(place) else {
        return Some(Err(Status::unavailable("connection refused")));
    };
    let (up, down) = (Pipe::default(), Pipe::default());
    {
        let mut connections = scene.connections.borrow_mut();
        connections.retain(|known| !known.up.flow().ended || !known.down.flow().ended);
        connections.push(Connection { client, place, up: up.clone(), down: down.clone() });
    }
    scene.turned(client, running.number);
    let client_machine = scene.clients.borrow()[client as usize].machine;
    let daemon_machine = running.machine;
    let serving = serve(client, running, up.clone(), Feed(down.clone()));
    scene.world.spawn(client_machine, Box::pin(pump(messages, up.clone())));
    scene.world.spawn(daemon_machine, Box::pin(serving));
    Some(Ok(Box::pin(Heard { down, _up: Feed(up) })))
}

/// What the client hears. Whoever does not listen any more has hung up.
struct Heard {
    down: Pipe,
    _up: Feed,
}

impl Stream for Heard {
    type Item = Item;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Item>> {
        Pin::new(&mut self.down).poll_next(cx)
    }
}

/// Puts what a client says onto the way.
async fn pump(mut messages: Incoming, up: Pipe) {
    while let Some(message) = messages.next().await {
        up.push(Some(message));
    }
    up.push(None);
}

/// A daemon's side of a stream.
async fn serve(client: u32, daemon: Running, up: Pipe, down: Feed) {
    let number = daemon.number;
    let inbound = up.map(move |item| {
        let decode = |bytes: Vec<u8>| pb::AttachRequest::decode(bytes.as_slice());
        let broken = |error: prost::DecodeError| Status::internal(error.to_string());
        let message = item.and_then(|bytes| decode(bytes).map_err(broken));
        scene().trace(|| format!("    client {client} to daemon {number}: {message:?}"));
        message
    });
    match rpc::attach(&daemon.driver, inbound) {
        Err(status) => down.0.push(Some(Err(status))),
        Ok(said) => {
            let mut said = Box::pin(said);
            while let Some(item) = said.next().await {
                scene().trace(|| format!("    daemon {number} to client {client}: {item:?}"));
                let item = item.map(|message| message.encode_to_vec());
                scene().mix(item.as_ref().map_or(0, |_| 1));
                down.0.push(Some(item));
            }
            down.0.push(None);
        }
    }
}
