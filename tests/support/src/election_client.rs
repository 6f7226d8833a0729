//! Elections through the Rust client: candidates, leaders and observers.

use std::time::Duration;

use leasehold_client::{
    Client, Election, ElectionState, Error, Leader, Leadership, Observer, Token,
};
use tokio::{sync::mpsc, task::JoinHandle};

use crate::Daemon;

pub const NAME: &str = "scheduler";

/// Longer than any step of a test.
pub const LONG: Duration = Duration::from_secs(60);

pub async fn connect_for(daemon: &Daemon, ttl: Duration) -> Client {
    Client::builder(&daemon.endpoint).client_name("test 1").ttl(ttl).connect().await.unwrap()
}

pub async fn connect(daemon: &Daemon) -> Client {
    connect_for(daemon, LONG).await
}

pub async fn campaign(client: &Client, value: &str) -> Leadership {
    client.election(NAME).campaign(value).await.unwrap()
}

pub async fn state(client: &Client) -> ElectionState {
    client.election(NAME).leader().await.unwrap()
}

/// Campaigns in a task, and returns when the candidate is in the queue.
pub async fn candidate(
    client: &Client,
    value: &'static str,
) -> JoinHandle<Result<Leadership, Error>> {
    let (sender, mut positions) = mpsc::unbounded_channel();
    let election = client.election(NAME).on_progress(move |progress| {
        _ = sender.send(progress.position);
    });
    let waiting = tokio::spawn(election.campaign(value).into_future());
    while positions.recv().await.expect("the election has a leader") == 0 {}
    waiting
}

pub async fn elected(candidate: JoinHandle<Result<Leadership, Error>>) -> Leadership {
    candidate.await.unwrap().unwrap()
}

/// Value and token of the leader, as an observer reports them. Other changes
/// are skipped.
pub struct LeaderChanges {
    pub observer: Observer,
    pub last: Option<Option<(Vec<u8>, Token)>>,
}

impl LeaderChanges {
    pub fn of(election: &Election) -> Self {
        Self { observer: election.observe(), last: None }
    }

    pub async fn next(&mut self) -> Option<(Vec<u8>, Token)> {
        loop {
            let state = self.observer.next().await.unwrap();
            assert_eq!((state.namespace.as_str(), state.name.as_str()), ("default", NAME));
            let leader = state.leader.map(|Leader { value, token, .. }| (value, token.unwrap()));
            if self.last.as_ref() != Some(&leader) {
                self.last = Some(leader.clone());
                return leader;
            }
        }
    }
}

pub fn leader_state(leadership: &Leadership, value: &str) -> Option<(Vec<u8>, Token)> {
    Some((value.into(), leadership.token()))
}
