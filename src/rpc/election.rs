//! Unary calls on elections, and observing them.

use std::{
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

/// How long a leader is given to hand over: at least, if nothing is said, at
/// most.
const STEP_DOWN: (u32, u32, u32) = (1_000, 30_000, 3_600_000);

/// Serves those who look at elections.
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
        // The watch begins before the state is read, so that no change falls
        // in between.
        let watch = self.driver.watch(Target::Name(name.clone())).map_err(status)?;
        self.driver.inspect(&name).await.map_err(store_status)?;
        // Not what was read, but the latest that is known by now: the stream continues
        // from there.
        let first = Some(self.driver.view(&name));
        Ok(Response::new(Observing { first, told: None, watch }))
    }

    async fn step_down(
        &self,
        request: Request<pb::StepDownRequest>,
    ) -> Result<Response<pb::StepDownResponse>, Status> {
        let pb::StepDownRequest { election, reason, by, timeout_ms } = request.into_inner();
        let name = decode::election(election).map_err(status)?;
        let Breaker { by, reason } = decode::breaker(by, reason).map_err(status)?;
        let (least, usual, most) = STEP_DOWN;
        let within = if timeout_ms == 0 { usual } else { timeout_ms };
        if !(least..=most).contains(&within) {
            let problem = format_args!("{within} is not within {least} to {most}");
            return Err(status(RequestError::invalid("timeout_ms", problem)));
        }
        let within = Duration::from_millis(within.into());
        let asked = self.driver.step_down(name, Breaker { by, reason }, within).await;
        let (before, within) = asked.map_err(store_status)?;
        Ok(Response::new(pb::StepDownResponse {
            asked: within.is_some(),
            state: Some(encode::election_state(&before)),
            ends_within_ms: within.map(encode::millis).unwrap_or_default(),
        }))
    }
}

/// The state at first, then the changes of who leads and with which value.
pub(super) struct Observing {
    first: Option<LockView>,
    /// What was told last.
    told: Option<ObservedState>,
    watch: Watch,
}

/// What of an election makes a change.
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
            if self.told.as_ref() == Some(&now) {
                continue;
            }
            self.told = Some(now);
            let state = Some(encode::election_state(&view));
            return Poll::Ready(Some(Ok(pb::ObserveResponse { state })));
        }
    }
}
