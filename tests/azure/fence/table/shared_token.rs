//! Users of one token: they do not exclude each other, but none overwrites a write that
//! it has not read.

use leasehold_client::Token;
use leasehold_fence::table::{Conflict, Error, Table, Transaction, Written};
use leasehold_test_support::{
    azurite::Azurite,
    proxy::{Fault, Match, Proxy},
};

use super::{Stock, account, amount, held, stock, table, table_via_proxy};

fn batches() -> Match {
    Match::any().container("$batch")
}

fn proxy() -> Proxy {
    Proxy::start(Azurite::shared().table_port())
}

fn upsert(amount: i64) -> Transaction {
    Transaction::new().upsert("a", &stock(amount))
}

/// The outcome of a write is unknown. Another user of the same token reads, and only then
/// the write arrives.
#[tokio::test]
async fn late_write_with_same_token_is_not_applied() {
    let proxy = proxy();
    let direct = table("twinlate").await;
    let table = table_via_proxy(&proxy, "twinlate").await;
    let first = held(&table, 1).await;
    first.commit(&upsert(1)).await.unwrap();
    proxy.when(batches()).times(1).then(Fault::Hold);
    let late = upsert(10);
    tokio::select! {
        done = first.commit(&late) => panic!("{done:?}"),
        _ = proxy.wait_for(|seen| seen.fault == Some(Fault::Hold)) => {}
    }
    let second = held(&direct, 1).await;
    let seen = second.get::<Stock>("a").await.unwrap().unwrap().value.amount;
    assert_eq!(seen, 1);
    proxy.release_held();
    proxy.wait_for(|seen| seen.fault == Some(Fault::Hold) && seen.upstream_status.is_some()).await;
    assert_eq!(amount(&direct, "a").await, Some(1), "the value does not change after the read");
    second.commit(&upsert(seen + 1)).await.unwrap();
    assert_eq!(amount(&direct, "a").await, Some(2));
}

#[tokio::test]
async fn unseen_write_is_not_overwritten() {
    let table = table("twinunseen").await;
    let (one, other) = (held(&table, 1).await, held(&table, 1).await);
    assert_eq!(other.get::<Stock>("a").await.unwrap(), None);
    // The first commit reports that another user has opened the partition, because that
    // user may have read it.
    let error = one.commit(&upsert(1)).await.unwrap_err();
    assert!(matches!(error, Error::Conflict { conflict: Conflict::SameToken, .. }), "{error:?}");
    assert_eq!(amount(&table, "a").await, None);
    one.commit(&upsert(1)).await.unwrap();
    let error = other.commit(&upsert(2)).await.unwrap_err();
    let Error::Conflict { place, .. } = &error else { panic!("{error:?}") };
    assert_eq!((place.token, place.partition.as_deref()), (Some(Token::new(1)), Some("p")));
    assert!(error.to_string().contains("same token"), "{error}");
    assert_eq!(amount(&table, "a").await, Some(1));
    // After a read, the next commit succeeds.
    assert_eq!(other.get::<Stock>("a").await.unwrap().unwrap().value, stock(1));
    other.commit(&upsert(2)).await.unwrap();
    assert_eq!(amount(&table, "a").await, Some(2));
}

/// A response is lost. Before the timeout, another user of the token writes.
#[tokio::test]
async fn retried_write_does_not_overwrite_unseen_write() {
    let proxy = proxy();
    let direct = table("twinagain").await;
    let table = table_via_proxy(&proxy, "twinagain").await;
    let (one, other) = (held(&table, 1).await, held(&direct, 1).await);
    one.commit(&upsert(1)).await.unwrap_err();
    one.commit(&upsert(1)).await.unwrap();
    assert!(other.commit(&upsert(9)).await.is_err());
    proxy.when(batches()).times(1).then(Fault::Hold);
    let change = upsert(2);
    let (error, ()) = tokio::join!(one.commit(&change), async {
        proxy.wait_for(|seen| seen.fault == Some(Fault::Hold)).await;
        other.commit(&upsert(5)).await.unwrap();
    });
    let error = error.unwrap_err();
    assert!(matches!(error, Error::Conflict { conflict: Conflict::SameToken, .. }), "{error:?}");
    assert_eq!(amount(&direct, "a").await, Some(5));
    // The same holds if the commit was canceled and another row was read since.
    proxy.when(batches()).times(1).then(Fault::Hold);
    tokio::select! {
        done = one.commit(&change) => panic!("{done:?}"),
        _ = proxy.wait_for_many(2, |seen| seen.fault == Some(Fault::Hold)) => {}
    }
    other.commit(&upsert(6)).await.unwrap_err();
    other.commit(&upsert(6)).await.unwrap();
    assert_eq!(one.get::<Stock>("b").await.unwrap(), None);
    let error = one.commit(&change).await.unwrap_err();
    assert!(matches!(error, Error::Conflict { conflict: Conflict::SameToken, .. }), "{error:?}");
    one.commit(&change).await.unwrap();
}

/// The request is duplicated in transit, and the response to the second copy is
/// returned. It reports that the fence has advanced, which the first copy has done.
#[tokio::test]
async fn write_duplicated_in_transit_succeeds() {
    let proxy = proxy();
    let table = table_via_proxy(&proxy, "replayed").await;
    let partition = held(&table, 1).await;
    proxy.when(batches()).times(1).then(Fault::HoldReplay);
    let insert = Transaction::new().insert("a", &stock(1));
    let (done, ()) = tokio::join!(partition.commit(&insert), async {
        proxy.wait_for(|seen| seen.fault.is_some() && seen.upstream_status.is_some()).await;
        proxy.release_held();
    });
    assert_eq!(done.unwrap().etag("a"), None, "a read has determined the outcome");
    assert_eq!(amount(&table, "a").await, Some(1));
    partition.commit(&Transaction::new().replace("a", &stock(2))).await.unwrap();
}

/// As above, but another user of the token has written so often that the fence no longer
/// contains the first write ID.
#[tokio::test]
async fn forgotten_write_is_reported_as_unknown() {
    let proxy = proxy();
    let direct = table("forgotten").await;
    let proxied = Table::new(&account(proxy.port()), "forgotten").unwrap();
    let partition = held(&proxied, 1).await;
    for n in 0..8 {
        partition.commit(&upsert(n)).await.unwrap();
    }
    proxy.when(batches()).times(1).then(Fault::HoldReplay);
    let insert = Transaction::new().insert("b", &stock(1));
    let (error, ()) = tokio::join!(partition.commit(&insert), async {
        proxy.wait_for(|seen| seen.fault.is_some() && seen.upstream_status.is_some()).await;
        let other = held(&direct, 1).await;
        for n in 0..8 {
            other.commit(&upsert(n)).await.unwrap();
        }
        proxy.release_held();
    });
    let error = error.unwrap_err();
    let Error::Unavailable { written, .. } = &error else { panic!("{error:?}") };
    assert_eq!(*written, Written::Unknown, "{error}");
    assert_eq!(amount(&direct, "b").await, Some(1));
    // The write can't be applied anymore, so the holder can continue.
    partition.commit(&upsert(9)).await.unwrap();
}
