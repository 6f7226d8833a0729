//! A table, by its REST interface.

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

/// How long one operation may take in all.
const TIME_LIMIT: Duration = Duration::from_secs(30);

const JSON: &str = "application/json;odata=minimalmetadata";

/// A table of a storage account. Cheap to clone.
///
/// **Nothing here looks at tokens.** Let all programs write through
/// [`fenced`](Self::fenced) to what a lock protects. This is for reading, for
/// tables that nothing fences, and for creating them.
///
/// Every call has a time limit ([`Account::call_timeout`]), and so has every
/// operation with all its calls ([`time_limit`](Self::time_limit)). Reads are repeated a
/// few times if the service does not answer; writes only if they were not sent.
#[derive(Clone, Debug)]
pub struct Table {
    service: Arc<Service>,
    name: Arc<str>,
    time_limit: Duration,
}

/// What a transaction that was done has made of the rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Receipt {
    pub(super) etags: Vec<(String, Option<ETag>)>,
}

impl Receipt {
    /// The version that a row has now. None for one that was deleted; and none
    /// at all if the service's answer was lost and the outcome was found out by
    /// reading.
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
    /// A table of this name. Nothing is sent.
    ///
    /// # Errors
    /// [`Error::Invalid`] if no table can have this name.
    pub fn new(account: &Account, name: &str) -> Result<Self, Error> {
        let resource = Resource::Table { account: account.name(), table: name };
        if let Err(leasehold_client::Error::Invalid { message, .. }) = resource.lock_name() {
            return Err(Error::invalid(&Place::table(name), message));
        }
        let service = account.service(ServiceKind::Table);
        let service =
            service.map_err(|error| Error::invalid(&Place::table(name), error.to_string()))?;
        Ok(Self { service: Arc::new(service), name: name.into(), time_limit: TIME_LIMIT })
    }

