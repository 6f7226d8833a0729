//! The way from a daemon to the storage account, and what can happen on it.

use std::{fmt, sync::Arc};

use azure_core::{
    error::{Error, ErrorKind},
    http::{AsyncRawResponse, Body, HttpClient, StatusCode, Transport, headers::Headers},
};
use leasehold_simulated_storage::{
    http,
    storage::{Act, Answer, Call},
};
use tokio::sync::oneshot;

use crate::{
    broken_transport, daemon, faults,
    rng::Rng,
    sim_state::{SimState, count, lock_of, sim},
    world::{MILLISECOND, Nanos, SECOND},
};

/// How the way from a place to the storage is. Several faults may have to do with
/// it at the same time: each ends only itself.
#[derive(Clone, Debug, Default)]
pub struct StorageLink {
    /// How many faults there are that requests get lost by.
    pub cut_out: u32,
    /// The same of answers.
    pub cut_back: u32,
    /// The same by which connections are refused.
    pub refused: u32,
    /// What goes wrong, and in how many of a thousand calls, by the number of the
    /// fault. The latest counts.
    pub storms: Vec<(usize, u64, Vec<Trouble>)>,
}

/// What can happen to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The connection is refused: nothing was done.
    Refused,
    /// The service fails before it does anything.
    FailsBefore(u16),
    /// The service fails after it has done it.
    FailsAfter(u16),
    /// The request is lost.
    RequestLost,
    /// It is done, and the answer is lost.
    AnswerLost,
    /// The connection breaks after the request was sent; perhaps it is done.
    Reset,
    /// It is done late, or its answer comes late: perhaps long after whoever asked
    /// has given up.
    Late,
    /// It is done twice, the second time later.
    Twice,
    /// It takes long, but not too long.
    Slow,
    /// It is lost, and something in between answers as if it were another call:
    /// one that spoke of another lease.
    Crossed,
}

/// All that can happen to a call.
pub const TROUBLES: [Trouble; 15] = [
    Trouble::Refused,
    Trouble::FailsBefore(500),
    Trouble::FailsBefore(503),
    Trouble::FailsBefore(401),
    Trouble::FailsBefore(403),
    Trouble::FailsBefore(429),
    Trouble::FailsAfter(500),
    Trouble::FailsAfter(503),
    Trouble::RequestLost,
    Trouble::AnswerLost,
    Trouble::Reset,
    Trouble::Late,
    Trouble::Twice,
    Trouble::Slow,
    Trouble::Crossed,
];

impl Trouble {
    const fn name(self) -> &'static str {
        match self {
            Self::Refused => "storage: connection refused",
            Self::FailsBefore(401) => "storage: 401, not applied",
            Self::FailsBefore(403) => "storage: 403, not applied",
            Self::FailsBefore(429) => "storage: 429, not applied",
            Self::FailsBefore(503) => "storage: 503, not applied",
            Self::FailsBefore(_) => "storage: 500, not applied",
            Self::FailsAfter(503) => "storage: 503, applied",
            Self::FailsAfter(_) => "storage: 500, applied",
            Self::RequestLost => "storage: request lost",
            Self::AnswerLost => "storage: answer lost",
            Self::Reset => "storage: connection reset",
            Self::Late => "storage: late",
            Self::Twice => "storage: applied twice",
            Self::Slow => "storage: slow",
            Self::Crossed => "storage: answer of another call",
        }
    }
}

/// When a daemon crashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Before the request reaches the storage.
    Sent,
    /// After it was done, before the answer is there.
    Applied,
    /// With the answer.
    Answered,
}

/// A crash that waits for its moment.
#[derive(Clone, Copy, Debug)]
pub struct PendingCrash {
    /// The number of the fault.
    pub index: usize,
    /// Which daemon.
    pub place: usize,
    /// In which call.
    pub kind: Kind,
    /// When.
    pub stage: Stage,
    /// For how long it stays down.
    pub down: Nanos,
}

/// Which call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A lease.
    Acquire,
    /// A renewal.
    Renew,
    /// A release.
    Release,
    /// A record.
    Write,
    /// A new blob.
    Create,
    /// An idle blob's end.
    Delete,
    /// Anything else.
    Other,
}

impl Kind {
    fn of(call: &Call) -> Self {
        match call.act {
            Act::Acquire { .. } => Self::Acquire,
            Act::Renew { .. } => Self::Renew,
            Act::Release { .. } => Self::Release,
            Act::Upload { .. } if call.if_absent => Self::Create,
            Act::SetMetadata { .. } | Act::Upload { .. } => Self::Write,
            Act::Delete => Self::Delete,
            _ => Self::Other,
        }
    }
}

/// The transport of a daemon's storage client.
#[must_use]
pub fn transport(place: usize, number: u32) -> Transport {
    broken_transport::wrap(Arc::new(Wire { place, number }))
}

struct Wire {
    place: usize,
    number: u32,
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Wire")
    }
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug)]
enum Broken {
    Refused,
    Reset,
}

type Reply = oneshot::Sender<Result<Answer, Broken>>;

