//! Robustness: any history is checked, printed and stored without a panic.

use proptest::{collection::vec, prelude::*};

use super::history_builder::*;
use crate::{Entry, Event, History, Stats, check};

fn event() -> impl Strategy<Value = Event> {
    let (op, id, token) = (0..12u64, 0..3u32, 0..6u64);
    let until = prop_oneof![0..200u64, Just(u64::MAX / MS)];
    (0..25, op, id.clone(), id.clone(), id, token, until, any::<(bool, bool)>()).prop_map(
        |(kind, op, client, daemon, lock, token, until, (fenced, accepted))| match kind {
            0 | 1 => Event::Acquire { op, client, daemon, lock },
            2 => queued(op),
            3 | 4 => granted(op, token),
            5 => Event::Refused { op, why: String::new(), faulty: accepted, canceled: !accepted },
            6 => Event::Valid { client, lock, token, until: until * MS },
            7 => Event::Release { op, client, lock, token },
            8 => Event::Released { op },
            9 => Event::Lost { client, lock, token },
            10 => Event::Used { client, lock, token, fenced, accepted },
            11 => died(client),
            12 => Event::Holds { daemon, lock, first: token, last: op, until: until * MS },
            13 => Event::HoldEnded { daemon, lock },
            14 => daemon_died(daemon),
            15 => Event::Leased { daemon, lock, until: until * MS },
            16 => Event::Unleased { lock },
            17 => Event::Stored { daemon, lock, token },
            18 => Event::Deleted { lock },
            19 if fenced => disturbed("rain"),
            19 => undisturbed("rain"),
            22 => Event::LossNotified { client, lock, token },
            23 => Event::Freed { client, lock, token },
            24 => detached(client),
            20 if fenced && accepted => reserved(daemon, token),
            20 if fenced => forgotten(token, until),
            20 => Event::Overruled { lock, until: until * MS },
            _ if accepted => clock_broken(client),
            _ => Event::Tampered { lock },
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]
    #[test]
    fn any_history_is_checked_without_panic(
        entries in vec((0..100u64, event()), 0..60),
        sorted: bool,
        (limit, skew) in (0..50u64, 0..3u64),
        last in prop_oneof![Just(0), Just(u64::MAX)],
    ) {
        let mut history = bounded(bounds(), &entries);
        history.entries.push(Entry { at: last, event: disturbed("the end") });
        if sorted {
            history.entries.sort_by_key(|entry| entry.at);
        }
        let limit = limit * MS;
        history.bounds = crate::Bounds {
            takeover: limit,
            expiry: limit,
            local_handoff: limit / 4,
            remote_handoff: limit / 2,
            orphan: limit,
            unwanted: limit / 3,
            recovery: limit,
            visibility: limit / 3,
            skew: skew * MS,
        };
        for violation in check(&history) {
            prop_assert!(!violation.excerpt.is_empty(), "{violation}");
            let is_recorded = |entry: &Entry| history.entries.contains(entry);
            prop_assert!(violation.excerpt.iter().all(is_recorded));
        }
        _ = Stats::of(&history).to_string();
        let mut file = Vec::new();
        crate::write(&history, &mut file).unwrap();
        let restored: History = crate::read(file.as_slice()).unwrap();
        prop_assert_eq!(restored, history);
    }
}
