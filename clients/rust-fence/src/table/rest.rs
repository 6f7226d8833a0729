//! REST calls for one table.

use std::{sync::Arc, time::Duration};

use azure_core::http::{
    Method, Request,
    headers::{ACCEPT, CONTENT_TYPE, IF_MATCH},
};
use leasehold_azure_account::{Account, Fault, Response, Service, ServiceKind};
use leasehold_client::designated::Resource;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{
    ETag, Entity, Error, FencedTable, Place, Query, Transaction,
    batch::{self, Batch, Failed},
    deadline::Deadline,
    entity::Raw,
    fault::{fault, is_missing_row},
    place::{check_key, entity_path},
    query::Page,
    transaction::{Change, check_partition},
};
use crate::{LockToken, fault::header, retry::Retries};

/// Default timeout of one operation with all its calls.
const OPERATION_TIMEOUT: Duration = Duration::from_secs(30);

const JSON: &str = "application/json;odata=minimalmetadata";

/// A table of a storage account. Cheap to clone.
///
/// **The methods of this type check no token.** Use them to create tables, to read,
/// and to write tables without a fence. If a lock protects the table, all programs
/// must write through [`fenced`](Self::fenced).
///
/// Every call has a timeout ([`Account::call_timeout`]), and so has every operation
/// with all its calls ([`time_limit`](Self::time_limit)). Reads are retried a few
/// times if the service does not respond; writes only if they were not sent.
#[derive(Clone, Debug)]
pub struct Table {
    service: Arc<Service>,
    name: Arc<str>,
    time_limit: Duration,
}

/// New versions of the rows after a transaction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Receipt {
    pub(super) etags: Vec<(String, Option<ETag>)>,
}

impl Receipt {
    /// Returns the new version of a row. `None` if the row was deleted. `None` for all
    /// rows if the response was lost and the outcome was determined by a read.
    #[must_use]
    pub fn etag(&self, row: &str) -> Option<&ETag> {
        self.etags.iter().find(|(name, _)| name == row)?.1.as_ref()
    }

    pub(super) fn new(changes: &[Change], etags: Vec<Option<ETag>>) -> Self {
        let rows = changes.iter().map(|change| change.row.clone());
        Self { etags: rows.zip(etags).collect() }
    }
}

impl Table {
    /// Creates a handle of the table with this name. Sends nothing.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the name is not valid.
    pub fn new(account: &Account, name: &str) -> Result<Self, Error> {
        let resource = Resource::Table { account: account.name(), table: name };
        if let Err(leasehold_client::Error::Invalid { message, .. }) = resource.lock_name() {
            return Err(Error::invalid(&Place::table(name), message));
        }
        let service = account.service(ServiceKind::Table);
        let service =
            service.map_err(|error| Error::invalid(&Place::table(name), error.to_string()))?;
        Ok(Self { service: Arc::new(service), name: name.into(), time_limit: OPERATION_TIMEOUT })
    }

