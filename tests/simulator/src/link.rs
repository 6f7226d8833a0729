//! Link between a client and a daemon: an ordered stream of messages in each
//! direction, which can stall and break.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
    },
    task::{Context, Poll, Waker, ready},
};

use leasehold::rpc;
use leasehold_checker::Event;
use leasehold_protocol::v1::{
    self as pb, attach_request::Message as Request, attach_response::Message as Response,
};
use leasehold_runtime::simulation::{Attaching, Incoming, Link};
use prost::Message as _;
use tokio_stream::{Stream, StreamExt as _};
use tonic::Status;

use crate::{
    broken::{Wrapped, is},
    repeated_release::Peer,
    sim_state::{Running, count, lock_number, record, sim},
    world::{Nanos, SECOND, here},
};

/// Interval of HTTP/2 keep-alives, and timeout of their answers.
const HTTP2_KEEP_ALIVE: Nanos = 5 * SECOND;

type Item = Result<Vec<u8>, Status>;

/// One direction of a stream.
#[derive(Clone, Default)]
pub struct Pipe(Arc<Mutex<Flow>>);

#[derive(Default)]
struct Flow {
    /// Items in flight with their arrival times. `None` is the end.
    queue: VecDeque<(Nanos, Option<Item>)>,
    last: Nanos,
    /// The link is cut at the moment.
    cut: bool,
    /// One end has vanished permanently.
    vanished: bool,
    /// The connection was reset. The reset arrives even if the link is cut.
    reset: bool,
    ended: bool,
    waker: Option<Waker>,
}

