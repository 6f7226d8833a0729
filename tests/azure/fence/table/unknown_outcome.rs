//! Lost responses, and requests that arrive late.

use leasehold_client::Token;
use leasehold_fence::table::{Error, Table, Transaction, Written};
use leasehold_test_support::{
    azurite::Azurite,
    proxy::{Fault, Match, Proxy, Refusal},
};
use std::time::Duration;

use super::{Stock, account, amount, fenced_table, held, stock, table, table_via_proxy};

fn batches() -> Match {
    Match::any().container("$batch")
}

fn proxy() -> Proxy {
    Proxy::start(Azurite::shared().table_port())
}

/// After a single fault of any kind, a write is applied exactly once.
#[tokio::test]
async fn write_is_applied_exactly_once_despite_faults() {
    let proxy = proxy();
    let table = table_via_proxy(&proxy, "once").await;
    let partition = held(&table, 1).await;
    for (n, fault, first_attempt_applied) in [
        (0, Fault::DropResponse, true),
        (1, Fault::ApplyThenRefuse(Refusal::INTERNAL_ERROR), true),
        (2, Fault::DelayResponse(Duration::from_secs(2)), true),
        (3, Fault::Reset, false),
        (4, Fault::Swallow, false),
        (5, Fault::Refuse(Refusal::INTERNAL_ERROR), false),
        (6, Fault::Refuse(Refusal::busy(Duration::from_secs(1))), false),
        (7, Fault::Duplicate { after: Duration::ZERO }, false),
    ] {
        let row = format!("r{n}");
        proxy.when(batches()).times(1).then(fault);
        // An insert that is applied twice would be a conflict.
        let insert = Transaction::new().insert(&*row, &stock(n));
        let receipt = partition.commit(&insert).await.unwrap_or_else(|e| panic!("{fault:?}: {e}"));
        assert_eq!(receipt.etag(&row).is_none(), first_attempt_applied, "{fault:?}");
        assert_eq!(amount(&table, &row).await, Some(n), "{fault:?}");
    }
    assert_eq!(table.query(Some("p")).all::<Stock>().await.unwrap().len(), 8);
}

/// The client has abandoned a request and has written again. Then the first request
/// arrives.
#[tokio::test]
async fn late_write_changes_nothing() {
    let proxy = proxy();
    let table = table_via_proxy(&proxy, "late").await;
    let partition = held(&table, 1).await;
    proxy.when(batches()).times(1).then(Fault::Hold);
    partition.commit(&Transaction::new().upsert("a", &stock(1))).await.unwrap();
    partition.commit(&Transaction::new().upsert("a", &stock(2))).await.unwrap();
    proxy.release_held();
    let late =
        proxy.wait_for(|seen| seen.fault == Some(Fault::Hold) && seen.upstream_status.is_some());
    assert_eq!(late.await.upstream_status, Some(202), "the request has arrived");
    assert_eq!(amount(&table, "a").await, Some(2));
    // The holder can continue.
    partition.commit(&Transaction::new().replace("a", &stock(3))).await.unwrap();
}

#[tokio::test]
async fn abandoned_write_is_resolved_before_next_read() {
    let proxy = proxy();
    let table = table_via_proxy(&proxy, "givenup").await;
    let partition = held(&table, 1).await;
    proxy.when(batches()).times(1).then(Fault::Hold);
    let change = Transaction::new().upsert("a", &stock(1));
    tokio::select! {
        done = partition.commit(&change) => panic!("{done:?}"),
        _ = proxy.wait_for(|seen| seen.fault == Some(Fault::Hold)) => {}
    }
    assert_eq!(partition.get::<Stock>("a").await.unwrap(), None);
    proxy.release_held();
    proxy.wait_for(|seen| seen.fault == Some(Fault::Hold) && seen.upstream_status.is_some()).await;
    assert_eq!(
        partition.get::<Stock>("a").await.unwrap(),
        None,
        "the value does not change after the read"
    );
    partition.commit(&change).await.unwrap();
}

