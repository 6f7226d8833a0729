//! Conversion of a daemon's overview into a sample.

use leasehold_client::diagnostics::{LockSummary, Overview};
use leasehold_time::Moment;

use super::model::{Calls, Lock, Sample, State};

impl Sample {
    /// Converts the response that arrived at `at`. Each lock of its lists is one row.
    pub(super) fn new(overview: Overview, at: Moment) -> Self {
        // A lock without a summary is free if all held locks have one.
        let is_complete = overview.held <= overview.longest_held.len() as u64;
        let mut locks: Vec<Lock> = Vec::new();
        let lists = [overview.longest_held, overview.longest_queues, overview.most_at_risk];
        for summary in lists.into_iter().flatten() {
            if find(&mut locks, &summary.namespace, &summary.name).is_none() {
                locks.push(summary.into());
            }
        }
        for busy in overview.busiest {
            let recent_grants = busy.grants.into();
            match find(&mut locks, &busy.namespace, &busy.name) {
                Some(lock) => lock.recent_grants = recent_grants,
                None => locks.push(Lock {
                    namespace: busy.namespace,
                    name: busy.name,
                    state: if is_complete { State::Free } else { State::Unknown },
                    recent_grants,
                    ..Lock::default()
                }),
            }
        }
        let calls = overview.calls.into_iter().map(|calls| Calls {
            operation: calls.operation,
            purpose: calls.purpose,
            count: calls.count,
        });
        Self {
            at,
            store: overview.store,
            trouble: overview.store_problem,
            sessions: overview.sessions,
            held: overview.held,
            waiting: overview.waiting,
            at_risk: overview.at_risk,
            leaderless: overview.leaderless,
            oldest_wait: overview.oldest_wait,
            grants: overview.counters.grants,
            releases: overview.counters.releases,
            losses: overview.counters.losses,
            calls: calls.collect(),
            locks,
        }
    }
}

fn find<'a>(locks: &'a mut [Lock], namespace: &str, name: &str) -> Option<&'a mut Lock> {
    locks.iter_mut().find(|lock| lock.namespace == namespace && lock.name == name)
}

impl From<LockSummary> for Lock {
    fn from(summary: LockSummary) -> Self {
        let state = match (summary.is_at_risk, summary.held_for.is_some(), summary.is_election) {
            (true, ..) => State::AtRisk,
            (false, true, true) => State::Led,
            (false, true, false) => State::Held,
            (false, false, _) if summary.is_held_by_peer => State::Peer,
            (false, false, true) if summary.waiting > 0 => State::Leaderless,
            (false, false, _) => State::Free,
        };
        Self {
            namespace: summary.namespace,
            name: summary.name,
            holder: summary.holder.map(|holder| holder.to_string()),
            token: summary.token.map(u64::from),
            held_for: summary.held_for,
            time_left: summary.time_left,
            waiting: summary.waiting.into(),
            longest_wait: summary.longest_wait,
            state,
            is_election: summary.is_election,
            recent_grants: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use leasehold_client::{
        Token,
        diagnostics::{BusyLock, Counters},
    };

    use super::*;

    fn summary(name: &str, held_for: Option<u64>, waiting: u32) -> LockSummary {
        LockSummary {
            namespace: "default".to_owned(),
            name: name.to_owned(),
            holder: None,
            token: held_for.map(Token::new),
            held_for: held_for.map(Duration::from_secs),
            time_left: None,
            waiting,
            longest_wait: None,
            is_at_risk: false,
            is_election: false,
            is_held_by_peer: false,
        }
    }

    fn overview(held: u64) -> Overview {
        let busy = |name: &str, grants| BusyLock {
            namespace: "default".to_owned(),
            name: name.to_owned(),
            grants,
        };
        Overview {
            sessions: 1,
            locks: 3,
            held,
            waiting: 2,
            leaderless: 0,
            at_risk: 0,
            oldest_wait: None,
            longest_held: vec![summary("a", Some(5), 2)],
            longest_queues: vec![
                summary("a", Some(5), 2),
                LockSummary { is_election: true, ..summary("b", None, 1) },
            ],
            most_at_risk: Vec::new(),
            busiest: vec![busy("a", 7), busy("c", 3)],
            counters: Counters { grants: 10, ..Counters::default() },
            store: "embedded".to_owned(),
            store_problem: None,
            calls: Vec::new(),
        }
    }

    #[test]
    fn each_lock_has_one_row() {
        let sample = Sample::new(overview(1), Moment::now());
        let rows = sample.locks.iter();
        let rows: Vec<_> =
            rows.map(|lock| (lock.name.as_str(), lock.state, lock.recent_grants)).collect();
        assert_eq!(
            rows,
            [("a", State::Held, 7), ("b", State::Leaderless, 0), ("c", State::Free, 3)]
        );
    }

    #[test]
    fn locks_of_peer_are_not_free() {
        for is_election in [true, false] {
            let lock = LockSummary { is_election, is_held_by_peer: true, ..summary("a", None, 1) };
            assert_eq!(Lock::from(lock).state, State::Peer);
        }
        let lock = LockSummary { is_held_by_peer: true, ..summary("a", Some(1), 1) };
        assert_eq!(Lock::from(lock).state, State::Held);
    }

    #[test]
    fn busy_lock_beyond_list_has_unknown_state() {
        let sample = Sample::new(overview(2), Moment::now());
        assert_eq!(sample.locks[2].state, State::Unknown);
    }
}
