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

/// TTL of sessions that expire during a test.
const BRIEF: Duration = Duration::from_secs(2);

/// Reason of the loss that made a call fail.
fn loss_reason<T: std::fmt::Debug>(result: Result<T, Error>) -> Reason {
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
async fn next_candidate_leads_after_leader_resigns() {
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
async fn refused_or_timed_out_campaign_names_leader() {
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
    // A drop resigns in the background.
    drop(leading);
    other.election(NAME).campaign("second").await.unwrap().resign().await.unwrap();
}

#[tokio::test]
async fn observers_see_each_value_and_leader_in_order() {
    let daemon = Daemon::start();
    let client = connect(&daemon).await;
    let mut changes = LeaderChanges::of(&connect(&daemon).await.election(NAME));
    assert_eq!(changes.next().await, None, "no candidate has campaigned yet");
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
    // A new observer receives the current state first.
    let leading = campaign(&client, "last").await;
    assert_eq!(
        LeaderChanges::of(&client.election(NAME)).next().await,
        leader_state(&leading, "last")
    );
}

#[tokio::test]
async fn observer_survives_reconnect_and_daemon_restart() {
    let daemon = Daemon::start();
    let relay = Relay::to(&daemon);
    let observing = Client::connect(&relay.endpoint).await.unwrap();
    let mut changes = LeaderChanges::of(&observing.election(NAME));
    let (sender, mut errors) = mpsc::unbounded_channel();
    changes.observer = changes.observer.on_error(move |error| _ = sender.send(error.clone()));
    let client = connect_for(&daemon, BRIEF).await;
    assert_eq!(changes.next().await, None);
    let leading = campaign(&client, "before").await;
    assert_eq!(changes.next().await, leader_state(&leading, "before"));

    relay.cut();
    leading.proclaim("after the cut").await.unwrap();
    assert_eq!(changes.next().await, leader_state(&leading, "after the cut"));
    assert!(matches!(errors.try_recv(), Ok(Error::Unavailable { .. })));

    let daemon = daemon.restart(&[]);
    assert_eq!(changes.next().await, None, "the next daemon has no sessions");
    assert!(matches!(errors.try_recv(), Ok(Error::Unavailable { .. })));
    leading.lost().await;
    let token = leading.token();
    drop(leading);
    let again = campaign(&client, "after the restart").await;
    assert!(again.token() > token);
    assert_eq!(changes.next().await, leader_state(&again, "after the restart"));
    drop(daemon);
}

#[tokio::test]
async fn proclaim_pending_at_disconnect_is_delivered() {
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
async fn campaign_keeps_value_across_reconnect() {
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
async fn calls_after_loss_return_reason() {
    let daemon = Daemon::start();
    let client = connect(&daemon).await;
    let leading = campaign(&client, "first").await;
    client.break_lock(NAME).by("test").reason("it is stuck").await.unwrap();
    assert_eq!(leading.lost().await.reason, Reason::Broken);
    assert!(!leading.is_valid() && !leading.deadline().has_passed());
    assert!(state(&client).await.leader.unwrap().ending);
    assert_eq!(loss_reason(leading.proclaim("second").await), Reason::Broken);
    assert_eq!(loss_reason(leading.resign().await), Reason::Broken);

    // The leadership belongs to the session: after a close there is no leader.
    let leading = campaign(&client, "third").await;
    client.close().await;
    assert_eq!(loss_reason(leading.proclaim("fourth").await), Reason::UnknownSession);
    assert_eq!(state(&client).await.leader, None);
}

#[tokio::test]
async fn invalid_requests_are_refused_by_client() {
    let daemon = Daemon::start();
    let client = connect(&daemon).await;
    let (maximum, too_long) = (vec![0xff; 4096], vec![0xff; 4097]);
    assert_eq!(invalid_field(client.election(NAME).campaign(&too_long[..]).await), "value");
    assert_eq!(client.session(), None, "nothing was sent");
    let leading = client.election(NAME).campaign(&maximum[..]).await.unwrap();
    assert_eq!(state(&client).await.leader.unwrap().value, maximum);
    assert_eq!(invalid_field(leading.proclaim(&too_long[..]).await), "value");
    assert_eq!(state(&client).await.leader.unwrap().value, maximum);
    let nothing = async |_: &Leadership| ();
    let election = client.election(NAME).value(too_long);
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
    assert!(leading.is_valid(), "the session still works");
}

#[tokio::test]
async fn step_down_leaves_leader_time_to_finish() {
    let daemon = Daemon::start();
    let client = connect_for(&daemon, BRIEF).await;
    let operator = connect(&daemon).await;
    let election = operator.election(NAME);
    let without_leader = election.step_down().by("test").reason("an upgrade").await.unwrap();
    assert!(!without_leader.asked && without_leader.state.leader.is_none());

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

    // A leader that does not resign loses the leadership at the timeout.
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
async fn stopping_daemon_warns_leaders_and_waits_for_resignation() {
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
async fn next_candidate_leads_after_leader_is_killed() {
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
async fn stuck_leader_loses_leadership() {
    let daemon = Daemon::start();
    let client = connect_for(&daemon, BRIEF).await;
    let other = connect(&daemon).await;
    let soon = Duration::from_millis(50);

    let leading = campaign(&client, "busy").await;
    leading.expect_progress(LONG);
    leading.progress();
    assert!(leading.is_valid());
    let waiting = candidate(&other, "next").await;
    // The second timeout replaces the first.
    leading.expect_progress(soon);
    assert_eq!(leading.lost().await.reason, Reason::NoProgress);
    leading.progress();
    assert_eq!(loss_reason(leading.proclaim("again").await), Reason::NoProgress);
    // A stuck leader does not release. The client releases the leadership for it.
    let next = elected(waiting).await;
    assert!(leading.deadline().has_passed(), "the next leader came before the deadline");
    assert!(next.token() > leading.token());
    drop(leading);
    assert!(next.is_valid());
}

#[tokio::test]
async fn run_as_leader_drops_work_on_loss_and_restarts() {
    /// Sends a message when it is dropped.
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
    let errors = Arc::new(Mutex::new(Vec::new()));
    let reported = Arc::clone(&errors);
    let election = client
        .election(NAME)
        .value("worker")
        .on_error(move |error| reported.lock().unwrap().push(error.clone()));
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
    assert_eq!(state(&client).await.leader, None, "the worker resigned");
    let reasons: Vec<Reason> =
        errors.lock().unwrap().drain(..).map(|error| loss_reason(Err::<(), _>(error))).collect();
    assert_eq!(reasons, [Reason::Broken; 2]);
}

#[tokio::test]
async fn worker_that_steps_down_campaigns_after_other_candidates() {
    let daemon = Daemon::start();
    let client = connect(&daemon).await;
    let (token_sender, mut tokens) = mpsc::unbounded_channel();
    let (error_sender, mut errors) = mpsc::unbounded_channel();
    let election =
        client.election(NAME).on_error(move |error| _ = error_sender.send(error.clone()));
    let worker = tokio::spawn(election.run_as_leader(async move |leadership: &Leadership| {
        token_sender.send(leadership.token()).unwrap();
        assert_eq!(leadership.at_risk().await.reason, Reason::StepDown);
        leadership.step_down().await;
        panic!("the work continued after the step-down");
    }));
    let token = tokens.recv().await.unwrap();
    let other = client.new_session();
    let waiting = candidate(&other, "other").await;
    other.election(NAME).step_down().by("test").reason("an upgrade").timeout(LONG).await.unwrap();
    let leading = elected(waiting).await;
    assert!(leading.token() > token);
    assert_eq!(loss_reason(Err::<(), _>(errors.recv().await.unwrap())), Reason::StepDown);
    // The worker campaigns again and leads after the other candidate.
    until(async || (state(&other).await.candidates == 1).then_some(())).await;
    let token = leading.token();
    leading.resign().await.unwrap();
    assert!(tokens.recv().await.unwrap() > token);
    // Dropping the future resigns.
    worker.abort();
    assert!(worker.await.unwrap_err().is_cancelled());
    campaign(&other, "other").await.resign().await.unwrap();
}

#[tokio::test]
async fn worker_leads_again_after_daemon_restart() {
    let daemon = Daemon::start();
    let client = connect_for(&daemon, BRIEF).await;
    let (token_sender, mut tokens) = mpsc::unbounded_channel();
    let running = tokio::spawn(async move {
        let work = async move |leadership: &Leadership| {
            token_sender.send(leadership.token()).unwrap();
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