#[tokio::test]
async fn unresolvable_outcome_is_reported_as_unknown() {
    let proxy = proxy();
    let table = table("unresolved").await;
    let hasty = account(proxy.port()).call_timeout(Duration::from_millis(200));
    let partition = held(&Table::new(&hasty, "unresolved").unwrap(), 1).await;
    proxy.stall_responses();
    let error = partition.commit(&Transaction::new().insert("a", &stock(1))).await.unwrap_err();
    let Error::Unavailable { written, place, .. } = &error else { panic!("{error:?}") };
    assert_eq!(*written, Written::Unknown, "{error}");
    assert_eq!((place.token, place.partition.as_deref()), (Some(Token::new(1)), Some("p")));
    assert!(error.to_string().contains("not known whether it was written"), "{error}");
    proxy.heal();
    assert_eq!(amount(&table, "a").await, Some(1), "the write was applied");
    partition.commit(&Transaction::new().replace("a", &stock(2))).await.unwrap();
    assert_eq!(amount(&table, "a").await, Some(2));
}

#[tokio::test]
async fn unsent_write_is_reported_as_not_written() {
    let proxy = proxy();
    let table = table_via_proxy(&proxy, "notsent").await;
    // There is no open connection that the request could have been sent on.
    proxy.cut();
    let change = Transaction::new().insert("a", &stock(1));
    let single = table.commit("p", &change).await.unwrap_err();
    let many = table.commit("p", &change.clone().insert("b", &stock(1))).await.unwrap_err();
    let fence = fenced_table(&table, 1).partition("p").await.unwrap_err();
    for error in [single, many, fence] {
        let Error::Unavailable { written: Written::No, .. } = error else { panic!("{error:?}") };
        assert!(error.to_string().contains("Nothing was written"), "{error}");
    }
    proxy.heal();
    assert_eq!(held(&table, 1).await.get::<Stock>("a").await.unwrap(), None);
}

/// While the outcome of a write is unknown, a newer holder takes over, and only then the
/// request arrives.
#[tokio::test]
async fn holder_fenced_during_pending_write_gets_fenced_error() {
    let proxy = proxy();
    let direct = table("unclearfenced").await;
    let table = table_via_proxy(&proxy, "unclearfenced").await;
    let partition = held(&table, 1).await;
    proxy.when(batches()).times(1).then(Fault::Hold);
    let change = Transaction::new().insert("a", &stock(1));
    let (error, new) = tokio::join!(partition.commit(&change), async {
        proxy.wait_for(|seen| seen.fault == Some(Fault::Hold)).await;
        held(&direct, 2).await
    });
    let Err(Error::Fenced { newer, written: Written::Unknown, .. }) = error else {
        panic!("{error:?}")
    };
    assert_eq!(newer, Some(Token::new(2)));
    proxy.release_held();
    proxy.wait_for(|seen| seen.fault == Some(Fault::Hold) && seen.upstream_status.is_some()).await;
    assert_eq!(new.get::<Stock>("a").await.unwrap(), None);
}

#[tokio::test]
async fn fence_is_installed_despite_faults() {
    let proxy = proxy();
    let table = table_via_proxy(&proxy, "install").await;
    let faults = [
        Fault::DropResponse,
        Fault::Reset,
        Fault::Swallow,
        Fault::ApplyThenRefuse(Refusal::INTERNAL_ERROR),
        Fault::Refuse(Refusal::busy(Duration::from_secs(1))),
        Fault::Hold,
    ];
    for (token, fault) in (1..).zip(faults) {
        proxy.when(batches()).times(1).then(fault);
        let partition = fenced_table(&table, token).partition("p").await;
        let partition = partition.unwrap_or_else(|error| panic!("{fault:?}: {error}"));
        let row = token.to_string();
        partition.commit(&Transaction::new().insert(row, &stock(1))).await.unwrap();
    }
    // The delayed request arrives after a newer fence is installed.
    let last = held(&table, 9).await;
    proxy.release_held();
    proxy.wait_for(|seen| seen.fault == Some(Fault::Hold) && seen.upstream_status.is_some()).await;
    last.commit(&Transaction::new().insert("last", &stock(1))).await.unwrap();
}

