//! Conformance suite of the store trait. To test a store, implement
//! [`StoreFixture`] and call `store_conformance!`.

use leasehold_store::{
    Acquire, AcquireParams, Acquired, Break, Breaker, LeaseId, LeaseStore, Page, Release, Renew,
};
use leasehold_types::{Holder, LockName, Namespace, Token};
use std::{sync::Arc, time::Duration};

/// Persistent state of a store under test. Can be opened repeatedly.
pub trait StoreFixture: Sync {
    fn open(&self) -> impl Future<Output = Arc<dyn LeaseStore>> + Send;
}

/// Defines one test per check for the store of a fixture.
#[macro_export]
macro_rules! store_conformance {
    ($fixture:expr) => {
        $crate::store_conformance! { @checks $fixture;
            held_lease_names_holder
            acquire_with_same_id_is_idempotent
            release_frees_only_hold_with_same_id
            tokens_increase_across_and_within_holds
            ended_hold_gets_no_tokens
            renewal_detects_lost_lease
            break_ends_holders_lease
            concurrent_acquires_have_one_winner
            leases_are_listed_in_order_by_prefix_and_page
            leases_of_all_namespaces_are_listed_in_order
            unusual_names_are_distinct
            retried_acquire_succeeds_once_free
            tokens_increase_across_restarts
            lease_lasts_until_deadline
        }
    };
    (@checks $fixture:expr; $($check:ident)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
            async fn $check() {
                $crate::store_conformance::$check(&$fixture.await).await;
            }
        )*
    };
}

const DURATION: Duration = Duration::from_secs(15);

fn name(name: &str) -> LockName {
    LockName::parse("", name).unwrap()
}

fn id(number: u128) -> LeaseId {
    // IDs of different tests must differ if they share a fixture.
    LeaseId::new(number << 64 | 0xabad_1dea)
}

fn params(lock: &LockName, number: u128, client: &str) -> AcquireParams {
    AcquireParams {
        name: lock.clone(),
        id: id(number),
        duration: DURATION,
        is_retry: false,
        value: None,
        holder: Arc::new(Holder::try_new(client, "host", 7, "", []).unwrap()),
    }
}

async fn acquired(store: &Arc<dyn LeaseStore>, lock: &LockName, number: u128) -> Acquired {
    match store.acquire(params(lock, number, "client")).await.unwrap() {
        Acquire::Acquired(acquired) => acquired,
        other => panic!("{other:?}"),
    }
}

async fn token(store: &Arc<dyn LeaseStore>, lock: &LockName, number: u128) -> Token {
    acquired(store, lock, number).await.tokens.take().unwrap()
}

async fn is_held(store: &Arc<dyn LeaseStore>, lock: &LockName, number: u128) -> bool {
    matches!(store.acquire(params(lock, number, "other")).await.unwrap(), Acquire::Held { .. })
}

pub async fn held_lease_names_holder(fixture: &impl StoreFixture) {
    let store = fixture.open().await;
    store.acquire(params(&name("a"), 1, "billing")).await.unwrap();
    let Acquire::Held { by } = store.acquire(params(&name("a"), 2, "other")).await.unwrap() else {
        panic!("two holders")
    };
    assert_eq!(by.unwrap().holder.as_ref().unwrap().client(), "billing");
    token(&store, &name("b"), 3).await;
}

pub async fn acquire_with_same_id_is_idempotent(fixture: &impl StoreFixture) {
    let store = fixture.open().await;
    let first = token(&store, &name("a"), 1).await;
    assert!(token(&store, &name("a"), 1).await >= first);
    assert!(is_held(&store, &name("a"), 2).await);
}

pub async fn release_frees_only_hold_with_same_id(fixture: &impl StoreFixture) {
    let store = fixture.open().await;
    let lock = name("a");
    assert_eq!(store.release(&lock, id(9)).await, Ok(Release::Released), "nothing to release");
    token(&store, &lock, 1).await;
    assert_eq!(store.release(&lock, id(2)).await, Ok(Release::Released));
    assert!(is_held(&store, &lock, 3).await, "a foreign release freed the lease");
    assert_eq!(store.release(&lock, id(1)).await, Ok(Release::Released));
    token(&store, &lock, 4).await;
    assert_eq!(store.release(&lock, id(1)).await, Ok(Release::Released), "repeated");
    assert!(is_held(&store, &lock, 5).await, "a repeated release freed a newer hold");
}

pub async fn tokens_increase_across_and_within_holds(fixture: &impl StoreFixture) {
    let store = fixture.open().await;
    let lock = name("a");
    let mut last = None;
    for number in 1..10 {
        let mut tokens = acquired(&store, &lock, number).await.tokens;
        for _ in 0..2 {
            assert!(!tokens.is_empty());
            while let Some(token) = tokens.take() {
                assert!(Some(token) > last);
                last = Some(token);
            }
            tokens = match store.next_tokens(&lock, id(number)).await.unwrap() {
                Acquire::Acquired(acquired) => acquired.tokens,
                other => panic!("{other:?}"),
            };
        }
        store.release(&lock, id(number)).await.unwrap();
    }
}

