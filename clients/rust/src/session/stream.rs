//! The task that keeps a session attached: connects, reads, pings, and comes
//! back after a break.

use std::{pin::pin, sync::Arc};

use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{Code, Status, Streaming};

use super::{
    attachment::{Next, Setback},
    backoff::Backoff,
    pings::Sent,
    shared::Shared,
};
use crate::{
    Reason, clock, clock::Moment, connection::Connection, pb, pb::attach_response::Message, status,
};

/// Runs until there is nothing to keep alive. Started by whoever needs a
/// stream and finds none running.
pub(super) async fn run(shared: Arc<Shared>, connection: Arc<Connection>) {
    let mut watch = Watch { shared, rests: false };
    let shared = Arc::clone(&watch.shared);
    let mut backoff = Backoff::new();
    loop {
        let setback = attach(&shared, &connection, &mut backoff).await;
        let next = shared.update(|inner| {
            inner.outgoing = None;
            let next = inner.state.detach(setback, Moment::now());
            // In the same breath, so that a request that comes now either is
            // seen by this task or starts a new one.
            inner.running = next != Next::Rest;
            next
        });
        match next {
            Next::TryAgain => {}
            Next::TryAgainLater => clock::sleep(backoff.next()).await,
            Next::Rest => {
                watch.rests = true;
                return;
            }
        }
    }
}

/// Sees that nobody waits for a task that is gone: the runtime may drop it in
/// the middle of its work.
struct Watch {
    shared: Arc<Shared>,
    rests: bool,
}

impl Drop for Watch {
    fn drop(&mut self) {
        if !self.rests {
            let mut inner = self.shared.lock();
            inner.running = false;
            inner.outgoing = None;
            inner.waiters.clear();
        }
        self.shared.rested.notify_waiters();
    }
}

/// One stream, from its beginning to its end.
async fn attach(shared: &Shared, connection: &Connection, backoff: &mut Backoff) -> Setback {
    let (outgoing, messages) = mpsc::unbounded_channel();
    shared.update(|inner| {
        let first = inner.state.begin(Sent::now());
        // It can't have ended: its other half is here.
        let _ = outgoing.send(pb::AttachRequest { message: Some(first) });
        inner.outgoing = Some(outgoing);
    });
    let generation = connection.generation();
    let opening = open(connection, UnboundedReceiverStream::new(messages));
    let (first, mut incoming) = tokio::select! {
        opened = opening => match opened {
            Ok(opened) => opened,
            Err(setback) => return setback,
        },
        () = clock::sleep(connection.timeout()) => {
            connection.renew(generation);
            return Setback::Broken(format!("no answer within {:?}", connection.timeout()));
        }
    };
    hear(shared, first);
    backoff.reset();
    loop {
        let Some(next_ping) = shared.lock().state.next_ping() else {
            return Setback::Broken("the daemon did not begin as the protocol says".to_owned());
        };
        let mut due = pin!(clock::sleep_until(next_ping));
        loop {
            tokio::select! {
                biased;
                () = &mut due => break,
                message = incoming.message() => match message {
                    Ok(Some(message)) => hear(shared, message),
                    Ok(None) => return Setback::Ended,
                    Err(status) => return setback(&status),
                },
            }
        }
        if shared.lock().state.is_closing() {
            return Setback::Broken("the daemon did not end the session".to_owned());
        }
        if shared.lock().state.is_owed_an_answer() {
            connection.renew(generation);
            return Setback::Broken("the daemon does not answer keep-alives".to_owned());
        }
        shared.update(|inner| inner.state.ping(Sent::now()));
    }
}

async fn open(
    connection: &Connection,
    messages: UnboundedReceiverStream<pb::AttachRequest>,
) -> Result<(pb::AttachResponse, Streaming<pb::AttachResponse>), Setback> {
    let response = connection.sessions().attach(messages).await;
    let mut incoming = response.map_err(|status| setback(&status))?.into_inner();
    match incoming.message().await {
        Ok(Some(first)) => Ok((first, incoming)),
        Ok(None) => Err(Setback::Ended),
        Err(status) => Err(setback(&status)),
    }
}

fn hear(shared: &Shared, response: pb::AttachResponse) {
    let Some(message) = response.message else { return };
    shared.update(|inner| {
        // The clocks are compared where a promise would be lengthened.
        if matches!(message, Message::KeptAlive(_) | Message::Opened(_)) {
            inner.check_leap();
        }
        inner.state.hear(message, Moment::now());
    });
}

fn setback(status: &Status) -> Setback {
    let permanent = matches!(
        status.code(),
        Code::Unimplemented | Code::PermissionDenied | Code::Unauthenticated
    );
    match status::reason(status) {
        Some(Reason::UnknownSession | Reason::Expired) => Setback::UnknownSession,
        Some(Reason::Invalid | Reason::ProtocolVersion | Reason::Protocol | Reason::DataLoss) => {
            Setback::Refused(status::error(status))
        }
        Some(_) => Setback::NotNow(status::error(status)),
        None if permanent => Setback::Refused(status::error(status)),
        None => Setback::Broken(status::message(status)),
    }
}
