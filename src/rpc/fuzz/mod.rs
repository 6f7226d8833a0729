//! Fuzz targets for the messages of clients: single ones, and streams of them.

mod daemon;
mod model;

use std::time::Duration;

use leasehold_fuzz::{
    Fuzz,
    wire::{self, Field},
};
use prost::Message as _;
use prost::bytes::Bytes;

use self::daemon::Daemon;
use super::{
    decode::{self, First},
    pb::{self, attach_request::Message},
};
use leasehold_core::{
    error::RequestError,
    session::{MIN_HOLD_TIME, MIN_TTL, Request, Settings},
};
use leasehold_types::Reason;

const SETTINGS: Settings = Settings {
    default_ttl: Duration::from_secs(60),
    max_ttl: Duration::from_secs(60),
    max_sessions: 100,
    max_locks_per_session: 20,
};

fn lock(name: &str) -> Option<pb::LockRef> {
    Some(pb::LockRef { namespace: String::new(), name: name.to_owned() })
}

fn open(fenced: bool) -> Message {
    let labels = [("app".to_owned(), "billing".to_owned())].into();
    let holder =
        pb::Holder { client: "c".into(), host: "h".into(), pid: 7, pod: "p".into(), labels };
    Message::Open(pb::Open {
        protocol_version: 1,
        min_protocol_version: 1,
        ttl_ms: 9000,
        holder: Some(holder),
        fenced,
    })
}

fn resume(session: u8, keep_alive_number: u64) -> Message {
    let resume_secret = vec![session];
    Message::Resume(pb::Resume {
        protocol_version: 1,
        min_protocol_version: 0,
        resume_secret: resume_secret.into(),
        keep_alive_number,
    })
}

fn acquire(request: u64, name: &str, wait_ms: Option<u64>) -> Message {
    Message::Acquire(pb::Acquire { request, lock: lock(name), wait_ms, ..Default::default() })
}

fn campaign(request: u64, name: &str) -> Message {
    Message::Acquire(pb::Acquire {
        request,
        lock: lock(name),
        max_hold_time_ms: Some(1000),
        lease_duration_ms: Some(15_000),
        value: Some(Bytes::from_static(b"v")),
        ..Default::default()
    })
}

fn release(request: u64, grant: u8) -> Message {
    Message::Release(pb::Release { request, handle: vec![grant].into() })
}

fn proclaim(request: u64, grant: u8) -> Message {
    Message::Proclaim(pb::Proclaim {
        request,
        handle: vec![grant].into(),
        value: Bytes::from_static(b"w"),
    })
}

fn keep_alive(keep_alive_number: u64) -> Message {
    Message::KeepAlive(pb::KeepAlive { keep_alive_number })
}

fn cancel(request: u64) -> Message {
    Message::Cancel(pb::Cancel { request })
}

fn encoded(message: Message) -> Vec<u8> {
    pb::AttachRequest { message: Some(message) }.encode_to_vec()
}

#[test]
fn every_message_is_accepted_or_refused_with_a_reason() {
    let seeds = [
        open(true),
        resume(1, 5),
        acquire(1, "orders", Some(0)),
        campaign(2, "leader"),
        release(3, 0),
        proclaim(4, 0),
        keep_alive(1),
        cancel(1),
        Message::Close(pb::Close {}),
    ];
    Fuzz::new("session-message").nested().seeds(seeds.map(encoded)).run(|input| {
        let Ok(message) = pb::AttachRequest::decode(input) else { return "unreadable".to_owned() };
        let first = match decode::first(message.clone(), &SETTINGS) {
            Ok(First::Open(open)) => {
                assert!((MIN_TTL..=SETTINGS.max_ttl).contains(&open.ttl), "{:?}", open.ttl);
                let labels = open.holder.labels().count().min(2);
                format!("open {} {labels} labels {}", open.fenced, open.holder.pid() > 0)
            }
            Ok(First::Resume(_, keep_alive_number)) => format!("resume {}", keep_alive_number > 0),
            Err(problem) => checked_message(&problem),
        };
        let later = match decode::request(message) {
            Ok(Request::Malformed { request, problem }) => {
                assert!(request > 0 && problem.reason == Reason::Invalid, "{problem:?}");
                checked_message(&problem)
            }
            Ok(Request::Acquire {
                request, wait, max_hold_time, lease_duration, value, ..
            }) => {
                assert!(request > 0 && max_hold_time.is_none_or(|hold| hold >= MIN_HOLD_TIME));
                let lease = lease_duration.is_some();
                format!("acquire {wait:?} {max_hold_time:?} {lease} {}", value.is_some())
            }
            Ok(Request::Proclaim { request, .. } | Request::Release { request, .. }) => {
                assert!(request > 0);
                "by handle".to_owned()
            }
            Ok(Request::KeepAlive { .. } | Request::Cancel { .. } | Request::Close) => {
                "plain".to_owned()
            }
            Err(problem) => checked_message(&problem),
        };
        format!("{first}|{later}")
    });
}

