//! Valid histories in which one entry is changed, and the violation that results.

use proptest::{prelude::*, sample::Index};

use super::{
    history_builder::{MS, all},
    model::histories,
};
use crate::{Entry, Event, History, Kind, check};

/// Applies `change` to one of the entries that it accepts. Returns false if there is none.
fn corrupt(
    history: &mut History,
    which: Index,
    change: impl Fn(&[Entry], usize) -> Option<Entry>,
) -> bool {
    let changes: Vec<(usize, Entry)> = (0..history.entries.len())
        .filter_map(|at| change(&history.entries, at).map(|entry| (at, entry)))
        .collect();
    if changes.is_empty() {
        return false;
    }
    let (at, entry) = changes[which.index(changes.len())].clone();
    history.entries[at] = entry;
    true
}

fn event(entries: &[Entry], at: usize, event: Event) -> Option<Entry> {
    Some(Entry { at: entries[at].at, event })
}

fn lock_of(entries: &[Entry], wanted: u64) -> Option<(u32, u32)> {
    entries.iter().find_map(|entry| match entry.event {
        Event::Acquire { op, client, lock, .. } if op == wanted => Some((lock, client)),
        _ => None,
    })
}

/// Returns the earlier grants of the same lock to other clients.
fn grants_before(entries: &[Entry], at: usize, op: u64) -> Vec<(usize, u64)> {
    let own = lock_of(entries, op);
    let before = entries[..at].iter().enumerate().filter_map(|(at, entry)| match entry.event {
        Event::Granted { op, token } => {
            let of = lock_of(entries, op)?;
            own.filter(|own| own.0 == of.0 && own.1 != of.1).map(|_| (at, token))
        }
        _ => None,
    });
    before.collect()
}

/// Returns true if this entry is a grant without an active fault.
fn is_calm_grant(entries: &[Entry], at: usize) -> bool {
    let Event::Granted { .. } = entries[at].event else { return false };
    let open = entries[..at].iter().fold(0, |open, entry| match entry.event {
        Event::Disturbed { .. } => open + 1,
        Event::Undisturbed { .. } => open - 1,
        _ => open,
    });
    open == 0
}

fn found(history: &History, kind: Kind) -> Result<(), TestCaseError> {
    let found = check(history);
    prop_assert!(found.iter().any(|violation| violation.kind == kind), "{}", all(&found));
    Ok(())
}

