//! Values of a leader, on broken and unbroken streams.

use super::harness::{Subject, granted, lost, refused, restored};
use crate::{
    Error, Reason, pb,
    pb::{attach_request::Message, attach_response::Message as Incoming},
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
    Value::new(text).expect("a short value")
}

fn proclaim(subject: &mut Subject, grant: GrantId, text: &str) -> Ticket {
    subject.state.proclaim(grant, "scheduler", value(text))
}

fn proclaimed(request: u64) -> Incoming {
    Incoming::Proclaimed(pb::Proclaimed { request })
}

fn sent(subject: &mut Subject) -> Vec<pb::Proclaim> {
    let proclaim = |message| match message {
        Message::Proclaim(proclaim) => proclaim,
        other => panic!("{other:?}"),
    };
    subject.sent().into_iter().map(proclaim).collect()
}

/// Returns the reason why a proclaim failed.
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
fn proclaim_names_grant_and_completes_once() {
    let mut subject = Subject::attached();
    let grant = subject.grant("scheduler", 1);
    let ticket = proclaim(&mut subject, grant, "a");
    let [message] = &sent(&mut subject)[..] else { panic!() };
    assert_eq!((&message.handle[..], &message.value[..]), (&[1; 16][..], &b"a"[..]));
    subject.receive(proclaimed(message.request));
    assert_eq!(subject.actions(), [Action::Answer(ticket, Outcome::Proclaimed)]);
    subject.receive(proclaimed(message.request));
    assert_eq!(subject.actions(), [], "the proclaim completes once");
}

#[test]
fn campaign_is_resent_with_its_value() {
    let mut subject = Subject::attached();
    let lock = pb::LockRef { namespace: "default".into(), name: "scheduler".into() };
    let options = AcquireOptions { value: Some(value("host:1")), ..AcquireOptions::default() };
    subject.state.acquire(PendingAcquire::new(lock, Wait::Forever, options, None), subject.now);
    assert_eq!(subject.sent_acquire().value.as_deref(), Some(&b"host:1"[..]));
    subject.detach();
    subject.resume();
    subject.actions();
    subject.receive(restored());
    assert_eq!(subject.sent_acquire().value.as_deref(), Some(&b"host:1"[..]));
    // A new session resends it, too.
    subject.detach();
    let clocks = subject.clocks();
    subject.state.begin(clocks);
    assert_eq!(subject.detach_by(Disconnect::UnknownSession), Next::Reconnect);
    subject.actions();
    subject.open();
    assert_eq!(subject.sent_acquire().value.as_deref(), Some(&b"host:1"[..]));
    // An acquire of a lock has no value.
    subject.acquire("orders", Wait::Forever);
    assert_eq!(subject.sent_acquire().value, None);
}

#[test]
fn latest_value_is_resent_and_completes_all_proclaims() {
    let mut subject = Subject::attached();
    let (grant, other) = (subject.grant("scheduler", 1), subject.grant("other", 2));
    let first = proclaim(&mut subject, grant, "a");
    let other_lock = proclaim(&mut subject, other, "x");
    let requests: Vec<u64> = sent(&mut subject).iter().map(|message| message.request).collect();
    subject.detach();
    subject.actions();
    let second = proclaim(&mut subject, grant, "b");
    assert_eq!(subject.actions(), [], "there is no stream");
    let keep_alive_number = subject.resume();
    subject.receive(granted(1, 1, keep_alive_number, 9000));
    subject.receive(granted(2, 2, keep_alive_number, 9000));
    let third = proclaim(&mut subject, grant, "c");
    assert_eq!(sent(&mut subject), [], "the daemon has not listed all grants yet");
    subject.receive(restored());
    let again = sent(&mut subject);
    let values: Vec<&[u8]> = again.iter().map(|message| &message.value[..]).collect();
    assert_eq!(values, [&b"x"[..], b"c"]);
    assert!(again.iter().all(|message| !requests.contains(&message.request)));

    subject.receive(proclaimed(requests[0]));
    assert_eq!(subject.actions(), [], "a response from before the disconnect");
    subject.receive(proclaimed(again[1].request));
    let answer = |ticket| Action::Answer(ticket, Outcome::Proclaimed);
    assert_eq!(subject.actions(), [first, second, third].map(answer));
    subject.receive(proclaimed(again[0].request));
    assert_eq!(subject.actions(), [answer(other_lock)]);
}

