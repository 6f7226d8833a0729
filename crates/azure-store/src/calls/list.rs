//! Listings of the container.

use azure_core::http::Etag;
use azure_storage_blob::models::{BlobContainerClientListBlobsOptions, ListBlobsIncludeItem};
use futures_core::Stream;

use super::{
    Blobs, CallOptions,
    blob::{BlobState, is_leased},
    date,
    fault::Fault,
    limiter::Kind,
};
use crate::protocol::record::Record;

/// Number of blobs in a page of a listing.
const LIST_PAGE_SIZE: i32 = 5000;

/// Blob in a listing.
#[derive(Debug)]
pub(crate) struct ListedBlob {
    pub(crate) path: String,
    pub(crate) state: BlobState,
    /// Time of the last write, in seconds since 1970.
    pub(crate) written_at: Option<u64>,
}

impl Blobs {
    /// Lists a page of the blobs with this path prefix. Also returns the marker of
    /// the next page.
    pub(crate) async fn list(
        &self,
        prefix: &str,
        marker: Option<String>,
        options: CallOptions,
    ) -> Result<(Vec<ListedBlob>, Option<String>), Fault> {
        let sdk_options = BlobContainerClientListBlobsOptions {
            include: Some(vec![ListBlobsIncludeItem::Metadata]),
            prefix: Some(prefix.to_owned()),
            maxresults: Some(LIST_PAGE_SIZE),
            marker,
            ..Default::default()
        };
        let list = async {
            let mut pages = self.account.container().list_blobs(Some(sdk_options))?.into_pages();
            let page = std::future::poll_fn(|cx| std::pin::Pin::new(&mut pages).poll_next(cx));
            let Some(page) = page.await else { return Ok((Vec::new(), None)) };
            let page = page?;
            let date = date(&page);
            let page = page.into_model()?;
            let blobs = page.blob_items.into_iter().filter_map(|blob| {
                let properties = blob.properties?;
                let metadata = blob.metadata.and_then(|metadata| metadata.values);
                let seconds = |at: azure_core::time::OffsetDateTime| at.unix_timestamp() as u64;
                Some(ListedBlob {
                    path: blob.name?,
                    state: BlobState {
                        etag: quoted(properties.etag?),
                        record: Record::from_metadata(&metadata.unwrap_or_default()),
                        leased: is_leased(properties.lease_state.as_ref()),
                        date,
                    },
                    written_at: properties.last_modified.map(seconds),
                })
            });
            Ok((blobs.collect(), page.next_marker.filter(|marker| !marker.is_empty())))
        };
        self.call(Kind::List, options, list).await.1
    }

    /// Checks that the container can be reached, by a call for which the permission to
    /// list is enough.
    pub(crate) async fn reach(&self, options: CallOptions) -> Result<(), Fault> {
        let sdk_options =
            BlobContainerClientListBlobsOptions { maxresults: Some(1), ..Default::default() };
        let reach = async {
            let mut pages = self.account.container().list_blobs(Some(sdk_options))?.into_pages();
            let page = std::future::poll_fn(|cx| std::pin::Pin::new(&mut pages).poll_next(cx));
            page.await.transpose()?;
            Ok(())
        };
        self.call(Kind::List, options, reach).await.1
    }
}

/// Adds the quotes of an ETag, which listings leave out.
fn quoted(etag: Etag) -> Etag {
    let text = etag.to_string();
    if text.starts_with('"') { etag } else { Etag::from(format!("\"{text}\"")) }
}
