//! Link from a daemon to the storage account, and its faults.

use std::{fmt, sync::Arc};

use azure_core::{
    error::{Error, ErrorKind},
    http::{AsyncRawResponse, Body, HttpClient, StatusCode, Transport, headers::Headers},
};
use leasehold_simulated_storage::{
    http,
    storage::{Answer, Call, Operation},
};
use tokio::sync::oneshot;

use crate::{
    broken_transport, daemon, faults,
    rng::Rng,
    sim_state::{SimState, count, lock_of, sim},
    world::{MILLISECOND, Nanos, SECOND},
};

/// State of the link from a place to the storage. Several faults may affect it
/// at once; each ends separately.
#[derive(Clone, Debug, Default)]
pub struct StorageLink {
    /// Number of faults that lose requests.
    pub cut_out: u32,
    /// Number of faults that lose answers.
    pub cut_back: u32,
    /// Number of faults that refuse connections.
    pub refused: u32,
    /// Numbers of faults, with the permille of calls that they affect and how.
    /// The latest fault applies.
    pub storms: Vec<(usize, u64, Vec<CallFault>)>,
}

/// Fault of a single call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallFault {
    /// The connection is refused; the call is not applied.
    Refused,
    /// The service fails with this status; the call is not applied.
    FailsBefore(u16),
    /// The service fails with this status after it applied the call.
    FailsAfter(u16),
    /// The request is lost.
    RequestLost,
    /// The call is applied, and the answer is lost.
    AnswerLost,
    /// The connection breaks after the request was sent; the call may be
    /// applied.
    Reset,
    /// The call or its answer is delayed, possibly until long after the caller
    /// timed out.
    Late,
    /// The call is applied twice, the second time later.
    Twice,
    /// The call is slow, but does not time out.
    Slow,
    /// The request is lost, and an intermediary answers as if it were another
    /// call, with another lease ID.
    Crossed,
}

/// All faults of a call.
pub const CALL_FAULTS: [CallFault; 15] = [
    CallFault::Refused,
    CallFault::FailsBefore(500),
    CallFault::FailsBefore(503),
    CallFault::FailsBefore(401),
    CallFault::FailsBefore(403),
    CallFault::FailsBefore(429),
    CallFault::FailsAfter(500),
    CallFault::FailsAfter(503),
    CallFault::RequestLost,
    CallFault::AnswerLost,
    CallFault::Reset,
    CallFault::Late,
    CallFault::Twice,
    CallFault::Slow,
    CallFault::Crossed,
];

impl CallFault {
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

/// Stage of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Before the request reaches the storage.
    Sent,
    /// After the call was applied, before the answer arrives.
    Applied,
    /// When the answer arrives.
    Answered,
}

/// Crash of a daemon, due in a certain call.
#[derive(Clone, Copy, Debug)]
pub struct PendingCrash {
    /// Number of the fault.
    pub index: usize,
    /// Place of the daemon.
    pub place: usize,
    /// Kind of the call.
    pub kind: Kind,
    /// Stage of the call.
    pub stage: Stage,
    /// Time until the daemon is started again.
    pub down: Nanos,
}

/// Kind of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Acquisition of a lease.
    Acquire,
    /// Renewal of a lease.
    Renew,
    /// Release of a lease.
    Release,
    /// Write of a record.
    Write,
    /// Creation of a blob.
    Create,
    /// Deletion of an idle blob.
    Delete,
    /// Any other call.
    Other,
}

impl Kind {
    fn of(call: &Call) -> Self {
        match call.operation {
            Operation::Acquire { .. } => Self::Acquire,
            Operation::Renew { .. } => Self::Renew,
            Operation::Release { .. } => Self::Release,
            Operation::Upload { .. } if call.if_absent => Self::Create,
            Operation::SetMetadata { .. } | Operation::Upload { .. } => Self::Write,
            Operation::Delete => Self::Delete,
            _ => Self::Other,
        }
    }
}

/// Returns the transport of a daemon's storage client.
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

/// Failure without an answer.
#[derive(Clone, Copy, Debug)]
enum Failure {
    Refused,
    Reset,
}

type Reply = oneshot::Sender<Result<Answer, Failure>>;

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
            Ok(Err(Failure::Refused)) => Err(Error::with_message(ErrorKind::Connection, "refused")),
            Ok(Err(Failure::Reset)) => Err(Error::with_message(ErrorKind::Io, "reset")),
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

/// Sends a call to the storage, with the faults of the link.
fn send(place: usize, number: u32, call: Call) -> oneshot::Receiver<Result<Answer, Failure>> {
    let (reply, answer) = oneshot::channel();
    let sim = sim();
    let storage_link = sim.places.borrow()[place].storage_link.clone();
    crash_if_due(&sim, place, number, &call, Stage::Sent);
    let snatched = break_if_due(&sim, &call);
    let mut rng = sim.rng.borrow_mut();
    let fault = storage_link.storms.last().and_then(|(_, share, kinds)| {
        (rng.permille(*share) && !kinds.is_empty()).then(|| *rng.pick(kinds))
    });
    let fault = match fault {
        _ if snatched => Some(CallFault::RequestLost),
        _ if storage_link.refused > 0 => Some(CallFault::Refused),
        _ if storage_link.cut_out > 0 => Some(CallFault::RequestLost),
        _ if storage_link.cut_back > 0 => Some(CallFault::AnswerLost),
        fault => fault,
    };
    let out = rng.millis(1..15);
    let back = rng.millis(1..15);
    let trip = CallInFlight { place, number, call };
    if let Some(fault) = fault {
        count(fault.name());
        drop(rng);
        trip.deliver_with_fault(fault, out, back, reply, &mut sim.rng.borrow_mut().split());
        return answer;
    }
    drop(rng);
    trip.deliver(out, back, Some(reply), None);
    answer
}