    /// How long one operation may take, with all its calls and pauses; 30 s if
    /// nothing is said. Of a query, each page is one. Fenced tables that are
    /// made after this have the same limit.
    #[must_use]
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.time_limit = limit;
        self
    }

    /// When an operation ends that begins now.
    pub(super) fn deadline(&self) -> Deadline {
        Deadline::after(self.time_limit)
    }

    /// The table's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The same table, written to with a token: the storage itself refuses it
    /// once a newer holder has written. Take a `&Guard` or a `&Leadership`, or
    /// [`LockToken::from_env`].
    pub fn fenced(&self, fence: impl Into<LockToken>) -> FencedTable {
        FencedTable::new(self.clone(), fence.into())
    }

    /// Creates the table if it is not there.
    ///
    /// # Errors
    /// [`Error::Unavailable`], or [`Error::Invalid`] if it is not allowed.
    pub async fn create(&self) -> Result<(), Error> {
        let mut request = Request::new(self.service.url("Tables"), Method::Post);
        request.insert_header("prefer", "return-no-content");
        request.insert_header(CONTENT_TYPE, "application/json");
        request.set_body(json!({ "TableName": &*self.name }).to_string());
        match self.repeated(&request, self.deadline()).await {
            Ok(_) => Ok(()),
            Err(Fault::Refused { status: 409, code, .. }) if code == "TableAlreadyExists" => Ok(()),
            Err(fault) => Err(Error::of(&fault, &self.place(), true)),
        }
    }

    /// Reads a row; none if it is not there.
    ///
    /// # Errors
    /// [`Error::Unavailable`]; [`Error::Invalid`] for keys that can't be, a
    /// table that is not there, or a row that does not fit the type.
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
        match self.repeated(&Request::new(url, Method::Get), by).await {
            Ok(answer) => {
                let raw = serde_json::from_slice(&answer.body).ok().and_then(Raw::new);
                let raw = raw.ok_or_else(|| {
                    let why = "the service's answer is not JSON".to_owned();
                    Error::of(&Fault::Unclear { why }, &place, false)
                })?;
                raw.read(&self.name).map(Some)
            }
            Err(fault) if is_missing_row(&fault) => Ok(None),
            Err(fault) => Err(Error::of(&fault, &place, false)),
        }
    }

    /// Reads the rows of one partition, or of all.
    pub fn query(&self, partition: Option<&str>) -> Query {
        let place = match partition {
            Some(partition) => self.place().partition(partition),
            None => self.place(),
        };
        Query::new(self.clone(), place)
    }

    /// Makes changes to rows of one partition, all or none, **without a
    /// fence**.
    ///
    /// # Errors
    /// As [`FencedPartition::commit`](super::FencedPartition::commit), except
    /// that nobody is fenced.
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
            if !(unsent && by.again(&mut retries, Duration::ZERO).await) {
                return Err(failed.error(&place, changes));
            }
        }
    }

    /// One change by itself.
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
        let answer = self.send(request, by).await.map_err(failed)?;
        Ok(header(&answer, "etag").map(ETag::new))
    }

    /// Changes by one call, all or none. The outer error is for what is not
    /// sent at all.
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
        if batch.body.len() > batch::LARGEST {
            let message = format!(
                "the transaction has {} bytes; at most 4 MiB are allowed. Divide it",
                batch.body.len()
            );
            return Err(Error::invalid(place, message));
        }
        let mut request = Request::new(self.service.url("$batch"), Method::Post);
        request.insert_header(CONTENT_TYPE, batch.content_type);
        request.set_body(batch.body);
        Ok(match self.send(request, by).await {
            Ok(answer) => {
                let content_type = header(&answer, "content-type").unwrap_or_default();
                batch::read(content_type, &answer.body, changes.len())
            }
            Err(fault) => Err(Failed { index: None, fault }),
        })
    }

    /// One page of rows, and where the next begins.
    pub(super) async fn page(
        &self,
        query: &[(&str, &str)],
        place: &Place,
        by: Deadline,
    ) -> Result<Page, Error> {
        let mut url = self.service.url(&format!("{}()", self.name));
        url.query_pairs_mut().extend_pairs(query);
        // Forms write a space so; addresses need not be understood as forms.
        let spaced = url.query().map(|query| query.replace('+', "%20"));
        url.set_query(spaced.as_deref());
        let answer = self.repeated(&Request::new(url, Method::Get), by).await;
        let answer = answer.map_err(|fault| Error::of(&fault, place, false))?;
        let mut body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        let Some(Value::Array(rows)) = body.get_mut("value").map(Value::take) else {
            let why = "the service's answer is not a list of rows".to_owned();
            return Err(Error::of(&Fault::Unclear { why }, place, false));
        };
        let next = [
            ("NextPartitionKey", "x-ms-continuation-nextpartitionkey"),
            ("NextRowKey", "x-ms-continuation-nextrowkey"),
        ];
        let next = next.into_iter().filter_map(|(name, sent)| {
            Some((name, header(&answer, sent).filter(|key| !key.is_empty())?.to_owned()))
        });
        Ok((rows.into_iter().filter_map(Raw::new).collect(), next.collect()))
    }

    /// Sends what may be sent again, again if the fault is one that may pass.
    async fn repeated(&self, request: &Request, by: Deadline) -> Result<Response, Fault> {
        let mut retries = Retries::for_service();
        loop {
            match self.send(request.clone(), by).await {
                Err(fault)
                    if fault.may_pass() && by.again(&mut retries, fault.retry_after()).await => {}
                answer => return answer,
            }
        }
    }

    async fn send(&self, mut request: Request, by: Deadline) -> Result<Response, Fault> {
        request.insert_header(ACCEPT, JSON);
        request.insert_header("dataserviceversion", "3.0");
        request.insert_header("maxdataserviceversion", "3.0;NetFx");
        let limit = by.limit();
        if by.has_passed() {
            let why = format!("the time for the whole operation was up, {limit:?}");
            return Err(Fault::Unsent { why });
        }
        let Some(answer) = by.bound(self.service.send(request)).await else {
            let why = format!(
                "no answer from the storage account while there was time for the operation, \
                 {limit:?} in all"
            );
            return Err(Fault::Unclear { why });
        };
        let answer = answer?;
        if (200..300).contains(&answer.status) { Ok(answer) } else { Err(fault(&answer)) }
    }

    pub(super) fn place(&self) -> Place {
        Place::table(&self.name)
    }
}

impl Failed {
    /// What it means for a user's transaction.
    pub(super) fn error(&self, partition: &Place, changes: &[Change]) -> Error {
        let change = self.index.and_then(|index| changes.get(index));
        let place =
            change.map_or_else(|| partition.clone(), |change| partition.clone().row(&change.row));
        Error::of(&self.fault, &place, true)
    }
}
