//! The way from a daemon to the storage account, and what can happen on it.

use std::{fmt, sync::Arc};

use azure_core::{
    error::{Error, ErrorKind},
    http::{AsyncRawResponse, Body, HttpClient, StatusCode, Transport, headers::Headers},
};
use tokio::sync::oneshot;

use crate::{
    broken_transport, daemon,
    dice::Dice,
    faults, http,
    scene::{Scene, count, lock_of, scene},
    storage::{Act, Answer, Call},
    world::{MILLISECOND, Nanos, SECOND},
};

/// How the way from a place to the storage is. Several faults may have to do with
/// it at the same time: each ends only itself.
#[derive(Clone, Debug, Default)]
pub struct Road {
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
pub struct Trap {
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

/// Puts a call on the road.
fn send(place: usize, number: u32, call: Call) -> oneshot::Receiver<Result<Answer, Broken>> {
    let (reply, answer) = oneshot::channel();
    let scene = scene();
    let road = scene.places.borrow()[place].road.clone();
    spring(&scene, place, number, &call, Stage::Sent);
    let snatched = snatch(&scene, &call);
    let mut dice = scene.dice.borrow_mut();
    let trouble = road.storms.last().and_then(|(_, share, kinds)| {
        (dice.permille(*share) && !kinds.is_empty()).then(|| *dice.pick(kinds))
    });
    let trouble = match trouble {
        _ if snatched => Some(Trouble::RequestLost),
        _ if road.refused > 0 => Some(Trouble::Refused),
        _ if road.cut_out > 0 => Some(Trouble::RequestLost),
        _ if road.cut_back > 0 => Some(Trouble::AnswerLost),
        trouble => trouble,
    };
    let out = dice.millis(1..15);
    let back = dice.millis(1..15);
    let trip = Trip { place, number, call };
    if let Some(trouble) = trouble {
        count(trouble.name());
        drop(dice);
        trip.troubled(trouble, out, back, reply, &mut scene.dice.borrow_mut().split());
        return answer;
    }
    drop(dice);
    trip.deliver(out, back, Some(reply), None);
    answer
}

/// Takes the lease away under which a record is about to be written, if that is due.
/// Early in a second, so that somebody else can write one within it.
fn snatch(scene: &Scene, call: &Call) -> bool {
    let is_record = Kind::of(call) == Kind::Write && call.lease.is_some();
    let Some(lock) = lock_of(&call.path).filter(|_| is_record) else { return false };
    if scene.world.now() % SECOND > SECOND / 2 {
        return false;
    }
    let due = scene.snatch.take();
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
        let world = std::rc::Rc::clone(&scene().world);
        world.after(out, move || {
            let scene = scene();
            let mut answer = scene.apply(Some(self.number), &self.call);
            if reply.as_ref().is_none_or(Reply::is_closed) {
                scene.unasked(&self.call, &answer);
            }
            if matches!(Kind::of(&self.call), Kind::Acquire | Kind::Renew) && answer.status < 300 {
                let heard = &mut scene.places.borrow_mut()[self.place].heard;
                heard.truncate(7);
                heard.push_front(answer.clone());
            }
            spring(&scene, self.place, self.number, &self.call, Stage::Applied);
            let Some(reply) = reply else { return };
            if let Some(status) = instead {
                answer = failure(status, &mut scene.dice.borrow_mut());
                answer.date = scene.date();
            }
            scene.world.after(back, move || {
                let scene = crate::scene::scene();
                // Whoever gave up does not listen.
                if let Err(Ok(answer)) = reply.send(Ok(answer)) {
                    scene.unasked(&self.call, &answer);
                }
                spring(&scene, self.place, self.number, &self.call, Stage::Answered);
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
        let scene = scene();
        let places = scene.places.borrow();
        let mut heard = places[self.place].heard.iter();
        let other = |answer: &&Answer| answer.status == status && answer.lease.as_ref() != Some(id);
        heard.find(other).cloned()
    }

    fn troubled(self, trouble: Trouble, out: Nanos, back: Nanos, reply: Reply, dice: &mut Dice) {
        let world = std::rc::Rc::clone(&scene().world);
        let break_after = |length: Nanos, reply: Reply, how: Broken| {
            world.after(length, move || _ = reply.send(Err(how)));
        };
        match trouble {
            Trouble::Refused => break_after(out, reply, Broken::Refused),
            Trouble::FailsBefore(status) => {
                let mut failure = failure(status, dice);
                failure.date = scene().date();
                world.after(out + back, move || _ = reply.send(Ok(failure)));
            }
            Trouble::FailsAfter(status) => self.deliver(out, back, Some(reply), Some(status)),
            Trouble::RequestLost => hold(reply),
            Trouble::AnswerLost => {
                self.deliver(out, back, None, None);
                hold(reply);
            }
            Trouble::Reset => {
                if dice.permille(500) {
                    self.deliver(out + dice.millis(0..4000), back, None, None);
                }
                break_after(out + dice.millis(0..2000), reply, Broken::Reset);
            }
            Trouble::Late => match dice.within(0..4) {
                0 => self.deliver(out + long(dice), back, Some(reply), None),
                1 => self.deliver(out, back + long(dice), Some(reply), None),
                _ => {
                    self.deliver(out + long(dice), back, None, None);
                    hold(reply);
                }
            },
            Trouble::Twice => {
                let again = long(dice);
                self.clone().deliver(out + again, back, None, None);
                self.deliver(out, back, Some(reply), None);
            }
            Trouble::Crossed => match self.crossed() {
                Some(answer) => world.after(out + back, move || _ = reply.send(Ok(answer))),
                None => hold(reply),
            },
            Trouble::Slow => {
                let (out, back) = (out + dice.millis(0..2000), back + dice.millis(0..2000));
                self.deliver(out, back, Some(reply), None);
            }
        }
    }
}

/// Keeps the way back open for ever: there is no answer, and no end either.
fn hold(reply: Reply) {
    scene().world.at(Nanos::MAX - 1, move || drop(reply));
}

/// Around the times that matter to a lease: what a call may take, a third of its
/// duration, its end less the margin, and its end.
fn long(dice: &mut Dice) -> Nanos {
    let scene = scene();
    let plan = &scene.plan;
    let lease = dice.pick(&[plan.lease, plan.lease, plan.longest_lease]).as_nanos() as Nanos;
    let margin = (lease / 20).max(SECOND);
    let limit = (lease / 5).clamp(3 * SECOND, 10 * SECOND);
    let around = *dice.pick(&[
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
    around - 500 * MILLISECOND + dice.millis(0..1000)
}

/// A failure; perhaps with the wish to be left alone for a while.
fn failure(status: u16, dice: &mut Dice) -> Answer {
    let busy = matches!(status, 429 | 503) && dice.permille(500);
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
        retry_after: busy.then(|| dice.within(1..10)),
        date: 0,
    }
}

/// Whether the trap was set for this.
fn spring(scene: &Scene, place: usize, number: u32, call: &Call, stage: Stage) {
    let trap = *scene.trap.borrow();
    if let Some(trap) = trap
        && (trap.place, trap.stage, trap.kind) == (place, stage, Kind::of(call))
        && scene.running(place).is_some_and(|running| running.number == number)
    {
        *scene.trap.borrow_mut() = None;
        scene.world.after(0, move || {
            count(match trap.stage {
                Stage::Sent => "daemon: killed as a call was sent",
                Stage::Applied => "daemon: killed as a call was applied",
                Stage::Answered => "daemon: killed as a call was answered",
            });
            daemon::crash(trap.place, Some(trap.down));
            faults::disturb(trap.index, trap.down, || {});
        });
    }
}
