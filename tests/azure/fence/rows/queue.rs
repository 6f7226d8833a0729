//! Queues.

use hyper::Method;
use leasehold_client::Client;
use leasehold_fence::{
    azure::Account,
    queue::{Handled, Message, Queue},
};
use leasehold_test_support::{
    Daemon,
    azurite::Azurite,
    rest::{Call, Rest},
    until,
};

fn call(method: Method, path: &str) -> Call {
    Rest::at(Azurite::shared().queue_port()).call(method, path)
}

/// Creates a queue with one message.
async fn queue(name: &str) {
    call(Method::PUT, name).await.ok();
    let message = "<QueueMessage><MessageText>a</MessageText></QueueMessage>";
    call(Method::POST, &format!("{name}/messages")).body(message).await.ok();
}

/// Receives the next message. Returns its ID and receipt; None if no message is
/// visible.
async fn get(name: &str, visibility_timeout: &str) -> Option<(String, String)> {
    let messages = call(Method::GET, &format!("{name}/messages"));
    let body = messages.query("visibilitytimeout", visibility_timeout).await.ok().body;
    let element = |tag: &str| {
        let (_, rest) = body.split_once(&format!("<{tag}>"))?;
        Some(rest.split_once("</")?.0.to_owned())
    };
    Some((element("MessageId")?, element("PopReceipt")?))
}

fn delete(name: &str, (id, receipt): &(String, String)) -> Call {
    call(Method::DELETE, &format!("{name}/messages/{id}")).query("popreceipt", receipt)
}

/// Metadata of the queue. Messages have no such writes.
#[tokio::test]
async fn queue_last_writer_wins() {
    queue("queue-last").await;
    for owner in ["first", "second"] {
        let set = call(Method::PUT, "queue-last").query("comp", "metadata");
        set.metadata("owner", owner).await.ok();
    }
    let read = call(Method::GET, "queue-last").query("comp", "metadata").await.ok();
    assert_eq!(read.metadata()["owner"], "second");
}

/// The receipt acts as the version of a message.
#[tokio::test]
async fn queue_optimistic() {
    queue("queue-receipt").await;
    let first = get("queue-receipt", "1").await.unwrap();
    let second = until(async || get("queue-receipt", "30").await).await;
    assert_eq!(first.0, second.0, "the same message");
    let late = delete("queue-receipt", &first).await;
    assert!([400, 404].contains(&late.status), "{late:?}");
    delete("queue-receipt", &second).await.ok();
    assert_eq!(delete("queue-receipt", &second).await.is(), (404, "MessageNotFound"));
}

/// A received message is hidden from others for its visibility timeout.
#[tokio::test]
async fn queue_pessimistic() {
    queue("queue-hidden").await;
    let first = get("queue-hidden", "1").await.unwrap();
    assert_eq!(get("queue-hidden", "1").await, None, "the message is hidden");
    let again = until(async || get("queue-hidden", "30").await).await;
    assert_eq!(first.0, again.0, "redelivered while the first consumer may still process it");
}

#[tokio::test]
async fn queue_leasehold() {
    queue("queue-fence").await;
    let account = Azurite::queue_connection_string(Azurite::shared().queue_port());
    let account = Account::from_connection_string(&account).unwrap();
    let daemon = Daemon::start();
    let client = Client::connect(&*daemon.endpoint).await.unwrap();
    let lock = || client.queue_lock(account.name(), "queue-fence").unwrap();
    let guard = lock().acquire().await.unwrap();
    let second = client.new_session();
    let second = second.queue_lock(account.name(), "queue-fence").unwrap();
    assert!(second.no_wait().acquire().await.is_err(), "one consumer at a time");
    let handle = async |message: &Message| {
        assert_eq!(message.token, guard.token());
        Ok::<_, String>(())
    };
    let queue = Queue::new(&account, "queue-fence").unwrap();
    let handled = queue.consumer(&guard).next(handle, async |_| Ok(())).await.unwrap();
    assert!(matches!(handled, Handled::Done(_)), "{handled:?}");
}
