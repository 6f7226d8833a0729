//! Traces: spans of acquires, and of what happens to their grants.
//!
//! | Span | Parent | From, to |
//! |---|---|---|
//! | `acquire` | the client's span | arrival of the acquire, grant or refusal |
//! | `handoff` | `acquire` of the next holder | grant; linked to the `acquire` of the holder before |
//! | `release`, `loss`, `at risk`, `step down request` | `acquire` of the holder | the event |
//! | `renewal` | none; linked to `acquire` | the call to the store, and its answer |
//! | `lease release` | `acquire` of the last holder | the call to the store |
//!
//! Only sampled acquires have an entry here. The number of entries is limited; the
//! oldest ones are dropped first. Storage calls are child spans of these spans: the
//! driver runs a call within the context that `Traces::on_call` returns.

use std::{
    collections::{BTreeMap, VecDeque},
    num::NonZeroU32,
    str::FromStr as _,
    sync::Arc,
    time::Duration,
};

use opentelemetry::{
    Context, KeyValue,
    trace::{
        Link, Span as _, SpanBuilder, SpanContext, SpanKind, Status, TraceContextExt as _,
        TraceFlags, TraceState, Tracer as _, TracerProvider as _,
    },
};
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};

use super::{
    sampler::Sampler,
    wording::{cause_name, refusal_name, source_name},
};
use leasehold_core::{
    journal::{Entry, Fact, RefusalCause, Source, TraceKey},
    lock::Cause,
};
use leasehold_store::StoreCall;
use leasehold_types::{LockName, Token, TraceParent, trace_parent::valid_trace_state};

/// Maximum number of acquires with a trace that are waiting or held.
const MAX_OPEN: usize = 10_000;

/// Maximum number of ended acquires that are kept for a later release of their lease.
const MAX_ENDED: usize = 1_000;

/// Maximum number of calls to the store with spans, for one acquire. A waiting acquire
/// polls the lease of a peer.
const MAX_CALLS: u32 = 200;

/// Position of a request in a trace, as its client sent it. Default: none.
#[derive(Clone, Debug, Default)]
pub struct RemoteContext {
    parent: Option<TraceParent>,
    state: Box<str>,
}

impl RemoteContext {
    /// Reads the W3C headers `traceparent` and `tracestate`. Ignores invalid ones.
    #[must_use]
    pub fn new(parent: &str, state: &str) -> Self {
        match TraceParent::parse(parent) {
            Some(parent) => Self { parent: Some(parent), state: valid_trace_state(state).into() },
            None => Self::default(),
        }
    }

    /// Returns the position of the client.
    #[must_use]
    pub const fn parent(&self) -> Option<&TraceParent> {
        self.parent.as_ref()
    }

    /// Returns a context whose current span is the client's.
    #[must_use]
    pub fn context(&self) -> Context {
        let Some(parent) = self.parent else { return Context::new() };
        let flags = if parent.is_sampled { TraceFlags::SAMPLED } else { TraceFlags::default() };
        let state = TraceState::from_str(&self.state).unwrap_or_default();
        let (trace_id, span_id) = (parent.trace_id.into(), parent.span_id.into());
        Context::new()
            .with_remote_span_context(SpanContext::new(trace_id, span_id, flags, true, state))
    }
}

/// Starts traces.
#[derive(Clone, Debug)]
pub struct Tracing {
    tracer: SdkTracer,
    sampler: Arc<Sampler>,
}

impl Tracing {
    /// Creates traces of a provider.
    #[must_use]
    pub fn new(provider: &SdkTracerProvider, sampler: Sampler) -> Self {
        Self { tracer: provider.tracer("leasehold"), sampler: Arc::new(sampler) }
    }

    /// Returns whether a request with this context is traced.
    #[must_use]
    pub fn is_sampled(&self, remote: &RemoteContext) -> bool {
        self.sampler.is_sampled(remote.parent())
    }

    /// Starts the span of a call that is sampled.
    #[must_use]
    pub fn start_call(&self, remote: &RemoteContext, method: &str) -> Context {
        let span = self
            .tracer
            .span_builder(method.to_owned())
            .with_kind(SpanKind::Server)
            .with_attributes(rpc_attributes(method));
        let parent = remote.context();
        parent.with_span(span.start_with_context(&self.tracer, &parent))
    }
}

/// Attributes of a call over gRPC.
fn rpc_attributes(method: &str) -> [KeyValue; 2] {
    [KeyValue::new("rpc.system.name", "grpc"), KeyValue::new("rpc.method", method.to_owned())]
}

/// Open traces of a daemon's acquires.
#[derive(Debug)]
pub(super) struct Traces {
    tracer: SdkTracer,
    open: BTreeMap<TraceKey, Acquire>,
    /// Keys of ended acquires, oldest first.
    ended: VecDeque<TraceKey>,
    /// Begins again after 2^32 traces, when the acquires with low keys have ended.
    last_key: u32,
    /// Latest release, which a handoff to the next waiter of the lock follows.
    released: Option<(LockName, SpanContext)>,
}

