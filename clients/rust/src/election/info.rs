//! Elections, seen from outside.

use std::time::Duration;

use crate::{DaemonInfo, Holder, Token, pb};

/// An election as the daemon saw it when it answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElectionState {
    /// The namespace that the name belongs to.
    pub namespace: String,
    /// The election's name.
    pub name: String,
    /// Who leads; `None` if nobody does.
    pub leader: Option<Leader>,
    /// How many candidates wait at this daemon.
    pub candidates: u32,
}

/// Who leads an election.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leader {
    /// Who, as it told of itself, if it is known.
    pub holder: Option<Holder>,
    /// What it shows. Empty if it shows nothing.
    pub value: Vec<u8>,
    /// Its token, if it is known.
    pub token: Option<Token>,
    /// For how long it has led, if it is known.
    pub leading_for: Option<Duration>,
    /// Whether it is a client of this daemon.
    pub local: bool,
    /// Its session, if it is a client of this daemon.
    pub session_id: Option<String>,
    /// True once it has been told that it has lost the leadership and has not
    /// let go yet.
    pub ending: bool,
    /// The daemon that it is a client of, if it is another one and known; for
    /// people.
    pub daemon: Option<String>,
    /// The same daemon with its address.
    pub peer: Option<DaemonInfo>,
}

impl ElectionState {
    /// Whether somebody who knows the one is told nothing new by the other.
    /// Time that has passed is no news.
    pub(crate) fn says_the_same_as(&self, other: &Self) -> bool {
        let timeless = |state: &Self| {
            let mut state = state.clone();
            if let Some(leader) = &mut state.leader {
                leader.leading_for = None;
            }
            state
        };
        timeless(self) == timeless(other)
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
pub struct SteppedDown {
    /// False if nobody leads, or the leader is a client of a daemon that can't be
    /// reached from here: then nothing was done, and `state` says which it is.
    pub asked: bool,
    /// The election as it was before.
    pub state: ElectionState,
    /// The leadership is over after this long at the latest.
    pub ends_within: Duration,
}

impl From<pb::StepDownResponse> for SteppedDown {
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
    fn time_that_has_passed_is_no_news() {
        let led_for = |leading_for_ms| {
            let leader = pb::Leader { token: Some(7), leading_for_ms, ..Default::default() };
            ElectionState::from(pb::ElectionState { leader: Some(leader), ..Default::default() })
        };
        let state = led_for(Some(5));
        assert!(state.says_the_same_as(&led_for(Some(9))) && state != led_for(Some(9)));
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
            assert!(!state.says_the_same_as(&changed), "{changed:?}");
        }
    }

    #[test]
    fn what_is_not_known_is_none() {
        let leader = Leader::from(pb::Leader::default());
        assert_eq!((leader.holder, leader.session_id, leader.daemon), (None, None, None));
        assert_eq!((leader.token, leader.leading_for, leader.local), (None, None, false));
    }
}
