//! Many writers with old and new tokens at once. What is asserted is read from
//! the data alone.

use leasehold_fence::blob::{Blob, Error};

use super::{blob, fence, held};

/// The blob is a journal: a token for each write, in the order in which they
/// were written.
async fn journal(blob: &Blob) -> Vec<u64> {
    let content = blob.read().await.unwrap();
    let text = content.map(|content| String::from_utf8(content.bytes.to_vec()).unwrap());
    text.unwrap_or_default().lines().map(|line| line.parse().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_write_of_an_older_token_lands_after_a_newer_fence() {
    let blob = blob("race").await;
    // Each of eight tokens twice, so that there are racers with the same too.
    let writers: Vec<_> = (0..16_u64)
        .map(|writer| {
            let (blob, token) = (blob.clone(), writer / 2 + 1);
            tokio::spawn(async move {
                // A token comes when the one before has written three times, and
                // those of before go on until they are refused: so all meet.
                let before = |journal: Vec<u64>| {
                    journal.into_iter().filter(|written| *written == token - 1).count()
                };
                while token > 1 && before(journal(&blob).await) < 3 {
                    tokio::task::yield_now().await;
                }
                let guarded = match blob.fenced(fence(token)).await {
                    Ok(guarded) => guarded,
                    Err(Error::Fenced { .. }) => return 0,
                    Err(other) => panic!("{other}"),
                };
                let mut written = 0;
                while token < 8 || written < 20 {
                    match guarded.append(format!("{token}\n")).await {
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
    assert_eq!(tokens.len(), written, "each write that was confirmed is there, and no other");
    assert!(tokens.is_sorted(), "{tokens:?}");
    let mut different = tokens;
    different.dedup();
    assert_eq!(different, [1, 2, 3, 4, 5, 6, 7, 8]);
}

/// The same journal without fences: that test would notice.
#[tokio::test]
async fn without_fences_an_older_token_lands_after_a_newer() {
    let blob = blob("nofence").await;
    for token in [1, 2, 1] {
        let longer = journal(&blob).await.into_iter().chain([token]);
        let longer: String = longer.map(|token| format!("{token}\n")).collect();
        blob.overwrite(longer).await.unwrap();
    }
    assert_eq!(journal(&blob).await, [1, 2, 1]);
}

/// All put up their fence at once, where no blob is: the greatest stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_sixteen_that_come_at_once_the_greatest_stays() {
    let blob = blob("rush").await;
    let comers: Vec<_> = (1..=16_u64)
        .rev()
        .map(|token| {
            let blob = blob.clone();
            tokio::spawn(async move { (token, blob.fenced(fence(token)).await) })
        })
        .collect();
    let mut through = Vec::new();
    for comer in comers {
        match comer.await.unwrap() {
            (token, Ok(guarded)) => through.push((token, guarded)),
            (token, Err(Error::Fenced { newer, .. })) => assert!(newer.unwrap().get() > token),
            (_, Err(other)) => panic!("{other}"),
        }
    }
    for (token, guarded) in through {
        assert_eq!(guarded.write("x").await.is_ok(), token == 16, "{token}");
    }
    held(&blob, 17).await;
}
