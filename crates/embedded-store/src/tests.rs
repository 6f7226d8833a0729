//! Tests of the embedded store only: the directory, the wait after a crash, disk
//! errors. Tests for every store are in `tests/support/src/store_conformance.rs`.

use std::{fs, os::unix::fs::symlink};

use leasehold_fuzz::{
    Fuzz,
    wire::{self, Field},
};
use leasehold_types::TokenRange;

use super::*;
use leasehold_types::Token;

fn name(number: u64) -> LockName {
    LockName::parse("", &format!("lock-{number}")).unwrap()
}

fn params(number: u64, id: u128) -> AcquireParams {
    let duration = Duration::from_secs(30);
    AcquireParams {
        name: name(number),
        id: LeaseId::new(id),
        duration,
        is_retry: false,
        value: None,
        holder: Arc::default(),
    }
}

async fn tokens(store: &Embedded, number: u64, id: u128) -> TokenRange {
    match store.acquire(params(number, id)).await {
        Ok(Acquire::Acquired(acquired)) => acquired.tokens,
        other => panic!("{other:?}"),
    }
}

async fn first_token(store: &Embedded, number: u64, id: u128) -> Token {
    tokens(store, number, id).await.take().unwrap()
}

#[test]
fn file_as_data_directory_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    fs::write(&path, "").unwrap();
    let Err(error) = Embedded::open(&path) else { panic!("the file was accepted") };
    let expected = format!("{} is not a directory; choose another with --data-dir", path.display());
    assert_eq!(error.to_string(), expected);
}

#[tokio::test]
async fn tokens_increase_across_clean_restarts_without_wait() {
    let dir = tempfile::tempdir().unwrap();
    let mut last = None;
    for id in 1..5 {
        let store = Embedded::open(dir.path()).unwrap();
        store.persist_ttl(Duration::from_secs(60)).await.unwrap();
        let token = first_token(&store, 1, id).await;
        assert!(Some(token) > last);
        last = Some(token);
        store.release(&name(1), LeaseId::new(id)).await.unwrap();
        store.close().await.unwrap();
    }
}

#[tokio::test]
async fn no_grant_after_crash_for_max_ttl() {
    let dir = tempfile::tempdir().unwrap();
    let store = Embedded::open(dir.path()).unwrap();
    store.persist_ttl(Duration::from_millis(300)).await.unwrap();
    let before = first_token(&store, 1, 1).await;
    drop(store);

    let opened = Moment::now();
    let store = Embedded::open(dir.path()).unwrap();
    let refused = store.acquire(params(1, 2)).await.unwrap_err();
    let Error::Recovering { remaining } = refused else { panic!("{refused}") };
    assert!(remaining <= Duration::from_millis(300));
    leasehold_runtime::sleep(remaining).await;
    let after = loop {
        match store.acquire(params(1, 2)).await {
            Ok(Acquire::Acquired(mut acquired)) => break acquired.tokens.take().unwrap(),
            Err(Error::Recovering { remaining }) => leasehold_runtime::sleep(remaining).await,
            other => panic!("{other:?}"),
        }
    };
    assert!(Moment::now().since(opened) >= Duration::from_millis(300));
    assert!(after > before);
}

#[tokio::test]
async fn stop_during_recovery_makes_next_start_wait() {
    let dir = tempfile::tempdir().unwrap();
    let store = Embedded::open(dir.path()).unwrap();
    store.persist_ttl(Duration::from_secs(60)).await.unwrap();
    drop(store);
    // Even after a clean shutdown, because holders from before the crash were not
    // notified.
    let store = Embedded::open(dir.path()).unwrap();
    store.close().await.unwrap();
    drop(store);
    let store = Embedded::open(dir.path()).unwrap();
    assert!(matches!(store.unavailability(), Some(Error::Recovering { .. })));
}

#[tokio::test]
async fn crash_before_first_session_needs_no_wait() {
    let dir = tempfile::tempdir().unwrap();
    drop(Embedded::open(dir.path()).unwrap());
    assert_eq!(Embedded::open(dir.path()).unwrap().unavailability(), None);
}

#[tokio::test]
async fn second_daemon_fails_with_pid_of_first() {
    let dir = tempfile::tempdir().unwrap();
    let _first = Embedded::open(dir.path()).unwrap();
    let error = Embedded::open(dir.path()).err().unwrap().to_string();
    assert!(error.contains("in use by another daemon"), "{error}");
    assert!(error.contains(&std::process::id().to_string()), "{error}");
}

