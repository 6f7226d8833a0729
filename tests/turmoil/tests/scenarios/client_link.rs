//! Between a client and its daemon.

use leasehold_client::Reason;
use leasehold_turmoil::{client::Order, stage::Host};

use crate::{Two, holder_and_waiter, seconds};

fn hosts(two: &Two) -> (Host, Host) {
    (Host::Client(two.holder), Host::Daemon(0))
}

/// The daemon heard of the release, so the waiter gets the lock at once: the
/// session was resumed and works in both directions.
fn still_works(two: &mut Two, session: &Option<String>) {
    two.nothing_happened();
    assert!(session.is_some());
    assert_eq!(two.stage.seat(two.holder).seen().session, *session, "the session was resumed");
    two.stage.seat(two.holder).order(Order::Release);
    two.hands_over(seconds(1));
    two.stage.run(seconds(1));
    assert!(two.stage.seat(two.holder).seen().released[0].1.is_ok());
    two.stage.run(seconds(20));
    two.stage.check();
}

#[test]
fn a_cut_shorter_than_the_ttl_loses_nothing() {
    for (seed, length) in [(1, 1), (2, 2), (3, 3)] {
        let mut two = holder_and_waiter(seed, 1);
        let session = two.stage.seat(two.holder).seen().session.clone();
        let (client, daemon) = hosts(&two);
        let number = two.stage.seat(two.holder).seen().number;
        two.stage.cut(client, daemon);
        two.stage.run(seconds(length));
        two.stage.mend(client, daemon);
        two.stage.run(seconds(30));
        let connects = two.stage.record().connects(number);
        // KeepAlives are less than two seconds apart: so one of them was lost, and with
        // it the connection.
        assert!(connects >= 2 || length < 2, "{connects} connections");
        still_works(&mut two, &session);
    }
}

#[test]
fn what_is_held_back_for_less_than_the_ttl_loses_nothing() {
    for (seed, length) in [(11, 1), (12, 3)] {
        let mut two = holder_and_waiter(seed, 1);
        let session = two.stage.seat(two.holder).seen().session.clone();
        let (client, daemon) = hosts(&two);
        two.stage.hold(client, daemon);
        two.stage.run(seconds(length));
        two.stage.release(client, daemon);
        two.stage.run(seconds(30));
        still_works(&mut two, &session);
    }
}

/// Beyond the ttl the holder knows of its loss by its own clock alone, and the
/// waiter gets the lock after that.
fn is_lost(mut two: Two, end: impl FnOnce(&mut Two)) {
    let cut = two.stage.now();
    two.hands_over(seconds(7));
    let lost = two.knows_of_its_loss();
    let granted = two.stage.seat(two.waiter).seen().granted[0].0;
    assert!(lost < granted, "lost at {lost:?}, granted to another at {granted:?}");
    assert!(lost <= cut + seconds(5), "cut at {cut:?}, lost at {lost:?}");
    assert_eq!(two.stage.seat(two.holder).seen().lost[0].2.reason, Reason::Expired);

    end(&mut two);
    two.stage.run(seconds(30));
    // It can ask again, in a new session.
    two.stage.seat(two.waiter).order(Order::Release);
    let first = two.token;
    let token = two.stage.acquire(two.holder, 0, seconds(10));
    assert!(token > two.stage.token(two.waiter) && token > first);
    two.stage.run(seconds(20));
    two.stage.check();
}

#[test]
fn a_cut_longer_than_the_ttl_is_known_to_the_holder_in_time() {
    let mut two = holder_and_waiter(21, 1);
    let (client, daemon) = hosts(&two);
    two.stage.cut(client, daemon);
    is_lost(two, |two| two.stage.mend(client, daemon));
}

#[test]
fn a_holder_that_can_only_hear_knows_of_its_loss_in_time() {
    let mut two = holder_and_waiter(31, 1);
    let (client, daemon) = hosts(&two);
    two.stage.cut_one_way(client, daemon);
    is_lost(two, |two| two.stage.mend(client, daemon));
}

#[test]
fn a_holder_that_can_only_speak_knows_of_its_loss_in_time() {
    let mut two = holder_and_waiter(41, 1);
    let (client, daemon) = hosts(&two);
    two.stage.cut_one_way(daemon, client);
    let cut = two.stage.now();
    two.stage.run(seconds(6));
    let lost = two.knows_of_its_loss();
    assert!(lost <= cut + seconds(5), "cut at {cut:?}, lost at {lost:?}");
    // Its keep-alives arrived for a while, so the daemon may keep the lock for longer;
    // but it gives it on in the end.
    two.hands_over(seconds(20));
    two.stage.mend(client, daemon);
    two.stage.run(seconds(40));
    two.stage.check();
}

#[test]
fn what_is_held_back_for_longer_than_the_ttl_does_not_bring_the_grant_back() {
    let mut two = holder_and_waiter(51, 1);
    let (client, daemon) = hosts(&two);
    two.stage.hold(client, daemon);
    is_lost(two, |two| two.stage.release(client, daemon));
}