proptest! {
    #[test]
    fn token_of_another_grant_violates_i1(mut history in histories(), which: Index) {
        prop_assume!(corrupt(&mut history, which, |entries, at| match entries[at].event {
            Event::Granted { op, .. } => {
                let &(_, token) = grants_before(entries, at, op).first()?;
                event(entries, at, Event::Granted { op, token })
            }
            _ => None,
        }));
        found(&history, Kind::I1)?;
    }

    #[test]
    fn accepted_stale_token_violates_i1(mut history in histories(), which: Index) {
        prop_assume!(corrupt(&mut history, which, |entries, at| match entries[at].event {
            Event::Used { client, lock, token, .. } => {
                let used = entries[..at].iter().any(
                    |entry| matches!(entry.event, Event::Used { lock: of, .. } if of == lock),
                );
                let used = used && token > 0;
                let stale = Event::Used { client, lock, token: 1, fenced: true, accepted: true };
                used.then(|| event(entries, at, stale)).flatten()
            }
            _ => None,
        }));
        found(&history, Kind::I1)?;
    }

    #[test]
    fn use_of_ungranted_token_violates_i1(mut history in histories(), which: Index) {
        prop_assume!(corrupt(&mut history, which, |entries, at| match entries[at].event {
            Event::Used { lock, token, fenced, accepted, .. } => {
                let client = u32::MAX;
                event(entries, at, Event::Used { client, lock, token, fenced, accepted })
            }
            _ => None,
        }));
        found(&history, Kind::I1)?;
    }

    #[test]
    fn token_below_earlier_one_violates_i2(mut history in histories(), which: Index) {
        prop_assume!(corrupt(&mut history, which, |entries, at| match entries[at].event {
            Event::Granted { op, .. } => {
                let invoked = entries.iter().position(
                    |entry| matches!(entry.event, Event::Acquire { op: of, .. } if of == op),
                )?;
                grants_before(entries, invoked, op).first()?;
                event(entries, at, Event::Granted { op, token: 3 })
            }
            _ => None,
        }));
        found(&history, Kind::I2)?;
    }

    #[test]
    fn ignored_release_or_loss_violates_i3(mut history in histories(), which: Index) {
        prop_assume!(corrupt(&mut history, which, |entries, at| {
            let (Event::Lost { client, lock, token }
            | Event::Release { client, lock, token, .. }) = entries[at].event
            else {
                return None;
            };
            let next = entries[at..].iter().find(|entry| match entry.event {
                Event::Granted { op, .. } => lock_of(entries, op).is_some_and(|of| of.0 == lock),
                _ => false,
            })?;
            event(entries, at, Event::Valid { client, lock, token, until: next.at + MS })
        }));
        found(&history, Kind::I3)?;
    }

    #[test]
    fn validity_after_release_violates_i4(mut history in histories(), which: Index) {
        prop_assume!(corrupt(&mut history, which, |entries, at| {
            let Event::Released { op } = entries[at].event else { return None };
            entries.iter().find_map(|entry| match entry.event {
                Event::Release { op: of, client, lock, token } if of == op => {
                    let until = entries[at].at + MS;
                    event(entries, at, Event::Valid { client, lock, token, until })
                }
                _ => None,
            })
        }));
        found(&history, Kind::I4)?;
    }

    #[test]
    fn grant_without_stored_token_violates_i5(mut history in histories(), which: Index) {
        prop_assume!(corrupt(&mut history, which, |entries, at| match entries[at].event {
            Event::Stored { daemon, lock, token } => {
                event(entries, at, Event::Stored { daemon, lock, token: token + (1 << 20) })
            }
            _ => None,
        }));
        found(&history, Kind::I5)?;
    }

    #[test]
    fn token_stored_by_other_daemon_violates_i5(mut history in histories(), which: Index) {
        prop_assume!(corrupt(&mut history, which, |entries, at| match entries[at].event {
            Event::Stored { lock, token, .. } => {
                event(entries, at, Event::Stored { daemon: u32::MAX, lock, token })
            }
            _ => None,
        }));
        found(&history, Kind::I5)?;
    }

    /// A client that uses a token relies on it.
    #[test]
    fn premature_release_of_lease_violates_i6(mut history in histories(), which: Index) {
        prop_assume!(corrupt(&mut history, which, |entries, at| match entries[at].event {
            Event::Used { lock, .. } => event(entries, at, Event::Unleased { lock }),
            _ => None,
        }));
        found(&history, Kind::I6)?;
    }

    #[test]
    fn daemon_deadline_past_lease_violates_i6(mut history in histories(), which: Index) {
        prop_assume!(corrupt(&mut history, which, |entries, at| match entries[at].event {
            Event::Holds { daemon, lock, first, last, until } => {
                let until = until + 1_001 * MS;
                event(entries, at, Event::Holds { daemon, lock, first, last, until })
            }
            _ => None,
        }));
        found(&history, Kind::I6)?;
    }

    #[test]
    fn client_deadline_past_daemon_violates_i6(mut history in histories(), which: Index) {
        prop_assume!(corrupt(&mut history, which, |entries, at| match entries[at].event {
            Event::Valid { client, lock, token, until } => {
                event(entries, at, Event::Valid { client, lock, token, until: until + 501 * MS })
            }
            _ => None,
        }));
        found(&history, Kind::I6)?;
    }

    #[test]
    fn lower_stored_token_violates_i7(mut history in histories(), which: Index) {
        prop_assume!(corrupt(&mut history, which, |entries, at| match entries[at].event {
            Event::Stored { daemon, lock, token } if token > 1024 => {
                event(entries, at, Event::Stored { daemon, lock, token: 1 })
            }
            _ => None,
        }));
        found(&history, Kind::I7)?;
    }

    /// Delays all entries from some grant on.
    #[test]
    fn late_grant_violates_liveness(mut history in histories(), which: Index) {
        let waited: Vec<usize> =
            (0..history.entries.len()).filter(|&at| is_calm_grant(&history.entries, at)).collect();
        prop_assume!(!waited.is_empty());
        let from = waited[which.index(waited.len())];
        history.entries[from..].iter_mut().for_each(|entry| entry.at += 60_000 * MS);
        let found = check(&history);
        let late = [Kind::L1, Kind::L2, Kind::L5];
        prop_assert!(found.iter().any(|found| late.contains(&found.kind)), "{}", all(&found));
    }

    #[test]
    fn entry_out_of_order_is_malformed(mut history in histories(), which: Index) {
        let at = which.index(history.entries.len());
        prop_assume!(at > 0 && history.entries[at - 1].at > 0);
        history.entries[at].at = 0;
        found(&history, Kind::Malformed)?;
    }
}
