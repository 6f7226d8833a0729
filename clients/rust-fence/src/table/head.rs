//! The row that knows the highest token, and which lock it is of.

use serde_json::Value;

use super::{
    ETag, Entity, Error, Place, Table, deadline::Deadline, fence::Properties, place::HEAD,
};
use crate::LockToken;

/// What the head row says.
pub(super) struct Head {
    pub(super) etag: ETag,
    pub(super) token: u64,
    lock: String,
}

impl Head {
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
                let message = "the row can't be read: it must have Token (Edm.Int64) and Lock \
                               (Edm.String). Find out who changed it. To begin again, delete it \
                               together with all rows that begin with \"~leasehold.fence.\" while \
                               nobody holds the lock";
                Err(Error::needs_operator(&place.clone().row(HEAD), message))
            }
        }
    }

    pub(super) fn check_lock(&self, place: &Place, fence: &LockToken) -> Result<(), Error> {
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
