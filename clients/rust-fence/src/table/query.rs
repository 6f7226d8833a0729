//! Reading many rows, page by page.

use serde::de::DeserializeOwned;

use super::{
    Entity, Error, Place, Table,
    entity::Raw,
    place::{RESERVED, quoted},
    transaction::check_partition,
};

/// The rows of one partition or of a whole table. The fence's own are not
/// among them.
#[derive(Clone, Debug)]
#[must_use = "nothing is read before the first page is asked for"]
pub struct Query {
    table: Table,
    /// With the partition, if it is about one.
    place: Place,
    filter: Option<String>,
    page_size: Option<u32>,
    next: Next,
}

/// The parameters of a query that begin with the next row.
pub(super) type Continuation = Vec<(&'static str, String)>;

/// Rows, and where the next begin; nowhere if that is empty.
pub(super) type Page = (Vec<Raw>, Continuation);

/// Where the next page begins.
#[derive(Clone, Debug)]
enum Next {
    First,
    At(Continuation),
    Nowhere,
}

impl Query {
    pub(super) fn new(table: Table, place: Place) -> Self {
        Self { table, place, filter: None, page_size: None, next: Next::First }
    }

    /// Only rows for which this OData filter holds, such as `Amount gt 5L`.
    /// Write texts with [`quoted`](super::quoted).
    pub fn filter(mut self, filter: impl Into<String>) -> Self {
        self.filter = Some(filter.into());
        self
    }

    /// At most so many rows to a page: 1 to 1,000, the default.
    pub fn page_size(mut self, rows: u32) -> Self {
        self.page_size = Some(rows);
        self
    }

    /// The next page; none after the last. A page may be empty. Pages are read
    /// one after the other: what is changed meanwhile may be seen or not.
    ///
    /// # Errors
    /// As [`Table::get`]. The same page can be asked for again.
    pub async fn next_page<T: DeserializeOwned>(
        &mut self,
    ) -> Result<Option<Vec<Entity<T>>>, Error> {
        let Some((rows, next)) = self.raw_page().await? else { return Ok(None) };
        if let Some(partition) = &self.place.partition
            && let Some(stray) = rows.iter().find(|raw| raw.partition() != partition)
        {
            let message = "the filter lets a row of another partition through. Write texts in it \
                           by `quoted`, and balance its brackets";
            let place = self.table.place().partition(stray.partition()).row(stray.row());
            return Err(Error::invalid(&place, message));
        }
        let own = |raw: &&Raw| !raw.row().starts_with(RESERVED);
        let name = self.table.name();
        let page = rows.iter().filter(own).map(|raw| raw.read(name)).collect::<Result<_, _>>()?;
        self.next = if next.is_empty() { Next::Nowhere } else { Next::At(next) };
        Ok(Some(page))
    }

    /// All rows, however many there are.
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
            Next::Nowhere => return Ok(None),
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
