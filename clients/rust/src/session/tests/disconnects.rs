//! Broken streams, daemon shutdown, and the end of a session.

use std::time::Duration;

use super::harness::{Subject, TTL, granted, kept_alive, lost, queued, refused, restored};
use crate::{
    Error, Reason, pb,
    pb::attach_request::Message,
    session::{
        Wait,
        attachment::{Disconnect, Next},
        state::{Action, Outcome},
    },
};

#[test]
fn resume_loses_or_resends_unlisted_requests() {
    let mut subject = Subject::attached();
    let (kept, missing) = (subject.grant("kept", 1), subject.grant("missing", 2));
    let leaving = subject.grant("leaving", 3);
    let waiting = subject.acquire("waiting", Wait::Forever);
    let waiting_request = subject.sent_acquire().request;
    subject.acquire("unreceived", Wait::AtMost(Duration::from_secs(30)));
    let unreceived_request = subject.sent_acquire().request;
    let dropped = subject.acquire("dropped", Wait::Forever);
    let dropped_request = subject.sent_acquire().request;
    let won = subject.acquire("won", Wait::Forever);
    let won_request = subject.sent_acquire().request;
    let released = subject.state.drop_user(leaving).expect("the lock is released");
    let release_request = subject.sent_release().request;
    subject.advance(2);
    assert_eq!(subject.detach(), Next::ReconnectLater);
    subject.state.abandon(dropped);
    subject.actions();

    let keep_alive_number = subject.resume();
    let resumed_at = subject.now;
    assert_eq!(subject.sent(), []);
    subject.receive(granted(1, 1, keep_alive_number, 9000));
    subject.receive(granted(won_request, 4, keep_alive_number, 9000));
    subject.receive(queued(waiting_request));
    subject.receive(queued(dropped_request));
    let answered = subject.actions();
    assert!(
        matches!(&answered[..], [Action::Answer(a, Outcome::Granted { .. }), Action::Report(b, _)]
            if *a == won && *b == waiting),
        "{answered:?}"
    );
    subject.receive(restored());
    assert_eq!(subject.deadline(kept), resumed_at + TTL);
    assert_eq!((subject.lost_by(kept), subject.lost_by(missing)), (None, Some(Reason::Unknown)));
    let mut actions = subject.actions().into_iter();
    assert_eq!(actions.next(), Some(Action::Notify(missing)));
    let Some(Action::Send(Message::Release(release))) = actions.next() else { panic!() };
    assert!(release.handle.as_ref() == [3; 16] && release.request != release_request);
    let cancel = Message::Cancel(pb::Cancel { request: dropped_request });
    assert_eq!(actions.next(), Some(Action::Send(cancel)));
    let Some(Action::Send(Message::Acquire(again))) = actions.next() else { panic!() };
    assert!(again.wait_ms == Some(28_000) && again.request != unreceived_request);
    assert_eq!(actions.next(), None);

    subject.receive(refused(release.request, pb::Reason::UnknownHandle));
    assert_eq!(subject.actions(), [Action::Answer(released, Outcome::Released)]);
}

#[test]
fn unknown_session_loses_its_grants() {
    let mut subject = Subject::attached();
    let (held, leaving) = (subject.grant("a", 1), subject.grant("b", 2));
    let released = subject.state.drop_user(leaving).expect("the lock is released");
    subject.acquire("c", Wait::Forever);
    subject.actions();
    subject.detach();
    subject.actions();
    let clocks = subject.clocks();
    subject.state.begin(clocks);
    assert_eq!(subject.detach_by(Disconnect::UnknownSession), Next::Reconnect);
    assert_eq!(
        subject.actions(),
        [Action::Notify(held), Action::Answer(released, Outcome::Released)]
    );
    assert_eq!(subject.lost_by(held), Some(Reason::UnknownSession));
    subject.open();
    assert_eq!(subject.sent_acquire().lock.map(|lock| lock.name).as_deref(), Some("c"));
    assert_eq!(subject.state.drop_user(held), None, "nothing to release");
    assert_eq!(subject.sent(), []);
}

#[test]
fn session_resumed_elsewhere_is_never_resumed() {
    let mut subject = Subject::attached();
    let held = subject.grant("a", 1);
    subject.acquire("b", Wait::Forever);
    subject.actions();
    subject.advance(1);
    assert_eq!(subject.detach_by(Disconnect::ResumedElsewhere), Next::ReconnectLater);
    assert_eq!(subject.lost_by(held), Some(Reason::ResumedElsewhere));
    assert_eq!(subject.deadline(held), subject.now, "the other stream has the grant");
    subject.actions();
    // A new session, not a resume; the pending acquire moves to it.
    subject.open();
    assert_eq!(subject.sent_acquire().lock.map(|lock| lock.name).as_deref(), Some("b"));
    assert_eq!(subject.state.drop_user(held), None, "nothing to release");
}

