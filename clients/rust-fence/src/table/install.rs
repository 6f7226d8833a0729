//! Putting up the fence of a new holder, and taking down that of the one
//! before, in one step.

use std::time::Duration;

use leasehold_azure_account::Fault;
use leasehold_client::Token;
use serde::Serialize;

use super::{
    ETag, Error, Place, Table, Written,
    deadline::Deadline,
    fault::{is_contended, is_missing_row},
    fence::{FenceRow, new_number},
    head::Head,
    place::{HEAD, fence_row, fence_token, quoted},
    transaction::{Change, Kind},
};
use crate::{LockToken, retry::Retries};

/// How many fences are read, and deleted, at once. With the head and the own
/// fence they fit into one transaction.
const AT_ONCE: usize = 90;

/// What the head row is to say.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Content {
    token: i64,
    lock: String,
}

/// What is to be sent, and what is reached by that.
struct Step {
    changes: Vec<Change>,
    reaches: Reaches,
}

enum Reaches {
    /// The last change inserts the own fence.
    Installed,
    /// The own fence was there, and is moved on by this number.
    Moved(FenceRow, String),
    /// Some of the many old fences are gone.
    Fewer,
}

/// Sees to it that this holder may write to the partition, and nobody before
/// it.
///
/// The head changes only together with the fences: so the fence of a token is
/// there exactly as long as the head has that token.
pub(super) async fn install(
    table: &Table,
    place: &Place,
    fence: &LockToken,
    by: Deadline,
) -> Result<FenceRow, Error> {
    let token = fence.token().get();
    let signed = i64::try_from(token).ok().filter(|token| *token > 0).ok_or_else(|| {
        Error::invalid(place, "that is no token of a lock; pass on the one that was granted")
    })?;
    let content = Content { token: signed, lock: fence.qualified_lock() };
    let (mut others, mut service) = (Retries::for_contention(), Retries::for_service());
    // The version of the head with which the fences do not agree, as was seen.
    let mut disagrees: Option<ETag> = None;
    loop {
        let head = read_head(table, place, fence, by).await?;
        let seen = head.as_ref().map(|head| head.etag.clone());
        let is_confirmed = disagrees == seen;
        let step = next_step(table, place, head, is_confirmed, &content, token, by).await?;
        let Some(Step { changes, reaches }) = step else {
            disagrees = seen;
            continue;
        };
        let failed = match table.batch(place, &changes, by).await? {
            Ok(mut etags) => match (reaches, etags.pop().flatten()) {
                (Reaches::Installed, Some(etag)) => return Ok(FenceRow::inserted(etag)),
                (Reaches::Moved(mut row, number), Some(etag)) => {
                    row.moved_on(etag, &number);
                    return Ok(row);
                }
                (Reaches::Fewer, _) | (_, None) => continue,
            },
            Err(failed) => failed,
        };
        let refused = failed.index.and_then(|index| changes.get(index));
        let again = match (&failed.fault, refused) {
            // The old fence, or the own if a newer holder came in between.
            (fault, Some(change)) if is_missing_row(fault) => {
                if change.kind == Kind::Delete {
                    disagrees = seen;
                }
                by.again(&mut others, Duration::ZERO).await
            }
            (Fault::Refused { status: 409, code, .. }, Some(change))
                if change.row != HEAD && code == "EntityAlreadyExists" =>
            {
                return Err(contradiction(place, token));
            }
            (fault, _) if is_contended(fault) => by.again(&mut others, Duration::ZERO).await,
            (fault, _) => fault.may_pass() && by.again(&mut service, fault.retry_after()).await,
        };
        if !again {
            // No row of the user's was to be changed.
            return Err(Error::of(&failed.fault, place, false));
        }
    }
}

/// Reads the head, unless it belongs to another lock or has a higher token.
async fn read_head(
    table: &Table,
    place: &Place,
    fence: &LockToken,
    by: Deadline,
) -> Result<Option<Head>, Error> {
    let head = Head::read(table, place, by).await?;
    if let Some(head) = &head {
        head.check_lock(place, fence)?;
        if head.token > fence.token().get() {
            return Err(overtaken(place, head.token, Written::No));
        }
    }
    Ok(head)
}

