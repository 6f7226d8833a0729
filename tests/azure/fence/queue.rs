//! One consumer of a queue at a time, against Azurite and a real daemon.
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
    Account::from_connection_string(&Azurite::queues_via(port)).unwrap()
}

/// A queue that was created for the test of this name, with these messages.
async fn queue(name: &str, messages: &[&str]) -> Queue {
    let queue = Queue::new(&account(Azurite::shared().queue_port()), name).unwrap();
    queue.create().await.unwrap();
    queue.create().await.unwrap();
    for text in messages {
        queue.send(text).await.unwrap();
    }
    queue
}

/// The same through a proxy, by which calls take a second at most.
fn behind(proxy: &Proxy, queue: &Queue) -> Queue {
    let account = account(proxy.port()).call_limit(Duration::from_secs(1));
    Queue::new(&account, queue.name()).unwrap()
}

fn proxy() -> Proxy {
    Proxy::start(Azurite::shared().queue_port())
}

async fn lock(daemon: &Daemon, queue: &Queue) -> Guard {
    let client = Client::connect(&*daemon.endpoint).await.unwrap();
    client.queue_lock("devstoreaccount1", queue.name()).unwrap().acquire().await.unwrap()
}

async fn fine(_: &Message) -> Result<(), String> {
    Ok(())
}

async fn fails(_: &Message) -> Result<(), String> {
    Err("not now".to_owned())
}

/// Handles the next message that comes.
async fn next(queue: &Queue, guard: &Guard) -> Message {
    leasehold_test_support::until(async || {
        match queue.consumer(guard).next(fine, fine).await.unwrap() {
            Handled::Done(message) | Handled::Poison(message) => Some(message),
            Handled::Empty => None,
            Handled::Failed(_, why) => panic!("{why}"),
        }
    })
    .await
}

async fn is_empty(queue: &Queue, guard: &Guard) -> bool {
    queue.consumer(guard).next(fine, fine).await.unwrap() == Handled::Empty
}

#[tokio::test]
async fn messages_come_in_order_and_are_deleted() {
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
    for (text, hint) in [("\u{1}", "can't have '\\u{1}'"), (&*"x".repeat(65_537), "64 KiB")] {
        let error = queue.send(text).await.unwrap_err();
        assert!(
            matches!(error, Error::Invalid { .. }) && error.to_string().contains(hint),
            "{error}"
        );
    }
    let nowhere = Queue::new(&account(Azurite::shared().queue_port()), "no-such-queue").unwrap();
    let error = nowhere.consumer(&guard).next(fine, fine).await.unwrap_err();
    assert!(error.to_string().contains("there is no such queue"), "{error}");
}

#[tokio::test]
async fn what_fails_comes_again_and_is_poison_in_the_end() {
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
    assert_eq!(ids[0], ids[1], "by which it is known again");
    // One that can't be put aside stays.
    let handled = consumer.next(async |_| panic!("it is poison"), fails).await.unwrap();
    assert!(matches!(handled, Handled::Failed(Message { attempt: 3, .. }, _)), "{handled:?}");
    let handled = consumer.next(async |_| panic!("it is poison"), fine).await.unwrap();
    assert!(matches!(handled, Handled::Poison(Message { attempt: 4, .. })), "{handled:?}");
    assert!(is_empty(&queue, &guard).await);
}

/// The work takes longer than a message is hidden at a time.
#[tokio::test]
async fn a_message_is_kept_hidden_while_it_is_worked_on() {
    let queue = queue("long-work", &["a"]).await;
    let daemon = Daemon::start();
    let guard = lock(&daemon, &queue).await;
    let seen_by_others = async {
        leasehold_runtime::sleep(Duration::from_millis(3500)).await;
        !is_empty(&queue, &guard).await
    };
    let handled = queue
        .consumer(&guard)
        .visibility_timeout(Duration::from_secs(2))
        .next(
            async |_| {
                assert!(!seen_by_others.await, "it was visible");
                Ok::<_, String>(())
            },
            fine,
        )
        .await
        .unwrap();
    assert!(matches!(handled, Handled::Done(_)), "{handled:?}");
    assert!(is_empty(&queue, &guard).await);
}

