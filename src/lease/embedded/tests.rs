//! What only this store does: the directory, the wait after a crash, the disk.
//! What every store does is in `tests/store_conformance.rs`.

use std::{collections::HashSet, fs, os::unix::fs::symlink};

use leasehold_fuzz::{
    Fuzz,
    wire::{self, Field},
};

use super::*;
use crate::lease::Token;

fn name(number: u64) -> LockName {
    LockName::parse("", &format!("lock-{number}")).unwrap()
}

fn claim(number: u64, id: u128) -> Claim {
    let duration = Duration::from_secs(30);
    Claim {
        name: name(number),
        id: LeaseId::new(id),
        duration,
        again: false,
        value: None,
        holder: Arc::default(),
    }
}

async fn tokens(store: &Embedded, number: u64, id: u128) -> Tokens {
    match store.acquire(claim(number, id)).await {
        Ok(Acquire::Acquired(acquired)) => acquired.tokens,
        other => panic!("{other:?}"),
    }
}

async fn first_token(store: &Embedded, number: u64, id: u128) -> Token {
    tokens(store, number, id).await.take().unwrap()
}

#[tokio::test]
async fn a_clean_stop_needs_no_wait_and_tokens_go_on_rising() {
    let dir = tempfile::tempdir().unwrap();
    let mut last = None;
    for id in 1..5 {
        let store = Embedded::open(dir.path()).unwrap();
        store.cover(Duration::from_secs(60)).await.unwrap();
        let token = first_token(&store, 1, id).await;
        assert!(Some(token) > last);
        last = Some(token);
        store.release(&name(1), LeaseId::new(id)).await.unwrap();
        store.close().await.unwrap();
    }
}

#[tokio::test]
async fn after_a_crash_nothing_is_granted_for_the_longest_ttl_that_was_in_use() {
    let dir = tempfile::tempdir().unwrap();
    let store = Embedded::open(dir.path()).unwrap();
    store.cover(Duration::from_millis(300)).await.unwrap();
    let before = first_token(&store, 1, 1).await;
    drop(store);

    let opened = Moment::now();
    let store = Embedded::open(dir.path()).unwrap();
    let refused = store.acquire(claim(1, 2)).await.unwrap_err();
    let Error::Recovering { remaining } = refused else { panic!("{refused}") };
    assert!(remaining <= Duration::from_millis(300));
    clock::sleep(remaining).await;
    let after = loop {
        match store.acquire(claim(1, 2)).await {
            Ok(Acquire::Acquired(mut acquired)) => break acquired.tokens.take().unwrap(),
            Err(Error::Recovering { remaining }) => clock::sleep(remaining).await,
            other => panic!("{other:?}"),
        }
    };
    assert!(Moment::now().since(opened) >= Duration::from_millis(300));
    assert!(after > before);
}

#[tokio::test]
async fn a_crash_while_recovering_makes_the_next_one_wait_as_well() {
    let dir = tempfile::tempdir().unwrap();
    let store = Embedded::open(dir.path()).unwrap();
    store.cover(Duration::from_secs(60)).await.unwrap();
    drop(store);
    // Even a clean stop: holders from before the crash know nothing of it.
    let store = Embedded::open(dir.path()).unwrap();
    store.close().await.unwrap();
    drop(store);
    let store = Embedded::open(dir.path()).unwrap();
    assert!(matches!(store.trouble(), Some(Error::Recovering { .. })));
}

#[tokio::test]
async fn a_crash_before_any_session_needs_no_wait() {
    let dir = tempfile::tempdir().unwrap();
    drop(Embedded::open(dir.path()).unwrap());
    assert_eq!(Embedded::open(dir.path()).unwrap().trouble(), None);
}

#[tokio::test]
async fn a_second_daemon_is_told_who_has_the_directory() {
    let dir = tempfile::tempdir().unwrap();
    let _first = Embedded::open(dir.path()).unwrap();
    let error = Embedded::open(dir.path()).err().unwrap().to_string();
    assert!(error.contains("in use by another daemon"), "{error}");
    assert!(error.contains(&std::process::id().to_string()), "{error}");
}