#[test]
fn wait_limit_applies_without_stream() {
    let mut subject = Subject::attached();
    let short = subject.acquire("a", Wait::AtMost(Duration::from_secs(2)));
    let long = subject.acquire("b", Wait::AtMost(Duration::from_secs(20)));
    let unlimited = subject.acquire("c", Wait::Forever);
    let sent = subject.sent();
    let [Message::Acquire(acquire), ..] = &sent[..] else { panic!("{sent:?}") };
    subject.advance(3);
    assert!(subject.state.is_at_daemon(short));
    subject.detach();
    assert!(!subject.state.is_at_daemon(long));
    let actions = subject.actions();
    let reported: Vec<_> = (actions.iter())
        .filter_map(|action| match action {
            Action::Report(ticket, progress) if progress.note.contains("cut") => Some(*ticket),
            _ => None,
        })
        .collect();
    assert_eq!(reported, [short, long, unlimited]);
    let answered = actions.last();
    assert!(
        matches!(answered, Some(Action::Answer(ticket, Outcome::Failed(Error::Unavailable { .. })))
            if *ticket == short),
        "{answered:?}"
    );
    assert_eq!(subject.detach(), Next::ReconnectLater);
    assert_eq!(subject.actions(), [], "the same error is reported once");
    // The daemon still has the acquire whose failure was returned to the caller.
    subject.resume();
    subject.receive(queued(acquire.request));
    assert_eq!(subject.sent(), [Message::Cancel(pb::Cancel { request: acquire.request })]);
}

#[test]
fn daemon_shutdown_fails_only_acquires_without_wait() {
    let mut subject = Subject::attached();
    let waiting = subject.acquire("a", Wait::Forever);
    let waiting_request = subject.sent_acquire().request;
    let immediate = subject.acquire("b", Wait::Not);
    let immediate_request = subject.sent_acquire().request;
    subject.receive(refused(waiting_request, pb::Reason::ShuttingDown));
    subject.receive(refused(immediate_request, pb::Reason::ShuttingDown));
    let actions = subject.actions();
    assert!(
        matches!(&actions[..], [Action::Report(a, _), Action::Answer(b, Outcome::Failed(_))]
            if *a == waiting && *b == immediate),
        "{actions:?}"
    );
    let stopping = Error::unavailable("stopping");
    assert_eq!(subject.detach_by(Disconnect::Unavailable(stopping)), Next::ReconnectLater);
    subject.resume();
    subject.actions();
    subject.receive(restored());
    assert_eq!(subject.sent_acquire().lock.map(|lock| lock.name).as_deref(), Some("a"));
}

#[test]
fn incompatible_daemon_fails_acquires_immediately() {
    let mut subject = Subject::new(false);
    let ticket = subject.acquire("a", Wait::Forever);
    let clocks = subject.clocks();
    subject.state.begin(clocks);
    let error = Error::Incompatible { message: "too old".into() };
    assert_eq!(subject.detach_by(Disconnect::Refused(error.clone())), Next::Stop);
    let answer = Action::Answer(ticket, Outcome::Failed(error));
    assert!(subject.actions().contains(&answer));
}

#[test]
fn fenced_session_ends_with_its_stream() {
    let mut subject = Subject::new(true);
    subject.open();
    let grant = subject.grant("a", 1);
    subject.send_keep_alive();
    assert!(!subject.state.awaits_keep_alive());
    subject.actions();
    subject.advance(1);
    assert_eq!(subject.detach(), Next::Stop);
    assert_eq!(subject.lost_by(grant), Some(Reason::UnknownSession));
    assert_eq!(subject.deadline(grant), subject.now, "another session may hold the lock already");
    subject.open();
}

#[test]
fn close_ends_all_grants_and_acquires() {
    let mut subject = Subject::attached();
    let grant = subject.grant("a", 1);
    let broken = subject.grant("c", 3);
    subject.receive(lost(3));
    let ticket = subject.acquire("b", Wait::Forever);
    subject.actions();
    subject.advance(1);
    subject.state.close(subject.now);
    let actions = subject.actions();
    assert!(
        matches!(&actions[..], [Action::Notify(a), Action::Answer(b, Outcome::Failed(_)),
            Action::Send(Message::Close(_))] if *a == grant && *b == ticket),
        "{actions:?}"
    );
    for ended in [grant, broken] {
        assert_eq!(
            subject.deadline(ended),
            subject.now,
            "another session may hold the lock immediately"
        );
    }
    assert_eq!(subject.lost_by(broken), Some(Reason::Broken));
    assert_eq!(subject.state.drop_user(grant), None);
    assert_eq!(subject.detach_by(Disconnect::Ended), Next::Stop);
}