#[async_trait::async_trait]
impl HttpClient for Wire {
    async fn execute_request(
        &self,
        request: &azure_core::http::Request,
    ) -> azure_core::Result<AsyncRawResponse> {
        let answer = {
            let headers = request.headers().iter();
            let headers = headers.map(|(name, value)| {
                (name.as_str().to_ascii_lowercase(), value.as_str().to_owned())
            });
            let body = match request.body() {
                Body::Bytes(bytes) => bytes.clone(),
                Body::SeekableStream(_) => Default::default(),
            };
            let call = http::Request {
                method: request.method().as_str(),
                path: request.url().path(),
                query: request.url().query().unwrap_or_default(),
                headers: headers.collect(),
                body: &body,
            }
            .call();
            let call = call.ok_or_else(|| {
                Error::with_message(ErrorKind::Other, format!("not simulated: {}", request.url()))
            })?;
            send(self.place, self.number, call)
        };
        match answer.await {
            Ok(Ok(answer)) => Ok(respond(&answer)),
            Ok(Err(Broken::Refused)) => Err(Error::with_message(ErrorKind::Connection, "refused")),
            Ok(Err(Broken::Reset)) => Err(Error::with_message(ErrorKind::Io, "reset")),
            Err(_) => std::future::pending().await,
        }
    }
}

fn respond(answer: &Answer) -> AsyncRawResponse {
    let response = answer.response();
    let mut headers = Headers::new();
    for (name, value) in response.headers {
        headers.insert(name, value);
    }
    let body = response.content.unwrap_or_else(|| response.body.into_bytes());
    AsyncRawResponse::from_bytes(StatusCode::from(response.status), headers, body)
}

/// Sends a call to the storage, through what is wrong with the link.
fn send(place: usize, number: u32, call: Call) -> oneshot::Receiver<Result<Answer, Broken>> {
    let (reply, answer) = oneshot::channel();
    let sim = sim();
    let storage_link = sim.places.borrow()[place].storage_link.clone();
    spring(&sim, place, number, &call, Stage::Sent);
    let snatched = snatch(&sim, &call);
    let mut rng = sim.rng.borrow_mut();
    let trouble = storage_link.storms.last().and_then(|(_, share, kinds)| {
        (rng.permille(*share) && !kinds.is_empty()).then(|| *rng.pick(kinds))
    });
    let trouble = match trouble {
        _ if snatched => Some(Trouble::RequestLost),
        _ if storage_link.refused > 0 => Some(Trouble::Refused),
        _ if storage_link.cut_out > 0 => Some(Trouble::RequestLost),
        _ if storage_link.cut_back > 0 => Some(Trouble::AnswerLost),
        trouble => trouble,
    };
    let out = rng.millis(1..15);
    let back = rng.millis(1..15);
    let trip = Trip { place, number, call };
    if let Some(trouble) = trouble {
        count(trouble.name());
        drop(rng);
        trip.troubled(trouble, out, back, reply, &mut sim.rng.borrow_mut().split());
        return answer;
    }
    drop(rng);
    trip.deliver(out, back, Some(reply), None);
    answer
}

/// Takes the lease away under which a record is about to be written, if that is due.
/// Early in a second, so that somebody else can write one within it.
fn snatch(sim: &SimState, call: &Call) -> bool {
    let is_record = Kind::of(call) == Kind::Write && call.lease.is_some();
    let Some(lock) = lock_of(&call.path).filter(|_| is_record) else { return false };
    if sim.world.now() % SECOND > SECOND / 2 {
        return false;
    }
    let due = sim.snatch.take();
    due.into_iter().for_each(|index| faults::break_lease(index, lock));
    due.is_some()
}

/// A call on its way.
#[derive(Clone)]
struct Trip {
    place: usize,
    number: u32,
    call: Call,
}

impl Trip {
    /// It reaches the storage after `out`, and its answer is back after that.
    /// If there is to be an error, the answer is replaced by that.
    fn deliver(self, out: Nanos, back: Nanos, reply: Option<Reply>, instead: Option<u16>) {
        let world = std::rc::Rc::clone(&sim().world);
        world.after(out, move || {
            let sim = sim();
            let mut answer = sim.apply(Some(self.number), &self.call);
            if reply.as_ref().is_none_or(Reply::is_closed) {
                sim.unasked(&self.call, &answer);
            }
            if matches!(Kind::of(&self.call), Kind::Acquire | Kind::Renew) && answer.status < 300 {
                let heard = &mut sim.places.borrow_mut()[self.place].heard;
                heard.truncate(7);
                heard.push_front(answer.clone());
            }
            spring(&sim, self.place, self.number, &self.call, Stage::Applied);
            let Some(reply) = reply else { return };
            if let Some(status) = instead {
                answer = failure(status, &mut sim.rng.borrow_mut());
                answer.date = sim.date();
            }
            sim.world.after(back, move || {
                let sim = crate::sim_state::sim();
                // Whoever gave up does not listen.
                if let Err(Ok(answer)) = reply.send(Ok(answer)) {
                    sim.unasked(&self.call, &answer);
                }
                spring(&sim, self.place, self.number, &self.call, Stage::Answered);
            });
        });
    }

