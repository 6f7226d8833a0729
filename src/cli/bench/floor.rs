//! The floor: the same server, stream and messages as the daemon's, with no
//! locks behind them. What the daemon takes beyond this is its own.

use std::{
    pin::Pin,
    process::ExitCode,
    sync::Arc,
    task::{Context, Poll, ready},
};

use futures_core::Stream;
use tokio::sync::Semaphore;
use tonic::{Request, Response, Status, Streaming};

use crate::{
    cli::{
        exit::{FAILED, Failure},
        output::line,
    },
    config::Listen,
    listen::{Incoming, Listener},
    rpc,
};
use leasehold_protocol::v1::{
    self as pb, attach_request::Message as Ask, attach_response::Message as Tell,
};

#[derive(Debug, clap::Args)]
pub(super) struct Floor {
    /// Where to listen
    #[arg(long)]
    listen: String,
}

impl Floor {
    pub(super) async fn run(self) -> Result<ExitCode, Failure> {
        let fail = |error: String| Failure::new(FAILED, "bench", error);
        let listen = Listen::parse(&self.listen).map_err(fail)?;
        let listener = Listener::bind(&listen, 0o600).await?;
        line(format_args!("listening on {}", listener.address()))?;
        let service =
            leasehold_protocol::server::session_service_server::SessionServiceServer::new(Service);
        rpc::server()
            .add_service(service)
            .serve_with_incoming(Incoming::new(listener, Arc::new(Semaphore::new(10_000))))
            .await
            .map_err(|error| fail(error.to_string()))?;
        Ok(ExitCode::SUCCESS)
    }
}

struct Service;

#[tonic::async_trait]
impl leasehold_protocol::server::session_service_server::SessionService for Service {
    type AttachStream = Echo;

    async fn attach(
        &self,
        request: Request<Streaming<pb::AttachRequest>>,
    ) -> Result<Response<Echo>, Status> {
        Ok(Response::new(Echo(request.into_inner())))
    }
}

struct Echo(Streaming<pb::AttachRequest>);

impl Stream for Echo {
    type Item = Result<pb::AttachResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some(asked) = ready!(Pin::new(&mut self.0).poll_next(cx)) else {
            return Poll::Ready(None);
        };
        let message = match asked?.message {
            Some(Ask::Open(_)) => Some(Tell::Opened(pb::Opened::default())),
            Some(Ask::Acquire(acquire)) => Some(Tell::Granted(pb::Granted {
                request: acquire.request,
                token: 1 << 50,
                handle: vec![7; 16].into(),
                keep_alive_number: 0,
                valid_for_ms: 10_000,
            })),
            Some(Ask::Release(release)) => {
                Some(Tell::Released(pb::Released { request: release.request }))
            }
            Some(Ask::KeepAlive(keep_alive)) => Some(Tell::KeptAlive(pb::KeptAlive {
                keep_alive_number: keep_alive.keep_alive_number,
                ..Default::default()
            })),
            _ => None,
        };
        Poll::Ready(Some(Ok(pb::AttachResponse { message })))
    }
}
