//! Answers that are lost, and calls that come late.

use std::time::Duration;

use leasehold_client::Token;
use leasehold_fence::blob::{Error, Written};
use leasehold_test_support::proxy::{Fault, Kind, Match, Refusal};

use super::{blob, blob_behind, held, proxy, text};

const SECOND: Duration = Duration::from_secs(1);

fn puts() -> Match {
    Kind::Create.into()
}

/// Whatever happens to a call once, a write is done exactly once.
#[tokio::test]
async fn a_write_is_done_once_whatever_happens_to_the_call() {
    let proxy = proxy();
    let blob = blob_behind(&proxy, "once", SECOND).await;
    let guarded = held(&blob, 1).await;
    let mut expected = String::new();
    for (n, fault) in [
        Fault::DropAnswer,
        Fault::ApplyThenAnswer(Refusal::INTERNAL_ERROR),
        Fault::DelayAnswer(Duration::from_secs(2)),
        Fault::Reset,
        Fault::Swallow,
        Fault::Answer(Refusal::INTERNAL_ERROR),
        Fault::Answer(Refusal::busy(SECOND)),
        Fault::Duplicate { after: Duration::ZERO },
    ]
    .into_iter()
    .enumerate()
    {
        proxy.when(puts()).times(1).then(fault);
        // One that was done twice would be there twice.
        guarded.append(n.to_string()).await.unwrap_or_else(|e| panic!("{fault:?}: {e}"));
        expected += &n.to_string();
        assert_eq!(text(&blob).await, Some(expected.clone()), "{fault:?}");
    }
}

/// The client has given up on a call, has written again, and then the first
/// call arrives after all.
#[tokio::test]
async fn a_write_that_comes_late_changes_nothing() {
    let proxy = proxy();
    let blob = blob_behind(&proxy, "late", SECOND).await;
    let guarded = held(&blob, 1).await;
    proxy.when(puts()).times(1).then(Fault::Hold);
    guarded.write("1").await.unwrap();
    guarded.write("2").await.unwrap();
    proxy.let_go();
    let late = proxy.wait_for(|seen| seen.fault == Some(Fault::Hold) && seen.upstream.is_some());
    assert_eq!(late.await.upstream, Some(412), "it did arrive");
    assert_eq!(text(&blob).await.as_deref(), Some("2"));
    guarded.write("3").await.unwrap();
}

#[tokio::test]
async fn a_write_that_was_given_up_is_settled_before_the_next_read() {
    let proxy = proxy();
    let blob = blob_behind(&proxy, "givenup", SECOND).await;
    let guarded = held(&blob, 1).await;
    proxy.when(puts()).times(1).then(Fault::Hold);
    tokio::select! {
        done = guarded.write("1") => panic!("{done:?}"),
        _ = proxy.wait_for(|seen| seen.fault == Some(Fault::Hold)) => {}
    }
    assert_eq!(guarded.read().await.unwrap(), None);
    proxy.let_go();
    let late = proxy.wait_for(|seen| seen.fault == Some(Fault::Hold) && seen.upstream.is_some());
    assert_eq!(late.await.upstream, Some(412));
    assert_eq!(guarded.read().await.unwrap(), None, "what was read stays true");
    guarded.write("2").await.unwrap();
}

#[tokio::test]
async fn what_can_t_be_found_out_is_not_claimed() {
    let proxy = proxy();
    let direct = blob("notclaimed").await;
    let blob = blob_behind(&proxy, "notclaimed", Duration::from_millis(200)).await;
    let guarded = held(&blob, 1).await;
    proxy.freeze_answers();
    let error = guarded.write("1").await.unwrap_err();
    let Error::Unavailable { written: Written::Unknown, .. } = &error else { panic!("{error:?}") };
    assert!(error.to_string().contains("not known whether it was written"), "{error}");
    proxy.heal();
    assert_eq!(text(&direct).await.as_deref(), Some("1"), "it was");
    guarded.append("2").await.unwrap();
    assert_eq!(text(&direct).await.as_deref(), Some("12"));
}

/// While the answer is on its way, a newer holder comes: the blob still knows
/// whose writes were done.
#[tokio::test]
async fn who_is_overtaken_while_unclear_finds_out_what_was_written() {
    let proxy = proxy();
    let direct = blob("unclearfenced").await;
    let blob = blob_behind(&proxy, "unclearfenced", SECOND).await;
    let guarded = held(&blob, 1).await;
    let takes_over = async |token, fault: Fault| {
        proxy
            .wait_for(|seen| {
                seen.fault == Some(fault) && (fault == Fault::Hold || seen.upstream.is_some())
            })
            .await;
        held(&direct, token).await
    };
    proxy.when(puts()).times(1).then(Fault::HoldAnswer);
    let (written, _new) = tokio::join!(guarded.write("1"), takes_over(2, Fault::HoldAnswer));
    written.unwrap();
    assert_eq!(text(&direct).await.as_deref(), Some("1"));
    let guarded = held(&blob, 3).await;
    proxy.when(puts()).times(1).then(Fault::Hold);
    let (error, new) = tokio::join!(guarded.write("3"), takes_over(4, Fault::Hold));
    let Err(Error::Fenced { newer, written: Written::No, .. }) = error else { panic!("{error:?}") };
    assert_eq!(newer, Some(Token::new(4)));
    proxy.let_go();
    proxy.wait_for(|seen| seen.fault == Some(Fault::Hold) && seen.upstream.is_some()).await;
    assert_eq!(&new.read().await.unwrap().unwrap().bytes[..], b"1", "and it is true");
}

#[tokio::test]
async fn a_fence_is_put_up_whatever_happens_to_the_call() {
    let proxy = proxy();
    let blob = blob_behind(&proxy, "install", SECOND).await;
    let faults = [
        Fault::DropAnswer,
        Fault::Reset,
        Fault::Swallow,
        Fault::ApplyThenAnswer(Refusal::INTERNAL_ERROR),
        Fault::Answer(Refusal::busy(SECOND)),
        Fault::Hold,
    ];
    for (token, fault) in (1..).zip(faults) {
        // The first creates the blob, the others change its metadata.
        let kind = if token == 1 { Kind::Create } else { Kind::Write };
        proxy.when(kind).times(1).then(fault);
        let guarded = blob.fenced(super::fence(token)).await;
        let guarded = guarded.unwrap_or_else(|error| panic!("{fault:?}: {error}"));
        guarded.append(token.to_string()).await.unwrap();
    }
    // The one that was held arrives when a newer fence is up.
    let last = held(&blob, 9).await;
    proxy.let_go();
    proxy.wait_for(|seen| seen.fault == Some(Fault::Hold) && seen.upstream.is_some()).await;
    last.append("9").await.unwrap();
    assert_eq!(text(&blob).await.as_deref(), Some("1234569"));
}
