//! Head row of a partition: the highest token and the lock that it belongs to.

use serde_json::Value;

use super::{
    ETag, Entity, Error, Place, Table, deadline::Deadline, fence::Properties, place::HEAD,
};
use crate::LockToken;

/// Contents of the head row.
pub(super) struct Head {
    pub(super) etag: ETag,
    pub(super) token: u64,
    lock: String,
}

impl Head {
    /// Reads the head row. Returns `None` if the partition has none.
    pub(super) async fn read(
        table: &Table,
        place: &Place,
        by: Deadline,
    ) -> Result<Option<Self>, Error> {
        let key = place.partition.as_deref().unwrap_or_default();
        let Some(entity) = table.get_by::<Properties>(key, HEAD, by).await? else {
            return Ok(None);
        };
        let Entity { etag, value, .. } = entity;
        let token = value.get("Token").and_then(Value::as_u64);
        let lock = value.get("Lock").and_then(Value::as_str);
        match (token, lock) {
            (Some(token), Some(lock)) => Ok(Some(Self { etag, token, lock: lock.to_owned() })),
            _ => {
                let message = "invalid head: it must have Token (Edm.Int64) and Lock (Edm.String). \
                               Find the program that changed it. To reset the fence, delete the \
                               row and all rows that begin with \"~leasehold.fence.\" while no \
                               client holds the lock";
                Err(Error::needs_operator(&place.clone().row(HEAD), message))
            }
        }
    }

    /// Refuses holders of another lock.
    pub(super) fn check_lock(&self, place: &Place, lock_token: &LockToken) -> Result<(), Error> {
        let lock = lock_token.qualified_lock();
        if self.lock == lock {
            return Ok(());
        }
        let message = format!(
            "the partition is fenced by lock {:?}, not by {lock:?}; tokens of different locks \
             can't be compared. Use that lock. To change the lock, delete the rows that begin \
             with \"~leasehold.\" while no client holds either lock",
            self.lock
        );
        Err(Error::invalid(place, message))
    }
}
