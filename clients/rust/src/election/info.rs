//! State of elections as observers and operators read it.

use std::time::Duration;

use crate::{DaemonInfo, Holder, Token, pb};

/// State of an election at the time of the response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElectionState {
    /// Namespace of the election.
    pub namespace: String,
    /// Name of the election.
    pub name: String,
    /// Current leader; `None` if there is none.
    pub leader: Option<Leader>,
    /// Number of candidates that wait at this daemon.
    pub candidates: u32,
}

/// Leader of an election.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leader {
    /// Description that the leader sent, if known.
    pub holder: Option<Holder>,
    /// Published value; empty if there is none.
    pub value: Vec<u8>,
    /// Token of the leader, if known.
    pub token: Option<Token>,
    /// Time since the start of the leadership, if known.
    pub leading_for: Option<Duration>,
    /// True if the leader is a client of this daemon.
    pub local: bool,
    /// Session of the leader, if it is a client of this daemon.
    pub session_id: Option<String>,
    /// True if the leader was notified of the loss of its leadership and has not
    /// resigned yet.
    pub ending: bool,
    /// Human-readable description of the leader's daemon, if it is a peer of this
    /// daemon and known.
    pub daemon: Option<String>,
    /// The same peer with its address.
    pub peer: Option<DaemonInfo>,
}

impl ElectionState {
    /// Returns whether both states are equal, apart from the time since the start
    /// of the leadership.
    pub(crate) fn equals_ignoring_time(&self, other: &Self) -> bool {
        let without_time = |state: &Self| {
            let mut state = state.clone();
            if let Some(leader) = &mut state.leader {
                leader.leading_for = None;
            }
            state
        };
        without_time(self) == without_time(other)
    }
}

impl From<pb::ElectionState> for ElectionState {
    fn from(state: pb::ElectionState) -> Self {
        let election = state.election.unwrap_or_default();
        Self {
            namespace: election.namespace,
            name: election.name,
            leader: state.leader.map(Leader::from),
            candidates: state.candidates,
        }
    }
}

impl From<pb::Leader> for Leader {
    fn from(leader: pb::Leader) -> Self {
        Self {
            holder: leader.holder.map(Holder::from),
            value: leader.value.to_vec(),
            token: leader.token.map(Token::new),
            leading_for: leader.leading_for_ms.map(Duration::from_millis),
            local: leader.local,
            session_id: Some(leader.session_id).filter(|id| !id.is_empty()),
            ending: leader.ending,
            daemon: Some(leader.daemon).filter(|daemon| !daemon.is_empty()),
            peer: leader.peer.map(DaemonInfo::from),
        }
    }
}

/// Response to [`Election::step_down`](crate::Election::step_down).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepDownResult {
    /// False if there is no leader, or if the leader is a client of a daemon that
    /// is unreachable from this host. The request then had no effect; `state`
    /// distinguishes the two cases.
    pub asked: bool,
    /// State of the election before the request.
    pub state: ElectionState,
    /// Maximum time until the leadership ends.
    pub ends_within: Duration,
}

impl From<pb::StepDownResponse> for StepDownResult {
    fn from(response: pb::StepDownResponse) -> Self {
        Self {
            asked: response.asked,
            state: response.state.unwrap_or_default().into(),
            ends_within: Duration::from_millis(response.ends_within_ms),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elapsed_time_is_not_a_change() {
        let led_for = |leading_for_ms| {
            let leader = pb::Leader { token: Some(7), leading_for_ms, ..Default::default() };
            ElectionState::from(pb::ElectionState { leader: Some(leader), ..Default::default() })
        };
        let state = led_for(Some(5));
        assert!(state.equals_ignoring_time(&led_for(Some(9))) && state != led_for(Some(9)));
        for change in [
            |state: &mut ElectionState| state.leader = None,
            |state: &mut ElectionState| state.candidates += 1,
            |state: &mut ElectionState| {
                state.leader.iter_mut().for_each(|l| l.token = Some(Token::new(8)))
            },
            |state: &mut ElectionState| state.leader.iter_mut().for_each(|l| l.value.push(1)),
            |state: &mut ElectionState| state.leader.iter_mut().for_each(|l| l.ending = true),
        ] {
            let mut changed = state.clone();
            change(&mut changed);
            assert!(!state.equals_ignoring_time(&changed), "{changed:?}");
        }
    }

    #[test]
    fn unknown_fields_are_none() {
        let leader = Leader::from(pb::Leader::default());
        assert_eq!((leader.holder, leader.session_id, leader.daemon), (None, None, None));
        assert_eq!((leader.token, leader.leading_for, leader.local), (None, None, false));
    }
}
