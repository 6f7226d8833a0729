//! A daemon that does not reach the storage, while another does.

use leasehold_client::{Error, Reason};
use leasehold_test_support::proxy::Proxy;
use leasehold_time::Moment;

use super::{
    history::History,
    place::{Place, client, take},
    waiter::Waiter,
};

/// A daemon loses its storage while a client holds a lock, another daemon takes
/// over, and the way is free again.
async fn outage(container: &'static str, begin: fn(&Proxy)) {
    let (place, history) = (Place::new(container), History::default());
    let proxy = place.proxy();
    let (a, b) = (place.daemon_via(&proxy), place.daemon());
    let holder = client(&a, "holder").await;
    let (old, old_since) = (take(&holder, "orders").await, Moment::now());
    assert!(history.write(&old));
    let behind = Waiter::begin(&client(&a, "behind").await, "orders").await;
    let other = Waiter::begin(&client(&b, "other").await, "orders").await;

    begin(&proxy);
    tokio::select! {
        biased;
        risk = old.at_risk() => assert_eq!(risk.reason, Reason::StoreUnavailable),
        loss = old.lost() => panic!("not warned: {loss:?}"),
    }
    assert!(old.is_valid() && history.write(&old), "warned in time");
    let loss = old.lost().await;
    assert!(matches!(loss.reason, Reason::LeaseLost | Reason::Expired), "{loss:?}");
    history.lost(&old, old_since, "holder");
    let (taken, taken_since) = other.granted().await;
    assert!(history.write(&taken) && !history.write(&old));
    let refused = holder.lock("invoices").no_wait().acquire().await.unwrap_err();
    assert!(matches!(refused, Error::Unavailable { .. }), "{refused:?}");

    proxy.heal();
    history.let_go(taken, taken_since, "other").await;
    let (last, last_since) = behind.granted().await;
    assert!(history.write(&last) && !history.write(&old));
    history.let_go(last, last_since, "behind").await;
    let invoices = holder.lock("invoices").acquire().await.unwrap();
    invoices.release().await.unwrap();
    history.check();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_daemon_that_is_cut_off_warns_gives_up_in_time_and_comes_back() {
    tokio::join!(
        outage("cut", Proxy::cut),
        outage("frozen-both-ways", Proxy::freeze),
        outage("frozen-requests", Proxy::freeze_requests),
        outage("frozen-answers", Proxy::freeze_answers),
    );
}
