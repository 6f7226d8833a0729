//! What a leader shows, on streams that break and on those that do not.

use super::harness::{Subject, granted, lost, refused, restored};
use crate::{
    Error, Reason, pb,
    pb::{attach_request::Message, attach_response::Message as Heard},
    session::{
        AcquireOptions, Wait,
        attachment::{Disconnect, Next},
        grant::GrantId,
        pending_acquire::PendingAcquire,
        state::{Action, Outcome, Ticket},
    },
    value::Value,
};

fn value(text: &str) -> Value {
    Value::new(text).expect("it is short")
}

fn proclaim(subject: &mut Subject, grant: GrantId, text: &str) -> Ticket {
    subject.state.proclaim(grant, "scheduler", value(text))
}

fn proclaimed(request: u64) -> Heard {
    Heard::Proclaimed(pb::Proclaimed { request })
}

fn sent(subject: &mut Subject) -> Vec<pb::Proclaim> {
    let proclaim = |message| match message {
        Message::Proclaim(proclaim) => proclaim,
        other => panic!("{other:?}"),
    };
    subject.sent().into_iter().map(proclaim).collect()
}

/// The reason for which a proclaim failed.
fn failed(actions: &[Action], ticket: Ticket) -> Option<Reason> {
    actions.iter().find_map(|action| match action {
        Action::Answer(to, Outcome::Failed(Error::Lost { lock, reason, .. })) if *to == ticket => {
            assert_eq!(lock, "scheduler");
            Some(*reason)
        }
        _ => None,
    })
}

#[test]
fn a_proclaim_names_the_grant_and_is_answered() {
    let mut subject = Subject::attached();
    let grant = subject.grant("scheduler", 1);
    let ticket = proclaim(&mut subject, grant, "a");
    let [message] = &sent(&mut subject)[..] else { panic!() };
    assert_eq!((&message.handle[..], &message.value[..]), (&[1; 16][..], &b"a"[..]));
    subject.hear(proclaimed(message.request));
    assert_eq!(subject.actions(), [Action::Answer(ticket, Outcome::Proclaimed)]);
    subject.hear(proclaimed(message.request));
    assert_eq!(subject.actions(), [], "it is answered once");
}

#[test]
fn a_campaign_is_sent_again_with_its_value() {
    let mut subject = Subject::attached();
    let lock = pb::LockRef { namespace: "default".into(), name: "scheduler".into() };
    let terms = AcquireOptions { value: Some(value("host:1")), ..AcquireOptions::default() };
    subject.state.acquire(PendingAcquire::new(lock, Wait::Forever, terms, None), subject.now);
    assert_eq!(subject.sent_acquire().value.as_deref(), Some(&b"host:1"[..]));
    subject.detach();
    subject.resume();
    subject.actions();
    subject.hear(restored());
    assert_eq!(subject.sent_acquire().value.as_deref(), Some(&b"host:1"[..]));
    // Also in a new session.
    subject.detach();
    let clocks = subject.clocks();
    subject.state.begin(clocks);
    assert_eq!(subject.detach_by(Disconnect::UnknownSession), Next::Reconnect);
    subject.actions();
    subject.open();
    assert_eq!(subject.sent_acquire().value.as_deref(), Some(&b"host:1"[..]));
    // A plain lock has none.
    subject.ask("orders", Wait::Forever);
    assert_eq!(subject.sent_acquire().value, None);
}

#[test]
fn after_a_break_the_latest_value_is_sent_again_and_its_answer_holds_for_all() {
    let mut subject = Subject::attached();
    let (grant, other) = (subject.grant("scheduler", 1), subject.grant("other", 2));
    let first = proclaim(&mut subject, grant, "a");
    let elsewhere = proclaim(&mut subject, other, "x");
    let requests: Vec<u64> = sent(&mut subject).iter().map(|message| message.request).collect();
    subject.detach();
    subject.actions();
    let second = proclaim(&mut subject, grant, "b");
    assert_eq!(subject.actions(), [], "there is no stream");
    let keep_alive_number = subject.resume();
    subject.hear(granted(1, 1, keep_alive_number, 9000));
    subject.hear(granted(2, 2, keep_alive_number, 9000));
    let third = proclaim(&mut subject, grant, "c");
    assert_eq!(sent(&mut subject), [], "the daemon has not listed everything yet");
    subject.hear(restored());
    let again = sent(&mut subject);
    let values: Vec<&[u8]> = again.iter().map(|message| &message.value[..]).collect();
    assert_eq!(values, [&b"x"[..], b"c"]);
    assert!(again.iter().all(|message| !requests.contains(&message.request)));

    subject.hear(proclaimed(requests[0]));
    assert_eq!(subject.actions(), [], "an answer from before the break");
    subject.hear(proclaimed(again[1].request));
    let answer = |ticket| Action::Answer(ticket, Outcome::Proclaimed);
    assert_eq!(subject.actions(), [first, second, third].map(answer));
    subject.hear(proclaimed(again[0].request));
    assert_eq!(subject.actions(), [answer(elsewhere)]);
}

