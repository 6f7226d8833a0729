//! Response body: the service's own, or that of a refusal.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

/// Body of a response: the service's own, or that of a refusal.
#[derive(Debug)]
pub struct FencedBody<R>(Kind<R>);

#[derive(Debug)]
enum Kind<R> {
    Service(R),
    Refusal(Option<Bytes>),
}

impl<R> FencedBody<R> {
    pub(super) const fn service(body: R) -> Self {
        Self(Kind::Service(body))
    }

    pub(super) const fn empty() -> Self {
        Self(Kind::Refusal(None))
    }

    pub(super) fn text(text: String) -> Self {
        Self(Kind::Refusal(Some(text.into())))
    }
}

impl<R: Body<Data = Bytes> + Unpin> Body for FencedBody<R> {
    type Data = Bytes;
    type Error = R::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, R::Error>>> {
        match &mut self.get_mut().0 {
            Kind::Service(body) => Pin::new(body).poll_frame(context),
            Kind::Refusal(text) => Poll::Ready(text.take().map(|text| Ok(Frame::data(text)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Service(body) => body.is_end_stream(),
            Kind::Refusal(text) => text.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Service(body) => body.size_hint(),
            Kind::Refusal(text) => {
                SizeHint::with_exact(text.as_ref().map_or(0, |text| text.len() as u64))
            }
        }
    }
}
