//! Connections to the server behind the proxy.

use std::{error::Error, net::Ipv4Addr, sync::Mutex, time::Duration};

use http_body_util::{BodyExt, Full};
use hyper::{
    Request, Response,
    body::Bytes,
    client::conn::http1::{self, SendRequest},
};
use hyper_util::rt::TokioIo;
use leasehold_time::Moment;
use tokio::net::TcpStream;

/// Maximum idle time of a reused connection. Azurite closes connections after
/// 5 s; a call sent at that moment would be lost without a rule.
const MAX_IDLE: Duration = Duration::from_secs(2);

type Sender = SendRequest<Full<Bytes>>;

pub(super) struct Upstream {
    port: u16,
    /// Idle connections and the start of their idle time. The last one used is
    /// reused first.
    idle: Mutex<Vec<(Sender, Moment)>>,
}

impl Upstream {
    pub(super) fn new(port: u16) -> Self {
        Self { port, idle: Mutex::default() }
    }

    pub(super) async fn send(
        &self,
        mut request: Request<Full<Bytes>>,
    ) -> Result<Response<Full<Bytes>>, Box<dyn Error + Send + Sync>> {
        loop {
            let idle = self.idle();
            let reused = idle.is_some();
            let mut sender = match idle {
                Some(sender) => sender,
                None => self.connect().await?,
            };
            match sender.try_send_request(request).await {
                Ok(response) => {
                    let (head, body) = response.into_parts();
                    let body = body.collect().await?.to_bytes();
                    if sender.ready().await.is_ok() {
                        self.idle.lock().unwrap().push((sender, Moment::now()));
                    }
                    return Ok(Response::from_parts(head, Full::new(body)));
                }
                Err(mut failure) => match failure.take_message() {
                    // The idle connection was closed; nothing was sent.
                    Some(unsent) if reused => request = unsent,
                    _ => return Err(failure.into_error().into()),
                },
            }
        }
    }

    fn idle(&self) -> Option<Sender> {
        let mut idle = self.idle.lock().unwrap();
        let now = Moment::now();
        idle.retain(|(sender, since)| !sender.is_closed() && now.since(*since) < MAX_IDLE);
        idle.pop().map(|(sender, _)| sender)
    }

    async fn connect(&self) -> Result<Sender, Box<dyn Error + Send + Sync>> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = http1::Builder::new()
            .preserve_header_case(true)
            .handshake(TokioIo::new(stream))
            .await?;
        tokio::spawn(connection);
        Ok(sender)
    }
}
