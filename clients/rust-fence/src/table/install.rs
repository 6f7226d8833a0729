//! Installation of a new holder's fence, and removal of the previous holder's, in
//! one transaction.

use std::time::Duration;

use leasehold_azure_account::Fault;
use leasehold_client::Token;
use serde::Serialize;

use super::{
    ETag, Error, Place, Table, Written,
    deadline::Deadline,
    fault::{is_contended, is_missing_row},
    fence::{FenceRow, new_write_id},
    head::Head,
    place::{HEAD, fence_row, fence_token, quoted},
    transaction::{Change, Kind},
};
use crate::{LockToken, retry::Retries};

/// Maximum number of fence rows that one page returns and one transaction deletes.
/// Together with the head and the new fence they fit into one transaction.
const MAX_FENCES_PER_STEP: usize = 90;

/// Properties of the head row.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Content {
    token: i64,
    lock: String,
}

/// Next transaction of the installation, and its result if it succeeds.
struct Step {
    changes: Vec<Change>,
    result: StepResult,
}

enum StepResult {
    /// The last change inserts this holder's fence.
    Installed,
    /// The fence of this token exists, and is advanced with this write ID.
    Advanced(FenceRow, String),
    /// Some of the many old fences are deleted.
    FewerFences,
}

/// Ensures that this holder can write to the partition, and no earlier one.
///
/// The head changes only together with the fences. The fence of a token therefore
/// exists exactly while the head has that token.
pub(super) async fn install(
    table: &Table,
    place: &Place,
    lock_token: &LockToken,
    by: Deadline,
) -> Result<FenceRow, Error> {
    let token = lock_token.token().get();
    let signed = i64::try_from(token).ok().filter(|token| *token > 0).ok_or_else(|| {
        Error::invalid(place, "not a token of a lock; use the token of the grant")
    })?;
    let content = Content { token: signed, lock: lock_token.qualified_lock() };
    let (mut contention, mut service) = (Retries::for_contention(), Retries::for_service());
    // Version of the head that was read while the fences contradicted it.
    let mut contradicted: Option<ETag> = None;
    loop {
        let head = read_head(table, place, lock_token, by).await?;
        let version = head.as_ref().map(|head| head.etag.clone());
        let is_confirmed = contradicted == version;
        let step = next_step(table, place, head, is_confirmed, &content, token, by).await?;
        let Some(Step { changes, result }) = step else {
            contradicted = version;
            continue;
        };
        let failed = match table.batch(place, &changes, by).await? {
            Ok(mut etags) => match (result, etags.pop().flatten()) {
                (StepResult::Installed, Some(etag)) => return Ok(FenceRow::inserted(etag)),
                (StepResult::Advanced(mut row, write_id), Some(etag)) => {
                    row.advanced(etag, &write_id);
                    return Ok(row);
                }
                (StepResult::FewerFences, _) | (_, None) => continue,
            },
            Err(failed) => failed,
        };
        let refused = failed.index.and_then(|index| changes.get(index));
        let retry = match (&failed.fault, refused) {
            // The old fence is missing, or this holder's if a newer holder has taken
            // over in between.
            (fault, Some(change)) if is_missing_row(fault) => {
                if change.kind == Kind::Delete {
                    contradicted = version;
                }
                by.next_attempt(&mut contention, Duration::ZERO).await
            }
            (Fault::Refused { status: 409, code, .. }, Some(change))
                if change.row != HEAD && code == "EntityAlreadyExists" =>
            {
                return Err(contradiction_error(place, token));
            }
            (fault, _) if is_contended(fault) => {
                by.next_attempt(&mut contention, Duration::ZERO).await
            }
            (fault, _) => {
                fault.may_pass() && by.next_attempt(&mut service, fault.retry_after()).await
            }
        };
        if !retry {
            // The call does not change the caller's rows.
            return Err(Error::of(&failed.fault, place, false));
        }
    }
}

/// Reads the head, unless it belongs to another lock or has a higher token.
async fn read_head(
    table: &Table,
    place: &Place,
    lock_token: &LockToken,
    by: Deadline,
) -> Result<Option<Head>, Error> {
    let head = Head::read(table, place, by).await?;
    if let Some(head) = &head {
        head.check_lock(place, lock_token)?;
        if head.token > lock_token.token().get() {
            return Err(fenced_error(place, head.token, Written::No));
        }
    }
    Ok(head)
}

