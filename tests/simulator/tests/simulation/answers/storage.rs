//! The daemon's Azure store against arbitrary answers.

use std::{fmt, sync::Arc, time::Duration};

use leasehold::config::{self, SecretText};
use leasehold_azure_store::{AzureStore, account::Account, doctor};
use leasehold_fuzz::Fuzz;
use leasehold_runtime::sleep;
use leasehold_store::{Acquire, AcquireParams, Breaker, LeaseId, LeaseStore, Page, Publication};
use leasehold_time::Entropy;
use leasehold_types::{LockName, Namespace, Token};

use super::{
    script::{self, Answers},
    world::{by, run},
};

const WORDS: &[&str] = &[
    "{ID}",
    "x-ms-lease-id: {ID}",
    "x-ms-lease-state: leased",
    "x-ms-lease-time: 15",
    "x-ms-meta-token: 5242880",
    "x-ms-meta-nonce: 1",
    "x-ms-meta-bytes: 3",
    "x-ms-meta-leader: 5",
    "x-ms-error-code: LeaseAlreadyPresent",
    "x-ms-error-code: ServerBusy",
    "retry-after: 1",
    "etag: \"0x1\"",
    "date: Sun, 17 Mar 2030 17:46:40 GMT",
    "content-range: bytes 0-2/3",
    "content-length: 3",
    "last-modified: Sun, 17 Mar 2030 17:46:40 GMT",
    "200\n",
    "201\n",
    "202\n",
    "206\n",
    "304\n",
    "403\n",
    "404\n",
    "409\n",
    "412\n",
    "503\n",
    "<Blob>",
    "</Blob>",
    "<Name>locks/default/a</Name>",
    "<Properties>",
    "</Properties>",
    "<Metadata>",
    "</Metadata>",
    "<Etag>0x1</Etag>",
    "<LeaseState>leased</LeaseState>",
    "&lt;",
    "&#x0;",
    "&bad;",
    "<![CDATA[",
    "<!DOCTYPE x [<!ENTITY y \"z\">]>",
    "<NextMarker>more</NextMarker>",
];

/// Number of different calls.
const CALLS: u64 = 13;

const LEASE: Duration = Duration::from_secs(15);

/// Timeout of a call under a lease: a fifth of its duration.
const CALL_TIMEOUT: Duration = Duration::from_secs(3);

/// Timeout of a read.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// Returns the kind of outcome. Checks that it contains no secret.
fn kind<T: fmt::Debug, E: fmt::Debug>(done: &Result<T, E>) -> String {
    let text = format!("{done:?}");
    assert!(!text.contains("c2VjcmV0LWtleQ"), "{text}");
    // Keep quoted reasons: each is a kind of outcome.
    text.replace('"', "").chars().take(120).collect()
}

/// Checks that the tokens are higher than any token that was read.
fn assert_tokens_increase(done: &Result<Acquire, leasehold_store::Error>, answers: &Answers) {
    if let Ok(Acquire::Acquired(acquired)) = done {
        let ((first, last), seen) = (acquired.tokens.bounds(), answers.token());
        assert!(first > seen && last < 1 << 53, "{acquired:?} after {seen}");
    }
}

async fn call(which: u64, answers: Arc<Answers>) -> String {
    let call = which % CALLS;
    let azure = config::Azure {
        account_url: Some("http://127.0.0.1:1/acme".to_owned()),
        account_key: Some(SecretText::new("c2VjcmV0LWtleQ==")),
        gc_after: if call == 11 { Duration::from_secs(3600) } else { Duration::ZERO },
        protect_container: call == 12,
        ..config::Azure::default()
    }
    .settings();
    let account = || Account::over(answers.transport(), &azure).unwrap();
    let mut entropy = Entropy::seeded(7);
    if call == 10 {
        // Each step has the timeout of a read.
        let report =
            by(20 * READ_TIMEOUT, doctor::diagnose(&account(), &azure, &mut entropy)).await;
        let messages = report.findings().iter().map(|finding| finding.message());
        return kind(&Ok::<_, ()>(messages.collect::<Vec<_>>()));
    }
    let store = AzureStore::new(account(), &azure, "test".to_owned(), entropy);
    let name = LockName::parse("", "a").unwrap();
    let id = LeaseId::new(0x0123_4567);
    let breaker = Breaker { by: "ops".into(), reason: "fuzz".into() };
    let params = |is_retry| AcquireParams {
        name: name.clone(),
        id,
        duration: LEASE,
        holder: Arc::default(),
        value: None,
        is_retry,
    };
    match call {
        0 => {
            let done = by(2 * LEASE, store.acquire(params(which >= CALLS))).await;
            assert_tokens_increase(&done, &answers);
            kind(&done)
        }
        1 => {
            let done = by(8 * READ_TIMEOUT, store.inspect(&name)).await;
            assert_eq!(answers.changes(), 0);
            kind(&done)
        }
        2 => {
            let namespace = Some(Namespace::parse("default").unwrap());
            let page = Page { namespace, prefix: String::new(), after: None, limit: 10 };
            let done = by(8 * READ_TIMEOUT, store.list(&page)).await;
            assert_eq!(answers.changes(), 0);
            kind(&done)
        }
        3 => kind(&by(CALL_TIMEOUT + CALL_TIMEOUT / 10, store.renew(&name, id, LEASE)).await),
        4 => kind(&by(CALL_TIMEOUT + CALL_TIMEOUT / 10, store.release(&name, id)).await),
        5 => kind(&by(2 * READ_TIMEOUT, store.break_lease(&name, breaker)).await),
        6 => {
            let done = by(LEASE, store.next_tokens(&name, id)).await;
            assert_tokens_increase(&done, &answers);
            kind(&done)
        }
        7 | 8 => {
            let value = (call == 8).then(|| Arc::from(&b"host:1"[..]));
            let token = Token::from_stored(5 << 20).unwrap();
            let held_for = Duration::from_secs(1);
            let publication = Publication { holder: Arc::default(), token, held_for, value };
            kind(&by(LEASE, store.publish(&name, id, publication)).await)
        }
        9 => kind(&by(LEASE, store.record_break(&name, breaker)).await),
        // Background work: garbage collection, and protection of the container.
        _ => {
            sleep(Duration::from_secs(600)).await;
            answers.assert_conditional_deletes();
            format!("{} changes", answers.changes())
        }
    }
}

#[test]
fn any_storage_response_ends_call_in_time_fuzzed() {
    Fuzz::new("storage-answer").nested().words(WORDS).run(|input| {
        let (which, answers) = script::read(input);
        format!("{} {}", which % CALLS, run(call(which, answers)))
    });
}
