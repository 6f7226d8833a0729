//! Elections through the Rust client, against a real daemon.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use leasehold_client::{Client, Error, Leadership, Operator, Reason, Token};
use leasehold_test_support::{
    Daemon,
    election_client::{
        LONG, LeaderChanges, NAME, campaign, candidate, connect, connect_for, elected,
        leader_state, state,
    },
    relay::Relay,
    until,
};
use nix::sys::signal::Signal;
use tokio::sync::mpsc;

/// For what happens only when a session's promise is over.
const BRIEF: Duration = Duration::from_secs(2);

/// The reason for a loss that a call was refused for.
fn lost_by<T: std::fmt::Debug>(result: Result<T, Error>) -> Reason {
    match result {
        Err(Error::Lost { lock, reason, message }) => {
            assert_eq!(lock, NAME);
            assert!(!message.is_empty());
            reason
        }
        other => panic!("{other:?}"),
    }
}

fn invalid_field<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
    match result {
        Err(Error::Invalid { field, .. }) => field,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn the_next_candidate_leads_when_the_leader_resigns() {
    let daemon = Daemon::start();
    let client = connect(&daemon).await;
    let first = campaign(&client, "first").await;
    assert!(first.is_valid() && !first.deadline().has_passed());
    assert_eq!((first.namespace(), first.name()), ("default", NAME));
    let other = client.new_session();
    let waiting = candidate(&other, "second").await;

    let seen = state(&other).await;
    assert_eq!((seen.namespace.as_str(), seen.name.as_str()), ("default", NAME));
    assert_eq!(seen.candidates, 1);
    let leader = seen.leader.unwrap();
    assert_eq!((&leader.value[..], leader.token), (&b"first"[..], Some(first.token())));
    assert_eq!(leader.holder.unwrap().client, "test 1");
    assert_eq!(leader.session_id, client.session().map(|session| session.id));
    assert!(leader.local && !leader.ending && leader.leading_for.is_some());
    assert_eq!(leader.daemon, None);

    let token = first.token();
    first.resign().await.unwrap();
    let second = elected(waiting).await;
    assert!(second.token() > token);
    let leader = state(&client).await.leader.unwrap();
    assert_eq!((&leader.value[..], leader.token), (&b"second"[..], Some(second.token())));
    second.resign().await.unwrap();
    assert_eq!(state(&client).await.leader, None);
}

#[tokio::test]
async fn a_candidate_that_does_not_wait_is_told_who_leads() {
    let daemon = Daemon::start();
    let client = connect(&daemon).await;
    let leading = campaign(&client, "first").await;
    let other = client.new_session();
    let wait = Duration::from_millis(50);
    for (election, expected) in [
        (other.election(NAME).no_wait(), Reason::Held),
        (other.election(NAME).wait(wait), Reason::TimedOut),
    ] {
        match election.campaign("second").await {
            Err(Error::NotGranted { lock, reason, holder, .. }) => {
                assert_eq!((lock.as_str(), reason), (NAME, expected));
                assert_eq!(holder.unwrap().client, "test 1");
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(state(&client).await.leader.unwrap().value, b"first");
    // Dropped, not resigned: in the background.
    drop(leading);
    other.election(NAME).campaign("second").await.unwrap().resign().await.unwrap();
}

#[tokio::test]
async fn observers_see_every_value_and_every_leader_in_order() {
    let daemon = Daemon::start();
    let client = connect(&daemon).await;
    let mut changes = LeaderChanges::of(&connect(&daemon).await.election(NAME));
    assert_eq!(changes.next().await, None, "nobody has campaigned yet");
    let mut last = Token::default();
    for round in 0..3 {
        let leading = campaign(&client, &format!("{round}")).await;
        assert!(leading.token() > last);
        last = leading.token();
        assert_eq!(changes.next().await, leader_state(&leading, &format!("{round}")));
        leading.proclaim(format!("{round}, still")).await.unwrap();
        assert_eq!(changes.next().await, leader_state(&leading, &format!("{round}, still")));
        assert_eq!(
            state(&client).await.leader.unwrap().value,
            format!("{round}, still").as_bytes()
        );
        leading.proclaim(Vec::new()).await.unwrap();
        assert_eq!(changes.next().await, leader_state(&leading, ""));
        leading.resign().await.unwrap();
        assert_eq!(changes.next().await, None);
    }
    // One who comes later is told the present state first.
    let leading = campaign(&client, "last").await;
    assert_eq!(
        LeaderChanges::of(&client.election(NAME)).next().await,
        leader_state(&leading, "last")
    );
}

#[tokio::test]
async fn an_observer_outlives_the_daemon_and_the_connection() {
    let daemon = Daemon::start();
    let relay = Relay::to(&daemon);
    let onlooker = Client::connect(&relay.endpoint).await.unwrap();
    let mut changes = LeaderChanges::of(&onlooker.election(NAME));
    let (tell, mut trouble) = mpsc::unbounded_channel();
    changes.observer = changes.observer.on_error(move |error| _ = tell.send(error.clone()));
    let client = connect_for(&daemon, BRIEF).await;
    assert_eq!(changes.next().await, None);
    let leading = campaign(&client, "before").await;
    assert_eq!(changes.next().await, leader_state(&leading, "before"));

    relay.cut();
    leading.proclaim("after the cut").await.unwrap();
    assert_eq!(changes.next().await, leader_state(&leading, "after the cut"));
    assert!(matches!(trouble.try_recv(), Ok(Error::Unavailable { .. })));

    let daemon = daemon.restart(&[]);
    assert_eq!(changes.next().await, None, "the next daemon has no sessions");
    assert!(matches!(trouble.try_recv(), Ok(Error::Unavailable { .. })));
    leading.lost().await;
    let token = leading.token();
    drop(leading);
    let again = campaign(&client, "after the restart").await;
    assert!(again.token() > token);
    assert_eq!(changes.next().await, leader_state(&again, "after the restart"));
    drop(daemon);
}

#[tokio::test]
async fn a_proclaim_that_was_under_way_at_a_break_arrives() {
    let daemon = Daemon::start();
    let relay = Relay::to(&daemon);
    let client = Client::builder(&relay.endpoint).ttl(LONG).connect().await.unwrap();
    let leading = campaign(&client, "0").await;
    let session = client.session();
    for round in 1..=5 {
        let value = format!("{round}");
        let proclaiming = leading.proclaim(value.as_str());
        let (proclaimed, ()) = tokio::join!(proclaiming, async { relay.cut() });
        proclaimed.unwrap();
        let leader = state(&connect(&daemon).await).await.leader.unwrap();
        assert_eq!((leader.value, leader.token), (value.into_bytes(), Some(leading.token())));
    }
    assert_eq!(client.session(), session);
    leading.resign().await.unwrap();
}

#[tokio::test]
async fn a_campaign_outlives_a_break_with_its_value() {
    let daemon = Daemon::start();
    let relay = Relay::to(&daemon);
    let leading = campaign(&connect(&daemon).await, "first").await;
    let client = Client::builder(&relay.endpoint).ttl(LONG).connect().await.unwrap();
    let waiting = candidate(&client, "second").await;
    relay.cut();
    leading.resign().await.unwrap();
    let second = elected(waiting).await;
    let leader = state(&client).await.leader.unwrap();
    assert_eq!((&leader.value[..], leader.token), (&b"second"[..], Some(second.token())));
}

#[tokio::test]
async fn who_does_not_lead_any_more_is_told_so() {
    let daemon = Daemon::start();
    let client = connect(&daemon).await;
    let leading = campaign(&client, "first").await;
    client.break_lock(NAME).by("test").reason("it is stuck").await.unwrap();
    assert_eq!(leading.lost().await.reason, Reason::Broken);
    assert!(!leading.is_valid() && !leading.deadline().has_passed());
    assert!(state(&client).await.leader.unwrap().ending);
    assert_eq!(lost_by(leading.proclaim("second").await), Reason::Broken);
    assert_eq!(lost_by(leading.resign().await), Reason::Broken);

    // It is the session that leads: when it is closed, so does nobody.
    let leading = campaign(&client, "third").await;
    client.close().await;
    assert_eq!(lost_by(leading.proclaim("fourth").await), Reason::UnknownSession);
    assert_eq!(state(&client).await.leader, None);
}

#[tokio::test]
async fn what_no_daemon_would_accept_is_refused() {
    let daemon = Daemon::start();
    let client = connect(&daemon).await;
    let (most, too_much) = (vec![0xff; 4096], vec![0xff; 4097]);
    assert_eq!(invalid_field(client.election(NAME).campaign(&too_much[..]).await), "value");
    assert_eq!(client.session(), None, "nothing was sent");
    let leading = client.election(NAME).campaign(&most[..]).await.unwrap();
    assert_eq!(state(&client).await.leader.unwrap().value, most);
    assert_eq!(invalid_field(leading.proclaim(&too_much[..]).await), "value");
    assert_eq!(state(&client).await.leader.unwrap().value, most);
    let nothing = async |_: &Leadership| ();
    let election = client.election(NAME).value(too_much);
    assert_eq!(invalid_field(election.run_as_leader(nothing).await), "value");

    let nameless = client.election("");
    assert_eq!(invalid_field(nameless.leader().await), "name");
    assert_eq!(invalid_field(nameless.observe().next().await), "name");
    assert_eq!(invalid_field(nameless.step_down().by("test").reason("why").await), "name");
    assert_eq!(invalid_field(nameless.run_as_leader(nothing).await), "name");
    let election = client.election(NAME);
    assert_eq!(
        invalid_field(election.step_down().by("test").reason("why").timeout(LONG * 61).await),
        "timeout"
    );
    assert_eq!(invalid_field(election.step_down().by("test").reason("").await), "reason");
    assert!(leading.is_valid(), "the session has not suffered");
}

#[tokio::test]
async fn a_leader_that_is_asked_to_hand_over_has_time_to_finish() {
    let daemon = Daemon::start();
    let client = connect_for(&daemon, BRIEF).await;
    let operator = connect(&daemon).await;
    let election = operator.election(NAME);
    let nobody = election.step_down().by("test").reason("an upgrade").await.unwrap();
    assert!(!nobody.asked && nobody.state.leader.is_none());

    let leading = campaign(&client, "first").await;
    let next = client.new_session();
    let waiting = candidate(&next, "second").await;
    let asked = election.step_down().by("test").reason("an upgrade").timeout(LONG).await.unwrap();
    assert!(asked.asked && asked.ends_within <= LONG);
    assert_eq!(asked.state.leader.unwrap().token, Some(leading.token()));
    let risk = leading.at_risk().await;
    assert_eq!(risk.reason, Reason::StepDown);
    assert!(risk.message.contains("an upgrade"), "{}", risk.message);
    let operator = Operator { by: "test".into(), reason: "an upgrade".into() };
    assert_eq!(risk.operator.as_ref(), Some(&operator));
    assert!(risk.ends_in <= LONG && !risk.ends_in.is_zero());
    assert!(leading.is_valid());
    leading.proclaim("finishing").await.unwrap();
    let token = leading.token();
    leading.resign().await.unwrap();
    let second = elected(waiting).await;
    assert!(second.token() > token);

    // One that does not: it is lost when the time is over.
    let waiting = candidate(&client, "third").await;
    election
        .step_down()
        .by("test")
        .reason("an upgrade")
        .timeout(Duration::from_secs(1))
        .await
        .unwrap();
    let loss = second.lost().await;
    assert_eq!((loss.reason, loss.operator), (Reason::StepDown, Some(operator)));
    let token = second.token();
    drop(second);
    assert!(elected(waiting).await.token() > token);
}

#[tokio::test]
async fn a_stopping_daemon_warns_its_leaders_and_waits_for_them() {
    let mut daemon = Daemon::start();
    let client = connect(&daemon).await;
    let leading = campaign(&client, "first").await;
    daemon.process.signal(Signal::SIGTERM);
    assert_eq!(leading.at_risk().await.reason, Reason::ShuttingDown);
    assert!(leading.is_valid());
    leading.resign().await.unwrap();
    assert!(daemon.process.end().success());
}

#[tokio::test]
async fn a_leader_whose_process_was_killed_is_followed_by_the_next() {
    let daemon = Daemon::start();
    let mut leader = daemon.begin(&[
        "elect",
        NAME,
        "--value",
        "doomed",
        "--ttl",
        "1s",
        "--",
        "sh",
        "-c",
        "echo leading; exec sleep 600",
    ]);
    assert_eq!(leader.line(), "leading");
    let client = connect(&daemon).await;
    let doomed = state(&client).await.leader.unwrap();
    assert_eq!(doomed.value, b"doomed");
    let waiting = candidate(&client, "next").await;
    leader.signal(Signal::SIGKILL);
    let next = elected(waiting).await;
    assert!(Some(next.token()) > doomed.token);
}

#[tokio::test]
async fn a_stuck_leader_loses_the_leadership() {
    let daemon = Daemon::start();
    let client = connect_for(&daemon, BRIEF).await;
    let other = connect(&daemon).await;
    let soon = Duration::from_millis(50);

    let leading = campaign(&client, "busy").await;
    leading.expect_progress(LONG);
    leading.progress();
    assert!(leading.is_valid());
    let waiting = candidate(&other, "next").await;
    // Another length takes the place of the first.
    leading.expect_progress(soon);
    assert_eq!(leading.lost().await.reason, Reason::NoProgress);
    leading.progress();
    assert_eq!(lost_by(leading.proclaim("again").await), Reason::NoProgress);
    // Who is stuck does not let go. It is given up under its feet.
    let next = elected(waiting).await;
    assert!(leading.deadline().has_passed(), "it may still have been at work");
    assert!(next.token() > leading.token());
    drop(leading);
    assert!(next.is_valid());
}

#[tokio::test]
async fn work_is_dropped_with_the_leadership_and_begun_again() {
    /// Tells when it is dropped.
    struct Work(mpsc::UnboundedSender<()>);
    impl Drop for Work {
        fn drop(&mut self) {
            _ = self.0.send(());
        }
    }
    let daemon = Daemon::start();
    let client = connect(&daemon).await;
    let (begin, mut begun) = mpsc::unbounded_channel();
    let (end, mut ended) = mpsc::unbounded_channel();
    let troubles = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&troubles);
    let election = client
        .election(NAME)
        .value("worker")
        .on_error(move |trouble| told.lock().unwrap().push(trouble.clone()));
    let mut times = 0;
    let running = tokio::spawn(election.run_as_leader(async move |leadership: &Leadership| {
        let work = Work(end.clone());
        times += 1;
        begin.send(leadership.token()).unwrap();
        leadership.proclaim("at work").await.unwrap();
        if times < 3 {
            std::future::pending::<()>().await;
        }
        drop(work);
        leadership.token()
    }));
    let mut last = Token::default();
    for _ in 0..2 {
        let token = begun.recv().await.unwrap();
        assert!(token > last);
        last = token;
        until(async || (state(&client).await.leader?.value == b"at work").then_some(())).await;
        client.break_lock(NAME).by("test").reason("enough").await.unwrap();
        ended.recv().await.unwrap();
    }
    let token = running.await.unwrap().unwrap();
    assert!(token > last);
    assert_eq!(begun.recv().await, Some(token));
    assert_eq!(state(&client).await.leader, None, "it resigned");
    let reasons: Vec<Reason> =
        troubles.lock().unwrap().drain(..).map(|trouble| lost_by(Err::<(), _>(trouble))).collect();
    assert_eq!(reasons, [Reason::Broken; 2]);
}

#[tokio::test]
async fn a_worker_that_hands_over_campaigns_again_after_the_others() {
    let daemon = Daemon::start();
    let client = connect(&daemon).await;
    let (tell, mut tokens) = mpsc::unbounded_channel();
    let (tell_trouble, mut troubles) = mpsc::unbounded_channel();
    let election =
        client.election(NAME).on_error(move |trouble| _ = tell_trouble.send(trouble.clone()));
    let worker = tokio::spawn(election.run_as_leader(async move |leadership: &Leadership| {
        tell.send(leadership.token()).unwrap();
        assert_eq!(leadership.at_risk().await.reason, Reason::StepDown);
        leadership.step_down().await;
        panic!("the work ends there");
    }));
    let token = tokens.recv().await.unwrap();
    let other = client.new_session();
    let waiting = candidate(&other, "other").await;
    other.election(NAME).step_down().by("test").reason("an upgrade").timeout(LONG).await.unwrap();
    let leading = elected(waiting).await;
    assert!(leading.token() > token);
    assert_eq!(lost_by(Err::<(), _>(troubles.recv().await.unwrap())), Reason::StepDown);
    // It is back in the queue, and its turn comes.
    until(async || (state(&other).await.candidates == 1).then_some(())).await;
    let token = leading.token();
    leading.resign().await.unwrap();
    assert!(tokens.recv().await.unwrap() > token);
    // Whoever drops it, ends it.
    worker.abort();
    assert!(worker.await.unwrap_err().is_cancelled());
    campaign(&other, "other").await.resign().await.unwrap();
}

#[tokio::test]
async fn a_worker_goes_on_with_the_next_daemon() {
    let daemon = Daemon::start();
    let client = connect_for(&daemon, BRIEF).await;
    let (tell, mut tokens) = mpsc::unbounded_channel();
    let running = tokio::spawn(async move {
        let work = async move |leadership: &Leadership| {
            tell.send(leadership.token()).unwrap();
            std::future::pending::<()>().await;
        };
        client.run_as_leader(NAME, work).await
    });
    let token = tokens.recv().await.unwrap();
    let daemon = daemon.restart(&[]);
    assert!(tokens.recv().await.unwrap() > token);
    running.abort();
    drop(daemon);
}
