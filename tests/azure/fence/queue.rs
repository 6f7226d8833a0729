//! Exclusive consumers of a queue, against Azurite and a real daemon.

use leasehold_client::{Client, Guard};
use leasehold_fence::{
    azure::Account,
    queue::{Error, Handled, Message, Queue, Written},
};
use leasehold_test_support::{
    Daemon,
    azurite::Azurite,
    proxy::{Fault, Match, Proxy, Refusal},
};
use std::time::Duration;

fn account(port: u16) -> Account {
    Account::from_connection_string(&Azurite::queue_connection_string(port)).unwrap()
}

/// Creates a queue with messages. The second creation checks that creating an
/// existing queue succeeds.
async fn queue(name: &str, messages: &[&str]) -> Queue {
    let queue = Queue::new(&account(Azurite::shared().queue_port()), name).unwrap();
    queue.create().await.unwrap();
    queue.create().await.unwrap();
    for text in messages {
        queue.send(text).await.unwrap();
    }
    queue
}

/// The queue through a proxy, with a call timeout of one second.
fn queue_via_proxy(proxy: &Proxy, queue: &Queue) -> Queue {
    let account = account(proxy.port()).call_timeout(Duration::from_secs(1));
    Queue::new(&account, queue.name()).unwrap()
}

fn proxy() -> Proxy {
    Proxy::start(Azurite::shared().queue_port())
}

async fn lock(daemon: &Daemon, queue: &Queue) -> Guard {
    let client = Client::connect(&*daemon.endpoint).await.unwrap();
    client.queue_lock("devstoreaccount1", queue.name()).unwrap().acquire().await.unwrap()
}

async fn succeeds(_: &Message) -> Result<(), String> {
    Ok(())
}

async fn fails(_: &Message) -> Result<(), String> {
    Err("not now".to_owned())
}

/// Waits for the next message and handles it.
async fn next(queue: &Queue, guard: &Guard) -> Message {
    leasehold_test_support::until(async || {
        match queue.consumer(guard).next(succeeds, succeeds).await.unwrap() {
            Handled::Done(message) | Handled::Poison(message) => Some(message),
            Handled::Empty => None,
            Handled::Failed(_, why) => panic!("{why}"),
        }
    })
    .await
}

async fn is_empty(queue: &Queue, guard: &Guard) -> bool {
    queue.consumer(guard).next(succeeds, succeeds).await.unwrap() == Handled::Empty
}

#[tokio::test]
async fn messages_are_delivered_in_order_and_deleted() {
    let texts = ["1", "  <b>&amp; \"é\"\n ", "", "3"];
    let queue = queue("in-order", &texts).await;
    let daemon = Daemon::start();
    let guard = lock(&daemon, &queue).await;
    for text in texts {
        let message = next(&queue, &guard).await;
        assert_eq!((message.text.as_str(), message.attempt), (text, 1));
        assert_eq!(message.token, guard.token());
        assert!(!message.id.is_empty());
    }
    assert!(is_empty(&queue, &guard).await);
    for (text, hint) in [("\u{1}", "can't contain '\\u{1}'"), (&*"x".repeat(65_537), "64 KiB")] {
        let error = queue.send(text).await.unwrap_err();
        assert!(
            matches!(error, Error::Invalid { .. }) && error.to_string().contains(hint),
            "{error}"
        );
    }
    let missing = Queue::new(&account(Azurite::shared().queue_port()), "no-such-queue").unwrap();
    let error = missing.consumer(&guard).next(succeeds, succeeds).await.unwrap_err();
    assert!(error.to_string().contains("no such queue"), "{error}");
}

