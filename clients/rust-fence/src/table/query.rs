//! Queries: reads of many rows, page by page.

use serde::de::DeserializeOwned;

use super::{
    Entity, Error, Place, Table,
    entity::Raw,
    place::{RESERVED, quoted},
    transaction::check_partition,
};

/// Query of the rows of one partition or of a whole table. Excludes the rows of the
/// fence.
#[derive(Clone, Debug)]
#[must_use = "nothing is read before the first page is requested"]
pub struct Query {
    table: Table,
    /// Contains the partition if the query is limited to one.
    place: Place,
    filter: Option<String>,
    page_size: Option<u32>,
    next: Next,
}

/// Query parameters that continue with the next row.
pub(super) type Continuation = Vec<(&'static str, String)>;

/// Rows, and the continuation; empty after the last page.
pub(super) type Page = (Vec<Raw>, Continuation);

/// Position of the next page.
#[derive(Clone, Debug)]
enum Next {
    First,
    At(Continuation),
    End,
}

impl Query {
    pub(super) fn new(table: Table, place: Place) -> Self {
        Self { table, place, filter: None, page_size: None, next: Next::First }
    }

    /// Limits the query to rows that match this OData filter, such as `Amount gt 5L`.
    /// Use [`quoted`](super::quoted) for strings.
    pub fn filter(mut self, filter: impl Into<String>) -> Self {
        self.filter = Some(filter.into());
        self
    }

    /// Sets the maximum number of rows per page: 1 to 1,000 (default 1,000).
    pub fn page_size(mut self, rows: u32) -> Self {
        self.page_size = Some(rows);
        self
    }

    /// Reads the next page. Returns `None` after the last one. A page may be empty. A
    /// change between two pages may or may not be included.
    ///
    /// # Errors
    /// As [`Table::get`]. The next call reads the same page again.
    pub async fn next_page<T: DeserializeOwned>(
        &mut self,
    ) -> Result<Option<Vec<Entity<T>>>, Error> {
        let Some((rows, next)) = self.raw_page().await? else { return Ok(None) };
        if let Some(partition) = &self.place.partition
            && let Some(stray) = rows.iter().find(|raw| raw.partition() != partition)
        {
            let message = "the filter matches a row of another partition; use `quoted` for strings \
                           and balance the parentheses";
            let place = self.table.place().partition(stray.partition()).row(stray.row());
            return Err(Error::invalid(&place, message));
        }
        let is_user_row = |raw: &&Raw| !raw.row().starts_with(RESERVED);
        let name = self.table.name();
        let page =
            rows.iter().filter(is_user_row).map(|raw| raw.read(name)).collect::<Result<_, _>>()?;
        self.next = if next.is_empty() { Next::End } else { Next::At(next) };
        Ok(Some(page))
    }

    /// Reads all pages and returns all rows.
    ///
    /// # Errors
    /// As [`next_page`](Self::next_page).
    pub async fn all<T: DeserializeOwned>(mut self) -> Result<Vec<Entity<T>>, Error> {
        let mut all = Vec::new();
        while let Some(page) = self.next_page().await? {
            all.extend(page);
        }
        Ok(all)
    }

    async fn raw_page(&self) -> Result<Option<Page>, Error> {
        check_partition(&self.place)?;
        let filter = self.whole_filter();
        let top = self.page_size.map(|rows| rows.to_string());
        let mut query = Vec::new();
        query.extend(filter.as_deref().map(|filter| ("$filter", filter)));
        query.extend(top.as_deref().map(|top| ("$top", top)));
        match &self.next {
            Next::First => {}
            Next::At(keys) => query.extend(keys.iter().map(|(name, key)| (*name, key.as_str()))),
            Next::End => return Ok(None),
        }
        self.table.page(&query, &self.place, self.table.deadline()).await.map(Some)
    }

    fn whole_filter(&self) -> Option<String> {
        let partition = self.place.partition.as_deref().map(quoted);
        match (partition, &self.filter) {
            (Some(partition), Some(filter)) => {
                Some(format!("PartitionKey eq {partition} and ({filter})"))
            }
            (Some(partition), None) => Some(format!("PartitionKey eq {partition}")),
            (None, filter) => filter.clone(),
        }
    }
}
