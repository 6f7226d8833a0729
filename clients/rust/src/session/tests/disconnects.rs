//! Streams that break, daemons that stop, and the end of a session.

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
fn after_a_resume_what_is_not_listed_is_lost_or_sent_again() {
    let mut subject = Subject::attached();
    let (kept, missing) = (subject.grant("kept", 1), subject.grant("missing", 2));
    let leaving = subject.grant("leaving", 3);
    let waiting = subject.ask("waiting", Wait::Forever);
    let waiting_request = subject.sent_acquire().request;
    subject.ask("unheard", Wait::AtMost(Duration::from_secs(30)));
    let unheard_request = subject.sent_acquire().request;
    let dropped = subject.ask("dropped", Wait::Forever);
    let dropped_request = subject.sent_acquire().request;
    let won = subject.ask("won", Wait::Forever);
    let won_request = subject.sent_acquire().request;
    let released = subject.state.drop_user(leaving).expect("it is released");
    let release_request = subject.sent_release().request;
    subject.later(2);
    assert_eq!(subject.detach(), Next::ReconnectLater);
    subject.state.abandon(dropped);
    subject.actions();

    let keep_alive_number = subject.resume();
    let resumed_at = subject.now;
    assert_eq!(subject.sent(), []);
    subject.hear(granted(1, 1, keep_alive_number, 9000));
    subject.hear(granted(won_request, 4, keep_alive_number, 9000));
    subject.hear(queued(waiting_request));
    subject.hear(queued(dropped_request));
    let answered = subject.actions();
    assert!(
        matches!(&answered[..], [Action::Answer(a, Outcome::Granted { .. }), Action::Report(b, _)]
            if *a == won && *b == waiting),
        "{answered:?}"
    );
    subject.hear(restored());
    assert_eq!(subject.deadline(kept), resumed_at + TTL);
    assert_eq!((subject.lost_by(kept), subject.lost_by(missing)), (None, Some(Reason::Unknown)));
    let mut actions = subject.actions().into_iter();
    assert_eq!(actions.next(), Some(Action::Notify(missing)));
    let Some(Action::Send(Message::Release(release))) = actions.next() else { panic!() };
    assert!(release.handle.as_ref() == [3; 16] && release.request != release_request);
    let cancel = Message::Cancel(pb::Cancel { request: dropped_request });
    assert_eq!(actions.next(), Some(Action::Send(cancel)));
    let Some(Action::Send(Message::Acquire(again))) = actions.next() else { panic!() };
    assert!(again.wait_ms == Some(28_000) && again.request != unheard_request);
    assert_eq!(actions.next(), None);

    subject.hear(refused(release.request, pb::Reason::UnknownHandle));
    assert_eq!(subject.actions(), [Action::Answer(released, Outcome::Released)]);
}

#[test]
fn a_session_that_the_daemon_does_not_know_takes_its_grants_with_it() {
    let mut subject = Subject::attached();
    let (held, leaving) = (subject.grant("a", 1), subject.grant("b", 2));
    let released = subject.state.drop_user(leaving).expect("it is released");
    subject.ask("c", Wait::Forever);
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
    assert_eq!(subject.state.drop_user(held), None, "there is nothing to release");
    assert_eq!(subject.sent(), []);
}

#[test]
fn session_resumed_elsewhere_is_never_resumed() {
    let mut subject = Subject::attached();
    let held = subject.grant("a", 1);
    subject.ask("b", Wait::Forever);
    subject.actions();
    subject.later(1);
    assert_eq!(subject.detach_by(Disconnect::ResumedElsewhere), Next::ReconnectLater);
    assert_eq!(subject.lost_by(held), Some(Reason::ResumedElsewhere));
    assert_eq!(subject.deadline(held), subject.now, "the other stream has the grant");
    subject.actions();
    // A new session, not a resume; the pending acquire moves to it.
    subject.open();
    assert_eq!(subject.sent_acquire().lock.map(|lock| lock.name).as_deref(), Some("b"));
    assert_eq!(subject.state.drop_user(held), None, "there is nothing to release");
}

