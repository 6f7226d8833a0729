//! Elections through the Rust client, with daemons that share a storage account.

use leasehold_test_support::{
    Daemon,
    azurite::Azurite,
    election_client::{
        LeaderChanges, NAME, campaign, candidate, connect, elected, leader_state, state,
    },
};

/// Starts a daemon with its leases in a container that other daemons share.
fn daemon(container: &str) -> Daemon {
    let account = Azurite::shared().connection_string();
    Daemon::start_with(&[
        "--store=azure",
        "--azure-connection-string",
        &account,
        "--azure-container",
        container,
        "--poll-interval=1s",
    ])
}

#[tokio::test]
async fn leader_value_is_observed_at_other_daemons() {
    let [here, there] = [(); 2].map(|()| daemon("observed"));
    let (client, other) = (connect(&here).await, connect(&there).await);
    let mut changes = LeaderChanges::of(&other.election(NAME));
    assert_eq!(changes.next().await, None);
    let first = campaign(&client, "first").await;
    assert_eq!(changes.next().await, leader_state(&first, "first"));
    first.proclaim("first, still").await.unwrap();
    assert_eq!(changes.next().await, leader_state(&first, "first, still"));
    let leader = state(&other).await.leader.unwrap();
    assert!(!leader.local && leader.session_id.is_none() && leader.daemon.is_some());
    assert_eq!(leader.holder.unwrap().client, "test 1");
    assert_eq!(leader.peer.unwrap().endpoint.as_deref(), Some(here.endpoint.as_str()));
    // The daemon forwards the request to the leader's daemon.
    let asked = other.election(NAME).step_down().by("test").reason("why").await.unwrap();
    assert!(asked.asked && asked.state.leader.unwrap().token == Some(first.token()));
    assert_eq!(first.at_risk().await.operator.unwrap().reason, "why");

    let waiting = candidate(&other, "second").await;
    let token = first.token();
    first.resign().await.unwrap();
    let second = elected(waiting).await;
    assert!(second.token() > token);
    // The observer may or may not see the moment without a leader.
    let mut state = changes.next().await;
    if state.is_none() {
        state = changes.next().await;
    }
    assert_eq!(state, leader_state(&second, "second"));
    assert_eq!(
        LeaderChanges::of(&client.election(NAME)).next().await,
        leader_state(&second, "second")
    );
    second.resign().await.unwrap();
    assert_eq!(changes.next().await, None);
}