pub async fn ended_hold_gets_no_tokens(fixture: &impl StoreFixture) {
    let store = fixture.open().await;
    let lock = name("a");
    token(&store, &lock, 1).await;
    store.release(&lock, id(1)).await.unwrap();
    token(&store, &lock, 2).await;
    let answer = store.next_tokens(&lock, id(1)).await.unwrap();
    assert!(matches!(answer, Acquire::Held { .. }), "{answer:?}");
}

pub async fn renewal_detects_lost_lease(fixture: &impl StoreFixture) {
    let store = fixture.open().await;
    let lock = name("a");
    let before = acquired(&store, &lock, 1).await;
    let Renew::Renewed { deadline } = store.renew(&lock, id(1), DURATION).await.unwrap() else {
        panic!()
    };
    assert!(deadline >= before.deadline);
    assert!(matches!(store.renew(&lock, id(2), DURATION).await.unwrap(), Renew::Lost { .. }));
    store.release(&lock, id(1)).await.unwrap();
    token(&store, &lock, 3).await;
    assert!(matches!(store.renew(&lock, id(1), DURATION).await.unwrap(), Renew::Lost { .. }));
}

pub async fn break_ends_holders_lease(fixture: &impl StoreFixture) {
    let store = fixture.open().await;
    let lock = name("a");
    let before = token(&store, &lock, 1).await;
    let breaker = Breaker { by: "ops".into(), reason: "stuck".into() };
    let broken = store.break_lease(&lock, breaker.clone()).await.unwrap();
    let Break::Broken { free_within } = broken else { panic!("{broken:?}") };
    assert!(free_within <= DURATION);
    assert!(matches!(store.renew(&lock, id(1), DURATION).await.unwrap(), Renew::Lost { .. }));
    if !free_within.is_zero() {
        assert!(is_held(&store, &lock, 2).await, "the holder may rely on the lease until then");
    }
    while is_held(&store, &lock, 3).await {
        leasehold_runtime::sleep(Duration::from_millis(200)).await;
    }
    assert!(token(&store, &lock, 3).await > before);
    assert!(matches!(store.renew(&lock, id(1), DURATION).await.unwrap(), Renew::Lost { .. }));
    let free = store.break_lease(&name("free"), breaker).await;
    assert_eq!(free, Ok(Break::NotHeld));
}

pub async fn concurrent_acquires_have_one_winner(fixture: &impl StoreFixture) {
    let store = fixture.open().await;
    for round in 0..20 {
        let lock = name(&format!("race-{round}"));
        let racers: Vec<_> = (0..32)
            .map(|racer| {
                let store = Arc::clone(&store);
                let params = params(&lock, round * 100 + racer, "racer");
                tokio::spawn(async move { store.acquire(params).await })
            })
            .collect();
        let mut winners = 0;
        for racer in racers {
            match racer.await.unwrap().unwrap() {
                Acquire::Acquired(_) => winners += 1,
                Acquire::Held { .. } => {}
                Acquire::Unknown { why } => panic!("{why}"),
            }
        }
        assert_eq!(winners, 1);
    }
}

