//! Acquires, grants and deadlines, on an unbroken stream.

use std::time::Duration;

use super::harness::{Subject, TTL, granted, kept_alive, lost, queued, refused, restored};
use crate::{
    Error, Reason, pb,
    pb::{attach_request::Message, attach_response::Message as Incoming},
    session::{
        Wait,
        state::{Action, Outcome},
    },
};

#[test]
fn acquires_are_sent_in_order_when_stream_opens() {
    let mut subject = Subject::new(false);
    subject.acquire("a", Wait::Forever);
    subject.acquire("b", Wait::AtMost(Duration::from_secs(30)));
    assert_eq!(subject.sent(), []);
    subject.advance(10);
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
fn deadline_counts_from_named_keep_alive() {
    let mut subject = Subject::attached();
    let opened_at = subject.now;
    let grant = subject.grant("a", 1);
    assert_eq!(subject.deadline(grant), opened_at + TTL);
    subject.advance(3);
    subject.send_keep_alive();
    let first_sent_at = subject.now;
    subject.advance(3);
    subject.send_keep_alive();
    subject.advance(1);
    subject.receive(kept_alive(1, 9000));
    assert_eq!(subject.deadline(grant), first_sent_at + TTL);
    subject.receive(kept_alive(2, 4000));
    let second_sent_at = first_sent_at + Duration::from_secs(3);
    assert_eq!(subject.deadline(grant), second_sent_at + Duration::from_secs(4));
    for late in [kept_alive(1, 60_000), kept_alive(0, 1), kept_alive(77, 60_000)] {
        subject.receive(late);
        assert_eq!(subject.deadline(grant), second_sent_at + Duration::from_secs(4));
    }
}

#[test]
fn grant_limit_applies_until_not_listed() {
    let mut subject = Subject::attached();
    let (limited, free) = (subject.grant("a", 1), subject.grant("b", 2));
    let limits = vec![pb::GrantLimit { handle: vec![1; 16].into(), valid_for_ms: 1000 }];
    subject.send_keep_alive();
    subject.receive(Incoming::KeptAlive(pb::KeptAlive {
        keep_alive_number: 1,
        valid_for_ms: 9000,
        limits,
    }));
    assert_eq!(subject.deadline(limited), subject.now + Duration::from_secs(1));
    assert_eq!(subject.deadline(free), subject.now + TTL);
    subject.send_keep_alive();
    subject.receive(kept_alive(2, 9000));
    assert_eq!(subject.deadline(limited), subject.now + TTL);
}

#[test]
fn loss_is_notified_and_holder_releases_lock() {
    let mut subject = Subject::attached();
    let grant = subject.grant("a", 1);
    let deadline = subject.deadline(grant);
    subject.receive(lost(1));
    assert_eq!(subject.actions(), [Action::Notify(grant)]);
    assert_eq!(subject.lost_by(grant), Some(Reason::Broken));
    subject.send_keep_alive();
    subject.receive(kept_alive(1, 60_000));
    assert_eq!(subject.deadline(grant), deadline);
    assert!(matches!(subject.sent()[..], [Message::KeepAlive(_)]));
    let ticket = subject.state.drop_user(grant).expect("the lock is released");
    let request = subject.sent_release().request;
    subject.receive(Incoming::Released(pb::Released { request }));
    assert_eq!(subject.actions(), [Action::Answer(ticket, Outcome::Released)]);
}

#[test]
fn grant_belongs_to_one_acquire() {
    let mut subject = Subject::attached();
    let first = subject.grant("a", 1);
    subject.acquire("a", Wait::Forever);
    let waiting = subject.sent_acquire().request;
    // The same grant for a second acquire is ignored.
    subject.receive(granted(waiting, 1, 0, 9000));
    assert_eq!(subject.actions(), []);
    assert!(subject.state.drop_user(first).is_some());
    let release = subject.sent_release();
    assert_eq!(release.handle.as_ref(), [1; 16]);
    subject.receive(granted(waiting, 1, 0, 9000));
    assert_eq!(subject.actions(), [], "the grant is being released");
    subject.receive(Incoming::Released(pb::Released { request: release.request }));
    subject.actions();
    subject.receive(granted(waiting, 2, 0, 9000));
    assert_ne!(subject.granted(), first);
}

#[test]
fn request_numbers_strictly_increase() {
    let mut subject = Subject::attached();
    let first = subject.grant("a", 1);
    subject.acquire("b", Wait::Forever);
    let acquire = subject.sent_acquire().request;
    subject.state.drop_user(first);
    let release = subject.sent_release().request;
    assert!(release > acquire);
    subject.detach();
    subject.acquire("c", Wait::Forever);
    subject.resume();
    subject.receive(queued(acquire));
    subject.receive(restored());
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
fn abandoned_acquire_is_canceled_and_its_grant_released() {
    let mut subject = Subject::attached();
    let ticket = subject.acquire("a", Wait::Forever);
    let request = subject.sent_acquire().request;
    subject.state.abandon(ticket);
    assert_eq!(subject.sent(), [Message::Cancel(pb::Cancel { request })]);
    subject.receive(granted(request, 1, 0, 9000));
    assert_eq!(subject.sent_release().handle.as_ref(), [1; 16]);

    let ticket = subject.acquire("b", Wait::Forever);
    let request = subject.sent_acquire().request;
    subject.state.abandon(ticket);
    subject.actions();
    subject.receive(refused(request, pb::Reason::Canceled));
    assert_eq!(subject.actions(), []);
    assert!(subject.state.acquires.is_empty() && subject.state.requests.is_empty());
}

#[test]
fn grant_expired_on_arrival_is_released_and_reacquired() {
    let mut subject = Subject::attached();
    subject.acquire("a", Wait::Forever);
    let request = subject.sent_acquire().request;
    subject.advance(9);
    subject.receive(granted(request, 1, 0, 9000));
    assert_eq!(subject.sent_release().handle.as_ref(), [1; 16]);
    subject.send_keep_alive();
    subject.receive(kept_alive(1, 9000));
    let again = subject.sent_acquire().request;
    subject.receive(granted(again, 2, 1, 9000));
    subject.granted();
}

#[test]
fn grant_lost_by_its_deadline_is_never_returned_again() {
    let mut subject = Subject::attached();
    let grant = subject.grant("a", 1);
    subject.advance(9);
    subject.send_keep_alive();
    subject.receive(kept_alive(1, 9000));
    assert_eq!(subject.lost_by(grant), Some(Reason::Expired));
    subject.actions();
    subject.acquire("a", Wait::Forever);
    let request = subject.sent_acquire().request;
    for keep_alive_number in [1, 77] {
        subject.receive(granted(request, 1, keep_alive_number, 60_000));
        assert_eq!((subject.lost_by(grant), subject.actions()), (Some(Reason::Expired), vec![]));
    }
    subject.receive(granted(request, 2, 1, 9000));
    assert_ne!(subject.granted(), grant);
}

#[test]
fn pause_expires_grants_past_their_own_validity() {
    let mut subject = Subject::attached();
    let (limited, free) = (subject.grant("a", 1), subject.grant("b", 2));
    let limits = vec![pb::GrantLimit { handle: vec![1; 16].into(), valid_for_ms: 5000 }];
    subject.send_keep_alive();
    subject.receive(Incoming::KeptAlive(pb::KeptAlive {
        keep_alive_number: 1,
        valid_for_ms: 9000,
        limits,
    }));
    subject.advance(2);
    subject.send_keep_alive();
    subject.pause(3);
    // The response arrives after the pause, too late for one of the grants.
    subject.receive(kept_alive(2, 9000));
    assert_eq!((subject.lost_by(limited), subject.lost_by(free)), (Some(Reason::Expired), None));
    assert_eq!(subject.deadline(limited), subject.now, "another session may hold the lock already");
    let pause = Duration::from_secs(3);
    assert_eq!(subject.deadline(free), subject.now + (TTL - pause));
    subject.actions();
    subject.pause(5);
    let is_lost = |subject: &mut Subject| {
        let clocks = subject.clocks();
        subject.state.check_grant(free, &clocks).expect("it has users").loss().is_some()
    };
    assert!(!is_lost(&mut subject), "the validity ends in a second");
    subject.advance(1);
    assert!(is_lost(&mut subject));
    assert_eq!(subject.deadline(free), subject.now);
    assert_eq!(subject.actions(), [Action::Notify(free)]);
}

#[test]
fn pause_after_loss_advances_deadline() {
    let mut subject = Subject::attached();
    let grant = subject.grant("a", 1);
    subject.receive(lost(1));
    assert_eq!(subject.deadline(grant), subject.now + TTL);
    subject.pause(9);
    let clocks = subject.clocks();
    subject.state.check_grant(grant, &clocks);
    assert_eq!(subject.deadline(grant), subject.now);
    assert_eq!(subject.lost_by(grant), Some(Reason::Broken));
}

#[test]
fn grant_expired_by_pause_in_transit_is_released() {
    let mut subject = Subject::attached();
    subject.acquire("a", Wait::Forever);
    let request = subject.sent_acquire().request;
    subject.pause(9);
    subject.receive(granted(request, 1, 0, 9000));
    assert_eq!(subject.sent_release().handle.as_ref(), [1; 16]);
}

#[test]
fn refused_release_is_resent_after_next_keep_alive() {
    let mut subject = Subject::attached();
    let grant = subject.grant("a", 1);
    let ticket = subject.state.drop_user(grant).expect("the lock is released");
    let first = subject.sent_release().request;
    subject.receive(refused(first, pb::Reason::StoreUnavailable));
    let actions = subject.actions();
    assert!(
        matches!(&actions[..], [Action::Answer(to, Outcome::Failed(Error::Unavailable { .. }))]
            if *to == ticket),
        "{actions:?}"
    );
    subject.send_keep_alive();
    subject.actions();
    subject.receive(kept_alive(1, 9000));
    let again = subject.sent_release();
    assert!(again.handle.as_ref() == [1; 16] && again.request > first);
    subject.receive(Incoming::Released(pb::Released { request: again.request }));
    assert!(subject.state.releases.is_empty() && subject.state.handles.is_empty());
}

#[test]
fn guard_is_notified_of_earlier_deadline() {
    let mut subject = Subject::attached();
    let grant = subject.grant("a", 1);
    let is_notified = |subject: &mut Subject| subject.actions().contains(&Action::Notify(grant));
    subject.advance(3);
    subject.send_keep_alive();
    subject.receive(kept_alive(1, 9000));
    assert!(!is_notified(&mut subject), "the deadline is later");
    subject.advance(3);
    subject.send_keep_alive();
    // The lease ends soon, and the response to this keep-alive took longer.
    subject.receive(kept_alive(2, 5990));
    assert!(is_notified(&mut subject));
}