    /// The last answer to another call of this kind that spoke of another lease.
    fn crossed(&self) -> Option<Answer> {
        let (id, status) = match &self.call.act {
            Act::Acquire { id, .. } => (id, 201),
            Act::Renew { id } => (id, 200),
            _ => return None,
        };
        let sim = sim();
        let places = sim.places.borrow();
        let mut heard = places[self.place].heard.iter();
        let other = |answer: &&Answer| answer.status == status && answer.lease.as_ref() != Some(id);
        heard.find(other).cloned()
    }

    fn troubled(self, trouble: Trouble, out: Nanos, back: Nanos, reply: Reply, rng: &mut Rng) {
        let world = std::rc::Rc::clone(&sim().world);
        let break_after = |length: Nanos, reply: Reply, how: Broken| {
            world.after(length, move || _ = reply.send(Err(how)));
        };
        match trouble {
            Trouble::Refused => break_after(out, reply, Broken::Refused),
            Trouble::FailsBefore(status) => {
                let mut failure = failure(status, rng);
                failure.date = sim().date();
                world.after(out + back, move || _ = reply.send(Ok(failure)));
            }
            Trouble::FailsAfter(status) => self.deliver(out, back, Some(reply), Some(status)),
            Trouble::RequestLost => hold(reply),
            Trouble::AnswerLost => {
                self.deliver(out, back, None, None);
                hold(reply);
            }
            Trouble::Reset => {
                if rng.permille(500) {
                    self.deliver(out + rng.millis(0..4000), back, None, None);
                }
                break_after(out + rng.millis(0..2000), reply, Broken::Reset);
            }
            Trouble::Late => match rng.within(0..4) {
                0 => self.deliver(out + long(rng), back, Some(reply), None),
                1 => self.deliver(out, back + long(rng), Some(reply), None),
                _ => {
                    self.deliver(out + long(rng), back, None, None);
                    hold(reply);
                }
            },
            Trouble::Twice => {
                let again = long(rng);
                self.clone().deliver(out + again, back, None, None);
                self.deliver(out, back, Some(reply), None);
            }
            Trouble::Crossed => match self.crossed() {
                Some(answer) => world.after(out + back, move || _ = reply.send(Ok(answer))),
                None => hold(reply),
            },
            Trouble::Slow => {
                let (out, back) = (out + rng.millis(0..2000), back + rng.millis(0..2000));
                self.deliver(out, back, Some(reply), None);
            }
        }
    }
}

/// Keeps the way back open for ever: there is no answer, and no end either.
fn hold(reply: Reply) {
    sim().world.at(Nanos::MAX - 1, move || drop(reply));
}

/// Around the times that matter to a lease: what a call may take, a third of its
/// duration, its end less the margin, and its end.
fn long(rng: &mut Rng) -> Nanos {
    let sim = sim();
    let plan = &sim.plan;
    let lease = rng.pick(&[plan.lease, plan.lease, plan.longest_lease]).as_nanos() as Nanos;
    let margin = (lease / 20).max(SECOND);
    let limit = (lease / 5).clamp(3 * SECOND, 10 * SECOND);
    let around = *rng.pick(&[
        SECOND,
        limit,
        lease / 3,
        lease / 2,
        lease - margin,
        lease - SECOND / 2,
        lease,
        lease + SECOND,
        2 * lease,
    ]);
    around - 500 * MILLISECOND + rng.millis(0..1000)
}

/// A failure; perhaps with the wish to be left alone for a while.
fn failure(status: u16, rng: &mut Rng) -> Answer {
    let busy = matches!(status, 429 | 503) && rng.permille(500);
    Answer {
        status,
        code: match status {
            503 => "ServerBusy",
            401 => "NoAuthenticationInformation",
            403 => "AuthorizationFailure",
            429 => "TooManyRequests",
            _ => "InternalError",
        },
        etag: None,
        lease: None,
        lease_time: None,
        blob: None,
        lease_state: "",
        listed: Vec::new(),
        retry_after: busy.then(|| rng.within(1..10)),
        date: 0,
    }
}

/// Crashes the daemon if its pending crash is due in this stage of this call.
fn spring(sim: &SimState, place: usize, number: u32, call: &Call, stage: Stage) {
    let pending_crash = *sim.pending_crash.borrow();
    if let Some(pending_crash) = pending_crash
        && (pending_crash.place, pending_crash.stage, pending_crash.kind)
            == (place, stage, Kind::of(call))
        && sim.running(place).is_some_and(|running| running.number == number)
    {
        *sim.pending_crash.borrow_mut() = None;
        sim.world.after(0, move || {
            count(match pending_crash.stage {
                Stage::Sent => "daemon: killed as a call was sent",
                Stage::Applied => "daemon: killed as a call was applied",
                Stage::Answered => "daemon: killed as a call was answered",
            });
            daemon::crash(pending_crash.place, Some(pending_crash.down));
            faults::disturb(pending_crash.index, pending_crash.down, || {});
        });
    }
}
