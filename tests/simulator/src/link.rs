//! The way between a client and a daemon: a stream of messages in each
//! direction, in order, which can stand still and break.

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
    self as pb, attach_request::Message as Asked, attach_response::Message as Said,
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

/// How often HTTP/2 keep-alives, and how long it waits for the answer.
const HTTP2_PING: Nanos = 5 * SECOND;

type Item = Result<Vec<u8>, Status>;

/// One direction.
#[derive(Clone, Default)]
pub struct Pipe(Arc<Mutex<Flow>>);

#[derive(Default)]
struct Flow {
    /// What is under way, and when it arrives. None is the end.
    queue: VecDeque<(Nanos, Option<Item>)>,
    last: Nanos,
    /// The way is cut, for now.
    cut: bool,
    /// One end has vanished, for good.
    vanished: bool,
    /// The connection was reset: that arrives whatever else happens.
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

    /// Nothing arrives any more, for good.
    pub fn vanish(&self) {
        let mut flow = self.flow();
        flow.vanished = !flow.reset;
    }

    /// Whether something is under way that `is` says this of.
    fn carries(&self, is: impl Fn(&[u8]) -> bool) -> bool {
        let flow = self.flow();
        flow.queue.iter().any(|(_, item)| matches!(item, Some(Ok(bytes)) if is(bytes)))
    }

    /// Whether nothing arrives, for now or for good.
    fn is_silent(&self) -> bool {
        let flow = self.flow();
        flow.cut || flow.vanished
    }

    fn has_ended(&self) -> bool {
        self.flow().ended
    }

    /// Nothing arrives any more, until it does again.
    pub fn cut(&self, cut: bool) {
        let mut flow = self.flow();
        flow.cut = cut;
        if let Some(waker) = flow.waker.take() {
            waker.wake();
        }
    }

    /// Everything that has not arrived is lost.
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

impl Connection {
    /// Whether the client is about to hear of a grant.
    #[must_use]
    pub fn brings_grant(&self) -> bool {
        use pb::attach_response::Message;
        self.down.carries(|bytes| {
            let said = pb::AttachResponse::decode(bytes).ok().and_then(|said| said.message);
            matches!(said, Some(Message::Granted(_)))
        })
    }
}

/// A client's way to the daemon at a place.
pub struct Way {
    /// Whose: another number after it has closed its session.
    pub client: Arc<AtomicU32>,
    /// To where.
    pub place: usize,
    /// Whether its sessions end with their streams.
    pub fenced: bool,
}

impl Link for Way {
    fn attach(&self, messages: Incoming) -> Attaching {
        let (client, place, fenced) = (self.client.load(Relaxed), self.place, self.fenced);
        Box::pin(async move {
            let way = sim().rng.borrow_mut().length(1..10);
            leasehold_runtime::sleep(way).await;
            match connect(client, place, fenced, messages) {
                Some(outcome) => outcome,
                // The client gives up by itself.
                None => std::future::pending().await,
            }
        })
    }
}

/// A new stream; none if nothing is heard from the other side.
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
        connections.retain(|known| !known.up.flow().ended || !known.down.flow().ended);
        connections.push(Connection { client, place, up: up.clone(), down: down.clone() });
    }
    sim.turned(client, running.number);
    let client_machine = sim.clients.borrow()[client as usize].machine;
    let daemon_machine = running.machine;
    let grants = fenced.then(Grants::default);
    let serving = serve(client, running, up.clone(), Feed(down.clone()), grants);
    let canceled = is(Wrapped::CrossedGrantIgnored).then(Canceled::default);
    if fenced {
        watch(up.clone(), down.clone(), false);
    }
    sim.world.spawn(client_machine, Box::pin(pump(messages, up.clone(), canceled.clone())));
    sim.world.spawn(daemon_machine, Box::pin(serving));
    Some(Ok(Box::pin(Heard { down, _up: Feed(up), canceled })))
}

/// HTTP/2's own keep-alives tell a client that its connection is dead. Who is not fenced
/// notices that by its keep-alives.
fn watch(up: Pipe, down: Pipe, unanswered: bool) {
    here().after(HTTP2_PING, move || {
        let silent = up.is_silent() || down.is_silent();
        // It has hung up.
        if up.has_ended() {
            return;
        }
        if silent && unanswered {
            count("fenced sessions: connection given up");
            return down.reset();
        }
        watch(up, down, silent);
    });
}

/// What a daemon has granted on the stream of a fenced session, and frees when that
/// ends.
#[derive(Clone, Default)]
struct Grants(Arc<Mutex<Granted>>);

#[derive(Default)]
struct Granted {
    /// Which lock is asked for under which number.
    asked: HashMap<u64, u32>,
    /// Locks and tokens.
    granted: Vec<(u32, u64)>,
}

impl Grants {
    fn granted(&self) -> MutexGuard<'_, Granted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn asks(&self, message: &pb::AttachRequest) {
        use pb::attach_request::Message;
        if let Some(Message::Acquire(acquire)) = &message.message
            && let Some(lock) = acquire.lock.as_ref().and_then(|lock| lock_number(&lock.name))
        {
            self.granted().asked.insert(acquire.request, lock);
        }
    }

    fn answers(&self, message: &pb::AttachResponse) {
        use pb::attach_response::Message;
        let mut known = self.granted();
        if let Some(Message::Granted(granted)) = &message.message
            && let Some(lock) = known.asked.get(&granted.request).copied()
        {
            known.granted.push((lock, granted.token));
        }
    }

    fn freed(&self, client: u32) {
        for (lock, token) in self.granted().granted.drain(..) {
            count("fenced sessions: grants freed with their stream");
            record(Event::Freed { client, lock, token });
        }
    }
}