#[tokio::test]
async fn failed_message_is_redelivered_then_poison() {
    let queue = queue("poison", &["bad"]).await;
    let daemon = Daemon::start();
    let guard = lock(&daemon, &queue).await;
    let consumer = queue.consumer(&guard).max_deliveries(2);
    let mut ids = Vec::new();
    for attempt in 1..=2 {
        let handled = consumer.next(fails, async |_| panic!("not yet")).await.unwrap();
        let Handled::Failed(message, why) = handled else { panic!("{handled:?}") };
        assert_eq!((message.attempt, why.as_str()), (attempt, "not now"));
        ids.push(message.id);
    }
    assert_eq!(ids[0], ids[1], "redelivery keeps the message ID");
    // If the poison handler fails, the message stays in the queue.
    let handled = consumer.next(async |_| panic!("it is poison"), fails).await.unwrap();
    assert!(matches!(handled, Handled::Failed(Message { attempt: 3, .. }, _)), "{handled:?}");
    let handled = consumer.next(async |_| panic!("it is poison"), succeeds).await.unwrap();
    assert!(matches!(handled, Handled::Poison(Message { attempt: 4, .. })), "{handled:?}");
    assert!(is_empty(&queue, &guard).await);
}

/// The processing takes longer than the visibility timeout.
#[tokio::test]
async fn message_stays_hidden_during_processing() {
    let queue = queue("long-work", &["a"]).await;
    let daemon = Daemon::start();
    let guard = lock(&daemon, &queue).await;
    let visible_to_others = async {
        leasehold_runtime::sleep(Duration::from_millis(3500)).await;
        !is_empty(&queue, &guard).await
    };
    let handled = queue
        .consumer(&guard)
        .visibility_timeout(Duration::from_secs(2))
        .next(
            async |_| {
                assert!(!visible_to_others.await, "the message was visible");
                Ok::<_, String>(())
            },
            succeeds,
        )
        .await
        .unwrap();
    assert!(matches!(handled, Handled::Done(_)), "{handled:?}");
    assert!(is_empty(&queue, &guard).await);
}

/// The lock is lost while a message is processed. The processing is stopped, the
/// message is not deleted, and the next holder receives it with a higher token.
#[tokio::test]
async fn lost_lock_prevents_delete() {
    let queue = queue("lost", &["a"]).await;
    let daemon = Daemon::start();
    let guard = lock(&daemon, &queue).await;
    let name = guard.name().to_owned();
    let operator = Client::connect(&*daemon.endpoint).await.unwrap();
    let consumer = queue.consumer(&guard);
    let error = consumer
        .next(
            async |_| {
                operator.break_lock(&name).by("the test").reason("a test").await.unwrap();
                std::future::pending::<Result<(), String>>().await
            },
            succeeds,
        )
        .await
        .unwrap_err();
    let Error::Lost { place, .. } = &error else { panic!("{error:?}") };
    assert_eq!(place.token, Some(guard.token()));
    assert!(error.to_string().contains("delivered again"), "{error}");
    assert!(matches!(consumer.next(succeeds, succeeds).await, Err(Error::Lost { .. })));
    let first = guard.token();
    drop(guard);
    let guard = lock(&daemon, &queue).await;
    let message = next(&queue, &guard).await;
    assert_eq!((message.text.as_str(), message.attempt), ("a", 2));
    assert!(message.token > first);
}

/// The processing is complete, but the lock is lost before the delete.
#[tokio::test]
async fn message_delete_requires_valid_grant() {
    let queue = queue("grant", &["a"]).await;
    let daemon = Daemon::start();
    let client = Client::connect(&*daemon.endpoint).await.unwrap();
    let guard = client.queue_lock("devstoreaccount1", "grant").unwrap().acquire().await.unwrap();
    let error = queue
        .consumer(&guard)
        .next(
            async |_| {
                // The grant and the processing end in one step.
                client.close().await;
                Ok::<_, String>(())
            },
            succeeds,
        )
        .await
        .unwrap_err();
    assert!(matches!(error, Error::Lost { .. }), "{error}");
    let guard = lock(&daemon, &queue).await;
    assert_eq!(next(&queue, &guard).await.attempt, 2);
}