#[test]
fn who_lost_the_leadership_in_a_break_does_not_proclaim_again() {
    let mut subject = Subject::attached();
    let grant = subject.grant("scheduler", 1);
    let ticket = proclaim(&mut subject, grant, "a");
    subject.detach();
    subject.actions();
    subject.resume();
    subject.hear(restored());
    let actions = subject.actions();
    assert_eq!(failed(&actions, ticket), Some(Reason::Unknown));
    assert!(!actions.iter().any(|action| matches!(action, Action::Send(_))), "{actions:?}");

    let mut subject = Subject::attached();
    let grant = subject.grant("scheduler", 1);
    let ticket = proclaim(&mut subject, grant, "a");
    subject.detach();
    let clocks = subject.clocks();
    subject.state.begin(clocks);
    subject.detach_by(Disconnect::UnknownSession);
    assert_eq!(failed(&subject.actions(), ticket), Some(Reason::UnknownSession));
    assert!(subject.state.proclaims.is_empty());
}

#[test]
fn proclaiming_when_not_leading_is_answered_with_the_loss() {
    let mut subject = Subject::attached();
    let grant = subject.grant("scheduler", 1);
    subject.hear(lost(1));
    subject.actions();
    let ticket = proclaim(&mut subject, grant, "a");
    let actions = subject.actions();
    assert_eq!((failed(&actions, ticket), actions.len()), (Some(Reason::Broken), 1));

    // The daemon's word on the loss overtook the proclaim.
    let grant = subject.grant("scheduler", 2);
    let ticket = proclaim(&mut subject, grant, "a");
    let [message] = &sent(&mut subject)[..] else { panic!() };
    subject.hear(lost(2));
    subject.hear(refused(message.request, pb::Reason::UnknownHandle));
    assert_eq!(failed(&subject.actions(), ticket), Some(Reason::Broken));

    // The daemon knows better.
    let grant = subject.grant("scheduler", 3);
    let ticket = proclaim(&mut subject, grant, "a");
    let [message] = &sent(&mut subject)[..] else { panic!() };
    subject.hear(refused(message.request, pb::Reason::UnknownHandle));
    assert_eq!(failed(&subject.actions(), ticket), Some(Reason::UnknownHandle));
}

#[test]
fn a_value_that_can_not_be_stored_is_not_tried_again() {
    let mut subject = Subject::attached();
    let grant = subject.grant("scheduler", 1);
    let ticket = proclaim(&mut subject, grant, "a");
    let [message] = &sent(&mut subject)[..] else { panic!() };
    subject.hear(refused(message.request, pb::Reason::StoreUnavailable));
    let actions = subject.actions();
    assert!(
        matches!(&actions[..], [Action::Answer(to, Outcome::Failed(Error::Unavailable { .. }))]
            if *to == ticket),
        "{actions:?}"
    );
    subject.detach();
    let keep_alive_number = subject.resume();
    subject.hear(granted(1, 1, keep_alive_number, 9000));
    subject.hear(restored());
    assert_eq!(sent(&mut subject), []);
    assert_eq!(subject.lost_by(grant), None);
}

#[test]
fn what_is_under_way_ends_with_the_last_guard_and_with_the_session() {
    let mut subject = Subject::attached();
    let grant = subject.grant("scheduler", 1);
    let ticket = proclaim(&mut subject, grant, "a");
    subject.detach();
    subject.actions();
    subject.state.drop_user(grant);
    assert_eq!(failed(&subject.actions(), ticket), Some(Reason::UnknownHandle));
    subject.resume();
    subject.hear(restored());
    assert!(matches!(subject.sent()[..], [Message::Release(_)]));

    let grant = subject.grant("scheduler", 2);
    let ticket = proclaim(&mut subject, grant, "a");
    subject.state.close(subject.now);
    assert_eq!(failed(&subject.actions(), ticket), Some(Reason::UnknownSession));
}

#[test]
fn a_stuck_leader_is_given_up_under_its_guards() {
    let mut subject = Subject::attached();
    let grant = subject.grant("scheduler", 1);
    subject.state.release_lost(grant);
    assert_eq!(subject.actions(), [], "it is not lost");
    subject.hear(lost(1));
    subject.actions();
    subject.state.release_lost(grant);
    assert_eq!(subject.sent_release().handle.as_ref(), [1; 16]);
    subject.state.release_lost(grant);
    assert_eq!(subject.state.drop_user(grant), None, "there is nothing left to release");
    assert_eq!(subject.actions(), []);
}