/// Breaks the lease under which a record is about to be written, if that fault
/// is pending. Only in the first half of a second, so that another daemon can
/// write a record within it.
fn break_if_due(sim: &SimState, call: &Call) -> bool {
    let is_record = Kind::of(call) == Kind::Write && call.lease.is_some();
    let Some(lock) = lock_of(&call.path).filter(|_| is_record) else { return false };
    if sim.world.now() % SECOND > SECOND / 2 {
        return false;
    }
    let due = sim.break_during_write.take();
    due.into_iter().for_each(|index| faults::break_lease(index, lock));
    due.is_some()
}

/// Call in flight.
#[derive(Clone)]
struct CallInFlight {
    place: usize,
    number: u32,
    call: Call,
}

impl CallInFlight {
    /// Applies the call after `out` and answers `back` later. If `instead` is
    /// set, the answer is replaced by that error.
    fn deliver(self, out: Nanos, back: Nanos, reply: Option<Reply>, instead: Option<u16>) {
        let world = std::rc::Rc::clone(&sim().world);
        world.after(out, move || {
            let sim = sim();
            let mut answer = sim.apply(Some(self.number), &self.call);
            if reply.as_ref().is_none_or(Reply::is_closed) {
                sim.handle_unclaimed(&self.call, &answer);
            }
            if matches!(Kind::of(&self.call), Kind::Acquire | Kind::Renew) && answer.status < 300 {
                let lease_answers = &mut sim.places.borrow_mut()[self.place].lease_answers;
                lease_answers.truncate(7);
                lease_answers.push_front(answer.clone());
            }
            crash_if_due(&sim, self.place, self.number, &self.call, Stage::Applied);
            let Some(reply) = reply else { return };
            if let Some(status) = instead {
                answer = failure(status, &mut sim.rng.borrow_mut());
                answer.date = sim.date();
            }
            sim.world.after(back, move || {
                let sim = crate::sim_state::sim();
                // The caller may have timed out.
                if let Err(Ok(answer)) = reply.send(Ok(answer)) {
                    sim.handle_unclaimed(&self.call, &answer);
                }
                crash_if_due(&sim, self.place, self.number, &self.call, Stage::Answered);
            });
        });
    }

    /// Returns the last answer to a call of this kind with another lease ID.
    fn crossed(&self) -> Option<Answer> {
        let (id, status) = match &self.call.operation {
            Operation::Acquire { id, .. } => (id, 201),
            Operation::Renew { id } => (id, 200),
            _ => return None,
        };
        let sim = sim();
        let places = sim.places.borrow();
        let mut lease_answers = places[self.place].lease_answers.iter();
        let other = |answer: &&Answer| answer.status == status && answer.lease.as_ref() != Some(id);
        lease_answers.find(other).cloned()
    }

    fn deliver_with_fault(
        self,
        fault: CallFault,
        out: Nanos,
        back: Nanos,
        reply: Reply,
        rng: &mut Rng,
    ) {
        let world = std::rc::Rc::clone(&sim().world);
        let break_after = |length: Nanos, reply: Reply, how: Failure| {
            world.after(length, move || _ = reply.send(Err(how)));
        };
        match fault {
            CallFault::Refused => break_after(out, reply, Failure::Refused),
            CallFault::FailsBefore(status) => {
                let mut failure = failure(status, rng);
                failure.date = sim().date();
                world.after(out + back, move || _ = reply.send(Ok(failure)));
            }
            CallFault::FailsAfter(status) => self.deliver(out, back, Some(reply), Some(status)),
            CallFault::RequestLost => never_answer(reply),
            CallFault::AnswerLost => {
                self.deliver(out, back, None, None);
                never_answer(reply);
            }
            CallFault::Reset => {
                if rng.permille(500) {
                    self.deliver(out + rng.millis(0..4000), back, None, None);
                }
                break_after(out + rng.millis(0..2000), reply, Failure::Reset);
            }
            CallFault::Late => match rng.within(0..4) {
                0 => self.deliver(out + long_delay(rng), back, Some(reply), None),
                1 => self.deliver(out, back + long_delay(rng), Some(reply), None),
                _ => {
                    self.deliver(out + long_delay(rng), back, None, None);
                    never_answer(reply);
                }
            },
            CallFault::Twice => {
                let again = long_delay(rng);
                self.clone().deliver(out + again, back, None, None);
                self.deliver(out, back, Some(reply), None);
            }
            CallFault::Crossed => match self.crossed() {
                Some(answer) => world.after(out + back, move || _ = reply.send(Ok(answer))),
                None => never_answer(reply),
            },
            CallFault::Slow => {
                let (out, back) = (out + rng.millis(0..2000), back + rng.millis(0..2000));
                self.deliver(out, back, Some(reply), None);
            }
        }
    }
}

/// Never answers, and never closes the connection.
fn never_answer(reply: Reply) {
    sim().world.at(Nanos::MAX - 1, move || drop(reply));
}

/// Returns a delay close to a significant duration of a lease: the timeout of a
/// call, a third of the lease duration, its end less the margin, and its end.
fn long_delay(rng: &mut Rng) -> Nanos {
    let sim = sim();
    let plan = &sim.plan;
    let lease = rng.pick(&[plan.lease, plan.lease, plan.max_lease]).as_nanos() as Nanos;
    let margin = (lease / 20).max(SECOND);
    let timeout = (lease / 5).clamp(3 * SECOND, 10 * SECOND);
    let around = *rng.pick(&[
        SECOND,
        timeout,
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

/// Returns a failure, sometimes with a `Retry-After` header.
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
fn crash_if_due(sim: &SimState, place: usize, number: u32, call: &Call, stage: Stage) {
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
