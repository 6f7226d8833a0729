//! The floor: a server with the same stream and messages as the daemon, but without
//! locks. The difference is the cost of the locks.

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
    self as pb, attach_request::Message as ToDaemon, attach_response::Message as ToClient,
};

#[derive(Debug, clap::Args)]
pub(super) struct Floor {
    /// Address to listen on
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
        let Some(request) = ready!(Pin::new(&mut self.0).poll_next(cx)) else {
            return Poll::Ready(None);
        };
        let message = match request?.message {
            Some(ToDaemon::Open(_)) => Some(ToClient::Opened(pb::Opened::default())),
            Some(ToDaemon::Acquire(acquire)) => Some(ToClient::Granted(pb::Granted {
                request: acquire.request,
                token: 1 << 50,
                handle: vec![7; 16].into(),
                keep_alive_number: 0,
                valid_for_ms: 10_000,
            })),
            Some(ToDaemon::Release(release)) => {
                Some(ToClient::Released(pb::Released { request: release.request }))
            }
            Some(ToDaemon::KeepAlive(keep_alive)) => Some(ToClient::KeptAlive(pb::KeptAlive {
                keep_alive_number: keep_alive.keep_alive_number,
                ..Default::default()
            })),
            _ => None,
        };
        Poll::Ready(Some(Ok(pb::AttachResponse { message })))
    }
}