#[tokio::test]
async fn redelivered_message_is_not_deleted_by_first_receiver() {
    let queue = queue("another", &["a"]).await;
    let daemon = Daemon::start();
    let guard = lock(&daemon, &queue).await;
    let proxy = proxy();
    let slow = queue_via_proxy(&proxy, &queue);
    // The message can't stay hidden, because no extension reaches the service.
    let error = slow
        .consumer(&guard)
        .visibility_timeout(Duration::from_secs(2))
        .next(
            async |_| {
                proxy.stall();
                std::future::pending::<Result<(), String>>().await
            },
            succeeds,
        )
        .await
        .unwrap_err();
    assert!(matches!(error, Error::VisibilityLost { .. }), "{error}");
    proxy.heal();
    assert_eq!(next(&queue, &guard).await.attempt, 2);
}

/// After a single fault of any kind, the message is deleted exactly once.
#[tokio::test]
async fn delete_completes_despite_faults() {
    let proxy = proxy();
    let queue = queue("deletes", &[]).await;
    let daemon = Daemon::start();
    let guard = lock(&daemon, &queue).await;
    let through = queue_via_proxy(&proxy, &queue);
    for fault in [
        Fault::DropResponse,
        Fault::ApplyThenRefuse(Refusal::INTERNAL_ERROR),
        Fault::Reset,
        Fault::Swallow,
        Fault::Refuse(Refusal::busy(Duration::from_secs(1))),
    ] {
        queue.send("a").await.unwrap();
        // The first call receives the message, the second deletes it.
        proxy.when(Match::any().container("deletes")).nth(2).times(1).then(fault);
        let handled = through.consumer(&guard).next(succeeds, succeeds).await;
        let handled = handled.unwrap_or_else(|error| panic!("{fault:?}: {error}"));
        assert!(matches!(handled, Handled::Done(_)), "{fault:?}: {handled:?}");
        assert!(is_empty(&queue, &guard).await, "{fault:?}");
    }
}

/// After a lost response, the service may have delivered a message. The consumer
/// waits for the visibility timeout, so that no later message overtakes it.
#[tokio::test]
async fn lost_receive_response_delays_next_receive() {
    let proxy = proxy();
    let queue = queue("taken", &["1", "2"]).await;
    let daemon = Daemon::start();
    let guard = lock(&daemon, &queue).await;
    let through = queue_via_proxy(&proxy, &queue);
    let consumer = through.consumer(&guard).visibility_timeout(Duration::from_secs(2));
    proxy.when(Match::any()).times(1).then(Fault::DropResponse);
    let error = consumer.next(succeeds, succeeds).await.unwrap_err();
    let Error::Unavailable { retry_after, written: Written::No, .. } = error else {
        panic!("{error:?}")
    };
    assert_eq!(retry_after, Duration::from_secs(2));
    leasehold_runtime::sleep(retry_after).await;
    let mut texts = vec![next(&queue, &guard).await.text, next(&queue, &guard).await.text];
    texts.sort();
    assert_eq!(texts, ["1", "2"]);
}

#[tokio::test]
async fn two_consumers_are_mutually_exclusive() {
    let texts: Vec<_> = (0..20).map(|n| n.to_string()).collect();
    let queue = queue("two", &texts.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let daemon = Daemon::start();
    let journal = std::sync::Mutex::new(Vec::new());
    let consume = async || {
        let mut handled = 0;
        loop {
            let guard = lock(&daemon, &queue).await;
            for _ in 0..3 {
                let handle = async |message: &Message| {
                    journal.lock().unwrap().push((message.token, message.text.clone()));
                    Ok::<_, String>(())
                };
                match queue.consumer(&guard).next(handle, succeeds).await.unwrap() {
                    Handled::Done(_) => handled += 1,
                    Handled::Empty => return handled,
                    other => panic!("{other:?}"),
                }
            }
            guard.release().await.unwrap();
        }
    };
    let (one, other) = tokio::join!(consume(), consume());
    assert!(one + other == 20 && one > 0 && other > 0, "{one} {other}");
    let journal = journal.into_inner().unwrap();
    assert!(journal.is_sorted_by_key(|(token, _)| *token), "{journal:?}");
    let handled: Vec<_> = journal.into_iter().map(|(_, text)| text).collect();
    assert_eq!(handled, texts);
}