#[test]
fn waits_end_on_the_client_too_when_there_is_no_stream() {
    let mut subject = Subject::attached();
    let short = subject.ask("a", Wait::AtMost(Duration::from_secs(2)));
    let long = subject.ask("b", Wait::AtMost(Duration::from_secs(20)));
    let ever = subject.ask("c", Wait::Forever);
    let shown = subject.sent();
    let [Message::Acquire(acquire), ..] = &shown[..] else { panic!("{shown:?}") };
    subject.later(3);
    assert!(subject.state.is_at_daemon(short));
    subject.detach();
    assert!(!subject.state.is_at_daemon(long));
    let actions = subject.actions();
    let told: Vec<_> = (actions.iter())
        .filter_map(|action| match action {
            Action::Report(ticket, progress) if progress.note.contains("cut") => Some(*ticket),
            _ => None,
        })
        .collect();
    assert_eq!(told, [short, long, ever]);
    let answered = actions.last();
    assert!(
        matches!(answered, Some(Action::Answer(ticket, Outcome::Failed(Error::Unavailable { .. })))
            if *ticket == short),
        "{answered:?}"
    );
    assert_eq!(subject.detach(), Next::ReconnectLater);
    assert_eq!(subject.actions(), [], "the same trouble is told once");
    // The daemon still has the one whose caller was told that it failed.
    subject.resume();
    subject.hear(queued(acquire.request));
    assert_eq!(subject.sent(), [Message::Cancel(pb::Cancel { request: acquire.request })]);
}

#[test]
fn a_stopping_daemon_ends_only_what_does_not_wait() {
    let mut subject = Subject::attached();
    let patient = subject.ask("a", Wait::Forever);
    let patient_request = subject.sent_acquire().request;
    let impatient = subject.ask("b", Wait::Not);
    let impatient_request = subject.sent_acquire().request;
    subject.hear(refused(patient_request, pb::Reason::ShuttingDown));
    subject.hear(refused(impatient_request, pb::Reason::ShuttingDown));
    let actions = subject.actions();
    assert!(
        matches!(&actions[..], [Action::Report(a, _), Action::Answer(b, Outcome::Failed(_))]
            if *a == patient && *b == impatient),
        "{actions:?}"
    );
    let stopping = Error::unavailable("stopping");
    assert_eq!(subject.detach_by(Disconnect::Unavailable(stopping)), Next::ReconnectLater);
    subject.resume();
    subject.actions();
    subject.hear(restored());
    assert_eq!(subject.sent_acquire().lock.map(|lock| lock.name).as_deref(), Some("a"));
}

#[test]
fn what_no_daemon_will_ever_serve_is_refused_at_once() {
    let mut subject = Subject::new(false);
    let ticket = subject.ask("a", Wait::Forever);
    let clocks = subject.clocks();
    subject.state.begin(clocks);
    let error = Error::Incompatible { message: "too old".into() };
    assert_eq!(subject.detach_by(Disconnect::Refused(error.clone())), Next::Stop);
    let answer = Action::Answer(ticket, Outcome::Failed(error));
    assert!(subject.actions().contains(&answer));
}

#[test]
fn a_fenced_session_ends_with_its_stream() {
    let mut subject = Subject::new(true);
    subject.open();
    let grant = subject.grant("a", 1);
    subject.send_keep_alive();
    assert!(!subject.state.awaits_keep_alive());
    subject.actions();
    subject.later(1);
    assert_eq!(subject.detach(), Next::Stop);
    assert_eq!(subject.lost_by(grant), Some(Reason::UnknownSession));
    assert_eq!(subject.deadline(grant), subject.now, "others may have it already");
    subject.open();
}

#[test]
fn closing_gives_everything_back() {
    let mut subject = Subject::attached();
    let grant = subject.grant("a", 1);
    let broken = subject.grant("c", 3);
    subject.hear(lost(3));
    let ticket = subject.ask("b", Wait::Forever);
    subject.actions();
    subject.later(1);
    subject.state.close(subject.now);
    let actions = subject.actions();
    assert!(
        matches!(&actions[..], [Action::Notify(a), Action::Answer(b, Outcome::Failed(_)),
            Action::Send(Message::Close(_))] if *a == grant && *b == ticket),
        "{actions:?}"
    );
    for ended in [grant, broken] {
        assert_eq!(subject.deadline(ended), subject.now, "others may have it at once");
    }
    assert_eq!(subject.lost_by(broken), Some(Reason::Broken));
    assert_eq!(subject.state.drop_user(grant), None);
    assert_eq!(subject.detach_by(Disconnect::Ended), Next::Stop);
}