/// What the client hears. Whoever does not listen any more has hung up.
struct Heard {
    down: Pipe,
    _up: Feed,
    canceled: Option<Canceled>,
}

/// Requests that a client has canceled on a stream. Mutant o7 hides their grants from it.
#[derive(Clone, Default)]
struct Canceled(Arc<Mutex<HashSet<u64>>>);

impl Canceled {
    fn requests(&self) -> MutexGuard<'_, HashSet<u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sends(&self, bytes: &[u8]) {
        use pb::attach_request::Message;
        let said = pb::AttachRequest::decode(bytes).ok().and_then(|said| said.message);
        if let Some(Message::Cancel(cancel)) = said {
            self.requests().insert(cancel.request);
        }
    }

    fn hides(&self, bytes: &[u8]) -> bool {
        use pb::attach_response::Message;
        let said = pb::AttachResponse::decode(bytes).ok().and_then(|said| said.message);
        matches!(said, Some(Message::Granted(granted)) if self.requests().contains(&granted.request))
    }
}

impl Stream for Heard {
    type Item = Item;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Item>> {
        loop {
            let item = ready!(Pin::new(&mut self.down).poll_next(cx));
            match (&item, &self.canceled) {
                (Some(Ok(bytes)), Some(canceled)) if canceled.hides(bytes) => {}
                _ => return Poll::Ready(item),
            }
        }
    }
}

/// Puts what a client says onto the way.
async fn pump(mut messages: Incoming, up: Pipe, canceled: Option<Canceled>) {
    while let Some(message) = messages.next().await {
        if let (Some(canceled), Ok(bytes)) = (&canceled, &message) {
            canceled.sends(bytes);
        }
        up.push(Some(message));
    }
    up.push(None);
}

/// A daemon's side of a stream.
async fn serve(client: u32, daemon: Running, up: Pipe, down: Feed, grants: Option<Grants>) {
    let number = daemon.number;
    let asked = grants.clone();
    let resuming = Arc::new(AtomicBool::new(false));
    let resumes = Arc::clone(&resuming);
    let mut peer = is(Wrapped::ReleaseByName).then(|| Peer::new(client, number, up.clone()));
    let mut receiver = peer.clone();
    let inbound = up.map(move |item| {
        let decode = |bytes: Vec<u8>| pb::AttachRequest::decode(bytes.as_slice());
        let broken = |error: prost::DecodeError| Status::internal(error.to_string());
        let mut message = item.and_then(|bytes| decode(bytes).map_err(broken));
        if let (Ok(message), Some(peer)) = (&mut message, &mut receiver) {
            peer.receives(message);
        }
        sim().trace(|| format!("    client {client} to daemon {number}: {message:?}"));
        sim().mix(
            &message
                .as_ref()
                .ok()
                .map(|message| message.message.as_ref().map(std::mem::discriminant)),
        );
        if matches!(&message, Ok(said) if matches!(said.message, Some(Asked::Resume(_)))) {
            resumes.store(true, Relaxed);
        }
        if let (Ok(message), Some(asked)) = (&message, &asked) {
            asked.asks(message);
        }
        message
    });
    match rpc::attach(&daemon.driver, inbound) {
        Err(status) => down.0.push(Some(Err(status))),
        Ok(said) => {
            let mut said = Box::pin(said);
            let mut stepping_down = HashSet::new();
            while let Some(mut item) = said.next().await {
                let message = item.as_mut().ok().and_then(|said| said.message.as_mut());
                match message {
                    Some(Said::AtRisk(risk)) if risk.reason() == pb::Reason::StepDown => {
                        stepping_down.insert(risk.handle.clone());
                    }
                    Some(Said::KeptAlive(kept)) if is(Wrapped::LimitsLeftOut) => {
                        kept.limits.clear();
                    }
                    Some(Said::KeptAlive(kept)) if is(Wrapped::PromiseNotShortened) => {
                        kept.limits.retain(|limit| !stepping_down.contains(&limit.handle));
                    }
                    Some(Said::Restored(_)) => resuming.store(false, Relaxed),
                    Some(Said::Granted(_))
                        if resuming.load(Relaxed) && is(Wrapped::ResumeWithoutGrants) =>
                    {
                        continue;
                    }
                    _ => {}
                }
                sim().trace(|| format!("    daemon {number} to client {client}: {item:?}"));
                sim().mix(&item.as_ref().ok().map(heard));
                if let (Ok(message), Some(grants)) = (&item, &grants) {
                    grants.answers(message);
                }
                if let (Ok(message), Some(peer)) = (&item, &mut peer) {
                    peer.sends(message);
                }
                let item = item.map(|message| message.encode_to_vec());
                down.0.push(Some(item));
            }
            // Before anything that comes of it is seen.
            record(Event::Detached { client });
            if let Some(grants) = grants {
                grants.freed(client);
            }
            down.0.push(None);
        }
    }
}

/// What tells a message from others. Not all of it: descriptions of holders have
/// this process in them.
fn heard(said: &pb::AttachResponse) -> (u64, u64, u64) {
    use pb::attach_response::Message;
    match &said.message {
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
