//! One client's connection, and what becomes of its calls.

use std::{future::pending, sync::Arc};

use http_body_util::{BodyExt, Full};
use hyper::{
    Request, Response, body::Bytes, body::Incoming, header::HeaderValue, server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use leasehold_time::Moment;
use tokio::{
    net::TcpStream,
    sync::{mpsc, watch},
};

use super::{Shared, call::token, record::CallId, rule::Fault};

/// How a call ends that is not answered.
enum Silence {
    /// The connection is closed.
    Close,
    /// The connection is reset.
    Reset,
    /// The connection is left as it is.
    Wait,
}

/// Serves a client until it leaves, a call ends its connection, or all are
/// reset.
pub(super) async fn serve(client: TcpStream, shared: Arc<Shared>, mut reset: watch::Receiver<()>) {
    _ = client.set_nodelay(true);
    let (hang_up, mut hung_up) = mpsc::unbounded_channel();
    let service = service_fn(move |request| answer(Arc::clone(&shared), hang_up.clone(), request));
    let mut connection = http1::Builder::new()
        .preserve_header_case(true)
        .serve_connection(TokioIo::new(client), service);
    let silence = tokio::select! {
        biased;
        _ = reset.changed() => Silence::Reset,
        Some(silence) = hung_up.recv() => silence,
        _ = &mut connection => return,
    };
    let client = connection.into_parts().io.into_inner();
    if matches!(silence, Silence::Reset) {
        _ = client.set_zero_linger();
    }
}

/// Dropped when the client leaves.
async fn answer(
    shared: Arc<Shared>,
    hang_up: mpsc::UnboundedSender<Silence>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let (head, body) = request.into_parts();
    // Before the call is recorded: whoever has seen it can let it go.
    let let_go = shared.let_go.subscribe();
    let (underway, fault) = shared.record.arrived(&head);
    let request = Request::from_parts(head, Full::new(body.collect().await?.to_bytes()));
    shared.requests_pass().await;
    // In a task of its own, so that it goes on without the client.
    let call = Call { shared: Arc::clone(&shared), id: underway.id(), request, let_go };
    let carried = tokio::spawn(call.carry(fault));
    let carried = carried.await.unwrap_or(Err(Silence::Close));
    shared.answers_pass().await;
    match carried {
        Ok(response) => {
            underway.answered(response.status().as_u16());
            Ok(response)
        }
        Err(Silence::Wait) => pending().await,
        Err(silence) => {
            _ = hang_up.send(silence);
            pending().await
        }
    }
}

/// A call that came through the link.
struct Call {
    shared: Arc<Shared>,
    id: CallId,
    request: Request<Full<Bytes>>,
    let_go: watch::Receiver<()>,
}

impl Call {
    async fn carry(mut self, fault: Option<Fault>) -> Result<Response<Full<Bytes>>, Silence> {
        match fault {
            None => self.forward().await,
            Some(Fault::Delay(length)) => {
                leasehold_runtime::sleep(length).await;
                self.forward().await
            }
            Some(Fault::DelayAnswer(length)) => {
                let answer = self.forward().await;
                leasehold_runtime::sleep(length).await;
                answer
            }
            Some(Fault::Hold) => {
                self.let_go().await;
                self.forward().await
            }
            Some(Fault::HoldAnswer) => {
                let answer = self.forward().await;
                self.let_go().await;
                answer
            }
            Some(Fault::DropAnswer) => {
                self.forward().await?;
                Err(Silence::Close)
            }
            Some(Fault::Reset) => Err(Silence::Reset),
            Some(Fault::Swallow) => Err(Silence::Wait),
            Some(Fault::Answer(refusal)) => Ok(refusal.response()),
            Some(Fault::ApplyThenAnswer(refusal)) => {
                self.forward().await?;
                Ok(refusal.response())
            }
            Some(Fault::Duplicate { after }) => {
                let answer = self.forward().await;
                tokio::spawn(async move {
                    leasehold_runtime::sleep(after).await;
                    self.repeat().await;
                });
                answer
            }
            Some(Fault::HoldDuplicate) => {
                let answer = self.forward().await;
                tokio::spawn(async move {
                    self.let_go().await;
                    self.repeat().await;
                });
                answer
            }
            Some(Fault::HoldReplay) => {
                self.forward().await?;
                self.let_go().await;
                self.forward().await
            }
            Some(Fault::Header { name, value }) => {
                let mut answer = self.forward().await?;
                answer.headers_mut().insert(name, HeaderValue::from_static(value));
                Ok(answer)
            }
        }
    }

    async fn let_go(&mut self) {
        _ = self.let_go.changed().await;
    }

    /// An upstream that is not there, or leaves, looks like a broken connection.
    async fn forward(&self) -> Result<Response<Full<Bytes>>, Silence> {
        self.shared.record.update(self.id, |seen| seen.forwarded = Some(Moment::now()));
        let answer = self.shared.upstream.send(self.request.clone()).await;
        let answer = answer.map_err(|_| Silence::Reset)?;
        let (status, kept) = (answer.status().as_u16(), token(answer.headers()));
        self.shared.record.update(self.id, |seen| {
            seen.upstream = Some(status);
            seen.kept = kept;
        });
        Ok(answer)
    }

    async fn repeat(self) {
        self.shared.record.update(self.id, |seen| seen.repeated_at = Some(Moment::now()));
        if let Ok(answer) = self.shared.upstream.send(self.request).await {
            let status = answer.status().as_u16();
            self.shared.record.update(self.id, |seen| seen.repeated = Some(status));
        }
    }
}