#[test]
fn closing_without_a_stream_is_made_good_while_the_session_lives() {
    let mut subject = Subject::attached();
    subject.grant("a", 1);
    subject.detach();
    subject.state.close(subject.now);
    subject.actions();
    assert_eq!(subject.detach(), Next::ReconnectLater);
    subject.resume();
    assert_eq!(subject.sent(), [Message::Close(pb::Close {})]);
    // An attempt to resume is a sign of health, and must not put off the end.
    for _ in 1..9 {
        subject.later(1);
        assert_eq!(subject.detach(), Next::ReconnectLater);
        let clocks = subject.clocks();
        assert!(matches!(subject.state.begin(clocks), Message::Resume(_)));
    }
    subject.later(1);
    assert_eq!(subject.detach(), Next::Stop);
}

#[test]
fn a_grant_is_not_renewed_before_it_was_listed() {
    let mut subject = Subject::attached();
    let (early, late) = (subject.grant("a", 1), subject.grant("b", 2));
    let deadline = subject.deadline(late);
    subject.later(2);
    subject.detach();
    let keep_alive_number = subject.resume();
    let resumed_at = subject.now;
    assert_eq!((subject.deadline(early), subject.deadline(late)), (deadline, deadline));
    subject.hear(granted(1, 1, keep_alive_number, 9000));
    assert_eq!((subject.deadline(early), subject.deadline(late)), (resumed_at + TTL, deadline));
    subject.later(1);
    subject.send_keep_alive();
    subject.hear(kept_alive(keep_alive_number + 1, 9000));
    assert_eq!((subject.deadline(early), subject.deadline(late)), (subject.now + TTL, deadline));
    subject.hear(granted(2, 2, keep_alive_number, 9000));
    assert_eq!(subject.deadline(late), resumed_at + TTL);
    subject.hear(restored());
    assert_eq!((subject.lost_by(early), subject.lost_by(late)), (None, None));
    subject.send_keep_alive();
    subject.hear(kept_alive(keep_alive_number + 2, 9000));
    assert_eq!(subject.deadline(late), subject.now + TTL);
}

#[test]
fn a_refusal_ends_the_waits_but_not_what_is_to_be_kept() {
    let refusal = || Disconnect::Refused(Error::Incompatible { message: "too old".into() });
    let mut subject = Subject::attached();
    let grant = subject.grant("a", 1);
    let ticket = subject.ask("b", Wait::Forever);
    subject.actions();
    assert_eq!(subject.detach_by(refusal()), Next::ReconnectLater, "a grant stands");
    let answered = subject
        .actions()
        .into_iter()
        .any(|action| matches!(action, Action::Answer(to, Outcome::Failed(_)) if to == ticket));
    assert!(answered && subject.lost_by(grant).is_none());
    // Also if nobody looks at the guard.
    subject.later(9);
    assert_eq!(subject.detach_by(refusal()), Next::Stop, "it is over");
    assert_eq!(subject.lost_by(grant), Some(Reason::Expired));

    let mut subject = Subject::attached();
    let grant = subject.grant("a", 1);
    subject.state.drop_user(grant);
    subject.actions();
    assert_eq!(subject.detach_by(refusal()), Next::ReconnectLater, "it is to be released");
    subject.resume();
    subject.actions();
    subject.hear(restored());
    assert_eq!(subject.sent_release().handle.as_ref(), [1; 16]);
}

#[test]
fn a_daemon_that_is_not_ready_may_say_when_to_come_back() {
    let retry_after = Some(Duration::from_secs(7));
    let recovering = Error::Unavailable { message: "recovering".into(), retry_after };
    assert_eq!(Disconnect::Unavailable(recovering).retry_after(), Duration::from_secs(7));
    for disconnect in [Disconnect::Unavailable(Error::unavailable("stopping")), Disconnect::Ended] {
        assert_eq!(disconnect.retry_after(), Duration::ZERO);
    }
}

#[test]
fn a_silent_daemon_is_noticed_at_the_next_keep_alive_number() {
    let mut subject = Subject::attached();
    assert_eq!(subject.state.next_keep_alive(), Some(subject.now + TTL / 3));
    assert!(!subject.state.awaits_keep_alive());
    subject.send_keep_alive();
    assert!(subject.state.awaits_keep_alive());
    subject.hear(kept_alive(1, 9000));
    assert!(!subject.state.awaits_keep_alive());
    subject.detach();
    assert_eq!(subject.state.next_keep_alive(), None);
}

#[test]
fn an_idle_session_rests_when_its_stream_breaks() {
    let mut subject = Subject::attached();
    assert_eq!(subject.detach(), Next::Stop);
}
