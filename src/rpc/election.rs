//! Unary calls on elections, and observing them.

use std::{
    ops::RangeInclusive,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use futures_core::Stream;
use tonic::{Request, Response, Status};

use super::{
    decode, encode, pb,
    status::{status, store_status},
};
use crate::driver::{Driver, Watch};
use leasehold_core::{error::RequestError, session::LockView, watch::Target};
use leasehold_store::{Breaker, Value};
use leasehold_types::Token;

/// Minimum and maximum time that a leader has to step down.
const STEP_DOWN_TIMEOUTS: RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(3600);

/// Time that a leader has to step down if the request has none.
const DEFAULT_STEP_DOWN_TIMEOUT: Duration = Duration::from_secs(30);

/// Implements `ElectionService`: leader, observe, step down.
pub(super) struct Service {
    driver: Driver,
}

impl Service {
    pub(super) const fn new(driver: Driver) -> Self {
        Self { driver }
    }
}

#[tonic::async_trait]
impl leasehold_protocol::server::election_service_server::ElectionService for Service {
    type ObserveStream = Observing;

    async fn leader(
        &self,
        request: Request<pb::LeaderRequest>,
    ) -> Result<Response<pb::LeaderResponse>, Status> {
        let name = decode::election(request.into_inner().election).map_err(status)?;
        let view = self.driver.inspect(&name).await.map_err(store_status)?;
        let state = Some(encode::election_state(&view));
        Ok(Response::new(pb::LeaderResponse { state }))
    }

    async fn observe(
        &self,
        request: Request<pb::ObserveRequest>,
    ) -> Result<Response<Observing>, Status> {
        let name = decode::election(request.into_inner().election).map_err(status)?;
        // The watch starts before the state is read, so that no change is missed.
        let watch = self.driver.watch(Target::Name(name.clone())).map_err(status)?;
        self.driver.inspect(&name).await.map_err(store_status)?;
        // Not the result of that read, but the latest known state, from which the stream
        // continues.
        let first = Some(self.driver.view(&name));
        Ok(Response::new(Observing { first, last_sent: None, watch }))
    }

    async fn step_down(
        &self,
        request: Request<pb::StepDownRequest>,
    ) -> Result<Response<pb::StepDownResponse>, Status> {
        let pb::StepDownRequest { election, reason, by, timeout_ms } = request.into_inner();
        let name = decode::election(election).map_err(status)?;
        let Breaker { by, reason } = decode::breaker(by, reason).map_err(status)?;
        let timeout = match timeout_ms {
            0 => DEFAULT_STEP_DOWN_TIMEOUT,
            millis => Duration::from_millis(millis.into()),
        };
        if !STEP_DOWN_TIMEOUTS.contains(&timeout) {
            let [timeout, min, max] =
                [timeout, *STEP_DOWN_TIMEOUTS.start(), *STEP_DOWN_TIMEOUTS.end()]
                    .map(humantime::format_duration);
            let problem = format_args!("{timeout} is out of range: use {min} to {max}");
            return Err(status(RequestError::invalid("timeout_ms", problem)));
        }
        let answer = self.driver.step_down(name, Breaker { by, reason }, timeout).await;
        let (before, ends_within) = answer.map_err(store_status)?;
        Ok(Response::new(pb::StepDownResponse {
            asked: ends_within.is_some(),
            state: Some(encode::election_state(&before)),
            ends_within_ms: ends_within.map(encode::millis).unwrap_or_default(),
        }))
    }
}

/// Stream of the current state and the later changes of leader or value.
pub(super) struct Observing {
    first: Option<LockView>,
    /// State that was sent last.
    last_sent: Option<ObservedState>,
    watch: Watch,
}

/// Part of an election's state whose changes are sent.
#[derive(PartialEq)]
struct ObservedState {
    held: bool,
    token: Option<Token>,
    value: Option<Value>,
    ending: bool,
}

impl ObservedState {
    fn of(view: &LockView) -> Self {
        let held = view.leader();
        Self {
            held: held.is_some(),
            token: held.and_then(|held| held.token),
            value: held.and_then(|held| held.value.clone()),
            ending: held.is_some_and(|held| held.free_within.is_some()),
        }
    }
}

impl Stream for Observing {
    type Item = Result<pb::ObserveResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            let view = match self.first.take() {
                Some(first) => first,
                None => match ready!(self.watch.poll_changed(cx)) {
                    Some(Ok(view)) => view,
                    Some(Err(problem)) => return Poll::Ready(Some(Err(status(problem)))),
                    None => return Poll::Ready(None),
                },
            };
            let now = ObservedState::of(&view);
            if self.last_sent.as_ref() == Some(&now) {
                continue;
            }
            self.last_sent = Some(now);
            let state = Some(encode::election_state(&view));
            return Poll::Ready(Some(Ok(pb::ObserveResponse { state })));
        }
    }
}