#[test]
fn close_without_stream_is_sent_until_session_expires() {
    let mut subject = Subject::attached();
    subject.grant("a", 1);
    subject.detach();
    subject.state.close(subject.now);
    subject.actions();
    assert_eq!(subject.detach(), Next::ReconnectLater);
    subject.resume();
    assert_eq!(subject.sent(), [Message::Close(pb::Close {})]);
    // An attempt to resume must not postpone the session's expiry.
    for _ in 1..9 {
        subject.advance(1);
        assert_eq!(subject.detach(), Next::ReconnectLater);
        let clocks = subject.clocks();
        assert!(matches!(subject.state.begin(clocks), Message::Resume(_)));
    }
    subject.advance(1);
    assert_eq!(subject.detach(), Next::Stop);
}

#[test]
fn grant_is_not_renewed_until_listed_after_resume() {
    let mut subject = Subject::attached();
    let (early, late) = (subject.grant("a", 1), subject.grant("b", 2));
    let deadline = subject.deadline(late);
    subject.advance(2);
    subject.detach();
    let keep_alive_number = subject.resume();
    let resumed_at = subject.now;
    assert_eq!((subject.deadline(early), subject.deadline(late)), (deadline, deadline));
    subject.receive(granted(1, 1, keep_alive_number, 9000));
    assert_eq!((subject.deadline(early), subject.deadline(late)), (resumed_at + TTL, deadline));
    subject.advance(1);
    subject.send_keep_alive();
    subject.receive(kept_alive(keep_alive_number + 1, 9000));
    assert_eq!((subject.deadline(early), subject.deadline(late)), (subject.now + TTL, deadline));
    subject.receive(granted(2, 2, keep_alive_number, 9000));
    assert_eq!(subject.deadline(late), resumed_at + TTL);
    subject.receive(restored());
    assert_eq!((subject.lost_by(early), subject.lost_by(late)), (None, None));
    subject.send_keep_alive();
    subject.receive(kept_alive(keep_alive_number + 2, 9000));
    assert_eq!(subject.deadline(late), subject.now + TTL);
}

#[test]
fn refused_session_fails_waits_but_keeps_grants() {
    let refusal = || Disconnect::Refused(Error::Incompatible { message: "too old".into() });
    let mut subject = Subject::attached();
    let grant = subject.grant("a", 1);
    let ticket = subject.acquire("b", Wait::Forever);
    subject.actions();
    assert_eq!(subject.detach_by(refusal()), Next::ReconnectLater, "a grant is active");
    let answered = subject
        .actions()
        .into_iter()
        .any(|action| matches!(action, Action::Answer(to, Outcome::Failed(_)) if to == ticket));
    assert!(answered && subject.lost_by(grant).is_none());
    // The grant expires even if no caller checks its guard.
    subject.advance(9);
    assert_eq!(subject.detach_by(refusal()), Next::Stop, "the grant has expired");
    assert_eq!(subject.lost_by(grant), Some(Reason::Expired));

    let mut subject = Subject::attached();
    let grant = subject.grant("a", 1);
    subject.state.drop_user(grant);
    subject.actions();
    assert_eq!(subject.detach_by(refusal()), Next::ReconnectLater, "a release is pending");
    subject.resume();
    subject.actions();
    subject.receive(restored());
    assert_eq!(subject.sent_release().handle.as_ref(), [1; 16]);
}

#[test]
fn retry_after_is_taken_from_unavailable_error() {
    let retry_after = Some(Duration::from_secs(7));
    let recovering = Error::Unavailable { message: "recovering".into(), retry_after };
    assert_eq!(Disconnect::Unavailable(recovering).retry_after(), Duration::from_secs(7));
    for disconnect in [Disconnect::Unavailable(Error::unavailable("stopping")), Disconnect::Ended] {
        assert_eq!(disconnect.retry_after(), Duration::ZERO);
    }
}

#[test]
fn unanswered_keep_alive_is_detected_at_next_one() {
    let mut subject = Subject::attached();
    assert_eq!(subject.state.next_keep_alive(), Some(subject.now + TTL / 3));
    assert!(!subject.state.awaits_keep_alive());
    subject.send_keep_alive();
    assert!(subject.state.awaits_keep_alive());
    subject.receive(kept_alive(1, 9000));
    assert!(!subject.state.awaits_keep_alive());
    subject.detach();
    assert_eq!(subject.state.next_keep_alive(), None);
}

#[test]
fn idle_session_does_not_reconnect() {
    let mut subject = Subject::attached();
    assert_eq!(subject.detach(), Next::Stop);
}
