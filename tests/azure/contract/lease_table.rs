//! Outcome of every operation in every lease state.

use std::time::Duration;

use Cell::{Differs, Is};
use leasehold_test_support::rest::{Blob, Call};
use tokio::task::JoinSet;

use super::{A, B, C, container, wait_for_state};

/// Lease states in the order of the table's columns. In all but the first, the
/// lease ID is A.
pub(crate) const STATES: [&str; 5] = ["available", "leased", "breaking", "broken", "expired"];

/// Outcome of an operation: the state afterwards, or an error.
#[derive(Clone, Copy)]
pub(crate) enum Cell {
    /// Outcome that Azure documents. Azure documents states and statuses, but
    /// no error codes.
    Is(&'static str),
    /// Outcome that Azure documents, and the different one in Azurite.
    Differs(&'static str, &'static str),
}

pub(crate) struct Row {
    pub(crate) operation: &'static str,
    /// Status of a successful call.
    pub(crate) success: u16,
    pub(crate) call: fn(&Blob) -> Call,
    pub(crate) cells: [Cell; 5],
}

// Errors of lease calls.
const HELD: &str = "409 LeaseAlreadyPresent";
const BREAKING: &str = "409 LeaseIsBreakingAndCannotBeAcquired";
const BROKEN: &str = "409 LeaseIsBrokenAndCannotBeRenewed";
const UNCHANGEABLE: &str = "409 LeaseIsBreakingAndCannotBeChanged";
const MISMATCH: &str = "409 LeaseIdMismatchWithLeaseOperation";
const NO_LEASE: &str = "409 LeaseNotPresentWithLeaseOperation";
// Errors of blob calls. For an expired lease Azure has a separate code,
// LeaseLost, with the same status.
const LOST: &str = "412 LeaseNotPresentWithBlobOperation";
const OTHER_ID: &str = "412 LeaseIdMismatchWithBlobOperation";
const LOCKED: &str = "412 LeaseIdMissing";
const EXISTS: &str = "409 BlobAlreadyExists";

#[rustfmt::skip]
pub(crate) const TABLE: [Row; 25] = [
    Row { operation: "acquire A", success: 201, call: |blob| blob.acquire(A, 60),
        cells: [Is("leased"), Is("leased"), Is(BREAKING), Is("leased"), Is("leased")] },
    Row { operation: "acquire B", success: 201, call: |blob| blob.acquire(B, 60),
        cells: [Is("leased"), Is(HELD), Is(HELD), Is("leased"), Is("leased")] },
    Row { operation: "renew A", success: 200, call: |blob| blob.renew(A),
        cells: [Is(MISMATCH), Is("leased"), Is(BROKEN), Is(BROKEN), Is("leased")] },
    Row { operation: "renew B", success: 200, call: |blob| blob.renew(B),
        cells: [Is(MISMATCH), Is(MISMATCH), Is(MISMATCH), Is(MISMATCH), Differs("409", "leased")] },
    Row { operation: "change A to B", success: 200, call: |blob| blob.change(A, B),
        cells: [Is(NO_LEASE), Is("leased"), Is(UNCHANGEABLE), Is(NO_LEASE), Is(NO_LEASE)] },
    Row { operation: "change B to A", success: 200, call: |blob| blob.change(B, A),
        cells: [Is(NO_LEASE), Is("leased"), Is(MISMATCH), Is(NO_LEASE), Is(NO_LEASE)] },
    Row { operation: "change B to C", success: 200, call: |blob| blob.change(B, C),
        cells: [Is(NO_LEASE), Is(MISMATCH), Is(MISMATCH), Is(NO_LEASE), Is(NO_LEASE)] },
    Row { operation: "release A", success: 200, call: |blob| blob.release(A),
        cells: [Is(MISMATCH), Is("available"), Is("available"), Is("available"), Is("available")] },
    Row { operation: "release B", success: 200, call: |blob| blob.release(B),
        cells: [Is(MISMATCH), Is(MISMATCH), Is(MISMATCH), Is(MISMATCH), Is(MISMATCH)] },
    Row { operation: "break with period 0", success: 202, call: |blob| blob.break_lease(Some(0)),
        cells: [Is(NO_LEASE), Is("broken"), Is("broken"), Is("broken"), Is("broken")] },
    Row { operation: "break in 30 s", success: 202, call: |blob| blob.break_lease(Some(30)),
        cells: [Is(NO_LEASE), Is("breaking"), Is("breaking"), Is("broken"), Is("broken")] },
    Row { operation: "break", success: 202, call: |blob| blob.break_lease(None),
        cells: [Is(NO_LEASE), Is("breaking"), Is("breaking"), Is("broken"), Is("broken")] },
    Row { operation: "write with A", success: 200, call: |blob| write(blob).lease(A),
        cells: [Is(LOST), Is("leased"), Is("breaking"), Is(LOST), Is(LOST)] },
    Row { operation: "write with B", success: 200, call: |blob| write(blob).lease(B),
        cells: [Is(LOST), Differs("409", OTHER_ID), Is(OTHER_ID), Is(LOST), Is(LOST)] },
    Row { operation: "write", success: 200, call: |blob| write(blob),
        cells: [Is("available"), Is(LOCKED), Is(LOCKED), Is("available"), Is("available")] },
    Row { operation: "replace with A", success: 201, call: |blob| blob.put().lease(A),
        cells: [Is(LOST), Is("leased"), Is("breaking"), Is(LOST), Is(LOST)] },
    Row { operation: "replace with B", success: 201, call: |blob| blob.put().lease(B),
        cells: [Is(LOST), Differs("409", OTHER_ID), Is(OTHER_ID), Is(LOST), Is(LOST)] },
    Row { operation: "replace", success: 201, call: |blob| blob.put(),
        cells: [Is("available"), Is(LOCKED), Is(LOCKED), Is("available"), Is("available")] },
    Row { operation: "create if absent", success: 201, call: |blob| blob.put().if_none_match("*"),
        cells: [Is(EXISTS), Differs("412", EXISTS), Differs("412", EXISTS), Is(EXISTS), Is(EXISTS)] },
    Row { operation: "delete with A", success: 202, call: |blob| blob.delete().lease(A),
        cells: [Is(LOST), Is("gone"), Is("gone"), Is(LOST), Is(LOST)] },
    Row { operation: "delete with B", success: 202, call: |blob| blob.delete().lease(B),
        cells: [Is(LOST), Differs("409", OTHER_ID), Is(OTHER_ID), Is(LOST), Is(LOST)] },
    Row { operation: "delete", success: 202, call: |blob| blob.delete(),
        cells: [Is("gone"), Is(LOCKED), Is(LOCKED), Is("gone"), Is("gone")] },
    Row { operation: "read with A", success: 200, call: |blob| blob.head().lease(A),
        cells: [Is(LOST), Is("leased"), Is("breaking"), Is(LOST), Is(LOST)] },
    Row { operation: "read with B", success: 200, call: |blob| blob.head().lease(B),
        cells: [Is(LOST), Differs("409", OTHER_ID), Differs("409", OTHER_ID), Is(LOST), Is(LOST)] },
    Row { operation: "read", success: 200, call: |blob| blob.head(),
        cells: [Is("available"), Is("leased"), Is("breaking"), Is("broken"), Is("expired")] },
];

fn write(blob: &Blob) -> Call {
    blob.set_metadata().metadata("token", "7")
}

/// Creates a blob in a lease state.
async fn create_in_state(blob: &Blob, state: &str) {
    blob.put().await.ok();
    match state {
        "available" => {}
        "expired" => {
            blob.acquire(A, 15).await.ok();
            leasehold_runtime::sleep(Duration::from_secs(15)).await;
        }
        _ => drop(blob.acquire(A, 60).await.ok()),
    }
    match state {
        "breaking" => drop(blob.break_lease(Some(60)).await.ok()),
        "broken" => drop(blob.break_lease(Some(0)).await.ok()),
        _ => {}
    }
    wait_for_state(blob, state).await;
}

/// Outcome of an operation on a blob in a lease state.
async fn outcome(row: &Row, blob: Blob, state: &str) -> String {
    create_in_state(&blob, state).await;
    let before = blob.head().await;
    let reply = (row.call)(&blob).await;
    let after = blob.head().await;
    if reply.status == row.success {
        return if after.status == 404 { "gone" } else { after.lease_state() }.to_owned();
    }
    let unchanged = (before.lease_state(), before.etag());
    assert_eq!((after.lease_state(), after.etag()), unchanged, "a refused call changed the blob");
    format!("{} {}", reply.status, reply.code())
}

#[tokio::test(flavor = "multi_thread")]
async fn each_operation_in_each_state() {
    let container = container("lease-table").await;
    let mut outcomes = JoinSet::new();
    for row in &TABLE {
        for (state, cell) in STATES.into_iter().zip(row.cells) {
            let blob = container.blob(&format!("{}/{state}", row.operation));
            outcomes.spawn(async move {
                let found = outcome(row, blob, state).await;
                let (azure, expected) = match cell {
                    Is(expected) => (expected, expected),
                    Differs(azure, expected) => (azure, expected),
                };
                let mismatch = format!(
                    "{} when {state}: {found}, not {expected}; Azure documents {azure}",
                    row.operation
                );
                (found != expected).then_some(mismatch)
            });
        }
    }
    let mismatches: Vec<String> = outcomes.join_all().await.into_iter().flatten().collect();
    assert!(mismatches.is_empty(), "\n{}", mismatches.join("\n"));
}
