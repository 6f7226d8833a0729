//! `tower` layer with the gate.

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

/// Layer that puts a [`TokenGate`] in front of a service. Returned by
/// [`TokenGate::layer`].
#[derive(Clone, Debug)]
pub struct TokenLayer(pub(super) Arc<TokenGate>);

impl<S> Layer<S> for TokenLayer {
    type Service = TokenService<S>;

    fn layer(&self, inner: S) -> TokenService<S> {
        TokenService { gate: Arc::clone(&self.0), inner }
    }
}

/// Service with a [`TokenGate`] in front of it.
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
        // `self.inner` is ready and takes this request. Its clone, which may not be
        // ready, takes the next one.
        let next = self.inner.clone();
        let mut inner = mem::replace(&mut self.inner, next);
        let gate = Arc::clone(&self.gate);
        Box::pin(async move {
            let (mut head, body) = request.into_parts();
            match gate.admit(&head).await {
                Ok(lock_token) => {
                    if let Some(lock_token) = lock_token {
                        head.extensions.insert(lock_token);
                    }
                    let response = inner.call(Request::from_parts(head, body)).await?;
                    Ok(response.map(FencedBody::service))
                }
                Err(refusal) => Ok(refusal.response(&head.headers)),
            }
        })
    }
}
