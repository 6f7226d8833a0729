//! Connection of one client and the processing of its calls.

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

/// End of a call without a response.
enum NoResponse {
    /// Closes the connection.
    Close,
    /// Resets the connection.
    Reset,
    /// Keeps the connection open.
    Wait,
}

/// Serves a client until it disconnects, a call ends its connection, or all
/// connections are reset.
pub(super) async fn serve(client: TcpStream, shared: Arc<Shared>, mut reset: watch::Receiver<()>) {
    _ = client.set_nodelay(true);
    let (end, mut ended) = mpsc::unbounded_channel();
    let service = service_fn(move |request| handle(Arc::clone(&shared), end.clone(), request));
    let mut connection = http1::Builder::new()
        .preserve_header_case(true)
        .serve_connection(TokioIo::new(client), service);
    let no_response = tokio::select! {
        biased;
        _ = reset.changed() => NoResponse::Reset,
        Some(no_response) = ended.recv() => no_response,
        _ = &mut connection => return,
    };
    let client = connection.into_parts().io.into_inner();
    if matches!(no_response, NoResponse::Reset) {
        _ = client.set_zero_linger();
    }
}

/// Handles a request. Dropped when the client disconnects.
async fn handle(
    shared: Arc<Shared>,
    end: mpsc::UnboundedSender<NoResponse>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let (head, body) = request.into_parts();
    // Subscribe before the call is recorded, so that a test that finds the call
    // in the record can release it.
    let release = shared.release.subscribe();
    let (pending_call, fault) = shared.record.add_call(&head);
    let request = Request::from_parts(head, Full::new(body.collect().await?.to_bytes()));
    shared.requests_pass().await;
    // In a separate task, so that the call continues without the client.
    let call = Call { shared: Arc::clone(&shared), id: pending_call.id(), request, release };
    let result = tokio::spawn(call.process(fault));
    let result = result.await.unwrap_or(Err(NoResponse::Close));
    shared.responses_pass().await;
    match result {
        Ok(response) => {
            pending_call.complete(response.status().as_u16());
            Ok(response)
        }
        Err(NoResponse::Wait) => pending().await,
        Err(no_response) => {
            _ = end.send(no_response);
            pending().await
        }
    }
}

/// A call that passed the link.
struct Call {
    shared: Arc<Shared>,
    id: CallId,
    request: Request<Full<Bytes>>,
    release: watch::Receiver<()>,
}

impl Call {
    async fn process(mut self, fault: Option<Fault>) -> Result<Response<Full<Bytes>>, NoResponse> {
        match fault {
            None => self.forward().await,
            Some(Fault::Delay(delay)) => {
                leasehold_runtime::sleep(delay).await;
                self.forward().await
            }
            Some(Fault::DelayResponse(delay)) => {
                let response = self.forward().await;
                leasehold_runtime::sleep(delay).await;
                response
            }
            Some(Fault::Hold) => {
                self.released().await;
                self.forward().await
            }
            Some(Fault::HoldResponse) => {
                let response = self.forward().await;
                self.released().await;
                response
            }
            Some(Fault::DropResponse) => {
                self.forward().await?;
                Err(NoResponse::Close)
            }
            Some(Fault::Reset) => Err(NoResponse::Reset),
            Some(Fault::Swallow) => Err(NoResponse::Wait),
            Some(Fault::Refuse(refusal)) => Ok(refusal.response()),
            Some(Fault::ApplyThenRefuse(refusal)) => {
                self.forward().await?;
                Ok(refusal.response())
            }
            Some(Fault::Duplicate { after }) => {
                let response = self.forward().await;
                tokio::spawn(async move {
                    leasehold_runtime::sleep(after).await;
                    self.duplicate().await;
                });
                response
            }
            Some(Fault::HoldDuplicate) => {
                let response = self.forward().await;
                tokio::spawn(async move {
                    self.released().await;
                    self.duplicate().await;
                });
                response
            }
            Some(Fault::HoldReplay) => {
                self.forward().await?;
                self.released().await;
                self.forward().await
            }
            Some(Fault::Header { name, value }) => {
                let mut response = self.forward().await?;
                response.headers_mut().insert(name, HeaderValue::from_static(value));
                Ok(response)
            }
        }
    }

    async fn released(&mut self) {
        _ = self.release.changed().await;
    }

    /// Forwards the request. If the upstream can't be reached or disconnects,
    /// the client's connection is reset.
    async fn forward(&self) -> Result<Response<Full<Bytes>>, NoResponse> {
        self.shared.record.update(self.id, |call| call.forwarded_at = Some(Moment::now()));
        let response = self.shared.upstream.send(self.request.clone()).await;
        let response = response.map_err(|_| NoResponse::Reset)?;
        let (status, stored_token) = (response.status().as_u16(), token(response.headers()));
        self.shared.record.update(self.id, |call| {
            call.upstream_status = Some(status);
            call.stored_token = stored_token;
        });
        Ok(response)
    }

    async fn duplicate(self) {
        self.shared.record.update(self.id, |call| call.duplicate_sent_at = Some(Moment::now()));
        if let Ok(response) = self.shared.upstream.send(self.request).await {
            let status = response.status().as_u16();
            self.shared.record.update(self.id, |call| call.duplicate_status = Some(status));
        }
    }
}
