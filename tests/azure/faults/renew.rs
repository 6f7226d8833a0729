//! Only a successful response extends a lease, and only a definite answer means
//! a loss.

use std::time::Duration;

use leasehold_store::Renew;
use leasehold_test_support::proxy::{Fault, Kind, Refusal};
use leasehold_time::Moment;

use super::{id, lock};
use crate::fixture::{Fixture, VALIDITY};

pub(crate) async fn unknown_renewal_keeps_deadline() {
    let fixture = Fixture::new().await;
    let lock = lock(fixture.store(), "a");
    lock.acquire(1).await;
    for fault in [
        Fault::DropResponse,
        Fault::Reset,
        Fault::Swallow,
        Fault::Refuse(Refusal::INTERNAL_ERROR),
        Fault::ApplyThenRefuse(Refusal::INTERNAL_ERROR),
        Fault::Refuse(Refusal::busy(Duration::from_secs(30))),
        Fault::Refuse(Refusal::FORBIDDEN),
        Fault::Refuse(Refusal::new(401, "NoAuthenticationInformation")),
        Fault::Refuse(Refusal::new(400, "InvalidHeaderValue")),
    ] {
        let rule = fixture.proxy.when(Kind::Renew).then(fault);
        let renewed = lock.renew(1).await;
        assert!(matches!(renewed, Renew::Unknown { .. }), "{fault:?}: {renewed:?}");
        fixture.proxy.remove(rule);
    }
    fixture.proxy.cut();
    let renewed = lock.renew(1).await;
    assert!(matches!(renewed, Renew::Unknown { .. }), "{renewed:?}");
    fixture.proxy.heal();
    fixture.proxy.clear();

    let Renew::Renewed { deadline } = lock.renew(1).await else { panic!("not renewed") };
    let sent_by = fixture.calls("a")[0].received_at;
    assert!(deadline.unwrap() <= sent_by + VALIDITY, "validity starts at the send time");
    assert!(deadline.unwrap() > Moment::now());
}

pub(crate) async fn late_response_counts_from_send_time() {
    let fixture = Fixture::new().await;
    let lock = lock(fixture.store(), "a");
    lock.acquire(1).await;
    fixture.proxy.when(Kind::Renew).times(1).then(Fault::DelayResponse(Duration::from_secs(2)));
    let Renew::Renewed { deadline } = lock.renew(1).await else { panic!("not renewed") };
    let call = fixture.proxy.wait_for(|call| call.kind == Kind::Renew && call.is_done()).await;
    assert!(deadline.unwrap() <= call.received_at + VALIDITY);
}

#[tokio::test]
async fn lease_unknown_to_storage_is_lost() {
    let fixture = Fixture::new().await;
    let lost = async |name: &str| {
        let renewed = lock(fixture.store(), name).renew(1).await;
        assert!(matches!(renewed, Renew::Lost { .. }), "{name}: {renewed:?}");
    };
    let held = async |name: &str| {
        let lock = lock(fixture.store(), name);
        lock.acquire(1).await;
        lock
    };

    held("broken").await;
    fixture.blob("broken").break_lease(Some(0)).await.ok();
    lost("broken").await;

    held("breaking").await;
    fixture.blob("breaking").break_lease(Some(10)).await.ok();
    lost("breaking").await;

    let taken = held("taken").await;
    fixture.blob("taken").break_lease(Some(0)).await.ok();
    taken.acquire(2).await;
    lost("taken").await;
    assert!(matches!(taken.renew(2).await, Renew::Renewed { .. }));

    held("deleted").await;
    fixture.blob("deleted").break_lease(Some(0)).await.ok();
    fixture.blob("deleted").delete().await.ok();
    lost("deleted").await;

    let released = held("released").await;
    released.store.release(&released.lock, id(1)).await.unwrap();
    lost("released").await;

    // A response with another lease ID does not apply (safety rule 9).
    held("another").await;
    let value = "0c1f4f0e-2f6b-4b8e-9a51-3a2c5d7e9f10";
    let another = Fault::Header { name: "x-ms-lease-id", value };
    fixture.proxy.when(Kind::Renew.of("another")).times(1).then(another);
    lost("another").await;
}
