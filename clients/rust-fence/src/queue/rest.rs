//! REST calls for one queue.

use std::{sync::Arc, time::Duration};

use azure_core::{
    http::{Method, Request, headers::CONTENT_TYPE},
    xml::from_xml,
};
use leasehold_azure_account::{Account, Fault, Response, Service, ServiceKind};
use leasehold_client::{Guard, Token, designated::Resource};
use serde::Deserialize;

use super::{Consumer, Error, Message, Place};
use crate::{
    escape::escape,
    fault::{header, success},
    retry::Retries,
};

/// Maximum size of a message.
const MAX_MESSAGE_BYTES: usize = 64 << 10;

/// A queue of a storage account. Cheap to clone. To receive messages, acquire its
/// lock and create a [`consumer`](Self::consumer).
#[derive(Clone, Debug)]
pub struct Queue {
    service: Arc<Service>,
    place: Place,
}

/// Received message, and the receipt that updates and deletes it.
pub(super) struct Received {
    pub(super) message: Message,
    pub(super) receipt: String,
}

/// Response of the service.
#[derive(Deserialize)]
struct List {
    #[serde(rename = "QueueMessage", default)]
    messages: Vec<Raw>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Raw {
    message_id: String,
    pop_receipt: String,
    dequeue_count: u32,
    #[serde(default)]
    message_text: String,
}

impl Queue {
    /// Creates a handle of the queue with this name. Sends nothing.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the name is not valid.
    pub fn new(account: &Account, name: &str) -> Result<Self, Error> {
        let place = Place { queue: name.to_owned(), ..Place::default() };
        let resource = Resource::Queue { account: account.name(), queue: name };
        if let Err(leasehold_client::Error::Invalid { message, .. }) = resource.lock_name() {
            return Err(Error::invalid(&place, message));
        }
        let service = account
            .service(ServiceKind::Queue)
            .map_err(|error| Error::invalid(&place, error.to_string()))?;
        Ok(Self { service: Arc::new(service), place })
    }

    /// Name of the queue.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.place.queue
    }

    /// Creates a consumer that receives messages while `guard` holds the lock.
    pub fn consumer<'a>(&self, guard: &'a Guard) -> Consumer<'a> {
        Consumer::new(self.clone(), guard)
    }

    /// Creates the queue if it does not exist.
    ///
    /// # Errors
    /// [`Error::Unavailable`]; [`Error::Invalid`] if the credential does not permit it.
    pub async fn create(&self) -> Result<(), Error> {
        let request = Request::new(self.service.url(self.name()), Method::Put);
        let mut retries = Retries::for_service();
        loop {
            match self.send_request(request.clone()).await {
                Ok(_) => return Ok(()),
                Err(fault)
                    if fault.may_pass() && retries.next_attempt(fault.retry_after()).await => {}
                Err(fault) => return Err(Error::of(&fault, &self.place, true)),
            }
        }
    }

    /// Adds a message to the queue. Needs no lock. Makes one attempt: if the response
    /// is lost, the message may be in the queue.
    ///
    /// The text is stored unchanged. Some consumers, such as Azure Functions, expect
    /// Base64.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the text is too long or contains an invalid character, or
    /// if the credential does not permit the call; [`Error::Unavailable`].
    pub async fn send(&self, text: &str) -> Result<(), Error> {
        let body = format!("<QueueMessage><MessageText>{}</MessageText></QueueMessage>", xml(text));
        let invalid =
            |c: &char| c.is_control() && !"\t\n".contains(*c) || "\u{fffe}\u{ffff}".contains(*c);
        if let Some(c) = text.chars().find(invalid) {
            let message =
                format!("a message can't contain {c:?}; encode it, for example in Base64");
            return Err(Error::invalid(&self.place, message));
        }
        if text.len() > MAX_MESSAGE_BYTES {
            let message = format!("the message has {} bytes; the maximum is 64 KiB", text.len());
            return Err(Error::invalid(&self.place, message));
        }
        let url = self.service.url(&format!("{}/messages", self.name()));
        let mut request = Request::new(url, Method::Post);
        request.insert_header(CONTENT_TYPE, "application/xml");
        request.set_body(body);
        let sent = self.send_request(request).await;
        sent.map(drop).map_err(|fault| Error::of(&fault, &self.place, true))
    }

    /// Receives the next message and hides it from other consumers. Not retried,
    /// because each call receives another message.
    pub(super) async fn receive(
        &self,
        token: Token,
        hide: Duration,
    ) -> Result<Option<Received>, Fault> {
        let mut url = self.service.url(&format!("{}/messages", self.name()));
        url.query_pairs_mut()
            .append_pair("numofmessages", "1")
            .append_pair("visibilitytimeout", &hide.as_secs().to_string());
        first(&self.send_request(Request::new(url, Method::Get)).await?, token)
    }

    /// Sets the visibility timeout of a message; with 0, it becomes visible at once.
    /// Returns the new receipt.
    pub(super) async fn set_timeout(
        &self,
        id: &str,
        receipt: &str,
        hide: Duration,
    ) -> Result<String, Fault> {
        let seconds = hide.as_secs().to_string();
        let request =
            self.message_request(id, receipt, Method::Put, &[("visibilitytimeout", &seconds)]);
        let response = self.send_request(request).await?;
        header(&response, "x-ms-popreceipt")
            .map(str::to_owned)
            .ok_or_else(|| Fault::Unclear { why: "the response has no receipt".to_owned() })
    }

    pub(super) async fn delete(&self, id: &str, receipt: &str) -> Result<(), Fault> {
        self.send_request(self.message_request(id, receipt, Method::Delete, &[])).await.map(drop)
    }

    fn message_request(
        &self,
        id: &str,
        receipt: &str,
        method: Method,
        more: &[(&str, &str)],
    ) -> Request {
        let path = format!("{}/messages/{}", self.name(), escape(id, b""));
        let mut url = self.service.url(&path);
        url.query_pairs_mut().append_pair("popreceipt", receipt).extend_pairs(more);
        Request::new(url, method)
    }

    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    async fn send_request(&self, request: Request) -> Result<Response, Fault> {
        success(self.service.send(request).await?)
    }
}