#[tokio::test]
async fn a_damaged_or_missing_file_is_never_a_fresh_start() {
    let dir = tempfile::tempdir().unwrap();
    drop(Embedded::open(dir.path()).unwrap());
    let state = dir.path().join("state");
    let good = fs::read(&state).unwrap();
    for bad in [&b""[..], b"leasehold state 2\n", b"\xff\xfe", &good[..good.len() / 2]] {
        fs::write(&state, bad).unwrap();
        let error = Embedded::open(dir.path()).err().unwrap();
        assert!(matches!(error, OpenError::Corrupt { .. }), "{error}");
        assert_eq!(fs::read(&state).unwrap(), bad, "left as it was");
    }
    fs::remove_file(&state).unwrap();
    let error = Embedded::open(dir.path()).err().unwrap();
    assert!(matches!(error, OpenError::Missing { .. }), "{error}");
    fs::write(&state, &good).unwrap();
    Embedded::open(dir.path()).unwrap();
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_full_disk_stops_granting_and_room_on_it_resumes() {
    let dir = tempfile::tempdir().unwrap();
    let store = Embedded::open(dir.path()).unwrap();
    let before = first_token(&store, 1, 1).await;
    let new = dir.path().join("state.new");
    symlink("/dev/full", &new).unwrap();
    let error = store.cover(Duration::from_secs(5)).await.unwrap_err();
    assert!(error.to_string().contains("No space left"), "{error}");
    assert!(store.acquire(claim(2, 2)).await.is_err(), "tokens are left, but trust is not");
    assert!(store.trouble().is_some());
    assert_eq!(
        store.renew(&name(1), LeaseId::new(1), Duration::from_secs(15)).await,
        Ok(Renew::Renewed { deadline: None }),
        "who holds keeps"
    );
    fs::remove_file(&new).unwrap();
    while store.trouble().is_some() {
        clock::sleep(Duration::from_millis(20)).await;
    }
    store.cover(Duration::from_secs(5)).await.unwrap();
    assert!(first_token(&store, 2, 2).await > before);
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_at_the_start_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    symlink("/dev/full", dir.path().join("state.new")).unwrap();
    let error = Embedded::open(dir.path()).err().unwrap().to_string();
    assert!(error.contains("can't write") && error.contains("No space left"), "{error}");
}

#[tokio::test]
async fn tokens_rise_across_epochs_and_are_given_once() {
    let dir = tempfile::tempdir().unwrap();
    let store = Embedded::open(dir.path()).unwrap();
    let (mut seen, mut last) = (HashSet::new(), None);
    for id in 1..=150_000_u128 {
        let mut tokens = tokens(&store, 1, id).await;
        let token = tokens.take().unwrap();
        assert!(Some(token) > last && seen.insert(token));
        last = Some(token);
        store.release(&name(1), LeaseId::new(id)).await.unwrap();
    }
    let epochs: HashSet<_> = seen.iter().map(|token| token.get() >> 20).collect();
    assert!(epochs.len() >= 3, "{epochs:?}");
    store.close().await.unwrap();
    drop(store);
    // A write that was under way keeps the directory a little longer.
    let store = loop {
        match Embedded::open(dir.path()) {
            Err(OpenError::InUse { .. }) => tokio::task::yield_now().await,
            opened => break opened.unwrap(),
        }
    };
    assert!(Some(first_token(&store, 2, 1).await) > last);
}

#[tokio::test]
async fn a_new_directory_starts_where_a_deleted_one_can_not_have_been() {
    let old = tempfile::tempdir().unwrap();
    let store = Embedded::open(old.path()).unwrap();
    let before = first_token(&store, 1, 1).await;
    // The clock moves by a second at least.
    clock::sleep(Duration::from_millis(2100)).await;
    let new = tempfile::tempdir().unwrap();
    let store = Embedded::open(new.path()).unwrap();
    assert!(first_token(&store, 1, 1).await > before);
}

#[tokio::test]
async fn an_old_file_from_a_backup_does_not_bring_old_tokens_back() {
    let dir = tempfile::tempdir().unwrap();
    let store = Embedded::open(dir.path()).unwrap();
    store.close().await.unwrap();
    drop(store);
    let backup = Record { epoch: 1000, longest_ttl: Duration::ZERO, clean: true };
    Directory::open(dir.path()).unwrap().0.write(&backup).unwrap();
    let store = Embedded::open(dir.path()).unwrap();
    assert!(first_token(&store, 1, 1).await.get() >> 20 > 1_700_000_000);
}

/// Whoever asked for a longer ttl went away while it was being written. The
/// next who asks must not be told that it is on disk before it is.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_ttl_is_covered_only_when_it_is_on_disk_even_if_the_first_who_asked_went_away() {
    use std::task::{Context, Poll, Waker};

    let dir = tempfile::tempdir().unwrap();
    let store = Embedded::open(dir.path()).unwrap();
    let new = dir.path().join("state.new");
    nix::unistd::mkfifo(&new, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let mut first = store.cover(Duration::from_secs(60)).into_future();
    let mut cx = Context::from_waker(Waker::noop());
    assert!(matches!(first.as_mut().poll(&mut cx), Poll::Pending));
    tokio::task::yield_now().await;
    drop(first);
    let mut second = store.cover(Duration::from_secs(60)).into_future();
    assert!(matches!(second.as_mut().poll(&mut cx), Poll::Pending), "nothing is on disk yet");
    // Lets the write go on, into nothing.
    let reader = tokio::task::spawn_blocking({
        let new = new.clone();
        move || fs::File::open(new)
    });
    reader.await.unwrap().unwrap();
    fs::remove_file(&new).unwrap();
    while second.as_mut().await.is_err() {
        second = store.cover(Duration::from_secs(60)).into_future();
    }
    let (_, found) = {
        drop(store);
        loop {
            match Directory::open(dir.path()) {
                Err(OpenError::InUse { .. }) => tokio::task::yield_now().await,
                opened => break opened.unwrap(),
            }
        }
    };
    assert_eq!(found.unwrap().longest_ttl, Duration::from_secs(60));
}

/// A directory as a script: the bytes of its files.
#[test]
fn whatever_is_in_the_directory_tokens_rise_or_it_is_refused_fuzzed() {
    let state = b"leasehold state 1\nepoch 1794790000\nlongest-ttl-ms 10000\n\
                  stopped-cleanly true\ncrc32 05db1902\n";
    let whole = [Field::bytes(1, *state), Field::bytes(2, *b"123\n"), Field::bytes(3, *b"x")];
    Fuzz::new("data-directory").nested().seeds([wire::write(&whole)]).run(|input| {
        let dir = tempfile::tempdir().unwrap();
        for Field { number, value } in wire::read(input).0 {
            let file = match number {
                1 => "state",
                2 => "lock",
                3 => "state.new",
                _ => continue,
            };
            if let wire::Value::Bytes(bytes) = value {
                fs::write(dir.path().join(file), bytes).unwrap();
            }
        }
        let before = Directory::open(dir.path()).map(|(_, found)| found);
        let store = match (Embedded::open(dir.path()), &before) {
            (Ok(store), Ok(_)) => store,
            (Err(error), Err(same)) => {
                assert_eq!(error.to_string(), same.to_string());
                assert!(error.to_string().contains(&dir.path().display().to_string()), "{error}");
                return error.to_string().replace(&dir.path().display().to_string(), "");
            }
            (opened, before) => panic!("{:?} but {before:?}", opened.map(|_| ())),
        };
        let found = before.unwrap();
        let first = store.shared.state().tokens.bounds().0;
        assert!(found.is_none_or(|found| first > found.epoch << 20), "{first} after {found:?}");
        assert!(first < 1 << 53 && first >> 20 >= sane_seconds() - 60, "{first}");
        let waits = store.shared.state().recovered_at.is_some();
        assert_eq!(waits, found.is_some_and(|found| !found.clean));
        drop(store);
        // The next start goes on from there.
        match Embedded::open(dir.path()) {
            Ok(next) => assert!(next.shared.state().tokens.bounds().0 > first),
            // The last epoch of all.
            Err(error) => assert!(first >> 20 == (1 << 33) - 1, "{error}"),
        }
        format!("{waits} {}", found.is_some())
    });
}
