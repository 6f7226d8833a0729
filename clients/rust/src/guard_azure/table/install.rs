//! Putting up the fence of a new holder, and taking down that of the one
//! before, in one step.

use std::time::Duration;

use serde_json::{Value, json};

use super::{
    ETag, Entity, Error, Place, Table, Written,
    fault::{is_contended, is_missing_row},
    fence::{FenceRow, Properties},
    place::{HEAD, fence_row, quoted},
    transaction::{Change, Kind},
};
use crate::{Fence, azure::Fault, guard_azure::patience::Patience};

/// What the head row says.
struct Head {
    etag: ETag,
    token: u64,
    lock: String,
}

/// Sees to it that this holder may write to the partition, and nobody before
/// it.
///
/// The head changes only together with the fences: so the fence of a token is
/// there exactly as long as the head has that token.
pub(super) async fn install(
    table: &Table,
    place: &Place,
    fence: &Fence,
) -> Result<FenceRow, Error> {
    let token = fence.token();
    let signed = i64::try_from(token).ok().filter(|token| *token > 0).ok_or_else(|| {
        Error::invalid(place, "that is no token of a lock; pass on the one that was granted")
    })?;
    let content = json!({ "Token": signed, "Lock": fence.qualified_lock() });
    let head_change = |kind, etag: Option<&ETag>| Change::new(HEAD, kind, etag, Some(&content));
    let (mut others, mut service) = (Patience::with_others(), Patience::with_service());
    // The version of the head to which there is no fence, as was seen.
    let mut without_fence: Option<ETag> = None;
    loop {
        let head = Head::read(table, place).await?;
        let mut changes = Vec::new();
        match &head {
            None => {
                changes.push(head_change(Kind::Insert, None));
                // None, unless somebody deleted the head alone. Of the own,
                // the insert below tells.
                let orphans = fences(table, place).await?;
                let others = orphans.into_iter().filter(|row| *row != fence_row(token));
                changes.extend(others.map(|row| Change::delete(row, None)));
            }
            Some(head) => {
                head.check_lock(place, fence)?;
                if head.token > token {
                    return Err(overtaken(place, Some(head.token), Written::No));
                }
                if head.token == token {
                    if let Some(row) = FenceRow::read(table, place, token).await? {
                        return Ok(row);
                    }
                    // A newer holder came in between, and the head is another
                    // now; or somebody deleted it.
                    if without_fence.as_ref() == Some(&head.etag) {
                        return Err(contradiction(place, token));
                    }
                    without_fence = Some(head.etag.clone());
                    continue;
                }
                changes.push(head_change(Kind::Replace, Some(&head.etag)));
                if without_fence.as_ref() != Some(&head.etag) {
                    changes.push(Change::delete(fence_row(head.token), None));
                }
            }
        }
        changes.push(FenceRow::insert(token));
        let failed = match table.batch(place, &changes).await? {
            Ok(mut etags) => match etags.pop().flatten() {
                Some(etag) => return Ok(FenceRow::inserted(etag)),
                None => continue,
            },
            Err(failed) => failed,
        };
        let refused = failed.index.and_then(|index| changes.get(index));
        let again = match (&failed.fault, refused) {
            // Safe to leave out as long as the head is the same: then nobody
            // has put up another.
            (fault, Some(change)) if change.kind == Kind::Delete && is_missing_row(fault) => {
                without_fence = head.map(|head| head.etag);
                true
            }
            (Fault::Refused { status: 409, code, .. }, Some(change))
                if change.row != HEAD && code == "EntityAlreadyExists" =>
            {
                return Err(contradiction(place, token));
            }
            (fault, _) if is_contended(fault) => others.again(Duration::ZERO).await,
            (fault, _) => fault.may_pass() && service.again(fault.retry_after()).await,
        };
        if !again {
            // No row of the user's was to be changed.
            return Err(Error::of(&failed.fault, place, false));
        }
    }
}

/// The fences that stand in a partition.
async fn fences(table: &Table, place: &Place) -> Result<Vec<String>, Error> {
    let partition = quoted(place.partition.as_deref().unwrap_or_default());
    let filter = format!(
        "PartitionKey eq {partition} and RowKey ge {} and RowKey le {}",
        quoted(&fence_row(0)),
        quoted(&fence_row(u64::MAX))
    );
    let (rows, _) = table.page(&[("$filter", &filter)], place).await?;
    Ok(rows.iter().map(|raw| raw.row().to_owned()).collect())
}

/// What a write is told whose fence is gone.
pub(super) async fn fenced(table: &Table, place: &Place, written: Written) -> Error {
    let head = Head::read(table, place).await.ok().flatten();
    match (head, place.token) {
        (Some(head), Some(token)) if head.token == token => contradiction(place, token),
        (head, _) => overtaken(place, head.map(|head| head.token), written),
    }
}

fn overtaken(place: &Place, newer: Option<u64>, written: Written) -> Error {
    Error::Fenced { place: Box::new(place.clone()), newer, written }
}

fn contradiction(place: &Place, token: u64) -> Error {
    let message = format!(
        "the rows {HEAD:?} and {:?} contradict each other: somebody has deleted or changed one of \
         them. Nothing is written to this partition with this token; the next holder of the lock \
         can write if the second row is deleted",
        fence_row(token)
    );
    Error::needs_operator(&place.clone().row(HEAD), message)
}

impl Head {
    async fn read(table: &Table, place: &Place) -> Result<Option<Self>, Error> {
        let key = place.partition.as_deref().unwrap_or_default();
        let Some(entity) = table.get::<Properties>(key, HEAD).await? else { return Ok(None) };
        let Entity { etag, value, .. } = entity;
        let token = value.get("Token").and_then(Value::as_u64);
        let lock = value.get("Lock").and_then(Value::as_str);
        match (token, lock) {
            (Some(token), Some(lock)) => Ok(Some(Self { etag, token, lock: lock.to_owned() })),
            _ => {
                let message = "the row can't be read: it must have Token (Edm.Int64) and Lock \
                               (Edm.String). Find out who changed it. To begin again, delete it \
                               together with all rows that begin with \"~leasehold.fence.\" while \
                               nobody holds the lock";
                Err(Error::needs_operator(&place.clone().row(HEAD), message))
            }
        }
    }

    fn check_lock(&self, place: &Place, fence: &Fence) -> Result<(), Error> {
        let lock = fence.qualified_lock();
        if self.lock == lock {
            return Ok(());
        }
        let message = format!(
            "the partition is guarded by the lock {:?}, not by {lock:?}, and tokens of different \
             locks can't be compared. Use that lock; or, to change over, delete the rows that \
             begin with \"~leasehold.\" while nobody holds either",
            self.lock
        );
        Err(Error::invalid(place, message))
    }
}