pub async fn leases_are_listed_in_order_by_prefix_and_page(fixture: &impl StoreFixture) {
    let store = fixture.open().await;
    let locks = ["a", "ab", "b-1", "b-2", "b-3", "b/4", "c"];
    for (number, lock) in locks.iter().rev().enumerate() {
        token(&store, &name(lock), number as u128).await;
    }
    let other_namespace = LockName::parse("other", "b-9").unwrap();
    token(&store, &other_namespace, 99).await;
    let list = async |prefix: &str, after: Option<&str>, limit| {
        let (namespace, prefix) = (Some(Namespace::parse("").unwrap()), prefix.to_owned());
        let page = Page { namespace, prefix, after: after.map(name), limit };
        let page = store.list(&page).await.unwrap();
        page.into_iter().map(|info| info.name.name().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(list("", None, 100).await, locks);
    assert_eq!(list("b", None, 100).await, ["b-1", "b-2", "b-3", "b/4"]);
    assert_eq!(list("b", None, 2).await, ["b-1", "b-2"]);
    assert_eq!(list("b", Some("b-2"), 2).await, ["b-3", "b/4"]);
    assert_eq!(list("b", Some("b/4"), 2).await, [""; 0]);
    assert_eq!(list("", Some("b-25"), 2).await, ["b-3", "b/4"]);
    assert_eq!(list("zzz", None, 2).await, [""; 0]);
    let found = store.inspect(&name("ab")).await.unwrap().unwrap();
    assert!(found.held);
    assert_eq!(found.holder.unwrap().client(), "client");
    store.release(&name("ab"), id(5)).await.unwrap();
    assert!(store.inspect(&name("ab")).await.unwrap().is_none_or(|info| !info.held));
}

pub async fn leases_of_all_namespaces_are_listed_in_order(fixture: &impl StoreFixture) {
    let store = fixture.open().await;
    let locks = [
        ("b", "x-1"),
        ("a", "x-2"),
        ("a", "w"),
        ("a-b", "x-3"),
        ("c", "y"),
        ("b", "z"),
        ("d", "x"),
    ];
    for (number, (namespace, lock)) in locks.iter().enumerate() {
        token(&store, &LockName::parse(namespace, lock).unwrap(), number as u128).await;
    }
    let list = async |prefix: &str, after: Option<(&str, &str)>, limit| {
        let after = after.map(|(namespace, lock)| LockName::parse(namespace, lock).unwrap());
        let page = Page { namespace: None, prefix: prefix.to_owned(), after, limit };
        let page = store.list(&page).await.unwrap();
        let names = page.iter().map(|info| (info.name.namespace(), info.name.name()));
        names.map(|(namespace, lock)| format!("{namespace}/{lock}")).collect::<Vec<_>>()
    };
    let all = ["a-b/x-3", "a/w", "a/x-2", "b/x-1", "b/z", "c/y", "d/x"];
    assert_eq!(list("", None, 100).await, all);
    assert_eq!(list("", None, 3).await, all[..3]);
    assert_eq!(list("", Some(("a", "x-2")), 100).await, all[3..]);
    assert_eq!(list("x", None, 100).await, ["a-b/x-3", "a/x-2", "b/x-1", "d/x"]);
    assert_eq!(list("x", Some(("a", "x-2")), 1).await, ["b/x-1"]);
    assert_eq!(list("zzz", None, 100).await, [""; 0]);
}

pub async fn unusual_names_are_distinct(fixture: &impl StoreFixture) {
    let store = fixture.open().await;
    let max_length = "x".repeat(256);
    let unusual = [
        "a",
        "A",
        "a/b",
        "a//b",
        "a%2Fb",
        "a ",
        " a",
        ".",
        "..",
        "ü",
        "u\u{308}",
        "鎖",
        &max_length,
    ];
    for (number, lock) in unusual.iter().enumerate() {
        token(&store, &name(lock), number as u128 + 1).await;
    }
    for lock in unusual {
        assert!(is_held(&store, &name(lock), 1000).await, "{lock}");
    }
    let namespace = Some(Namespace::parse("").unwrap());
    let page = Page { namespace, prefix: String::new(), after: None, limit: 100 };
    let page = store.list(&page).await.unwrap();
    let listed: Vec<_> = page.iter().map(|info| info.name.name()).collect();
    let mut sorted = unusual.to_vec();
    sorted.sort_unstable();
    assert_eq!(listed, sorted);
}

pub async fn retried_acquire_succeeds_once_free(fixture: &impl StoreFixture) {
    let store = fixture.open().await;
    let lock = name("a");
    let retry = |number| AcquireParams { is_retry: true, ..params(&lock, number, "waiter") };
    token(&store, &lock, 1).await;
    let Acquire::Held { by } = store.acquire(retry(2)).await.unwrap() else {
        panic!("two holders")
    };
    assert_eq!(by.unwrap().holder.as_ref().unwrap().client(), "client");
    store.release(&lock, id(1)).await.unwrap();
    let answer = store.acquire(retry(3)).await.unwrap();
    assert!(matches!(answer, Acquire::Acquired(_)), "{answer:?}");
    let new = AcquireParams { is_retry: true, ..params(&name("new"), 4, "waiter") };
    assert!(matches!(store.acquire(new).await.unwrap(), Acquire::Acquired(_)));
}

pub async fn tokens_increase_across_restarts(fixture: &impl StoreFixture) {
    let lock = name("a");
    let mut last = None;
    for number in 1..5 {
        let store = fixture.open().await;
        store.persist_ttl(Duration::from_secs(10)).await.unwrap();
        let token = token(&store, &lock, number).await;
        assert!(Some(token) > last);
        last = Some(token);
        store.release(&lock, id(number)).await.unwrap();
        store.close().await.unwrap();
    }
}

/// In a store with lease expiry, a lease does not expire before its deadline,
/// and another client can acquire it afterwards. In a store without, the lease
/// lasts as long as the process.
pub async fn lease_lasts_until_deadline(fixture: &impl StoreFixture) {
    let store = fixture.open().await;
    let lock = name("a");
    let hold = acquired(&store, &lock, 1).await;
    let Some(deadline) = hold.deadline else {
        assert!(is_held(&store, &lock, 2).await);
        return;
    };
    leasehold_runtime::sleep_until(deadline).await;
    assert!(is_held(&store, &lock, 2).await, "the storage ended the lease before the deadline");
    while is_held(&store, &lock, 3).await {
        leasehold_runtime::sleep(Duration::from_millis(200)).await;
    }
    assert!(matches!(store.renew(&lock, id(1), DURATION).await.unwrap(), Renew::Lost { .. }));
}
