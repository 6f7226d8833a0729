//! Implements `DiagnosticsService`: one lock in detail, and a survey of all locks.

use tonic::{Request, Response, Status};

use super::{
    decode,
    encode::{self, millis},
    pb,
    status::status,
};
use crate::{
    driver::{Diagnosed, Driver, Overview},
    telemetry::{history::Event, wording},
};
use leasehold_core::{
    lock::{LeaseView, RenewalSample},
    session::{GrantView, LockSummary, WaiterView},
};
use leasehold_time::Moment;
use leasehold_types::Token;

/// Length of the lists of an overview if the request has none.
const DEFAULT_LIMIT: usize = 20;

pub(super) struct Service {
    driver: Driver,
}

impl Service {
    pub(super) const fn new(driver: Driver) -> Self {
        Self { driver }
    }
}

#[tonic::async_trait]
impl leasehold_protocol::server::diagnostics_service_server::DiagnosticsService for Service {
    async fn explain(
        &self,
        request: Request<pb::ExplainRequest>,
    ) -> Result<Response<pb::ExplainResponse>, Status> {
        let name = decode::lock(request.into_inner().lock).map_err(status)?;
        Ok(Response::new(explanation(&self.driver.explain(&name).await)))
    }

    async fn overview(
        &self,
        request: Request<pb::OverviewRequest>,
    ) -> Result<Response<pb::OverviewResponse>, Status> {
        let limit = match request.into_inner().limit {
            0 => DEFAULT_LIMIT,
            limit => limit as usize,
        };
        Ok(Response::new(overview(&self.driver.overview(limit).await)))
    }
}

fn explanation(diagnosed: &Diagnosed) -> pb::ExplainResponse {
    let Diagnosed { explanation, events, at, store_error } = diagnosed;
    pb::ExplainResponse {
        lock: Some(encode::lock_info(&explanation.view)),
        diagnosis: explanation.diagnosis().name().to_owned(),
        summary: explanation.summary(),
        advice: explanation.advice(),
        grant: explanation.grant.map(grant),
        lease: Some(lease(&explanation.lease, *at)),
        waiters: explanation.waiters.iter().map(waiter).collect(),
        events: events.iter().map(|lock_event| event(lock_event, *at)).collect(),
        store_error: store_error.as_ref().map(ToString::to_string).unwrap_or_default(),
    }
}

fn grant(view: GrantView) -> pb::GrantDetails {
    pb::GrantDetails {
        time_left_ms: millis(view.time_left),
        last_keep_alive_ms: millis(view.last_keep_alive),
        ttl_ms: millis(view.ttl),
        ends_in_ms: view.ends_in.map(millis),
        connected: view.is_connected,
        leader: view.is_leader,
    }
}

fn lease(view: &LeaseView, now: Moment) -> pb::LeaseDetails {
    let state = |state: &str| pb::LeaseDetails { state: state.to_owned(), ..Default::default() };
    match view {
        LeaseView::None => state("none"),
        LeaseView::Acquiring { .. } => state("acquiring"),
        LeaseView::Blocked { next_attempt_in, attempts, .. } => pb::LeaseDetails {
            next_attempt_in_ms: Some(millis(*next_attempt_in)),
            attempts: *attempts,
            ..state("blocked")
        },
        LeaseView::Held(held) => pb::LeaseDetails {
            duration_ms: held.duration.map(millis),
            valid_for_ms: held.valid_for.map(millis),
            renew_in_ms: held.renew_in.map(millis),
            failed_renewals: held.failed_renewals,
            at_risk: held.is_at_risk,
            lingers_for_ms: held.lingers_for.map(millis),
            renewals: held.renewals.iter().map(|sample| renewal(*sample, now)).collect(),
            ..state("held")
        },
        LeaseView::Releasing { failures } => {
            pb::LeaseDetails { attempts: *failures, ..state("releasing") }
        }
    }
}

fn renewal(sample: RenewalSample, now: Moment) -> pb::Renewal {
    pb::Renewal {
        ago_ms: millis(now.since(sample.at)),
        took_ms: millis(sample.took),
        left_ms: millis(sample.left),
        renewed: sample.is_renewed,
    }
}

fn waiter(view: &WaiterView) -> pb::Waiter {
    pb::Waiter {
        holder: Some(encode::holder(&view.holder)),
        session_id: view.session.map(|session| session.to_string()).unwrap_or_default(),
        waiting_for_ms: millis(view.waiting_for),
        times_out_in_ms: view.times_out_in.map(millis),
        connected: view.is_connected,
        candidate: view.is_candidate,
    }
}

fn event(event: &Event, now: Moment) -> pb::LockEvent {
    let holder = event.holder.as_deref();
    pb::LockEvent {
        number: event.number,
        ago_ms: millis(now.since(event.at)),
        kind: wording::kind(&event.fact).to_owned(),
        holder: holder.map(encode::holder),
        token: wording::token(&event.fact).map(Token::get),
        waited_ms: wording::waited(&event.fact).map(millis),
        held_for_ms: wording::held_for(&event.fact).map(millis),
        cause: wording::cause(&event.fact).to_owned(),
        detail: wording::sentence(&event.fact, holder),
    }
}

fn overview(overview: &Overview) -> pb::OverviewResponse {
    let Overview { survey, busiest, counters, calls, store, unavailability, .. } = overview;
    let list = |locks: &[LockSummary]| locks.iter().map(summary).collect();
    pb::OverviewResponse {
        sessions: survey.sessions as u64,
        locks: survey.locks as u64,
        held: survey.held as u64,
        waiting: survey.waiting as u64,
        leaderless: survey.leaderless as u64,
        at_risk: survey.at_risk as u64,
        oldest_wait_ms: survey.oldest_wait.map(millis),
        longest_held: list(&survey.longest_held),
        longest_queues: list(&survey.longest_queues),
        most_at_risk: list(&survey.most_at_risk),
        busiest: busiest
            .iter()
            .map(|(name, grants)| pb::BusyLock {
                lock: Some(encode::lock_ref(name)),
                grants: *grants,
            })
            .collect(),
        counters: Some(pb::Counters {
            grants: counters.grants,
            refusals: counters.refusals,
            releases: counters.releases,
            losses: counters.losses,
            handoffs: counters.handoffs,
            at_risk: counters.at_risk,
        }),
        store: Some(pb::StoreInfo {
            description: store.clone(),
            location: String::new(),
            calls: calls.iter().map(encode::calls).collect(),
        }),
        store_problem: unavailability.as_ref().map(ToString::to_string).unwrap_or_default(),
    }
}

fn summary(lock: &LockSummary) -> pb::LockSummary {
    pb::LockSummary {
        lock: Some(encode::lock_ref(&lock.name)),
        holder: lock.holder.as_deref().map(encode::holder),
        token: lock.token.map(Token::get),
        held_for_ms: lock.held_for.map(millis),
        time_left_ms: lock.time_left.map(millis),
        waiting: lock.waiting as u32,
        longest_wait_ms: lock.longest_wait.map(millis),
        at_risk: lock.is_at_risk,
        election: lock.is_election,
        held_by_peer: lock.is_held_by_peer,
    }
}