#[tokio::test]
async fn corrupt_or_missing_state_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    drop(Embedded::open(dir.path()).unwrap());
    let state = dir.path().join("state");
    let good = fs::read(&state).unwrap();
    for bad in [&b""[..], b"leasehold state 3\n", b"\xff\xfe", &good[..good.len() / 2]] {
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

/// Waits until the last identity check is too old for a grant.
async fn outwait_identity_check() {
    leasehold_runtime::sleep(MAX_IDENTITY_AGE * 2).await;
}

#[tokio::test]
async fn moved_deleted_or_replaced_directory_stops_granting_for_good() {
    let moves: [fn(&Path); 4] = [
        |path| fs::rename(path, path.with_extension("moved")).unwrap(),
        |path| fs::remove_dir_all(path).unwrap(),
        |path| {
            fs::rename(path, path.with_extension("moved")).unwrap();
            fs::create_dir(path).unwrap();
        },
        |path| fs::remove_file(path.join("lock")).unwrap(),
    ];
    for change in moves {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("data");
        let store = Embedded::open(&path).unwrap();
        first_token(&store, 1, 1).await;
        change(&path);
        outwait_identity_check().await;
        let error = store.acquire(params(2, 2)).await.unwrap_err().to_string();
        assert!(error.contains("while this daemon used it"), "{error}");
        assert!(store.next_tokens(&name(1), LeaseId::new(1)).await.is_err());
        assert!(store.unavailability().is_some());
        assert!(store.persist_ttl(Duration::from_secs(5)).await.is_err());
        let renewed = store.renew(&name(1), LeaseId::new(1), Duration::from_secs(15)).await;
        assert_eq!(renewed, Ok(Renew::Renewed { deadline: None }), "holders keep their leases");
        // Another daemon may have used the path, so moving the directory back does
        // not resume granting.
        let moved = path.with_extension("moved");
        if moved.exists() {
            _ = fs::remove_dir(&path);
            fs::rename(&moved, &path).unwrap();
            outwait_identity_check().await;
            assert!(store.acquire(params(2, 2)).await.is_err());
        }
        store.release(&name(1), LeaseId::new(1)).await.unwrap();
        assert!(store.close().await.is_err(), "nothing more is written");
    }
}

#[tokio::test]
async fn directory_of_another_daemon_is_not_written() {
    let parent = tempfile::tempdir().unwrap();
    let (path, moved) = (parent.path().join("data"), parent.path().join("moved"));
    let first = Embedded::open(&path).unwrap();
    fs::rename(&path, &moved).unwrap();
    let second = Embedded::open(&path).unwrap();
    second.persist_ttl(Duration::from_secs(30)).await.unwrap();
    let read = |path: &Path| fs::read(path.join("state")).unwrap();
    let (own, other) = (read(&moved), read(&path));
    assert!(first.persist_ttl(Duration::from_secs(60)).await.is_err());
    assert!(first.close().await.is_err());
    assert_eq!((read(&moved), read(&path)), (own, other));
}

#[test]
fn garbage_in_lock_file_is_explained() {
    for garbage in [&b"\xff\xfe\x00\x80"[..], b"hello\n", &[0; 11]] {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("lock"), garbage).unwrap();
        let error = Embedded::open(dir.path()).err().unwrap();
        assert!(matches!(error, OpenError::LockFile { .. }), "{error}");
        let error = error.to_string();
        assert!(error.contains("lock is corrupt") && error.contains("delete this file"), "{error}");
        assert_eq!(fs::read(dir.path().join("lock")).unwrap(), garbage);
        let report = diagnose(dir.path());
        assert_eq!(report.failure().unwrap(), format!("data directory: {error}"));
        fs::remove_file(dir.path().join("lock")).unwrap();
        Embedded::open(dir.path()).unwrap();
    }
}

