//! Acquires, grants and deadlines, on a stream that does not break.

use std::time::Duration;

use super::harness::{Subject, TTL, granted, kept_alive, lost, queued, refused, restored};
use crate::{
    Error, Reason, pb,
    pb::{attach_request::Message, attach_response::Message as Heard},
    session::{
        Wait,
        state::{Action, Outcome},
    },
};

#[test]
fn acquires_wait_for_the_stream_and_keep_their_order() {
    let mut subject = Subject::new(false);
    subject.ask("a", Wait::Forever);
    subject.ask("b", Wait::AtMost(Duration::from_secs(30)));
    assert_eq!(subject.sent(), []);
    subject.later(10);
    subject.open();
    let sent: Vec<_> = (subject.sent().into_iter())
        .map(|message| match message {
            Message::Acquire(acquire) => {
                (acquire.lock.map(|lock| lock.name), acquire.wait_ms, acquire.request)
            }
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(sent[0].0.as_deref(), Some("a"));
    assert_eq!(sent[1].0.as_deref(), Some("b"));
    assert_eq!((sent[0].1, sent[1].1), (None, Some(20_000)));
    assert!(sent[0].2 != 0 && sent[0].2 != sent[1].2);
}

#[test]
fn a_deadline_counts_from_the_ping_that_the_daemon_names() {
    let mut subject = Subject::attached();
    let opened_at = subject.now;
    let grant = subject.grant("a", 1);
    assert_eq!(subject.deadline(grant), opened_at + TTL);
    subject.later(3);
    subject.send_keep_alive();
    let first_ping_at = subject.now;
    subject.later(3);
    subject.send_keep_alive();
    subject.later(1);
    subject.hear(kept_alive(1, 9000));
    assert_eq!(subject.deadline(grant), first_ping_at + TTL);
    subject.hear(kept_alive(2, 4000));
    let second_ping_at = first_ping_at + Duration::from_secs(3);
    assert_eq!(subject.deadline(grant), second_ping_at + Duration::from_secs(4));
    for late in [kept_alive(1, 60_000), kept_alive(0, 1), kept_alive(77, 60_000)] {
        subject.hear(late);
        assert_eq!(subject.deadline(grant), second_ping_at + Duration::from_secs(4));
    }
}

#[test]
fn a_grant_with_a_limit_of_its_own_keeps_it_until_it_is_not_listed() {
    let mut subject = Subject::attached();
    let (limited, free) = (subject.grant("a", 1), subject.grant("b", 2));
    let limits = vec![pb::GrantLimit { handle: vec![1; 16].into(), valid_for_ms: 1000 }];
    subject.send_keep_alive();
    subject.hear(Heard::KeptAlive(pb::KeptAlive {
        keep_alive_number: 1,
        valid_for_ms: 9000,
        limits,
    }));
    assert_eq!(subject.deadline(limited), subject.now + Duration::from_secs(1));
    assert_eq!(subject.deadline(free), subject.now + TTL);
    subject.send_keep_alive();
    subject.hear(kept_alive(2, 9000));
    assert_eq!(subject.deadline(limited), subject.now + TTL);
}

#[test]
fn a_loss_is_told_at_once_and_the_lock_is_given_back_by_the_holder() {
    let mut subject = Subject::attached();
    let grant = subject.grant("a", 1);
    let deadline = subject.deadline(grant);
    subject.hear(lost(1));
    assert_eq!(subject.actions(), [Action::Notify(grant)]);
    assert_eq!(subject.lost_by(grant), Some(Reason::Broken));
    subject.send_keep_alive();
    subject.hear(kept_alive(1, 60_000));
    assert_eq!(subject.deadline(grant), deadline);
    assert!(matches!(subject.sent()[..], [Message::KeepAlive(_)]));
    let ticket = subject.state.drop_user(grant).expect("it is released");
    let request = subject.sent_release().request;
    subject.hear(Heard::Released(pb::Released { request }));
    assert_eq!(subject.actions(), [Action::Answer(ticket, Outcome::Released)]);
}

#[test]
fn grant_belongs_to_one_acquire() {
    let mut subject = Subject::attached();
    let first = subject.grant("a", 1);
    subject.ask("a", Wait::Forever);
    let waiting = subject.sent_acquire().request;
    // A daemon that answers a second acquire with the same grant is not
    // believed.
    subject.hear(granted(waiting, 1, 0, 9000));
    assert_eq!(subject.actions(), []);
    assert!(subject.state.drop_user(first).is_some());
    let release = subject.sent_release();
    assert_eq!(release.handle.as_ref(), [1; 16]);
    subject.hear(granted(waiting, 1, 0, 9000));
    assert_eq!(subject.actions(), [], "the grant is being released");
    subject.hear(Heard::Released(pb::Released { request: release.request }));
    subject.actions();
    subject.hear(granted(waiting, 2, 0, 9000));
    assert_ne!(subject.granted(), first);
}

#[test]
fn request_numbers_strictly_increase() {
    let mut subject = Subject::attached();
    let first = subject.grant("a", 1);
    subject.ask("b", Wait::Forever);
    let acquire = subject.sent_acquire().request;
    subject.state.drop_user(first);
    let release = subject.sent_release().request;
    assert!(release > acquire);
    subject.detach();
    subject.ask("c", Wait::Forever);
    subject.resume();
    subject.hear(queued(acquire));
    subject.hear(restored());
    let numbers: Vec<u64> = (subject.actions().iter())
        .filter_map(|action| match action {
            Action::Send(Message::Acquire(acquire)) => Some(acquire.request),
            Action::Send(Message::Release(release)) => Some(release.request),
            _ => None,
        })
        .collect();
    assert!(numbers.len() == 2 && numbers.is_sorted() && numbers[0] > release, "{numbers:?}");
}

#[test]
fn an_abandoned_acquire_is_cancelled_and_its_grant_given_back() {
    let mut subject = Subject::attached();
    let ticket = subject.ask("a", Wait::Forever);
    let request = subject.sent_acquire().request;
    subject.state.abandon(ticket);
    assert_eq!(subject.sent(), [Message::Cancel(pb::Cancel { request })]);
    subject.hear(granted(request, 1, 0, 9000));
    assert_eq!(subject.sent_release().handle.as_ref(), [1; 16]);

    let ticket = subject.ask("b", Wait::Forever);
    let request = subject.sent_acquire().request;
    subject.state.abandon(ticket);
    subject.actions();
    subject.hear(refused(request, pb::Reason::Cancelled));
    assert_eq!(subject.actions(), []);
    assert!(subject.state.acquires.is_empty() && subject.state.requests.is_empty());
}

#[test]
fn a_grant_that_is_over_when_it_comes_is_given_back_and_asked_for_later() {
    let mut subject = Subject::attached();
    subject.ask("a", Wait::Forever);
    let request = subject.sent_acquire().request;
    subject.later(9);
    subject.hear(granted(request, 1, 0, 9000));
    assert_eq!(subject.sent_release().handle.as_ref(), [1; 16]);
    subject.send_keep_alive();
    subject.hear(kept_alive(1, 9000));
    let again = subject.sent_acquire().request;
    subject.hear(granted(again, 2, 1, 9000));
    subject.granted();
}

#[test]
fn grant_lost_by_its_deadline_is_never_handed_out_again() {
    let mut subject = Subject::attached();
    let grant = subject.grant("a", 1);
    subject.later(9);
    subject.send_keep_alive();
    subject.hear(kept_alive(1, 9000));
    assert_eq!(subject.lost_by(grant), Some(Reason::Expired));
    subject.actions();
    subject.ask("a", Wait::Forever);
    let request = subject.sent_acquire().request;
    for keep_alive_number in [1, 77] {
        subject.hear(granted(request, 1, keep_alive_number, 60_000));
        assert_eq!((subject.lost_by(grant), subject.actions()), (Some(Reason::Expired), vec![]));
    }
    subject.hear(granted(request, 2, 1, 9000));
    assert_ne!(subject.granted(), grant);
}

#[test]
fn a_frozen_machine_loses_the_grants_whose_own_validity_is_used_up() {
    let mut subject = Subject::attached();
    let (limited, free) = (subject.grant("a", 1), subject.grant("b", 2));
    let limits = vec![pb::GrantLimit { handle: vec![1; 16].into(), valid_for_ms: 5000 }];
    subject.send_keep_alive();
    subject.hear(Heard::KeptAlive(pb::KeptAlive {
        keep_alive_number: 1,
        valid_for_ms: 9000,
        limits,
    }));
    subject.later(2);
    subject.send_keep_alive();
    subject.freeze(3);
    // The answer comes after the freeze, and too late for one of them.
    subject.hear(kept_alive(2, 9000));
    assert_eq!((subject.lost_by(limited), subject.lost_by(free)), (Some(Reason::Expired), None));
    assert_eq!(subject.deadline(limited), subject.now, "others may have it already");
    let frozen = Duration::from_secs(3);
    assert_eq!(subject.deadline(free), subject.now + (TTL - frozen));
    subject.actions();
    subject.freeze(5);
    let look = |subject: &mut Subject| {
        let clocks = subject.clocks();
        subject.state.check_grant(free, &clocks).expect("it has users").loss().is_some()
    };
    assert!(!look(&mut subject), "a second is left");
    subject.later(1);
    assert!(look(&mut subject));
    assert_eq!(subject.deadline(free), subject.now);
    assert_eq!(subject.actions(), [Action::Notify(free)]);
}

#[test]
fn a_freeze_after_word_of_the_loss_brings_the_deadline_forward() {
    let mut subject = Subject::attached();
    let grant = subject.grant("a", 1);
    subject.hear(lost(1));
    assert_eq!(subject.deadline(grant), subject.now + TTL);
    subject.freeze(9);
    let clocks = subject.clocks();
    subject.state.check_grant(grant, &clocks);
    assert_eq!(subject.deadline(grant), subject.now);
    assert_eq!(subject.lost_by(grant), Some(Reason::Broken));
}

#[test]
fn a_grant_that_a_freeze_used_up_on_its_way_is_not_handed_out() {
    let mut subject = Subject::attached();
    subject.ask("a", Wait::Forever);
    let request = subject.sent_acquire().request;
    subject.freeze(9);
    subject.hear(granted(request, 1, 0, 9000));
    assert_eq!(subject.sent_release().handle.as_ref(), [1; 16]);
}

#[test]
fn a_refused_release_is_sent_again_after_the_next_keep_alive() {
    let mut subject = Subject::attached();
    let grant = subject.grant("a", 1);
    let ticket = subject.state.drop_user(grant).expect("it is released");
    let first = subject.sent_release().request;
    subject.hear(refused(first, pb::Reason::StoreUnavailable));
    let told = subject.actions();
    assert!(
        matches!(&told[..], [Action::Answer(to, Outcome::Failed(Error::Unavailable { .. }))]
            if *to == ticket),
        "{told:?}"
    );
    subject.send_keep_alive();
    subject.actions();
    subject.hear(kept_alive(1, 9000));
    let again = subject.sent_release();
    assert!(again.handle.as_ref() == [1; 16] && again.request > first);
    subject.hear(Heard::Released(pb::Released { request: again.request }));
    assert!(subject.state.releases.is_empty() && subject.state.handles.is_empty());
}

#[test]
fn whoever_waits_for_the_loss_looks_again_when_it_comes_nearer() {
    let mut subject = Subject::attached();
    let grant = subject.grant("a", 1);
    let rings = |subject: &mut Subject| subject.actions().contains(&Action::Notify(grant));
    subject.later(3);
    subject.send_keep_alive();
    subject.hear(kept_alive(1, 9000));
    assert!(!rings(&mut subject), "it is farther away");
    subject.later(3);
    subject.send_keep_alive();
    // The lease ends, and this keep-alive was under way for longer.
    subject.hear(kept_alive(2, 5990));
    assert!(rings(&mut subject));
}
