//! Concurrent writers with old and new tokens. The assertions use only the data.

use leasehold_fence::blob::{Blob, Error};

use super::{blob, held, lock_token};

/// Reads the blob as a journal: the token of each write, in order.
async fn journal(blob: &Blob) -> Vec<u64> {
    let content = blob.read().await.unwrap();
    let text = content.map(|content| String::from_utf8(content.bytes.to_vec()).unwrap());
    text.unwrap_or_default().lines().map(|line| line.parse().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_older_write_is_applied_after_newer_fence() {
    let blob = blob("race").await;
    // Two writers per token, so that writers with the same token race too.
    let writers: Vec<_> = (0..16_u64)
        .map(|writer| {
            let (blob, token) = (blob.clone(), writer / 2 + 1);
            tokio::spawn(async move {
                // A token starts after three writes of the previous token. Earlier
                // tokens continue until they are refused, so all of them overlap.
                let previous = |journal: Vec<u64>| {
                    journal.into_iter().filter(|written| *written == token - 1).count()
                };
                while token > 1 && previous(journal(&blob).await) < 3 {
                    tokio::task::yield_now().await;
                }
                let fenced = match blob.fenced(lock_token(token)).await {
                    Ok(fenced) => fenced,
                    Err(Error::Fenced { .. }) => return 0,
                    Err(other) => panic!("{other}"),
                };
                let mut written = 0;
                while token < 8 || written < 20 {
                    match fenced.append(format!("{token}\n")).await {
                        Ok(_) => written += 1,
                        Err(Error::Fenced { newer, .. }) => {
                            assert!(newer.unwrap().get() > token);
                            break;
                        }
                        Err(other) => panic!("{other}"),
                    }
                }
                written
            })
        })
        .collect();
    let mut written = 0;
    for writer in writers {
        written += writer.await.unwrap();
    }
    let tokens = journal(&blob).await;
    assert_eq!(tokens.len(), written, "the journal has exactly the confirmed writes");
    assert!(tokens.is_sorted(), "{tokens:?}");
    let mut distinct = tokens;
    distinct.dedup();
    assert_eq!(distinct, [1, 2, 3, 4, 5, 6, 7, 8]);
}

/// Without fences, the journal shows stale writes.
#[tokio::test]
async fn without_fence_older_write_is_applied() {
    let blob = blob("nofence").await;
    for token in [1, 2, 1] {
        let longer = journal(&blob).await.into_iter().chain([token]);
        let longer: String = longer.map(|token| format!("{token}\n")).collect();
        blob.overwrite(longer).await.unwrap();
    }
    assert_eq!(journal(&blob).await, [1, 2, 1]);
}

/// All fences are installed concurrently on a missing blob. The highest remains.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn highest_of_sixteen_concurrent_fences_remains() {
    let blob = blob("rush").await;
    let holders: Vec<_> = (1..=16_u64)
        .rev()
        .map(|token| {
            let blob = blob.clone();
            tokio::spawn(async move { (token, blob.fenced(lock_token(token)).await) })
        })
        .collect();
    let mut installed = Vec::new();
    for holder in holders {
        match holder.await.unwrap() {
            (token, Ok(fenced)) => installed.push((token, fenced)),
            (token, Err(Error::Fenced { newer, .. })) => assert!(newer.unwrap().get() > token),
            (_, Err(other)) => panic!("{other}"),
        }
    }
    for (token, fenced) in installed {
        assert_eq!(fenced.write("x").await.is_ok(), token == 16, "{token}");
    }
    held(&blob, 17).await;
}