#[tokio::test]
async fn last_break_is_reported_until_restart() {
    let dir = tempfile::tempdir().unwrap();
    let store = Embedded::open(dir.path()).unwrap();
    let breaker = |by: &str| Breaker { by: by.into(), reason: "stuck".into() };
    first_token(&store, 1, 1).await;
    assert_eq!(store.inspect(&name(1)).await.unwrap().unwrap().broken, None);
    store.record_break(&name(1), breaker("alice")).await.unwrap();
    let shown = store.inspect(&name(1)).await.unwrap().unwrap();
    assert_eq!((shown.held, shown.broken), (true, Some(breaker("alice"))));
    store.break_lease(&name(1), breaker("bob")).await.unwrap();
    let shown = store.inspect(&name(1)).await.unwrap().unwrap();
    assert_eq!((shown.held, shown.broken), (false, Some(breaker("bob"))));
    assert_eq!(store.inspect(&name(2)).await.unwrap(), None);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn full_disk_stops_granting_until_space_is_freed() {
    let dir = tempfile::tempdir().unwrap();
    let store = Embedded::open(dir.path()).unwrap();
    let before = first_token(&store, 1, 1).await;
    let new = dir.path().join("state.new");
    symlink("/dev/full", &new).unwrap();
    let error = store.persist_ttl(Duration::from_secs(5)).await.unwrap_err();
    assert!(error.to_string().contains("No space left"), "{error}");
    assert!(store.acquire(params(2, 2)).await.is_err(), "no grant, even with reserved tokens");
    assert!(store.unavailability().is_some());
    assert_eq!(
        store.renew(&name(1), LeaseId::new(1), Duration::from_secs(15)).await,
        Ok(Renew::Renewed { deadline: None }),
        "holders keep their leases"
    );
    fs::remove_file(&new).unwrap();
    while store.unavailability().is_some() {
        leasehold_runtime::sleep(Duration::from_millis(20)).await;
    }
    store.persist_ttl(Duration::from_secs(5)).await.unwrap();
    assert!(first_token(&store, 2, 2).await > before);
}

#[cfg(target_os = "linux")]
#[test]
fn full_disk_at_start_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    symlink("/dev/full", dir.path().join("state.new")).unwrap();
    let error = Embedded::open(dir.path()).err().unwrap().to_string();
    assert!(error.contains("can't write") && error.contains("No space left"), "{error}");
}

/// Takes about 1.6 s: tokens of 1.6 reservations must not outrun the wall clock.
#[tokio::test]
async fn tokens_increase_across_reservations_and_never_outrun_clock() {
    let dir = tempfile::tempdir().unwrap();
    let store = Embedded::open(dir.path()).unwrap();
    let first = first_token(&store, 1, 1).await;
    let mut last = first;
    while last.get() - first.get() < tokens::RESERVED_TOKENS * 8 / 5 {
        let more = store.next_tokens(&name(1), LeaseId::new(1)).await;
        let Ok(Acquire::Acquired(mut more)) = more else { panic!("{more:?}") };
        let token = more.tokens.take().unwrap();
        assert!(token > last && token.get() <= wall_tokens(), "{token} after {last}");
        last = token;
    }
    store.release(&name(1), LeaseId::new(1)).await.unwrap();
    store.close().await.unwrap();
    drop(store);
    let store = reopen(dir.path()).await;
    assert!(first_token(&store, 2, 1).await > last);
}

/// Returns the wall clock in tokens.
fn wall_tokens() -> u64 {
    let now = leasehold_time::clock::wall().duration_since(std::time::UNIX_EPOCH).unwrap();
    (now.as_nanos() * (1 << 20) / 1_000_000_000) as u64
}

/// Opens the directory of a dropped store, which a write in flight may still keep
/// locked.
async fn reopen(path: &Path) -> Embedded {
    loop {
        match Embedded::open(path) {
            Err(OpenError::InUse { .. }) => tokio::task::yield_now().await,
            opened => break opened.unwrap(),
        }
    }
}

#[tokio::test]
async fn tokens_increase_across_quick_restarts_and_deletion() {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join("data");
    let mut last = None;
    for id in 1..30 {
        let store = reopen(&path).await;
        let token = first_token(&store, 1, id).await;
        assert!(Some(token) > last, "restart {id}");
        assert!(token.get() <= wall_tokens());
        last = Some(token);
        store.release(&name(1), LeaseId::new(id)).await.unwrap();
        store.close().await.unwrap();
        drop(store);
        if id % 10 == 0 {
            fs::remove_dir_all(&path).unwrap();
        }
    }
}

#[tokio::test]
async fn clean_stop_records_highest_issued_token() {
    let dir = tempfile::tempdir().unwrap();
    let store = Embedded::open(dir.path()).unwrap();
    let token = first_token(&store, 1, 1).await;
    let on_disk = || Record::decode(&fs::read(dir.path().join("state")).unwrap()).unwrap();
    assert!(on_disk().highest_token > token.get());
    store.release(&name(1), LeaseId::new(1)).await.unwrap();
    store.close().await.unwrap();
    assert_eq!(on_disk().highest_token, token.get());
}

