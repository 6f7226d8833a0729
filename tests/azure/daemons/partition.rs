//! A daemon without access to the storage, while its peer has access.

use leasehold_client::{Error, Reason};
use leasehold_test_support::proxy::Proxy;
use leasehold_time::Moment;

use super::{
    cluster::{Cluster, acquire_free, client},
    history::History,
    waiter::Waiter,
};

/// A daemon loses access to the storage while a client holds a lock, a peer
/// acquires the lock, and the access is restored.
async fn outage(container: &'static str, begin: fn(&Proxy)) {
    let (cluster, history) = (Cluster::new(container), History::default());
    let proxy = cluster.proxy();
    let (a, b) = (cluster.daemon_via(&proxy), cluster.daemon());
    let holder = client(&a, "holder").await;
    let (old, old_since) = (acquire_free(&holder, "orders").await, Moment::now());
    assert!(history.write(&old));
    let behind = Waiter::start(&client(&a, "behind").await, "orders").await;
    let other = Waiter::start(&client(&b, "other").await, "orders").await;

    begin(&proxy);
    tokio::select! {
        biased;
        risk = old.at_risk() => assert_eq!(risk.reason, Reason::StoreUnavailable),
        loss = old.lost() => panic!("not warned: {loss:?}"),
    }
    assert!(old.is_valid() && history.write(&old), "warned in time");
    let loss = old.lost().await;
    assert!(matches!(loss.reason, Reason::LeaseLost | Reason::Expired), "{loss:?}");
    history.record_loss(&old, old_since, "holder");
    let (taken, taken_since) = other.granted().await;
    assert!(history.write(&taken) && !history.write(&old));
    let refused = holder.lock("invoices").no_wait().acquire().await.unwrap_err();
    assert!(matches!(refused, Error::Unavailable { .. }), "{refused:?}");

    proxy.heal();
    history.record_release(taken, taken_since, "other").await;
    let (last, last_since) = behind.granted().await;
    assert!(history.write(&last) && !history.write(&old));
    history.record_release(last, last_since, "behind").await;
    let invoices = holder.lock("invoices").acquire().await.unwrap();
    invoices.release().await.unwrap();
    history.check();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partitioned_daemon_warns_loses_locks_and_recovers() {
    tokio::join!(
        outage("cut", Proxy::cut),
        outage("frozen-both-ways", Proxy::stall),
        outage("frozen-requests", Proxy::stall_requests),
        outage("frozen-answers", Proxy::stall_responses),
    );
}