    /// Sets the timeout of one operation with all its calls and delays (default 30 s).
    /// Each page of a query is one operation. Fenced tables that are created from this
    /// table have the same timeout.
    #[must_use]
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.time_limit = limit;
        self
    }

    /// Returns the deadline of an operation that begins now.
    pub(super) fn deadline(&self) -> Deadline {
        Deadline::after(self.time_limit)
    }

    /// Name of the table.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the same table with writes that present a token. The storage refuses
    /// them after a newer holder has opened the partition. Pass a `&Guard`, a
    /// `&Leadership` or [`LockToken::from_env`]. Sends nothing.
    pub fn fenced(&self, lock_token: impl Into<LockToken>) -> FencedTable {
        FencedTable::new(self.clone(), lock_token.into())
    }

    /// Creates the table if it does not exist.
    ///
    /// # Errors
    /// [`Error::Unavailable`]; [`Error::Invalid`] if the credential does not permit it.
    pub async fn create(&self) -> Result<(), Error> {
        let mut request = Request::new(self.service.url("Tables"), Method::Post);
        request.insert_header("prefer", "return-no-content");
        request.insert_header(CONTENT_TYPE, "application/json");
        request.set_body(json!({ "TableName": &*self.name }).to_string());
        match self.send_with_retries(&request, self.deadline()).await {
            Ok(_) => Ok(()),
            Err(Fault::Refused { status: 409, code, .. }) if code == "TableAlreadyExists" => Ok(()),
            Err(fault) => Err(Error::of(&fault, &self.place(), true)),
        }
    }

    /// Reads a row. Returns `None` if it does not exist.
    ///
    /// # Errors
    /// [`Error::Unavailable`]; [`Error::Invalid`] if a key is not valid, the table does
    /// not exist, or the row does not match the type.
    pub async fn get<T: DeserializeOwned>(
        &self,
        partition: &str,
        row: &str,
    ) -> Result<Option<Entity<T>>, Error> {
        self.get_by(partition, row, self.deadline()).await
    }

    pub(super) async fn get_by<T: DeserializeOwned>(
        &self,
        partition: &str,
        row: &str,
        by: Deadline,
    ) -> Result<Option<Entity<T>>, Error> {
        let place = self.place().partition(partition);
        check_partition(&place)?;
        let place = place.row(row);
        check_key("row", row, &place)?;
        let url = self.service.url(&entity_path(&self.name, partition, row));
        match self.send_with_retries(&Request::new(url, Method::Get), by).await {
            Ok(response) => {
                let raw = serde_json::from_slice(&response.body).ok().and_then(Raw::new);
                let raw = raw.ok_or_else(|| {
                    let why = "the response is not JSON".to_owned();
                    Error::of(&Fault::Unclear { why }, &place, false)
                })?;
                raw.read(&self.name).map(Some)
            }
            Err(fault) if is_missing_row(&fault) => Ok(None),
            Err(fault) => Err(Error::of(&fault, &place, false)),
        }
    }

    /// Creates a query of the rows of one partition, or of all partitions.
    pub fn query(&self, partition: Option<&str>) -> Query {
        let place = match partition {
            Some(partition) => self.place().partition(partition),
            None => self.place(),
        };
        Query::new(self.clone(), place)
    }

    /// Makes all changes of the transaction or none, **without a fence**.
    ///
    /// # Errors
    /// As [`FencedPartition::commit`](super::FencedPartition::commit), but never
    /// [`Error::Fenced`].
    pub async fn commit(
        &self,
        partition: &str,
        transaction: &Transaction,
    ) -> Result<Receipt, Error> {
        let place = self.place().partition(partition);
        check_partition(&place)?;
        transaction.check(&place)?;
        let changes = &transaction.changes;
        let (by, mut retries) = (self.deadline(), Retries::for_service());
        loop {
            let done = match changes.as_slice() {
                [one] => self.change(partition, one, by).await.map(|etag| vec![etag]),
                many => self.batch(&place, many, by).await?,
            };
            let failed = match done {
                Ok(etags) => return Ok(Receipt::new(changes, etags)),
                Err(failed) => failed,
            };
            let unsent = failed.fault.may_pass() && !failed.fault.is_unclear();
            if !(unsent && by.next_attempt(&mut retries, Duration::ZERO).await) {
                return Err(failed.error(&place, changes));
            }
        }
    }

    /// Makes one change by a call of its own.
    async fn change(
        &self,
        partition: &str,
        change: &Change,
        by: Deadline,
    ) -> Result<Option<ETag>, Failed> {
        let failed = |fault| Failed { index: Some(0), fault };
        let (method, path) = batch::method_and_path(&self.name, partition, change);
        let method = match method {
            "POST" => Method::Post,
            "PUT" => Method::Put,
            "PATCH" => Method::Patch,
            _ => Method::Delete,
        };
        let mut request = Request::new(self.service.url(&path), method);
        if method == Method::Post {
            request.insert_header("prefer", "return-no-content");
        }
        if let Some(etag) = change.if_match() {
            request.insert_header(IF_MATCH, etag.to_owned());
        }
        let body = change.body(partition).map_err(|why| {
            failed(Fault::Unsent { why: format!("the value can't be stored: {why}") })
        })?;
        if let Some(body) = body {
            request.insert_header(CONTENT_TYPE, "application/json");
            request.set_body(body);
        }
        let response = self.send(request, by).await.map_err(failed)?;
        Ok(header(&response, "etag").map(ETag::new))
    }

    /// Makes all changes or none by one call. The outer error means that nothing was
    /// sent.
    pub(super) async fn batch(
        &self,
        place: &Place,
        changes: &[Change],
        by: Deadline,
    ) -> Result<Result<Vec<Option<ETag>>, Failed>, Error> {
        let base = self.service.url("");
        let partition = place.partition.as_deref().unwrap_or_default();
        let batch = Batch::new(base.as_str(), &self.name, partition, changes);
        let batch = batch.map_err(|(change, why)| {
            let message = format!("the value can't be stored: {why}");
            Error::invalid(&place.clone().row(&change.row), message)
        })?;
        if batch.body.len() > batch::MAX_BATCH_BYTES {
            let message = format!(
                "the transaction has {} bytes; the maximum is 4 MiB. Split it",
                batch.body.len()
            );
            return Err(Error::invalid(place, message));
        }
        let mut request = Request::new(self.service.url("$batch"), Method::Post);
        request.insert_header(CONTENT_TYPE, batch.content_type);
        request.set_body(batch.body);
        Ok(match self.send(request, by).await {
            Ok(response) => {
                let content_type = header(&response, "content-type").unwrap_or_default();
                batch::read(content_type, &response.body, changes.len())
            }
            Err(fault) => Err(Failed { index: None, fault }),
        })
    }

    /// Reads one page of rows, and the continuation.
    pub(super) async fn page(
        &self,
        query: &[(&str, &str)],
        place: &Place,
        by: Deadline,
    ) -> Result<Page, Error> {
        let mut url = self.service.url(&format!("{}()", self.name));
        url.query_pairs_mut().extend_pairs(query);
        // The URL library encodes a space as `+`, which only HTML forms define.
        let spaced = url.query().map(|query| query.replace('+', "%20"));
        url.set_query(spaced.as_deref());
        let response = self.send_with_retries(&Request::new(url, Method::Get), by).await;
        let response = response.map_err(|fault| Error::of(&fault, place, false))?;
        let mut body: Value = serde_json::from_slice(&response.body).unwrap_or_default();
        let Some(Value::Array(rows)) = body.get_mut("value").map(Value::take) else {
            let why = "the response is not a list of rows".to_owned();
            return Err(Error::of(&Fault::Unclear { why }, place, false));
        };
        let next = [
            ("NextPartitionKey", "x-ms-continuation-nextpartitionkey"),
            ("NextRowKey", "x-ms-continuation-nextrowkey"),
        ];
        let next = next.into_iter().filter_map(|(name, sent)| {
            Some((name, header(&response, sent).filter(|key| !key.is_empty())?.to_owned()))
        });
        Ok((rows.into_iter().filter_map(Raw::new).collect(), next.collect()))
    }

    /// Sends an idempotent request. Retries transient faults a few times.
    async fn send_with_retries(&self, request: &Request, by: Deadline) -> Result<Response, Fault> {
        let mut retries = Retries::for_service();
        loop {
            match self.send(request.clone(), by).await {
                Err(fault)
                    if fault.may_pass()
                        && by.next_attempt(&mut retries, fault.retry_after()).await => {}
                response => return response,
            }
        }
    }

    async fn send(&self, mut request: Request, by: Deadline) -> Result<Response, Fault> {
        request.insert_header(ACCEPT, JSON);
        request.insert_header("dataserviceversion", "3.0");
        request.insert_header("maxdataserviceversion", "3.0;NetFx");
        let timeout = by.timeout();
        if by.has_passed() {
            let why = format!("the operation timed out after {timeout:?}");
            return Err(Fault::Unsent { why });
        }
        let Some(response) = by.bound(self.service.send(request)).await else {
            let why = format!(
                "the operation timed out after {timeout:?} without a response from the storage \
                 account"
            );
            return Err(Fault::Unclear { why });
        };
        let response = response?;
        if (200..300).contains(&response.status) { Ok(response) } else { Err(fault(&response)) }
    }

    pub(super) fn place(&self) -> Place {
        Place::table(&self.name)
    }
}

impl Failed {
    /// Converts the failure of a caller's transaction.
    pub(super) fn error(&self, partition: &Place, changes: &[Change]) -> Error {
        let change = self.index.and_then(|index| changes.get(index));
        let place =
            change.map_or_else(|| partition.clone(), |change| partition.clone().row(&change.row));
        Error::of(&self.fault, &place, true)
    }
}