/// After a crash, up to a second of tokens is reserved: the next process starts
/// after them, but not before the clock has reached them.
#[tokio::test]
async fn repeated_crashes_do_not_run_ahead_of_clock() {
    let dir = tempfile::tempdir().unwrap();
    for _ in 0..20 {
        drop(Embedded::open(dir.path()).unwrap());
    }
    let mut last = None;
    for id in 1..3 {
        let store = reopen(dir.path()).await;
        let token = first_token(&store, 1, id).await;
        assert!(Some(token) > last && token.get() <= wall_tokens());
        last = Some(token);
    }
}

#[tokio::test]
async fn tokens_continue_after_clock_was_set_back() {
    let dir = tempfile::tempdir().unwrap();
    let ahead = wall_tokens() + (3600 << 20);
    let record = Record { highest_token: ahead, max_ttl: Duration::ZERO, clean: true };
    fs::write(dir.path().join("state"), record.encode()).unwrap();
    let store = Embedded::open(dir.path()).unwrap();
    assert_eq!(first_token(&store, 1, 1).await.get(), ahead + 1);
}

#[tokio::test]
async fn version_1_state_is_continued() {
    let dir = tempfile::tempdir().unwrap();
    let state = b"leasehold state 1\nepoch 1794790000\nlongest-ttl-ms 10000\n\
                  stopped-cleanly true\ncrc32 05db1902\n";
    fs::write(dir.path().join("state"), state).unwrap();
    let store = Embedded::open(dir.path()).unwrap();
    assert_eq!(store.unavailability(), None);
    let token = first_token(&store, 1, 1).await.get();
    assert!(token >= 1_794_790_001 << 20, "{token}");
}

#[tokio::test]
async fn restored_old_state_does_not_reissue_tokens() {
    let dir = tempfile::tempdir().unwrap();
    let store = Embedded::open(dir.path()).unwrap();
    store.close().await.unwrap();
    drop(store);
    let backup = Record { highest_token: 1000 << 20, max_ttl: Duration::ZERO, clean: true };
    fs::write(dir.path().join("state"), backup.encode()).unwrap();
    let store = Embedded::open(dir.path()).unwrap();
    assert!(first_token(&store, 1, 1).await.get() >> 20 > 1_700_000_000);
}

/// The first caller is dropped while its longer TTL is being written. The second
/// call must not succeed before the TTL is on disk.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn persist_ttl_waits_for_disk_after_first_caller_is_dropped() {
    use std::task::{Context, Poll, Waker};

    let dir = tempfile::tempdir().unwrap();
    let store = Embedded::open(dir.path()).unwrap();
    let new = dir.path().join("state.new");
    nix::unistd::mkfifo(&new, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let mut first = store.persist_ttl(Duration::from_secs(60)).into_future();
    let mut cx = Context::from_waker(Waker::noop());
    assert!(matches!(first.as_mut().poll(&mut cx), Poll::Pending));
    tokio::task::yield_now().await;
    drop(first);
    let mut second = store.persist_ttl(Duration::from_secs(60)).into_future();
    assert!(matches!(second.as_mut().poll(&mut cx), Poll::Pending), "nothing is on disk yet");
    // Unblocks the write, whose contents are discarded.
    let reader = tokio::task::spawn_blocking({
        let new = new.clone();
        move || fs::File::open(new)
    });
    reader.await.unwrap().unwrap();
    fs::remove_file(&new).unwrap();
    while second.as_mut().await.is_err() {
        second = store.persist_ttl(Duration::from_secs(60)).into_future();
    }
    let found = Record::decode(&fs::read(dir.path().join("state")).unwrap()).unwrap();
    assert_eq!(found.max_ttl, Duration::from_secs(60));
}

/// The input is a list of the directory's files.
#[test]
fn any_directory_is_refused_or_tokens_increase_fuzzed() {
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
        let before = DataDir::open(dir.path()).and_then(|dir| directory::read(&dir));
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
        let first = store.shared.state().tokens.highest() + 1;
        assert!(found.is_none_or(|found| first > found.highest_token), "{first} after {found:?}");
        assert!(first < 1 << 53 && first + (60 << 20) > wall_tokens(), "{first}");
        let waits = store.shared.state().recovered_at.is_some();
        assert_eq!(waits, found.is_some_and(|found| !found.clean));
        drop(store);
        // The next start continues after it.
        match Embedded::open(dir.path()) {
            Ok(next) => assert!(next.shared.state().tokens.highest() >= first),
            // The last tokens below 2^53.
            Err(error) => assert!(first + (1 << 20) >= 1 << 53, "{error}"),
        }
        format!("{waits} {}", found.is_some())
    });
}
