//! A queue, by its REST interface.

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

/// The largest message, in bytes.
const LARGEST: usize = 64 << 10;

/// A queue of a storage account. Cheap to clone. To take messages, hold its
/// lock and use a [`consumer`](Self::consumer).
#[derive(Clone, Debug)]
pub struct Queue {
    service: Arc<Service>,
    place: Place,
}

/// A message that was got, and what it is changed and deleted by.
pub(super) struct Got {
    pub(super) message: Message,
    pub(super) receipt: String,
}

/// As the service sends them.
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
    /// A queue of this name. Nothing is sent.
    ///
    /// # Errors
    /// [`Error::Invalid`] if no queue can have this name.
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

    /// The queue's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.place.queue
    }

    /// Takes messages under a lock, as long as it is held.
    pub fn consumer<'a>(&self, guard: &'a Guard) -> Consumer<'a> {
        Consumer::new(self.clone(), guard)
    }

    /// Creates the queue if it is not there.
    ///
    /// # Errors
    /// [`Error::Unavailable`], or [`Error::Invalid`] if it is not allowed.
    pub async fn create(&self) -> Result<(), Error> {
        let request = Request::new(self.service.url(self.name()), Method::Put);
        let mut retries = Retries::for_service();
        loop {
            match self.send_request(request.clone()).await {
                Ok(_) => return Ok(()),
                Err(fault) if fault.may_pass() && retries.again(fault.retry_after()).await => {}
                Err(fault) => return Err(Error::of(&fault, &self.place, true)),
            }
        }
    }

    /// Puts a message at the end of the queue. It needs no lock. It is sent
    /// once: if the answer is lost, it may be in the queue all the same.
    ///
    /// The text is stored as it is. Some consumers, Azure Functions among them,
    /// expect it in Base64.
    ///
    /// # Errors
    /// [`Error::Invalid`] for what can't be a message, or if it is not allowed;
    /// [`Error::Unavailable`].
    pub async fn send(&self, text: &str) -> Result<(), Error> {
        let body = format!("<QueueMessage><MessageText>{}</MessageText></QueueMessage>", xml(text));
        let odd =
            |c: &char| c.is_control() && !"\t\n".contains(*c) || "\u{fffe}\u{ffff}".contains(*c);
        if let Some(c) = text.chars().find(odd) {
            let message =
                format!("a message can't have {c:?} in it. Encode it, for instance in Base64");
            return Err(Error::invalid(&self.place, message));
        }
        if text.len() > LARGEST {
            let message =
                format!("a message has 64 KiB at most; this one has {} bytes", text.len());
            return Err(Error::invalid(&self.place, message));
        }
        let url = self.service.url(&format!("{}/messages", self.name()));
        let mut request = Request::new(url, Method::Post);
        request.insert_header(CONTENT_TYPE, "application/xml");
        request.set_body(body);
        let sent = self.send_request(request).await;
        sent.map(drop).map_err(|fault| Error::of(&fault, &self.place, true))
    }

    /// Takes the next message, and hides it from others for a while. Not
    /// repeated: each call takes another.
    pub(super) async fn get(&self, token: Token, hide: Duration) -> Result<Option<Got>, Fault> {
        let mut url = self.service.url(&format!("{}/messages", self.name()));
        url.query_pairs_mut()
            .append_pair("numofmessages", "1")
            .append_pair("visibilitytimeout", &hide.as_secs().to_string());
        first(&self.send_request(Request::new(url, Method::Get)).await?, token)
    }

    /// Hides a message for longer, or shows it at once. The new receipt.
    pub(super) async fn hide(
        &self,
        id: &str,
        receipt: &str,
        hide: Duration,
    ) -> Result<String, Fault> {
        let seconds = hide.as_secs().to_string();
        let request = self.about(id, receipt, Method::Put, &[("visibilitytimeout", &seconds)]);
        let answer = self.send_request(request).await?;
        header(&answer, "x-ms-popreceipt")
            .map(str::to_owned)
            .ok_or_else(|| Fault::Unclear { why: "the service's answer has no receipt".to_owned() })
    }

    pub(super) async fn delete(&self, id: &str, receipt: &str) -> Result<(), Fault> {
        self.send_request(self.about(id, receipt, Method::Delete, &[])).await.map(drop)
    }

    fn about(&self, id: &str, receipt: &str, method: Method, more: &[(&str, &str)]) -> Request {
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

/// The first message of a list.
fn first(answer: &Response, token: Token) -> Result<Option<Got>, Fault> {
    let list: List = from_xml(&answer.body).map_err(|_| Fault::Unclear {
        why: "the service's answer is not a list of messages".to_owned(),
    })?;
    Ok(list.messages.into_iter().next().map(|raw| Got {
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

    fn read(body: &[u8]) -> Result<Option<Got>, Fault> {
        let body = Bytes::copy_from_slice(body);
        first(&Response { status: 200, headers: Headers::new(), body }, Token::new(7))
    }

    #[test]
    fn a_message_that_is_read_is_sent_and_read_alike() {
        Fuzz::new("queue-message").words(WORDS).run(|input| match read(input) {
            Ok(Some(Got { message, receipt })) => {
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