/// Trace of one acquire.
#[derive(Debug)]
struct Acquire {
    /// Context with the span of the acquire, which ends with the grant.
    context: Context,
    /// Renewal in flight.
    renewal: Option<Context>,
    calls: u32,
}

impl Traces {
    pub(super) fn new(tracing: &Tracing) -> Self {
        Self {
            tracer: tracing.tracer.clone(),
            open: BTreeMap::new(),
            ended: VecDeque::new(),
            last_key: 0,
            released: None,
        }
    }

    /// Starts the trace of an acquire that is sampled.
    pub(super) fn begin(&mut self, remote: &RemoteContext, name: &LockName) -> Option<TraceKey> {
        self.last_key = self.last_key.wrapping_add(1).max(1);
        let key = TraceKey(NonZeroU32::new(self.last_key)?);
        let attributes = lock_attributes(name)
            .into_iter()
            .chain(rpc_attributes("leasehold.v1.SessionService/Attach"));
        let span = self
            .tracer
            .span_builder("acquire")
            .with_kind(SpanKind::Server)
            .with_attributes(attributes);
        let parent = remote.context();
        let context = parent.with_span(span.start_with_context(&self.tracer, &parent));
        if self.open.len() >= MAX_OPEN + MAX_ENDED {
            self.open.pop_first();
        }
        self.open.insert(key, Acquire { context, renewal: None, calls: 0 });
        Some(key)
    }

    /// Returns the ID of a trace.
    pub(super) fn trace_id(&self, key: TraceKey) -> Option<u128> {
        let context = span_context(&self.open.get(&key)?.context);
        Some(u128::from_be_bytes(context.trace_id().to_bytes()))
    }

    /// Returns the context of a call to the store, if it has a trace.
    pub(super) fn on_call(&mut self, key: TraceKey, call: &StoreCall) -> Option<Context> {
        let acquire = self.open.get_mut(&key)?;
        match call {
            StoreCall::Acquire(_) | StoreCall::NextTokens(..) | StoreCall::Publish(..) => {
                acquire.calls += 1;
                (acquire.calls <= MAX_CALLS).then(|| acquire.context.clone())
            }
            StoreCall::Renew(name, ..) => {
                // A long hold has many renewals, each with a trace of its own.
                let span = self
                    .tracer
                    .span_builder("renewal")
                    .with_attributes(lock_attributes(name))
                    .with_links(vec![Link::with_context(span_context(&acquire.context))]);
                let parent = Context::new();
                let context = parent.with_span(span.start_with_context(&self.tracer, &parent));
                acquire.renewal = Some(context.clone());
                Some(context)
            }
            StoreCall::Release(name, _) => {
                let span = self
                    .tracer
                    .span_builder("lease release")
                    .with_attributes(lock_attributes(name));
                let span = span.start_with_context(&self.tracer, &acquire.context);
                Some(acquire.context.with_span(span))
            }
        }
    }

    /// Adds a fact to the trace that it belongs to.
    pub(super) fn on_entry(&mut self, entry: &Entry) {
        let Entry { name, trace, fact, .. } = entry;
        let before = self.released.take_if(|(released, _)| released == name);
        let Some((key, acquire)) = trace.and_then(|key| Some((key, self.open.get_mut(&key)?)))
        else {
            return;
        };
        let parent = acquire.context.clone();
        match fact {
            Fact::Ignored => {
                parent.span().add_event("repeated", Vec::new());
                self.open.remove(&key);
            }
            Fact::Queued => parent.span().add_event("queued", Vec::new()),
            Fact::HeldByPeer { .. } => parent.span().add_event("held by peer", Vec::new()),
            Fact::StoreFailed { why } => {
                parent.span().add_event("store failed", vec![message(why)]);
            }
            Fact::LeaseAcquired { .. } => parent.span().add_event("lease acquired", Vec::new()),
            Fact::Granted { token, source, .. } => {
                let before = before.map(|(_, before)| before);
                self.on_granted(&parent, name, *token, *source, before);
            }
            Fact::Refused { cause, .. } => {
                on_refused(&parent, *cause);
                self.end(key);
            }
            Fact::Canceled { .. } => {
                parent.span().add_event("canceled", Vec::new());
                parent.span().end();
                self.end(key);
            }
            Fact::Released { held_for, .. } => {
                self.on_released(&parent, name, *held_for);
                self.end(key);
            }
            Fact::Lost { held_for, cause, .. } => {
                self.on_lost(&parent, name, *held_for, cause);
                self.end(key);
            }
            Fact::AtRisk { left, .. } => {
                let left = KeyValue::new("leasehold.left", left.as_secs_f64());
                let span = self.tracer.span_builder("at risk").with_attributes([left]);
                self.emit(&parent, span, name);
            }
            Fact::StepDownRequested { breaker, .. } => {
                let span = self.tracer.span_builder("step down request").with_attributes([
                    KeyValue::new("leasehold.operator", breaker.by.to_string()),
                    message(&breaker.reason),
                ]);
                self.emit(&parent, span, name);
            }
            Fact::Renewed { left, .. } => end_renewal(acquire, Some(*left), None),
            Fact::RenewalFailed { left, .. } => {
                end_renewal(acquire, Some(*left), Some("unavailable"));
            }
            Fact::LeaseLost => end_renewal(acquire, None, Some("lease_lost")),
            Fact::OutOfRisk { .. } | Fact::LeaseReleased => {}
        }
    }