/// Parses a list of messages and returns the first one.
fn first(response: &Response, token: Token) -> Result<Option<Received>, Fault> {
    let list: List = from_xml(&response.body)
        .map_err(|_| Fault::Unclear { why: "the response is not a list of messages".to_owned() })?;
    Ok(list.messages.into_iter().next().map(|raw| Received {
        message: Message {
            id: raw.message_id,
            text: raw.message_text,
            attempt: raw.dequeue_count,
            token,
        },
        receipt: raw.pop_receipt,
    }))
}

fn xml(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod fuzz {
    use azure_core::{Bytes, http::headers::Headers};
    use leasehold_fuzz::Fuzz;

    use super::*;

    const WORDS: &[&str] = &[
        "<QueueMessagesList>",
        "</QueueMessagesList>",
        "<QueueMessage>",
        "</QueueMessage>",
        "<MessageId>a</MessageId>",
        "<PopReceipt>b</PopReceipt>",
        "<DequeueCount>1</DequeueCount>",
        "<MessageText>",
        "</MessageText>",
        "&amp;",
        "&#13;",
        "<![CDATA[",
        "<!DOCTYPE x [<!ENTITY y \"z\">]>",
    ];

    fn read(body: &[u8]) -> Result<Option<Received>, Fault> {
        let body = Bytes::copy_from_slice(body);
        first(&Response { status: 200, headers: Headers::new(), body }, Token::new(7))
    }

    #[test]
    fn received_message_round_trips_fuzzed() {
        Fuzz::new("queue-message").words(WORDS).run(|input| match read(input) {
            Ok(Some(Received { message, receipt })) => {
                let Message { id, text, attempt, token } = &message;
                assert_eq!(*token, Token::new(7));
                if !text.chars().any(char::is_control) {
                    let again = format!(
                        "<QueueMessagesList><QueueMessage><MessageId>{}</MessageId><PopReceipt>{}\
                         </PopReceipt><DequeueCount>{attempt}</DequeueCount><MessageText>{}\
                         </MessageText></QueueMessage></QueueMessagesList>",
                        xml(id),
                        xml(&receipt),
                        xml(text)
                    );
                    let again = read(again.as_bytes()).ok().flatten().expect("it has a message");
                    assert_eq!(again.message.text.trim(), text.trim());
                }
                format!("{} {}", text.is_empty(), id.is_empty())
            }
            Ok(None) => "none".to_owned(),
            Err(fault) => {
                assert!(fault.is_unclear(), "{fault:?}");
                "unclear".to_owned()
            }
        });
    }
}
