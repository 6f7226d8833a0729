//! A proxy between a daemon and its storage that records every call and
//! injects faults of networks and storage services.
//!
//! ```text
//! client ⇄ link (cut, stall) ⇄ rules (faults) ⇄ upstream
//! ```
//!
//! Calls behind the link continue when the client cancels or the link is cut: a
//! delayed or duplicated call still reaches the storage. Requests are forwarded
//! unchanged, including `Host`, so that their signatures stay valid.
//!
//! ```ignore
//! let proxy = Proxy::start(azurite.port());
//! proxy.when(Kind::Renew.of("orders")).nth(2).times(1).then(Fault::DropResponse);
//! proxy.wait_for(|call| call.fault.is_some() && call.is_done()).await;
//! assert_eq!(proxy.count(Kind::Renew), 2);
//! ```

mod call;
mod listen;
mod record;
mod rule;
mod serve;
mod upstream;

use std::{
    sync::{Arc, mpsc::sync_channel},
    thread::{self, JoinHandle},
};

use tokio::sync::{mpsc, watch};

pub use call::{Kind, RecordedCall};
pub use rule::{Fault, Match, Refusal, RuleId};

use listen::{Command, ReservedPort};
use record::Record;
use upstream::Upstream;

/// A running proxy, on a port of 127.0.0.1 and its own thread. It stops when
/// this is dropped.
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
    /// Dropping it ends the thread.
    commands: Option<mpsc::UnboundedSender<Command>>,
    thread: Option<JoinHandle<()>>,
}

/// State shared by all connections.
struct Shared {
    record: Arc<Record>,
    link: watch::Sender<Link>,
    /// Releases the held calls.
    release: watch::Sender<()>,
    upstream: Upstream,
}

/// Directions in which the link between the clients and the rules is open.
#[derive(Clone, Copy)]
struct Link {
    requests: bool,
    responses: bool,
}

impl Link {
    const OPEN: Self = Self { requests: true, responses: true };
}

impl Shared {
    async fn requests_pass(&self) {
        _ = self.link.subscribe().wait_for(|link| link.requests).await;
    }

    async fn responses_pass(&self) {
        _ = self.link.subscribe().wait_for(|link| link.responses).await;
    }
}

impl Proxy {
    /// Starts a proxy in front of a server on another port of 127.0.0.1.
    pub fn start(upstream_port: u16) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let shared = Arc::new(Shared {
            record: Arc::default(),
            link: watch::Sender::new(Link::OPEN),
            release: watch::Sender::default(),
            upstream: Upstream::new(upstream_port),
        });
        let (commands, received) = mpsc::unbounded_channel();
        let (reserved, listener) = {
            let _entered = runtime.enter();
            let reserved = ReservedPort::new().unwrap();
            let listener = reserved.listen().unwrap();
            (reserved, listener)
        };
        let port = reserved.number();
        let listening = listen::listen(reserved, listener, Arc::clone(&shared), received);
        let thread = thread::Builder::new().name("proxy".to_owned());
        let thread = thread.spawn(move || runtime.block_on(listening)).unwrap();
        Self { port, shared, commands: Some(commands), thread: Some(thread) }
    }

    /// Port of the proxy.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Starts the definition of a rule: `proxy.when(kind).times(1).then(fault)`.
    pub fn when(&self, matching: impl Into<Match>) -> RuleBuilder<'_> {
        RuleBuilder { proxy: self, matching: matching.into(), nth: 1, times: usize::MAX }
    }

    /// Removes a rule. It stays in effect for calls to which it was applied.
    pub fn remove(&self, rule: RuleId) {
        self.shared.record.remove(rule);
    }

    /// Number of calls to which a rule was applied, even after its removal.
    pub fn used(&self, rule: RuleId) -> usize {
        self.shared.record.used(rule)
    }

    /// Resets all connections and refuses new ones. In effect when this returns.
    pub fn cut(&self) {
        self.command(Command::Close);
    }

    /// Stalls the link: connections are accepted and stay open, but nothing
    /// passes. When the link is healed, pending calls pass unless the client has
    /// canceled them.
    pub fn stall(&self) {
        self.shared.link.send_replace(Link { requests: false, responses: false });
    }

    /// Stalls requests only: new calls don't reach the upstream, but responses
    /// to earlier ones pass.
    pub fn stall_requests(&self) {
        self.shared.link.send_replace(Link { requests: false, responses: true });
    }

    /// Stalls responses only: every call is applied, none receives a response.
    pub fn stall_responses(&self) {
        self.shared.link.send_replace(Link { requests: true, responses: false });
    }

    /// Releases all calls that a rule holds.
    pub fn release_held(&self) {
        self.shared.release.send_replace(());
    }

    /// Ends any cut or stall. New connections are accepted when this returns.
    pub fn open(&self) {
        self.shared.link.send_replace(Link::OPEN);
        self.command(Command::Open);
    }

    /// Like [`Self::open`]; also removes all rules and releases held calls.
    pub fn heal(&self) {
        self.shared.record.remove_all();
        self.release_held();
        self.open();
    }

    /// All calls since the start or the last [`Proxy::clear`], in order of
    /// arrival.
    pub fn calls(&self) -> Vec<RecordedCall> {
        self.shared.record.calls(|_| true)
    }

    /// Number of matching calls since then.
    pub fn count(&self, matching: impl Into<Match>) -> usize {
        let matching = matching.into();
        self.shared.record.calls(|call| matching.matches(call)).len()
    }

    /// Clears the record of calls, including calls in flight.
    pub fn clear(&self) {
        self.shared.record.clear();
    }

    /// Waits for a call, or returns the first one if it was already recorded.
    /// Add [`RecordedCall::is_done`] to the condition to wait for its end.
    pub async fn wait_for(&self, wanted: impl Fn(&RecordedCall) -> bool) -> RecordedCall {
        self.wait_for_many(1, wanted).await.remove(0)
    }

    /// Waits for a number of such calls, and returns all of them.
    pub async fn wait_for_many(
        &self,
        count: usize,
        wanted: impl Fn(&RecordedCall) -> bool,
    ) -> Vec<RecordedCall> {
        self.shared.record.wait_for_many(count, wanted).await
    }

    /// Sends a command to the proxy's thread and blocks until it is done. The
    /// proxy does not depend on the caller's runtime, so blocking it is safe.
    fn command(&self, command: fn(listen::Done) -> Command) {
        let (done, wait) = sync_channel(1);
        self.commands.as_ref().unwrap().send(command(done)).unwrap();
        wait.recv().unwrap();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.commands = None;
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}

/// Definition of a rule. If several rules match a call, the oldest is applied,
/// and only that rule counts the call.
#[must_use = "`then` adds the rule"]
pub struct RuleBuilder<'a> {
    proxy: &'a Proxy,
    matching: Match,
    nth: usize,
    times: usize,
}

impl RuleBuilder<'_> {
    /// Applies the rule from the nth matching call on, counted from now,
    /// starting at 1.
    pub fn nth(mut self, nth: usize) -> Self {
        self.nth = nth;
        self
    }

    /// Ends the rule after this number of calls. Default: until it is removed.
    pub fn times(mut self, times: usize) -> Self {
        self.times = times;
        self
    }

    /// Adds the rule with a fault.
    pub fn then(self, fault: Fault) -> RuleId {
        let Self { proxy, matching, nth, times } = self;
        proxy.shared.record.add(matching, nth, times, fault)
    }
}