/// Checks that an error names its field, and that its message is printable.
fn checked_message(problem: &RequestError) -> String {
    let RequestError { reason, message, field, .. } = problem;
    assert_eq!(field.is_some(), *reason == Reason::Invalid, "{problem:?}");
    assert!(message.starts_with(field.unwrap_or_default()), "{problem:?}");
    assert!(!message.is_empty() && message.len() < 2000, "{problem:?}");
    assert!(!message.chars().any(char::is_control), "{problem:?}");
    message.clone()
}

/// Events of a script other than messages, which have the number of their stream.
const CUT: u32 = 4;
const BREAK: u32 = 5;
const STEP_DOWN: u32 = 6;

fn script(steps: impl IntoIterator<Item = (u32, Message)>) -> Vec<u8> {
    let steps = steps.into_iter().map(|(stream, message)| Field::bytes(stream, encoded(message)));
    wire::write(&steps.collect::<Vec<_>>())
}

fn scripts() -> Vec<Vec<u8>> {
    let cut = |stream| wire::write(&[Field::varint(CUT, stream)]);
    let operator = |event, name| {
        wire::write(&[Field::bytes(event, lock(name).unwrap_or_default().encode_to_vec())])
    };
    let close = || Message::Close(pb::Close {});
    vec![
        script([(1, open(false)), (1, acquire(1, "a", None)), (1, release(2, 0)), (1, close())]),
        // A queue of two, with a release, a cancel and a reused number.
        script([
            (1, open(false)),
            (2, open(true)),
            (3, open(false)),
            (1, acquire(1, "a", None)),
            (2, acquire(1, "a", None)),
            (3, acquire(1, "a", Some(1))),
            (3, acquire(1, "b", None)),
            (3, acquire(2, "a", Some(0))),
            (3, cancel(1)),
            (1, keep_alive(1)),
            (1, release(2, 0)),
            (1, release(3, 0)),
            (2, acquire(5, "a", None)),
        ]),
        // A stream that breaks, and one that is superseded.
        [
            script([(1, open(false)), (1, acquire(1, "a", None)), (2, open(false))]),
            script([(2, acquire(7, "a", None))]),
            cut(1),
            cut(2),
            script([(2, resume(1, 9)), (1, resume(0, 9)), (3, resume(0, 10))]),
            script([(3, release(8, 0)), (1, keep_alive(11)), (2, keep_alive(11))]),
        ]
        .concat(),
        // Acquires repeated after a resume: that of the holder, that of the waiter, and one
        // with the number of another lock. Then numbers that do not increase.
        [
            script([(1, open(false)), (1, acquire(1, "a", None)), (2, open(false))]),
            script([(2, acquire(3, "a", None)), (2, acquire(4, "b", None))]),
            cut(1),
            cut(2),
            script([(1, resume(0, 1)), (1, acquire(1, "a", None)), (1, acquire(2, "a", None))]),
            script([(2, resume(1, 1)), (2, acquire(3, "a", None)), (2, acquire(4, "c", None))]),
            script([(2, resume(1, 2)), (2, acquire(5, "c", None)), (2, acquire(5, "d", None))]),
            script([(1, keep_alive(2)), (1, keep_alive(2))]),
        ]
        .concat(),
        // A leader that is asked to step down, and one whose lock is broken.
        [
            script([(1, open(false)), (1, campaign(1, "e")), (1, proclaim(2, 0))]),
            script([(2, open(true)), (2, campaign(1, "e")), (2, keep_alive(1))]),
            operator(STEP_DOWN, "e"),
            operator(BREAK, "e"),
            script([(1, proclaim(3, 0)), (1, keep_alive(1)), (1, release(4, 0))]),
            script([(2, proclaim(3, 1)), (1, acquire(9, "e", None))]),
            cut(2),
        ]
        .concat(),
    ]
}

#[test]
fn every_stream_is_answered_as_the_protocol_requires() {
    let mut daemon = Daemon::start();
    let fuzz = Fuzz::new("session-stream").nested().seeds(scripts());
    fuzz.run(|input| daemon.play(input));
}
