//! The gate, in front of a service.

use std::{
    mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use http::{Request, Response};
use tower_layer::Layer;
use tower_service::Service;

use super::{FencedBody, TokenGate};

/// Puts a [`TokenGate`] in front of services. Made by [`TokenGate::layer`].
#[derive(Clone, Debug)]
pub struct TokenLayer(pub(super) Arc<TokenGate>);

impl<S> Layer<S> for TokenLayer {
    type Service = TokenService<S>;

    fn layer(&self, inner: S) -> TokenService<S> {
        TokenService { gate: Arc::clone(&self.0), inner }
    }
}

/// A service with a [`TokenGate`] in front of it.
#[derive(Clone, Debug)]
pub struct TokenService<S> {
    gate: Arc<TokenGate>,
    inner: S,
}

impl<S, B, R> Service<Request<B>> for TokenService<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    B: Send + 'static,
{
    type Response = Response<FencedBody<R>>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The one that is ready goes, and its clone waits for the next turn.
        let next = self.inner.clone();
        let mut inner = mem::replace(&mut self.inner, next);
        let gate = Arc::clone(&self.gate);
        Box::pin(async move {
            let (mut head, body) = request.into_parts();
            match gate.admit(&head).await {
                Ok(fence) => {
                    if let Some(fence) = fence {
                        head.extensions.insert(fence);
                    }
                    let response = inner.call(Request::from_parts(head, body)).await?;
                    Ok(response.map(FencedBody::service))
                }
                Err(refusal) => Ok(refusal.response(&head.headers)),
            }
        })
    }
}