/// The lock is lost while a message is worked on: the work ends, the message is
/// not deleted, and the next holder gets it, with a greater token.
#[tokio::test]
async fn who_loses_the_lock_deletes_nothing() {
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
            fine,
        )
        .await
        .unwrap_err();
    let Error::Lost { place, .. } = &error else { panic!("{error:?}") };
    assert_eq!(place.token, Some(guard.token()));
    assert!(error.to_string().contains("delivered again"), "{error}");
    assert!(matches!(consumer.next(fine, fine).await, Err(Error::Lost { .. })));
    let first = guard.token();
    drop(guard);
    let guard = lock(&daemon, &queue).await;
    let message = next(&queue, &guard).await;
    assert_eq!((message.text.as_str(), message.attempt), ("a", 2));
    assert!(message.token > first);
}

/// The work is done, but the lock is lost before the message is deleted.
#[tokio::test]
async fn a_message_is_deleted_with_a_valid_grant_only() {
    let queue = queue("grant", &["a"]).await;
    let daemon = Daemon::start();
    let client = Client::connect(&*daemon.endpoint).await.unwrap();
    let guard = client.queue_lock("devstoreaccount1", "grant").unwrap().acquire().await.unwrap();
    let error = queue
        .consumer(&guard)
        .next(
            async |_| {
                // The grant ends, and the work too, in one step.
                client.close().await;
                Ok::<_, String>(())
            },
            fine,
        )
        .await
        .unwrap_err();
    assert!(matches!(error, Error::Lost { .. }), "{error}");
    let guard = lock(&daemon, &queue).await;
    assert_eq!(next(&queue, &guard).await.attempt, 2);
}

#[tokio::test]
async fn a_message_that_another_has_got_is_not_deleted() {
    let queue = queue("another", &["a"]).await;
    let daemon = Daemon::start();
    let guard = lock(&daemon, &queue).await;
    let proxy = proxy();
    let slow = behind(&proxy, &queue);
    // It can't be kept hidden: no extension gets through.
    let error = slow
        .consumer(&guard)
        .visibility_timeout(Duration::from_secs(2))
        .next(
            async |_| {
                proxy.freeze();
                std::future::pending::<Result<(), String>>().await
            },
            fine,
        )
        .await
        .unwrap_err();
    assert!(matches!(error, Error::VisibilityLost { .. }), "{error}");
    proxy.heal();
    assert_eq!(next(&queue, &guard).await.attempt, 2);
}

/// Whatever happens to the delete once, the message is gone, once.
#[tokio::test]
async fn a_delete_is_seen_to_its_end() {
    let proxy = proxy();
    let queue = queue("deletes", &[]).await;
    let daemon = Daemon::start();
    let guard = lock(&daemon, &queue).await;
    let through = behind(&proxy, &queue);
    for fault in [
        Fault::DropAnswer,
        Fault::ApplyThenAnswer(Refusal::INTERNAL_ERROR),
        Fault::Reset,
        Fault::Swallow,
        Fault::Answer(Refusal::busy(Duration::from_secs(1))),
    ] {
        queue.send("a").await.unwrap();
        // The first call gets the message, the second deletes it.
        proxy.when(Match::any().container("deletes")).nth(2).times(1).then(fault);
        let handled = through.consumer(&guard).next(fine, fine).await;
        let handled = handled.unwrap_or_else(|error| panic!("{fault:?}: {error}"));
        assert!(matches!(handled, Handled::Done(_)), "{fault:?}: {handled:?}");
        assert!(is_empty(&queue, &guard).await, "{fault:?}");
    }
}

/// Who asked for a message and got no answer may have taken it: it waits for as
/// long as that would be hidden, so that none overtakes it.
#[tokio::test]
async fn a_message_that_may_have_been_taken_is_waited_for() {
    let proxy = proxy();
    let queue = queue("taken", &["1", "2"]).await;
    let daemon = Daemon::start();
    let guard = lock(&daemon, &queue).await;
    let through = behind(&proxy, &queue);
    let consumer = through.consumer(&guard).visibility_timeout(Duration::from_secs(2));
    proxy.when(Match::any()).times(1).then(Fault::DropAnswer);
    let error = consumer.next(fine, fine).await.unwrap_err();
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
async fn two_consumers_do_not_meet() {
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
                match queue.consumer(&guard).next(handle, fine).await.unwrap() {
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