    /// Adds the span of a release, which a handoff may follow.
    fn on_released(&mut self, parent: &Context, name: &LockName, held_for: Duration) {
        let span = self.tracer.span_builder("release").with_attributes([seconds(held_for)]);
        self.emit(parent, span, name);
        self.released = Some((name.clone(), span_context(parent)));
    }

    /// Ends the span of an acquire. A handoff is linked to the acquire before.
    fn on_granted(
        &self,
        acquire: &Context,
        name: &LockName,
        token: Token,
        source: Source,
        before: Option<SpanContext>,
    ) {
        if source == Source::Handoff {
            let links = before.map(Link::with_context).into_iter().collect();
            self.emit(acquire, self.tracer.span_builder("handoff").with_links(links), name);
        }
        let token = KeyValue::new("leasehold.token", token.get() as i64);
        let source = KeyValue::new("leasehold.grant.source", source_name(source));
        acquire.span().add_event("granted", vec![token.clone(), source]);
        acquire.span().set_attribute(token);
        acquire.span().end();
    }

    /// Adds the span of a loss, with its reason as an event.
    fn on_lost(&self, parent: &Context, name: &LockName, held_for: Duration, cause: &Cause) {
        let reason = cause_name(cause);
        let mut attributes = vec![KeyValue::new("leasehold.reason", reason)];
        match cause {
            Cause::Broken { by, reason } | Cause::SteppedDown { by, reason } => {
                attributes.push(KeyValue::new("leasehold.operator", by.to_string()));
                attributes.push(message(reason));
            }
            Cause::LeaseLost { why } => attributes.push(message(why)),
            Cause::Expired | Cause::MaxHoldTime | Cause::ShuttingDown => {}
        }
        let span = self
            .tracer
            .span_builder("loss")
            .with_attributes([seconds(held_for), KeyValue::new("error.type", reason)]);
        let mut span = self.start(parent, span, name);
        span.add_event("lost", attributes);
        span.set_status(Status::error(reason));
    }

    /// Adds a span without a duration.
    fn emit(&self, parent: &Context, span: SpanBuilder, name: &LockName) {
        self.start(parent, span, name).end();
    }

    fn start(
        &self,
        parent: &Context,
        span: SpanBuilder,
        name: &LockName,
    ) -> opentelemetry_sdk::trace::Span {
        let mut span = span.start_with_context(&self.tracer, parent);
        span.set_attributes(lock_attributes(name));
        span
    }

    /// Keeps an ended acquire for a while, because its lease is released later.
    fn end(&mut self, key: TraceKey) {
        // A renewal in flight ends with its call.
        if let Some(acquire) = self.open.get_mut(&key) {
            acquire.renewal = None;
        }
        self.ended.push_back(key);
        if self.ended.len() > MAX_ENDED
            && let Some(oldest) = self.ended.pop_front()
        {
            self.open.remove(&oldest);
        }
    }
}

/// Ends the span of an acquire. That another client holds the lock is no error.
fn on_refused(acquire: &Context, cause: RefusalCause) {
    let reason = refusal_name(cause);
    let span = acquire.span();
    span.add_event("refused", vec![KeyValue::new("leasehold.reason", reason)]);
    if !matches!(cause, RefusalCause::Held | RefusalCause::TimedOut) {
        span.set_attribute(KeyValue::new("error.type", reason));
        span.set_status(Status::error(reason));
    }
    span.end();
}

/// Ends the renewal in flight.
fn end_renewal(acquire: &mut Acquire, left: Option<Duration>, error: Option<&'static str>) {
    let Some(renewal) = acquire.renewal.take() else { return };
    let span = renewal.span();
    if let Some(left) = left {
        span.set_attribute(KeyValue::new("leasehold.left", left.as_secs_f64()));
    }
    if let Some(error) = error {
        span.set_attribute(KeyValue::new("error.type", error));
        span.set_status(Status::error(error));
    }
    span.end();
}

fn span_context(context: &Context) -> SpanContext {
    context.span().span_context().clone()
}

fn lock_attributes(name: &LockName) -> [KeyValue; 2] {
    [
        KeyValue::new("leasehold.lock.namespace", name.namespace().to_owned()),
        KeyValue::new("leasehold.lock.name", name.name().to_owned()),
    ]
}

/// Time from a grant to its end, in seconds.
fn seconds(held_for: Duration) -> KeyValue {
    KeyValue::new("leasehold.held_for", held_for.as_secs_f64())
}

fn message(text: &str) -> KeyValue {
    KeyValue::new("leasehold.message", text.to_owned())
}
