//! Lost responses and late calls.

use std::time::Duration;

use leasehold_client::Token;
use leasehold_fence::blob::{Error, Written};
use leasehold_test_support::proxy::{Fault, Kind, Match, Refusal};

use super::{blob, blob_via_proxy, held, proxy, text};

const SECOND: Duration = Duration::from_secs(1);

fn puts() -> Match {
    Kind::Create.into()
}

/// After a single fault of any kind, the write is applied exactly once.
#[tokio::test]
async fn write_is_applied_exactly_once_despite_faults() {
    let proxy = proxy();
    let blob = blob_via_proxy(&proxy, "once", SECOND).await;
    let fenced = held(&blob, 1).await;
    let mut expected = String::new();
    for (n, fault) in [
        Fault::DropResponse,
        Fault::ApplyThenRefuse(Refusal::INTERNAL_ERROR),
        Fault::DelayResponse(Duration::from_secs(2)),
        Fault::Reset,
        Fault::Swallow,
        Fault::Refuse(Refusal::INTERNAL_ERROR),
        Fault::Refuse(Refusal::busy(SECOND)),
        Fault::Duplicate { after: Duration::ZERO },
    ]
    .into_iter()
    .enumerate()
    {
        proxy.when(puts()).times(1).then(fault);
        // A duplicated append would appear twice.
        fenced.append(n.to_string()).await.unwrap_or_else(|e| panic!("{fault:?}: {e}"));
        expected += &n.to_string();
        assert_eq!(text(&blob).await, Some(expected.clone()), "{fault:?}");
    }
}

/// The client abandons a call and writes again; then the first call arrives.
#[tokio::test]
async fn late_write_changes_nothing() {
    let proxy = proxy();
    let blob = blob_via_proxy(&proxy, "late", SECOND).await;
    let fenced = held(&blob, 1).await;
    proxy.when(puts()).times(1).then(Fault::Hold);
    fenced.write("1").await.unwrap();
    fenced.write("2").await.unwrap();
    proxy.release_held();
    let late =
        proxy.wait_for(|seen| seen.fault == Some(Fault::Hold) && seen.upstream_status.is_some());
    assert_eq!(late.await.upstream_status, Some(412), "the call arrived");
    assert_eq!(text(&blob).await.as_deref(), Some("2"));
    fenced.write("3").await.unwrap();
}

#[tokio::test]
async fn abandoned_write_is_resolved_before_next_read() {
    let proxy = proxy();
    let blob = blob_via_proxy(&proxy, "givenup", SECOND).await;
    let fenced = held(&blob, 1).await;
    proxy.when(puts()).times(1).then(Fault::Hold);
    tokio::select! {
        done = fenced.write("1") => panic!("{done:?}"),
        _ = proxy.wait_for(|seen| seen.fault == Some(Fault::Hold)) => {}
    }
    assert_eq!(fenced.read().await.unwrap(), None);
    proxy.release_held();
    let late =
        proxy.wait_for(|seen| seen.fault == Some(Fault::Hold) && seen.upstream_status.is_some());
    assert_eq!(late.await.upstream_status, Some(412));
    assert_eq!(fenced.read().await.unwrap(), None, "the read stays valid");
    fenced.write("2").await.unwrap();
}

#[tokio::test]
async fn unresolvable_outcome_is_reported_as_unknown() {
    let proxy = proxy();
    let direct = blob("notclaimed").await;
    let blob = blob_via_proxy(&proxy, "notclaimed", Duration::from_millis(200)).await;
    let fenced = held(&blob, 1).await;
    proxy.stall_responses();
    let error = fenced.write("1").await.unwrap_err();
    let Error::Unavailable { written: Written::Unknown, .. } = &error else { panic!("{error:?}") };
    assert!(error.to_string().contains("not known whether it was written"), "{error}");
    proxy.heal();
    assert_eq!(text(&direct).await.as_deref(), Some("1"), "the write was applied");
    fenced.append("2").await.unwrap();
    assert_eq!(text(&direct).await.as_deref(), Some("12"));
}

/// A newer holder installs its fence while the response is pending. The blob
/// still records which writes were applied.
#[tokio::test]
async fn fenced_holder_learns_outcome_of_pending_write() {
    let proxy = proxy();
    let direct = blob("unclearfenced").await;
    let blob = blob_via_proxy(&proxy, "unclearfenced", SECOND).await;
    let fenced = held(&blob, 1).await;
    let install_newer = async |token, fault: Fault| {
        proxy
            .wait_for(|call| {
                call.fault == Some(fault)
                    && (fault == Fault::Hold || call.upstream_status.is_some())
            })
            .await;
        held(&direct, token).await
    };
    proxy.when(puts()).times(1).then(Fault::HoldResponse);
    let (written, _new) = tokio::join!(fenced.write("1"), install_newer(2, Fault::HoldResponse));
    written.unwrap();
    assert_eq!(text(&direct).await.as_deref(), Some("1"));
    let fenced = held(&blob, 3).await;
    proxy.when(puts()).times(1).then(Fault::Hold);
    let (error, new) = tokio::join!(fenced.write("3"), install_newer(4, Fault::Hold));
    let Err(Error::Fenced { newer, written: Written::No, .. }) = error else { panic!("{error:?}") };
    assert_eq!(newer, Some(Token::new(4)));
    proxy.release_held();
    proxy.wait_for(|seen| seen.fault == Some(Fault::Hold) && seen.upstream_status.is_some()).await;
    assert_eq!(
        &new.read().await.unwrap().unwrap().bytes[..],
        b"1",
        "the write of 3 was not applied"
    );
}

#[tokio::test]
async fn fence_is_installed_despite_faults() {
    let proxy = proxy();
    let blob = blob_via_proxy(&proxy, "install", SECOND).await;
    let faults = [
        Fault::DropResponse,
        Fault::Reset,
        Fault::Swallow,
        Fault::ApplyThenRefuse(Refusal::INTERNAL_ERROR),
        Fault::Refuse(Refusal::busy(SECOND)),
        Fault::Hold,
    ];
    for (token, fault) in (1..).zip(faults) {
        // The first creates the blob, the others change its metadata.
        let kind = if token == 1 { Kind::Create } else { Kind::Write };
        proxy.when(kind).times(1).then(fault);
        let fenced = blob.fenced(super::lock_token(token)).await;
        let fenced = fenced.unwrap_or_else(|error| panic!("{fault:?}: {error}"));
        fenced.append(token.to_string()).await.unwrap();
    }
    // The held call arrives after a newer fence is installed.
    let last = held(&blob, 9).await;
    proxy.release_held();
    proxy.wait_for(|seen| seen.fault == Some(Fault::Hold) && seen.upstream_status.is_some()).await;
    last.append("9").await.unwrap();
    assert_eq!(text(&blob).await.as_deref(), Some("1234569"));
}
