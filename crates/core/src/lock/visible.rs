//! Externally visible state of a lock.

use leasehold_store::Value;
use leasehold_time::Moment;
use leasehold_types::{Token, TokenRange};

use super::{lease::Blocker, state::Lock};

/// Externally visible state of a lock, used to detect changes. Values are compared
/// by address: a new value is allocated before the old one is dropped, so that the
/// two addresses differ.
#[derive(PartialEq, Eq)]
pub(super) struct VisibleState {
    token: Option<Token>,
    ends_at: Option<Moment>,
    value: Option<usize>,
    peer: Option<(Option<TokenRange>, Option<Token>)>,
    peer_value: Option<usize>,
    waiting: usize,
}

impl Lock {
    /// Returns the visible state.
    pub(super) fn visible_state(&self) -> VisibleState {
        let address = |value: &Value| value.as_ptr() as usize;
        let grant = self.grant.as_ref();
        let peer = match self.blocker() {
            Some(Blocker::HeldByPeer { by: Some(info) }) => Some(info),
            _ => None,
        };
        VisibleState {
            token: grant.map(|grant| grant.token),
            ends_at: grant.and_then(|grant| grant.ends_at),
            value: grant.and_then(|grant| grant.value.as_ref()).map(address),
            peer: peer.map(|info| (info.tokens, info.leader)),
            peer_value: peer.and_then(|info| info.value.as_ref()).map(address),
            waiting: self.waiting(),
        }
    }
}