#[tokio::test]
async fn hanging_call_times_out() {
    let proxy = proxy();
    table("hangs").await;
    let hasty = account(proxy.port()).call_timeout(Duration::from_millis(50));
    let table = Table::new(&hasty, "hangs").unwrap();
    proxy.stall();
    let read = table.get::<Stock>("p", "r");
    let error = tokio::select! {
        result = read => result.unwrap_err(),
        () = leasehold_runtime::sleep(Duration::from_secs(60)) => panic!("the call hangs"),
    };
    let Error::Unavailable { written: Written::No, .. } = error else { panic!("{error:?}") };
    assert!(
        error.to_string().contains("no response from the storage account within 50ms"),
        "{error}"
    );
}

#[tokio::test]
async fn throttled_write_returns_retry_after() {
    let proxy = proxy();
    let table = table_via_proxy(&proxy, "alone").await;
    let partition = held(&table, 1).await;
    let busy = Refusal::busy(Duration::from_secs(30));
    proxy.when(batches()).times(1).then(Fault::Refuse(busy));
    let change = Transaction::new().insert("a", &stock(1));
    let error = partition.commit(&change).await.unwrap_err();
    let Error::Unavailable { written, retry_after, place, .. } = &error else {
        panic!("{error:?}")
    };
    assert_eq!((*written, *retry_after), (Written::No, Duration::from_secs(30)), "{error}");
    assert_eq!(place.token, Some(Token::new(1)));
    partition.commit(&change).await.unwrap();
}

/// The reported outcome is that of the call itself, not that of an earlier write.
#[tokio::test]
async fn call_blocked_by_earlier_write_is_not_sent() {
    let proxy = proxy();
    let table = table_via_proxy(&proxy, "earlier").await;
    let partition = held(&table, 1).await;
    proxy.when(batches()).times(1).then(Fault::Hold);
    let change = Transaction::new().upsert("a", &stock(1));
    tokio::select! {
        done = partition.commit(&change) => panic!("{done:?}"),
        _ = proxy.wait_for(|seen| seen.fault == Some(Fault::Hold)) => {}
    }
    proxy.cut();
    let write = partition.commit(&change).await.unwrap_err();
    let read = partition.get::<Stock>("a").await.unwrap_err();
    for error in [write, read] {
        let Error::Unavailable { written: Written::No, message, .. } = &error else {
            panic!("{error:?}")
        };
        assert!(message.contains("earlier write"), "{message}");
    }
    proxy.heal();
    partition.commit(&change).await.unwrap();
}

/// An operation consists of several calls, each with retries.
#[tokio::test]
async fn operation_has_one_overall_timeout() {
    let proxy = proxy();
    let table = table_via_proxy(&proxy, "onelimit").await.time_limit(Duration::from_secs(3));
    let partition = held(&table, 1).await;
    proxy.clear();
    proxy.stall();
    let change = Transaction::new().insert("a", &stock(1));
    let error = partition.commit(&change).await.unwrap_err();
    let Error::Unavailable { written: Written::Unknown, .. } = error else { panic!("{error:?}") };
    // The call timeout is one second, so at most 4 calls fit into the operation.
    assert!(proxy.calls().len() <= 4, "{:?}", proxy.calls());
    // A commit that waits for another commit times out, too.
    let (one, other) = tokio::join!(partition.commit(&change), partition.commit(&change));
    for error in [one.unwrap_err(), other.unwrap_err()] {
        let Error::Unavailable { written: Written::No, .. } = error else { panic!("{error:?}") };
    }
    proxy.heal();
    partition.commit(&change).await.unwrap();
}