#[test]
fn leader_lost_during_disconnect_does_not_proclaim() {
    let mut subject = Subject::attached();
    let grant = subject.grant("scheduler", 1);
    let ticket = proclaim(&mut subject, grant, "a");
    subject.detach();
    subject.actions();
    subject.resume();
    subject.receive(restored());
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
fn proclaim_after_loss_fails_with_reason_of_loss() {
    let mut subject = Subject::attached();
    let grant = subject.grant("scheduler", 1);
    subject.receive(lost(1));
    subject.actions();
    let ticket = proclaim(&mut subject, grant, "a");
    let actions = subject.actions();
    assert_eq!((failed(&actions, ticket), actions.len()), (Some(Reason::Broken), 1));

    // The loss was sent before the daemon received the proclaim.
    let grant = subject.grant("scheduler", 2);
    let ticket = proclaim(&mut subject, grant, "a");
    let [message] = &sent(&mut subject)[..] else { panic!() };
    subject.receive(lost(2));
    subject.receive(refused(message.request, pb::Reason::UnknownHandle));
    assert_eq!(failed(&subject.actions(), ticket), Some(Reason::Broken));

    // The daemon has ended a grant that is still active at the client.
    let grant = subject.grant("scheduler", 3);
    let ticket = proclaim(&mut subject, grant, "a");
    let [message] = &sent(&mut subject)[..] else { panic!() };
    subject.receive(refused(message.request, pb::Reason::UnknownHandle));
    assert_eq!(failed(&subject.actions(), ticket), Some(Reason::UnknownHandle));
}

#[test]
fn value_refused_by_store_is_not_resent() {
    let mut subject = Subject::attached();
    let grant = subject.grant("scheduler", 1);
    let ticket = proclaim(&mut subject, grant, "a");
    let [message] = &sent(&mut subject)[..] else { panic!() };
    subject.receive(refused(message.request, pb::Reason::StoreUnavailable));
    let actions = subject.actions();
    assert!(
        matches!(&actions[..], [Action::Answer(to, Outcome::Failed(Error::Unavailable { .. }))]
            if *to == ticket),
        "{actions:?}"
    );
    subject.detach();
    let keep_alive_number = subject.resume();
    subject.receive(granted(1, 1, keep_alive_number, 9000));
    subject.receive(restored());
    assert_eq!(sent(&mut subject), []);
    assert_eq!(subject.lost_by(grant), None);
}

#[test]
fn pending_proclaim_fails_with_last_guard_or_session() {
    let mut subject = Subject::attached();
    let grant = subject.grant("scheduler", 1);
    let ticket = proclaim(&mut subject, grant, "a");
    subject.detach();
    subject.actions();
    subject.state.drop_user(grant);
    assert_eq!(failed(&subject.actions(), ticket), Some(Reason::UnknownHandle));
    subject.resume();
    subject.receive(restored());
    assert!(matches!(subject.sent()[..], [Message::Release(_)]));

    let grant = subject.grant("scheduler", 2);
    let ticket = proclaim(&mut subject, grant, "a");
    subject.state.close(subject.now);
    assert_eq!(failed(&subject.actions(), ticket), Some(Reason::UnknownSession));
}

#[test]
fn lost_grant_of_stuck_leader_is_released_before_guards() {
    let mut subject = Subject::attached();
    let grant = subject.grant("scheduler", 1);
    subject.state.release_lost(grant);
    assert_eq!(subject.actions(), [], "the grant is not lost");
    subject.receive(lost(1));
    subject.actions();
    subject.state.release_lost(grant);
    assert_eq!(subject.sent_release().handle.as_ref(), [1; 16]);
    subject.state.release_lost(grant);
    assert_eq!(subject.state.drop_user(grant), None, "nothing left to release");
    assert_eq!(subject.actions(), []);
}