impl Pipe {
    fn flow(&self) -> MutexGuard<'_, Flow> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends an item, or ends the direction.
    pub(crate) fn push(&self, item: Option<Item>) {
        let delay = sim().rng.borrow_mut().millis(1..10);
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

    /// Drops everything from now on, permanently.
    pub fn vanish(&self) {
        let mut flow = self.flow();
        flow.vanished = !flow.reset;
    }

    /// Returns whether an item that satisfies `is` is in flight.
    fn carries(&self, is: impl Fn(&[u8]) -> bool) -> bool {
        let flow = self.flow();
        flow.queue.iter().any(|(_, item)| matches!(item, Some(Ok(bytes)) if is(bytes)))
    }

    /// Returns whether nothing arrives, temporarily or permanently.
    fn is_silent(&self) -> bool {
        let flow = self.flow();
        flow.cut || flow.vanished
    }

    fn has_ended(&self) -> bool {
        self.flow().ended
    }

    /// Cuts or restores this direction.
    pub fn cut(&self, cut: bool) {
        let mut flow = self.flow();
        flow.cut = cut;
        if let Some(waker) = flow.waker.take() {
            waker.wake();
        }
    }

    /// Resets the connection: drops everything in flight.
    pub fn reset(&self) {
        let mut flow = self.flow();
        flow.queue.clear();
        (flow.ended, flow.reset) = (true, true);
        (flow.cut, flow.vanished) = (false, false);
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
        match arrives.filter(|_| !flow.cut && !flow.vanished) {
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

/// Ends a direction when its sender is dropped.
struct Feed(Pipe);

impl Drop for Feed {
    fn drop(&mut self) {
        self.0.push(Some(Err(Status::unavailable("the peer is gone"))));
    }
}

/// Stream between a client and a daemon.
pub struct Connection {
    /// Number of the client.
    pub client: u32,
    /// Place of the daemon.
    pub place: usize,
    /// Direction from the client to the daemon.
    pub up: Pipe,
    /// Direction from the daemon to the client.
    pub down: Pipe,
}

impl Connection {
    /// Returns whether a grant for the client is in flight.
    #[must_use]
    pub fn has_grant_in_flight(&self) -> bool {
        use pb::attach_response::Message;
        self.down.carries(|bytes| {
            let response =
                pb::AttachResponse::decode(bytes).ok().and_then(|response| response.message);
            matches!(response, Some(Message::Granted(_)))
        })
    }
}

/// Link of a client to the daemon at a place.
pub struct ClientLink {
    /// Number of the client; changes when it closes its session.
    pub client: Arc<AtomicU32>,
    /// Place of the daemon.
    pub place: usize,
    /// True if its sessions are fenced.
    pub fenced: bool,
}

impl Link for ClientLink {
    fn attach(&self, messages: Incoming) -> Attaching {
        let (client, place, fenced) = (self.client.load(Relaxed), self.place, self.fenced);
        Box::pin(async move {
            let delay = sim().rng.borrow_mut().length(1..10);
            leasehold_runtime::sleep(delay).await;
            match connect(client, place, fenced, messages) {
                Some(outcome) => outcome,
                // The client times out.
                None => std::future::pending().await,
            }
        })
    }
}

/// Opens a stream; returns `None` if the link is cut.
fn connect(
    client: u32,
    place: usize,
    fenced: bool,
    messages: Incoming,
) -> Option<Result<Incoming, Status>> {
    let sim = sim();
    let (cut_up, cut_down) = sim.cut.borrow().get(&(client, place)).copied().unwrap_or_default();
    if cut_up > 0 || cut_down > 0 {
        return None;
    }
    let Some(running) = sim.running(place) else {
        return Some(Err(Status::unavailable("connection refused")));
    };
    let (up, down) = (Pipe::default(), Pipe::default());
    {
        let mut connections = sim.connections.borrow_mut();
        connections.retain(|open| !open.up.flow().ended || !open.down.flow().ended);
        connections.push(Connection { client, place, up: up.clone(), down: down.clone() });
    }
    sim.change_daemon(client, running.number);
    let client_machine = sim.clients.borrow()[client as usize].machine;
    let daemon_machine = running.machine;
    let grants = fenced.then(Grants::default);
    let serving = serve(client, running, up.clone(), Feed(down.clone()), grants);
    let canceled = is(Wrapped::CrossedGrantIgnored).then(Canceled::default);
    if fenced {
        watch_connection(up.clone(), down.clone(), false);
    }
    sim.world.spawn(client_machine, Box::pin(pump(messages, up.clone(), canceled.clone())));
    sim.world.spawn(daemon_machine, Box::pin(serving));
    Some(Ok(Box::pin(ClientStream { down, _up: Feed(up), canceled })))
}

/// HTTP/2 keep-alives detect a dead connection for fenced clients. Other
/// clients detect it by the session's keep-alives.
fn watch_connection(up: Pipe, down: Pipe, unanswered: bool) {
    here().after(HTTP2_KEEP_ALIVE, move || {
        let silent = up.is_silent() || down.is_silent();
        // The client has closed the stream.
        if up.has_ended() {
            return;
        }
        if silent && unanswered {
            count("fenced sessions: dead connection closed");
            return down.reset();
        }
        watch_connection(up, down, silent);
    });
}

/// Grants on the stream of a fenced session. The daemon releases them when the
/// stream ends.
#[derive(Clone, Default)]
struct Grants(Arc<Mutex<Granted>>);

#[derive(Default)]
struct Granted {
    /// Locks by the number of the acquire.
    locks: HashMap<u64, u32>,
    /// Granted locks and tokens.
    granted: Vec<(u32, u64)>,
}

impl Grants {
    fn state(&self) -> MutexGuard<'_, Granted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn on_request(&self, message: &pb::AttachRequest) {
        use pb::attach_request::Message;
        if let Some(Message::Acquire(acquire)) = &message.message
            && let Some(lock) = acquire.lock.as_ref().and_then(|lock| lock_number(&lock.name))
        {
            self.state().locks.insert(acquire.request, lock);
        }
    }

    fn on_response(&self, message: &pb::AttachResponse) {
        use pb::attach_response::Message;
        let mut state = self.state();
        if let Some(Message::Granted(granted)) = &message.message
            && let Some(lock) = state.locks.get(&granted.request).copied()
        {
            state.granted.push((lock, granted.token));
        }
    }

    fn record_freed(&self, client: u32) {
        for (lock, token) in self.state().granted.drain(..) {
            count("fenced sessions: grants freed with their stream");
            record(Event::Freed { client, lock, token });
        }
    }
}

/// Client's end of a stream; closes the stream when dropped.
struct ClientStream {
    down: Pipe,
    _up: Feed,
    canceled: Option<Canceled>,
}

/// Requests that a client has canceled on a stream. Mutant o7 drops their
/// grants.
#[derive(Clone, Default)]
struct Canceled(Arc<Mutex<HashSet<u64>>>);

impl Canceled {
    fn requests(&self) -> MutexGuard<'_, HashSet<u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn on_request(&self, bytes: &[u8]) {
        use pb::attach_request::Message;
        let response = pb::AttachRequest::decode(bytes).ok().and_then(|response| response.message);
        if let Some(Message::Cancel(cancel)) = response {
            self.requests().insert(cancel.request);
        }
    }

    fn hides_grant(&self, bytes: &[u8]) -> bool {
        use pb::attach_response::Message;
        let response = pb::AttachResponse::decode(bytes).ok().and_then(|response| response.message);
        matches!(response, Some(Message::Granted(granted)) if self.requests().contains(&granted.request))
    }
}

impl Stream for ClientStream {
    type Item = Item;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Item>> {
        loop {
            let item = ready!(Pin::new(&mut self.down).poll_next(cx));
            match (&item, &self.canceled) {
                (Some(Ok(bytes)), Some(canceled)) if canceled.hides_grant(bytes) => {}
                _ => return Poll::Ready(item),
            }
        }
    }
}

/// Forwards the client's messages to the link.
async fn pump(mut messages: Incoming, up: Pipe, canceled: Option<Canceled>) {
    while let Some(message) = messages.next().await {
        if let (Some(canceled), Ok(bytes)) = (&canceled, &message) {
            canceled.on_request(bytes);
        }
        up.push(Some(message));
    }
    up.push(None);
}

/// Serves the daemon's end of a stream.
async fn serve(client: u32, daemon: Running, up: Pipe, down: Feed, grants: Option<Grants>) {
    let number = daemon.number;
    let request_grants = grants.clone();
    let resuming = Arc::new(AtomicBool::new(false));
    let resumes = Arc::clone(&resuming);
    let mut peer = is(Wrapped::ReleaseByName).then(|| Peer::new(client, number, up.clone()));
    let mut receiver = peer.clone();
    let inbound = up.map(move |item| {
        let decode = |bytes: Vec<u8>| pb::AttachRequest::decode(bytes.as_slice());
        let broken = |error: prost::DecodeError| Status::internal(error.to_string());
        let mut message = item.and_then(|bytes| decode(bytes).map_err(broken));
        if let (Ok(message), Some(peer)) = (&mut message, &mut receiver) {
            peer.on_request(message);
        }
        sim().trace(|| format!("    client {client} to daemon {number}: {message:?}"));
        sim().mix(
            &message
                .as_ref()
                .ok()
                .map(|message| message.message.as_ref().map(std::mem::discriminant)),
        );
        if matches!(&message, Ok(response) if matches!(response.message, Some(Request::Resume(_))))
        {
            resumes.store(true, Relaxed);
        }
        if let (Ok(message), Some(request_grants)) = (&message, &request_grants) {
            request_grants.on_request(message);
        }
        message
    });
    match rpc::attach(&daemon.driver, inbound) {
        Err(status) => down.0.push(Some(Err(status))),
        Ok(response) => {
            let mut response = Box::pin(response);
            let mut stepping_down = HashSet::new();
            while let Some(mut item) = response.next().await {
                let message = item.as_mut().ok().and_then(|response| response.message.as_mut());
                match message {
                    Some(Response::AtRisk(risk)) if risk.reason() == pb::Reason::StepDown => {
                        stepping_down.insert(risk.handle.clone());
                    }
                    Some(Response::KeptAlive(kept)) if is(Wrapped::LimitsLeftOut) => {
                        kept.limits.clear();
                    }
                    Some(Response::KeptAlive(kept)) if is(Wrapped::ValidityNotShortened) => {
                        kept.limits.retain(|limit| !stepping_down.contains(&limit.handle));
                    }
                    Some(Response::Restored(_)) => resuming.store(false, Relaxed),
                    Some(Response::Granted(_))
                        if resuming.load(Relaxed) && is(Wrapped::ResumeWithoutGrants) =>
                    {
                        continue;
                    }
                    _ => {}
                }
                sim().trace(|| format!("    daemon {number} to client {client}: {item:?}"));
                sim().mix(&item.as_ref().ok().map(hash_parts));
                if let (Ok(message), Some(grants)) = (&item, &grants) {
                    grants.on_response(message);
                }
                if let (Ok(message), Some(peer)) = (&item, &mut peer) {
                    peer.on_response(message);
                }
                let item = item.map(|message| message.encode_to_vec());
                down.0.push(Some(item));
            }
            // Record this before its consequences.
            record(Event::Detached { client });
            if let Some(grants) = grants {
                grants.record_freed(client);
            }
            down.0.push(None);
        }
    }
}

/// Returns the parts of a message that enter the trace hash. Descriptions of
/// holders are excluded because they contain the ID of this process.
fn hash_parts(response: &pb::AttachResponse) -> (u64, u64, u64) {
    use pb::attach_response::Message;
    match &response.message {
        Some(Message::KeptAlive(kept)) => {
            let limits = kept.limits.iter().map(|limit| limit.valid_for_ms).sum();
            (kept.keep_alive_number, kept.valid_for_ms, limits)
        }
        Some(Message::Granted(granted)) => (granted.token, granted.request, granted.valid_for_ms),
        Some(Message::Refused(refused)) => (refused.request, refused.reason as u64, 1),
        Some(Message::Queued(queued)) => (queued.request, u64::from(queued.position), 2),
        Some(Message::AtRisk(at_risk)) => (at_risk.ends_in_ms, at_risk.reason as u64, 3),
        Some(Message::Lost(lost)) => (lost.reason as u64, 0, 4),
        Some(Message::Released(released)) => (released.request, 0, 5),
        Some(Message::Proclaimed(proclaimed)) => (proclaimed.request, 0, 6),
        Some(Message::Opened(_)) => (0, 0, 7),
        Some(Message::Restored(_)) => (0, 0, 8),
        None => (0, 0, 9),
    }
}