/// Returns the changes that follow from the head that was read. `None` if the
/// fences do not agree with the head, which must then be read again: `is_confirmed`
/// if that was so for this version before.
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
            // A newer holder has changed the head since, or its fence was deleted.
            None if is_confirmed => return Err(contradiction(place, token)),
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
            // There are no fences, unless the head alone was deleted. The insert
            // shows whether there is a fence of this token.
            let older = older_fences(table, place, token, by).await?;
            take_over(Change::new(HEAD, Kind::Insert, None, Some(content)), older, token)
        }
    }))
}

/// Another user of the same token has put up the fence. It is moved on once,
/// so that no write of that user that is still on its way lands after this
/// one has read.
fn join(row: FenceRow, token: u64) -> Step {
    let number = new_number();
    let changes = vec![row.move_on(token, &number)];
    Step { changes, reaches: Reaches::Moved(row, number) }
}

/// Raises the head and puts up the own fence in place of the older. If these
/// are too many for one transaction, some are deleted before: whoever holds
/// them is overtaken in any case.
fn take_over(head: Change, mut older: Vec<String>, token: u64) -> Step {
    let too_many = older.len() > AT_ONCE;
    older.truncate(AT_ONCE);
    let deletions = older.into_iter().map(|row| Change::delete(row, None));
    if too_many {
        return Step { changes: deletions.collect(), reaches: Reaches::Fewer };
    }
    let mut changes = vec![head];
    changes.extend(deletions);
    changes.push(FenceRow::insert(token));
    Step { changes, reaches: Reaches::Installed }
}

/// All fences in a partition that are older than the own. If one is newer, then
/// its holder is, whatever the head says.
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
    let top = AT_ONCE.to_string();
    let (mut older, mut newest, mut next) = (Vec::new(), token, Vec::new());
    loop {
        let mut query = vec![("$filter", filter.as_str()), ("$top", top.as_str())];
        query.extend(next.iter().map(|(name, key): &(_, String)| (*name, key.as_str())));
        let (rows, continuation) = table.page(&query, place, by).await?;
        for row in rows.iter().map(|raw| raw.row()) {
            match fence_token(row) {
                Some(other) if other < token => older.push(row.to_owned()),
                Some(other) => newest = newest.max(other),
                None => return Err(not_a_fence(place, row)),
            }
        }
        next = continuation;
        // A page may be empty and not the last.
        if next.is_empty() {
            break;
        }
    }
    if newest > token { Err(overtaken(place, newest, Written::No)) } else { Ok(older) }
}

/// What a write is told whose fence is gone. Only a head with a greater token
/// proves that there is a newer holder.
pub(super) async fn fenced(
    table: &Table,
    place: &Place,
    token: u64,
    written: Written,
    by: Deadline,
) -> Error {
    match Head::read(table, place, by).await {
        Ok(Some(head)) if head.token > token => overtaken(place, head.token, written),
        Ok(Some(_)) => contradiction(place, token),
        Ok(None) => gone(place),
        Err(error) => error,
    }
}

fn overtaken(place: &Place, newer: u64, written: Written) -> Error {
    Error::Fenced { place: Box::new(place.clone()), newer: Some(Token::new(newer)), written }
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

fn gone(place: &Place) -> Error {
    let message = "the guard's rows are gone: somebody has deleted those that begin with \
                   \"~leasehold.\", and with them the memory of the greatest token. Nothing is \
                   written to this partition through this guard; find out who deleted them, and \
                   acquire the lock again";
    Error::needs_operator(&place.clone().row(HEAD), message)
}

fn not_a_fence(place: &Place, row: &str) -> Error {
    let message = "the row is among the guard's own, but it is none of them: find out who wrote \
                   it, and delete it";
    Error::needs_operator(&place.clone().row(row), message)
}
