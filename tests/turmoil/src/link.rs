//! Link from a client to its daemon: gRPC over simulated TCP.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use hyper_util::rt::TokioIo;
use leasehold_runtime::simulation::Dial;
use tonic::{
    codegen::Service,
    transport::{Channel, Endpoint, Uri},
};
use turmoil::net::TcpStream;

use crate::{daemon, record::Record};

/// Link of a client to the daemon of a place.
#[derive(Clone)]
pub struct ClientLink {
    /// Number of the client.
    pub client: u32,
    /// Place of the daemon.
    pub place: usize,
    /// Recorder of connections to another process.
    pub record: Arc<Record>,
}

impl Dial for ClientLink {
    fn channel(&self, endpoint: &Endpoint) -> Channel {
        endpoint.connect_with_connector_lazy(self.clone())
    }
}

impl Service<Uri> for ClientLink {
    type Response = TokioIo<TcpStream>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<TokioIo<TcpStream>>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let Self { client, place, record } = self.clone();
        Box::pin(async move {
            let stream = TcpStream::connect((daemon::host(place), daemon::PORT)).await?;
            record.connected(client, place);
            Ok(TokioIo::new(stream))
        })
    }
}
