//! Listings of blobs.

use super::{A, container};

#[tokio::test]
async fn metadata_and_lease_states_are_listed() {
    let container = container("list").await;
    let free = container.blob("locks/default/free");
    let put = free.put().metadata("token", "5").metadata("nonce", "ab").await.ok();
    for name in ["leased", "breaking", "broken"] {
        let blob = container.blob(&format!("locks/default/{name}"));
        blob.put().await.ok();
        blob.acquire(A, 60).await.ok();
    }
    container.blob("locks/default/breaking").break_lease(None).await.ok();
    container.blob("locks/default/broken").break_lease(Some(0)).await.ok();

    let reply = container.list().query("prefix", "locks/default/").await.ok();
    assert!(reply.date() > 1_700_000_000);
    let listed = reply.listed();
    let states: Vec<_> =
        listed.iter().map(|blob| (blob.name(), blob.element("LeaseState").unwrap())).collect();
    assert_eq!(
        states,
        [
            ("locks/default/breaking", "breaking"),
            ("locks/default/broken", "broken"),
            ("locks/default/free", "available"),
            ("locks/default/leased", "leased"),
        ]
    );
    let free = &listed[2];
    assert_eq!(free.metadata("token"), Some("5"));
    assert_eq!(free.metadata("nonce"), Some("ab"));
    // Listings omit the quotes that headers have.
    assert_eq!(free.element("Etag"), Some(put.etag().trim_matches('"')));
}

#[tokio::test]
async fn listing_pages_by_prefix_in_byte_order() {
    let container = container("list-pages").await;
    let mut names: Vec<String> = ["B", "a", "a-b", "a.b", "a/b", "a0", "aB", "a_b", "ab", "a~20b"]
        .map(|name| format!("locks/default/{name}"))
        .into();
    for name in
        names.iter().map(String::as_str).chain(["locks/other/a", "locks/default", "check/a"])
    {
        container.blob(name).put().await.ok();
    }
    names.sort();
    for size in ["1", "3", "10", "11"] {
        let mut found = Vec::new();
        let mut marker = Some(String::new());
        while let Some(from) = marker {
            let page = container.list().query("prefix", "locks/default/").query("maxresults", size);
            let page = page.query("marker", &from).await.ok();
            found.extend(page.listed().iter().map(|blob| blob.name().to_owned()));
            marker = page.next_marker().map(str::to_owned);
        }
        assert_eq!(found, names, "page size {size}");
    }
}
