//! Elections through the Rust client, with daemons that share a storage account.

use leasehold_test_support::{
    Daemon,
    azurite::Azurite,
    election_client::{NAME, Story, campaign, candidate, connect, leads, shown, state},
};

/// A daemon that keeps its leases in an account that it shares with others.
fn beside(others: &str) -> Daemon {
    let account = Azurite::shared().connection_string();
    Daemon::start_with(&[
        "--store=azure",
        "--azure-connection-string",
        &account,
        "--azure-container",
        others,
        "--poll-interval=1s",
    ])
}

#[tokio::test]
async fn what_a_leader_shows_is_seen_at_other_daemons() {
    let [here, there] = [(); 2].map(|()| beside("observed"));
    let (client, other) = (connect(&here).await, connect(&there).await);
    let mut story = Story::of(&other.election(NAME));
    assert_eq!(story.next().await, None);
    let first = campaign(&client, "first").await;
    assert_eq!(story.next().await, shown(&first, "first"));
    first.proclaim("first, still").await.unwrap();
    assert_eq!(story.next().await, shown(&first, "first, still"));
    let leader = state(&other).await.leader.unwrap();
    assert!(!leader.local && leader.session_id.is_none() && leader.daemon.is_some());
    assert_eq!(leader.holder.unwrap().client, "test 1");
    assert_eq!(leader.peer.unwrap().endpoint.as_deref(), Some(here.endpoint.as_str()));
    // A request at the wrong daemon is sent on to the leader's.
    let asked = other.election(NAME).step_down().by("test").reason("why").await.unwrap();
    assert!(asked.asked && asked.state.leader.unwrap().token == Some(first.token()));
    assert_eq!(first.at_risk().await.operator.unwrap().reason, "why");

    let waiting = candidate(&other, "second").await;
    let token = first.token();
    first.resign().await.unwrap();
    let second = leads(waiting).await;
    assert!(second.token() > token);
    // The moment in between may be seen, or not.
    let mut told = story.next().await;
    if told.is_none() {
        told = story.next().await;
    }
    assert_eq!(told, shown(&second, "second"));
    assert_eq!(Story::of(&client.election(NAME)).next().await, shown(&second, "second"));
    second.resign().await.unwrap();
    assert_eq!(story.next().await, None);
}