/// Returns the next step for the head that was read. `None` if the fences contradict
/// the head, which must then be read again. `is_confirmed`: this version of the head
/// was contradicted before.
async fn next_step(
    table: &Table,
    place: &Place,
    head: Option<Head>,
    is_confirmed: bool,
    content: &Content,
    token: u64,
    by: Deadline,
) -> Result<Option<Step>, Error> {
    Ok(Some(match head {
        Some(head) if head.token == token => match FenceRow::read(table, place, token, by).await? {
            Some(row) => join(row, token),
            // A newer holder has changed the head, or the fence was deleted.
            None if is_confirmed => return Err(contradiction_error(place, token)),
            None => return Ok(None),
        },
        Some(head) => {
            let change = Change::new(HEAD, Kind::Replace, Some(&head.etag), Some(content));
            let older = match is_confirmed {
                true => older_fences(table, place, token, by).await?,
                false => vec![fence_row(head.token)],
            };
            take_over(change, older, token)
        }
        None => {
            // There are no fences, unless only the head was deleted. If a fence of this
            // token exists, its insertion fails.
            let older = older_fences(table, place, token, by).await?;
            take_over(Change::new(HEAD, Kind::Insert, None, Some(content)), older, token)
        }
    }))
}

/// Returns the step for a fence that another user of the same token has installed.
/// The fence is advanced, so that no pending write of that user is applied after this
/// user's first read.
fn join(row: FenceRow, token: u64) -> Step {
    let write_id = new_write_id();
    let changes = vec![row.advance(token, &write_id)];
    Step { changes, result: StepResult::Advanced(row, write_id) }
}

/// Returns the step that raises the head and replaces the older fences. If there are
/// too many for one transaction, it only deletes some: their holders are stale in any
/// case.
fn take_over(head: Change, mut older: Vec<String>, token: u64) -> Step {
    let too_many = older.len() > MAX_FENCES_PER_STEP;
    older.truncate(MAX_FENCES_PER_STEP);
    let deletions = older.into_iter().map(|row| Change::delete(row, None));
    if too_many {
        return Step { changes: deletions.collect(), result: StepResult::FewerFences };
    }
    let mut changes = vec![head];
    changes.extend(deletions);
    changes.push(FenceRow::insert(token));
    Step { changes, result: StepResult::Installed }
}

/// Returns all fences of a partition with lower tokens. Fails if a fence has a higher
/// token: its holder is newer, regardless of the head.
async fn older_fences(
    table: &Table,
    place: &Place,
    token: u64,
    by: Deadline,
) -> Result<Vec<String>, Error> {
    let partition = quoted(place.partition.as_deref().unwrap_or_default());
    let filter = format!(
        "PartitionKey eq {partition} and RowKey ge {} and RowKey le {}",
        quoted(&fence_row(0)),
        quoted(&fence_row(u64::MAX))
    );
    let top = MAX_FENCES_PER_STEP.to_string();
    let (mut older, mut newest, mut next) = (Vec::new(), token, Vec::new());
    loop {
        let mut query = vec![("$filter", filter.as_str()), ("$top", top.as_str())];
        query.extend(next.iter().map(|(name, key): &(_, String)| (*name, key.as_str())));
        let (rows, continuation) = table.page(&query, place, by).await?;
        for row in rows.iter().map(|raw| raw.row()) {
            match fence_token(row) {
                Some(other) if other < token => older.push(row.to_owned()),
                Some(other) => newest = newest.max(other),
                None => return Err(unknown_row_error(place, row)),
            }
        }
        next = continuation;
        // An empty page may not be the last one.
        if next.is_empty() {
            break;
        }
    }
    if newest > token { Err(fenced_error(place, newest, Written::No)) } else { Ok(older) }
}

/// Returns the error of a write whose fence is gone. Only a head with a higher token
/// proves that there is a newer holder.
pub(super) async fn missing_fence_error(
    table: &Table,
    place: &Place,
    token: u64,
    written: Written,
    by: Deadline,
) -> Error {
    match Head::read(table, place, by).await {
        Ok(Some(head)) if head.token > token => fenced_error(place, head.token, written),
        Ok(Some(_)) => contradiction_error(place, token),
        Ok(None) => deleted_rows_error(place),
        Err(error) => error,
    }
}

fn fenced_error(place: &Place, newer: u64, written: Written) -> Error {
    Error::Fenced { place: Box::new(place.clone()), newer: Some(Token::new(newer)), written }
}

fn contradiction_error(place: &Place, token: u64) -> Error {
    let message = format!(
        "the rows {HEAD:?} and {:?} contradict each other: a program has deleted or changed one of \
         them. This token can't write to the partition anymore; the next holder of the lock can \
         when the second row is deleted",
        fence_row(token)
    );
    Error::needs_operator(&place.clone().row(HEAD), message)
}

fn deleted_rows_error(place: &Place) -> Error {
    let message = "the rows of the fence are gone: a program has deleted the rows that begin with \
                   \"~leasehold.\", and the highest token with them. This token can't write to the \
                   partition anymore. Find that program, and acquire the lock again";
    Error::needs_operator(&place.clone().row(HEAD), message)
}

fn unknown_row_error(place: &Place, row: &str) -> Error {
    let message = "the row key is reserved for the fence, but the row is not part of it. Find the \
                   program that wrote the row, and delete the row";
    Error::needs_operator(&place.clone().row(row), message)
}
