//! Fenced tables and blobs against arbitrary answers.

use std::{fmt, sync::Arc, time::Duration};

use leasehold_client::Token;
use leasehold_fence::{
    LockToken,
    azure::Account,
    blob::{self, Blob},
    table::{self, Table, Transaction},
};
use leasehold_fuzz::Fuzz;
use serde::{Deserialize, Serialize};

use super::{
    script::{self, Answers},
    world::{by, run},
};

const TABLE_WORDS: &[&str] = &[
    "200\n",
    "202\n",
    "204\n",
    "404\n",
    "409\n",
    "412\n",
    "503\nretry-after: 3",
    "x-ms-error-code: ",
    "ResourceNotFound",
    "EntityAlreadyExists",
    "UpdateConditionNotSatisfied",
    "content-type: multipart/mixed; boundary=b\n",
    "x-ms-continuation-nextpartitionkey: p\n",
    "x-ms-continuation-nextrowkey: r\n",
    "etag: W/\"1\"\n",
    "{\"odata.error\":{\"code\":\"",
    "{\"value\":[",
    "{\"odata.etag\":\"W/1\",\"PartitionKey\":\"p\",\"RowKey\":\"",
    "~leasehold.head",
    "~leasehold.fence.00000000000000000007",
    "\"Token@odata.type\":\"Edm.Int64\",\"Token\":\"7\",\"Lock\":\"default/orders\"",
    "\"Writes\":\"\"",
];

const BLOB_WORDS: &[&str] = &[
    "200\n",
    "201\n",
    "404\n",
    "409\n",
    "412\n",
    "503\nretry-after: 3",
    "x-ms-error-code: BlobNotFound\n",
    "x-ms-error-code: ConditionNotMet\n",
    "x-ms-error-code: BlobAlreadyExists\n",
    "etag: \"0x1\"\n",
    "x-ms-meta-leaseholdtoken: 7\n",
    "x-ms-meta-leaseholdtoken: 9\n",
    "x-ms-meta-leaseholdlock: default/orders\n",
    "x-ms-meta-leaseholdwrites: a.b\n",
    "x-ms-meta-leaseholdgone: true\n",
    "x-ms-lease-id: {ID}\n",
    "<Error><Code>",
    "</Code><Message>",
    "</Message></Error>",
];

/// Token of the fence.
const TOKEN: u64 = 7;

/// Time limits of an operation: on a table as configured; on a blob it consists
/// of several calls of ten seconds each.
const TABLE_TIMEOUT: Duration = Duration::from_secs(30);
const BLOB_TIMEOUT: Duration = Duration::from_secs(600);

/// Creating an account is slow, so all inputs share one.
fn account() -> Account {
    Account::with_key("acme", "c2VjcmV0LWtleQ==").unwrap()
}

fn fence() -> LockToken {
    LockToken::new("", "orders", Token::new(TOKEN))
}

/// Returns the kind of outcome. Checks that it contains no secret.
fn kind(done: &Result<impl fmt::Debug, impl fmt::Display>) -> String {
    let text = match done {
        Ok(done) => format!("{done:?}"),
        Err(error) => error.to_string(),
    };
    assert!(!text.contains("c2VjcmV0LWtleQ"), "{text}");
    // Keep quoted reasons: each is a kind of outcome.
    text.replace('"', "").chars().take(160).collect()
}

#[derive(Debug, Serialize, Deserialize)]
struct Stock {
    amount: i64,
}

async fn call_table(which: u64, account: Account, answers: Arc<Answers>) -> String {
    let table = Table::new(&account, "orders").unwrap().time_limit(TABLE_TIMEOUT);
    // Rounded up to whole clock checks.
    let limit = TABLE_TIMEOUT + Duration::from_secs(2);
    let one = Transaction::new().upsert("r", &Stock { amount: 1 });
    let done = match which % 6 {
        0 => {
            let done = by(limit, table.get::<Stock>("p", "r")).await;
            assert_eq!(answers.changes(), 0);
            kind(&done)
        }
        1 => {
            let mut query = table.query(Some("p"));
            let (first, second) = (
                by(limit, query.next_page::<Stock>()).await,
                by(limit, query.next_page::<Stock>()).await,
            );
            assert_eq!(answers.changes(), 0);
            for row in first.iter().chain(&second).flatten().flatten() {
                assert!(row.partition == "p" && !row.row.starts_with("~leasehold."), "{row:?}");
            }
            format!("{} {}", kind(&first), kind(&second))
        }
        2 => kind(&by(limit, table.commit("p", &one)).await),
        3 => kind(&by(limit, table.commit("p", &one.delete("s"))).await),
        _ => {
            let fenced = table.fenced(fence());
            match by(limit, fenced.partition("p")).await {
                Ok(partition) => kind(&by(limit, partition.commit(&one)).await),
                Err(table::Error::Fenced { newer: Some(newer), .. }) => {
                    assert!(newer > Token::new(TOKEN), "{newer}");
                    "fenced".to_owned()
                }
                refused => kind(&refused.map(drop)),
            }
        }
    };
    format!("{} {done}", which % 6)
}

#[test]
fn fenced_tables_survive_any_response_fuzzed() {
    let account = account();
    Fuzz::new("table-answer").nested().words(TABLE_WORDS).run(|input| {
        let (which, answers) = script::read(input);
        let account = account.clone().transport(answers.transport());
        run(call_table(which, account, answers))
    });
}

async fn call_blob(which: u64, account: Account, answers: Arc<Answers>) -> String {
    let blob = Blob::new(&account, "reports", "a/b c.txt").unwrap();
    let done = match which % 5 {
        0 => {
            let done = by(BLOB_TIMEOUT, blob.read()).await;
            assert_eq!(answers.changes(), 0);
            kind(&done)
        }
        1 => kind(&by(BLOB_TIMEOUT, blob.overwrite("x")).await),
        call => match by(BLOB_TIMEOUT, blob.fenced(fence())).await {
            Ok(fenced) => match call {
                2 => kind(&by(BLOB_TIMEOUT, fenced.write("x")).await),
                3 => kind(&by(BLOB_TIMEOUT, fenced.append("x")).await),
                _ => kind(&by(BLOB_TIMEOUT, fenced.delete()).await),
            },
            Err(blob::Error::Fenced { newer, .. }) => {
                assert!(newer > Some(Token::new(TOKEN)), "{newer:?}");
                "fenced".to_owned()
            }
            refused => kind(&refused.map(drop)),
        },
    };
    format!("{} {done}", which % 5)
}

#[test]
fn fenced_blobs_survive_any_response_fuzzed() {
    let account = account();
    Fuzz::new("blob-answer").nested().words(BLOB_WORDS).run(|input| {
        let (which, answers) = script::read(input);
        let account = account.clone().transport(answers.transport());
        run(call_blob(which, account, answers))
    });
}
